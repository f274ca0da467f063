//! Resources outside of the program: the defaults of custom resources.
//!
//! Custom resources are created at run time with owned texts, and have the same type as built-in resources. The code
//! for definitions then sets their public fields.

use std::borrow::Cow;
use std::sync::Arc;

use keelson_meta::names::NameRule;

use crate::declare::{EVERYTHING, GET_PATCH_UPDATE};
use crate::fields::FieldRefusal;
use crate::resource::{
    Resource, ResourceStorage, ResponseKind, ScalePaths, Scope, ServedVersion, Subresource, SubresourceHandler, Text,
};

/// The finalizer that keeps a definition while objects of its resource exist.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Resource {
    /// A namespaced resource in these versions, the preferred one first. It is stored in that one, below its group and
    /// plural name.
    pub fn custom(group: &str, plural: &str, kind: &str, versions: Vec<ServedVersion>) -> Self {
        let stored = versions.first().map(|version| version.name.clone()).unwrap_or_default();
        Self {
            group: group.to_owned().into(),
            plural: plural.to_owned().into(),
            singular: kind.to_lowercase().into(),
            kind: kind.to_owned().into(),
            list_kind: format!("{kind}List").into(),
            scope: Scope::Namespaced,
            short_names: Vec::new(),
            categories: Vec::new(),
            versions: versions.into_iter().map(Arc::new).collect(),
            storage: ResourceStorage::Persisted {
                prefix: format!("{group}/{plural}").into(),
                group: group.to_owned().into(),
                version: stored,
            },
            name_rule: NameRule::DnsSubdomain,
            selectable_fields: Vec::new(),
            field_refusal: FieldRefusal::Plain,
            noted: Vec::new(),
            dispatch: None,
            generation: true,
            create_on_update: false,
            unconditional_update: false,
            lifetime: None,
            holds_others: false,
            gate: None,
            create_handler: None,
        }
    }
}

impl ServedVersion {
    /// A version with every verb and these subresources, sorted by name.
    pub fn custom(name: impl Into<Text>, subresources: impl IntoIterator<Item = Subresource>) -> Self {
        Self {
            name: name.into(),
            verbs: Cow::Borrowed(EVERYTHING),
            subresources: subresources.into_iter().map(Arc::new).collect(),
            hidden: false,
        }
    }
}

impl Subresource {
    /// The subresource `status`, which is written separately.
    pub fn status() -> Self {
        Self {
            name: "status".into(),
            verbs: Cow::Borrowed(GET_PATCH_UPDATE),
            response: ResponseKind::Parent,
            handler: SubresourceHandler::Confined,
            scale: None,
        }
    }

    /// The subresource `scale`.
    pub fn scale(paths: ScalePaths) -> Self {
        Self {
            name: "scale".into(),
            verbs: Cow::Borrowed(GET_PATCH_UPDATE),
            response: ResponseKind::Foreign { group: "autoscaling".into(), version: "v1".into(), kind: "Scale".into() },
            handler: SubresourceHandler::Scale,
            scale: Some(paths),
        }
    }
}
