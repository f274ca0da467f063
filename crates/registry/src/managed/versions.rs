//! A kind as the arithmetic of ownership sees it: the schemas of its versions, the way between them, and what a write to
//! the target's endpoint cannot change.

use std::borrow::Cow;

use keelson_meta::json::Value;
use keelson_meta::{GroupVersion, GroupVersionKind, Object};
use keelson_patch::fields::{FieldSet, Versions};
use keelson_schema::{SchemaRef, Schemas};

use super::endpoints;
use crate::target::Target;
use crate::versions::convert;

/// The versions of the target's kind, for writes to the target's endpoint.
pub(crate) struct KindVersions<'t> {
    target: &'t Target,
}

impl<'t> KindVersions<'t> {
    pub(crate) fn of(target: &'t Target) -> Self {
        Self { target }
    }

    /// The kind in this version; `None` for a version that it does not have.
    fn kind(&self, version: &str) -> Option<GroupVersionKind> {
        let GroupVersion { group, version } = GroupVersion::parse(version)?;
        let served = group == self.target.resource.group && self.target.resource.version(&version).is_some();
        served.then(|| self.target.resource.gvk(&version))
    }
}

impl Versions<'static> for KindVersions<'_> {
    type Schema = SchemaRef<'static>;

    fn schema(&self, version: &str) -> Option<SchemaRef<'static>> {
        let kind = self.kind(version)?;
        Schemas::builtin().kind(&kind.group, &kind.version, &kind.kind)
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        let kind = self.kind(version)?;
        let mut object = Object::from_value(object.clone())?;
        convert(self.target, &mut object, &kind).ok()?;
        Some(object.into_value())
    }

    fn reset_fields(&self, _: &str) -> Cow<'_, FieldSet> {
        endpoints::kept_fields(self.target)
    }
}
