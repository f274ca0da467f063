//! Counts of definitions whose part of the OpenAPI documents was rebuilt, for metrics.
//!
//! Labels and reasons are kube-apiserver's. A part is rebuilt when a client first reads the document after the change.

use std::sync::Arc;

use keelson_meta::metering::{Count, Series};

/// The change of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Regeneration {
    /// It is newly served.
    Add,
    /// It is served with changes.
    Update,
    /// It is no longer served.
    Remove,
}

impl Regeneration {
    /// The value of a label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Update => "update",
            Self::Remove => "remove",
        }
    }
}

/// A definition, one of its versions, and its change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegeneratedVersion {
    /// The name of the definition.
    pub definition: String,
    /// Its group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The change.
    pub reason: Regeneration,
}

/// The numbers of regenerated OpenAPI documents of custom resources.
#[derive(Debug)]
pub struct Regenerations {
    definitions: Series<(String, Regeneration), Count>,
    versions: Series<RegeneratedVersion, Count>,
}

impl Default for Regenerations {
    fn default() -> Self {
        Self { definitions: Series::new(Count::new), versions: Series::new(Count::new) }
    }
}

impl Regenerations {
    pub(crate) fn note<'v>(
        &self,
        (definition, group): (&str, &str),
        versions: impl Iterator<Item = &'v str>,
        reason: Regeneration,
    ) {
        let key = (definition.to_owned(), reason);
        if let Some(count) = self.definitions.get_or_create(&key, || key.clone()) {
            count.increment();
        }
        for version in versions {
            let (definition, group, version) = (definition.to_owned(), group.to_owned(), version.to_owned());
            let key = RegeneratedVersion { definition, group, version, reason };
            if let Some(count) = self.versions.get_or_create(&key, || key.clone()) {
                count.increment();
            }
        }
    }

    /// The changes of definitions, each of which changes the version 2 document.
    pub fn definitions(&self) -> Vec<((String, Regeneration), Arc<Count>)> {
        self.definitions.all()
    }

    /// The changes of versions. Each one changes a version 3 document.
    pub fn versions(&self) -> Vec<(RegeneratedVersion, Arc<Count>)> {
        self.versions.all()
    }
}
