//! A kind as the arithmetic of ownership sees it: the schemas of its versions, the way between them, and what a write to
//! the target's endpoint cannot change.

use std::borrow::Cow;

use keelson_meta::json::Value;
use keelson_meta::{GroupVersion, Object};
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

    /// The name of this version without its group; `None` for a version that the kind does not have.
    fn version(&self, api_version: &str) -> Option<&'static str> {
        let (group, version) = GroupVersion::split(api_version)?;
        let served = self.target.resource.version(version).filter(|_| group == self.target.resource.group)?;
        Some(served.name)
    }
}

impl Versions<'static> for KindVersions<'_> {
    type Schema = SchemaRef<'static>;

    fn schema(&self, version: &str) -> Option<SchemaRef<'static>> {
        let resource = self.target.resource;
        Schemas::builtin().kind(resource.group, self.version(version)?, resource.kind)
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        let kind = self.target.resource.gvk(self.version(version)?);
        let mut object = Object::from_value(object.clone())?;
        convert(self.target, &mut object, &kind).ok()?;
        Some(object.into_value())
    }

    fn reset_fields(&self, _: &str) -> Cow<'_, FieldSet> {
        endpoints::kept_fields(self.target)
    }
}
