//! Versions that are no longer served, in which kube-apiserver may have left objects in a store.
//!
//! The way leads in one direction: an object becomes one of a version that is served as soon as it is read, and no request
//! names a retired version.

use keelson_meta::{GroupVersion, GroupVersionKind, Object};

use crate::conversion::{ConversionError, ConvertFn};
use crate::groups::apiextensions;

/// Retired versions of a kind that lead to the same served version by the same step.
#[derive(Debug)]
pub struct Retired {
    kind: &'static str,
    group: &'static str,
    versions: &'static [&'static str],
    /// Group and version that are served.
    to: (&'static str, &'static str),
    step: Option<ConvertFn>,
}

impl Retired {
    /// The retired version of a kind; `None` for a version that is served or unknown.
    pub fn of(api_version: &str, kind: &str) -> Option<&'static Self> {
        let (group, version) = GroupVersion::split(api_version)?;
        ROWS.iter().find(|row| row.kind == kind && row.group == group && row.versions.contains(&version))
    }

    /// Returns true if a kind has retired versions that lead to one of this group.
    pub fn has_any(group: &str, kind: &str) -> bool {
        ROWS.iter().any(|row| row.kind == kind && row.to.0 == group)
    }

    /// The kind in the version that objects are converted to.
    pub fn target(&self) -> GroupVersionKind {
        GroupVersionKind { group: self.to.0.into(), version: self.to.1.into(), kind: self.kind.into() }
    }

    /// Converts an object in place. Fields that the served version does not have stay, for its schema to drop.
    ///
    /// # Errors
    /// When the object has a shape that its schema does not allow; what it is then is unspecified.
    pub fn convert(&self, object: &mut Object) -> Result<(), ConversionError> {
        if let Some(step) = self.step {
            step(&mut object.0)?;
        }
        object.set_type(&self.target());
        Ok(())
    }

    const fn by(mut self, step: ConvertFn) -> Self {
        self.step = Some(step);
        self
    }
}

/// Retired versions that lead to `v1` of the same group.
const fn row(kind: &'static str, group: &'static str, versions: &'static [&'static str]) -> Retired {
    Retired { kind, group, versions, to: (group, "v1"), step: None }
}

const BETA: &[&str] = &["v1beta1"];

static ROWS: &[Retired] =
    &[row("CustomResourceDefinition", "apiextensions.k8s.io", BETA).by(apiextensions::definition_from_v1beta1)];
