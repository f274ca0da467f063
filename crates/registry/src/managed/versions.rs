//! A kind as the arithmetic of ownership sees it: the schemas of its versions, the way between them, and what a write to
//! the target's endpoint cannot change.

use std::borrow::Cow;

use keelson_meta::json::Value;
use keelson_meta::{GroupVersion, Object};
use keelson_patch::fields::{FieldSet, Versions};
use keelson_schema::SchemaRef;

use super::endpoints;
use crate::surface::KindVersion;
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

    /// The version of this name; `None` for a version that the kind does not have.
    fn version(&self, api_version: &str) -> Option<&'t KindVersion> {
        let (group, version) = GroupVersion::split(api_version)?;
        self.target.resource.version(version).filter(|_| group == self.target.resource.group).map(|known| &**known)
    }
}

impl<'t> Versions<'t> for KindVersions<'t> {
    type Schema = SchemaRef<'t>;

    fn schema(&self, version: &str) -> Option<SchemaRef<'t>> {
        self.version(version)?.schema()
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        let kind = self.version(version)?.kind();
        let mut object = Object::from_value(object.clone())?;
        convert(self.target, &mut object, kind).ok()?;
        Some(object.into_value())
    }

    fn reset_fields(&self, _: &str) -> Cow<'_, FieldSet> {
        endpoints::kept_fields(self.target)
    }
}
