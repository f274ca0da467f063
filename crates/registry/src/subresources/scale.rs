//! The scale of a workload: how many replicas are wanted, how many there are, and which pods they are
//! (`autoscaling/v1` Scale, the subresource that `kubectl scale` and autoscalers use).

use async_trait::async_trait;
use keelson_cache::Entry;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::options::PatchOptions;
use keelson_meta::{ApiError, GroupKind, GroupVersionKind, Object};

use super::selector;
use crate::admission::WriteOptions;
use crate::apply::document;
use crate::caller::Caller;
use crate::managed;
use crate::patch::{Patch, PatchKind};
use crate::registry::Registry;
use crate::target::Target;
use crate::update::replacement;
use crate::write::{Live, Proposal, Proposed, WriteRequest, Written, existing};

/// The group and the kind of a scale.
const GROUP: &str = "autoscaling";
const KIND: &str = "Scale";
/// The keys of an object's metadata that its scale shows.
const SHOWN: [&str; 5] = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];

impl Registry {
    /// The scale of a stored workload.
    pub fn scale(&self, entry: &Entry) -> Object {
        scale_of(&entry.object.decode(entry.revision))
    }

    /// Changes the wanted replicas: `change` makes a new scale of the one that is.
    ///
    /// # Errors
    /// What `change` returns; 404, 409 as for an update; 422 for a negative number.
    pub async fn change_scale(
        &self,
        target: &Target,
        name: &str,
        caller: &Caller,
        options: WriteOptions<'_>,
        change: impl Fn(Object) -> Result<Object, ApiError> + Send,
    ) -> Result<Object, ApiError> {
        let request = WriteRequest::new(target, name, caller, options);
        let written = self.write(&request, &mut Rescale { target, name, change }).await?;
        Ok(scale_of(&written.object.decode(written.revision.unwrap_or_default())))
    }

    /// Applies a scale: of what it says, the workload takes the wanted replicas.
    ///
    /// # Errors
    /// As for [`Registry::apply`].
    pub async fn apply_scale(
        &self,
        target: &Target,
        name: &str,
        patch: &Patch,
        caller: &Caller,
        options: &PatchOptions,
    ) -> Result<Written, ApiError> {
        let scale = document(patch)?;
        let document = configuration(target, &scale)?.into_value();
        let patch = Patch { kind: PatchKind::Apply, document, faults: patch.faults.clone() };
        self.apply(target, name, &patch, caller, options).await
    }

    /// The scale of a workload that was written.
    pub fn scale_written(&self, written: &Written) -> Object {
        scale_of(&written.object.decode(written.revision.unwrap_or_default()))
    }
}

/// A change of the wanted replicas of a workload.
struct Rescale<'r, F> {
    target: &'r Target,
    name: &'r str,
    change: F,
}

#[async_trait]
impl<F: Fn(Object) -> Result<Object, ApiError> + Send> Proposal for Rescale<'_, F> {
    async fn propose<'s>(
        &'s mut self,
        registry: &'s Registry,
        live: Option<&'s Entry>,
    ) -> Result<Proposed<'s>, ApiError> {
        let (entry, name) = (existing(live)?, self.name);
        let scale = (self.change)(registry.scale(entry))?;
        let wanted = match scale.get(&["spec", "replicas"]) {
            None | Some(Value::Null) => 0,
            Some(number) => number.as_i64().ok_or_else(|| invalid(name, number, "must be an integer"))?,
        };
        if wanted < 0 {
            return Err(invalid(name, &json!(wanted), "must be greater than or equal to 0"));
        }
        let live = Live::in_version_of(self.target, entry).await?;
        let mut next = live.object.clone();
        next.set_meta("uid", scale.uid());
        next.set_meta("resourceVersion", scale.resource_version());
        let spec = next.0.entry("spec").or_insert_with(|| json!({}));
        if let Value::Object(spec) = spec {
            spec.insert("replicas", json!(wanted));
        }
        replacement(self.target, name, live, next)
    }
}

/// What a scale that is applied wants of its workload.
fn configuration(target: &Target, scale: &Value) -> Result<Object, ApiError> {
    let kind = GroupVersionKind { group: GROUP.to_owned(), version: "v1".to_owned(), kind: KIND.to_owned() };
    let schema = target.version.schema_taken_by("scale", &kind);
    managed::check_applied(schema.ok_or(ApiError::UnsupportedPatchType)?, &kind, scale)?;
    let mut wanted = Object::default();
    wanted.set_type(target.kind());
    for key in SHOWN {
        if let Some(value) = scale["metadata"].get(key) {
            wanted.set_meta(key, value.clone());
        }
    }
    if let Some(replicas) = scale["spec"].get("replicas") {
        wanted.0.insert("spec", json!({ "replicas": replicas }));
    }
    Ok(wanted)
}

fn scale_of(workload: &Object) -> Object {
    let mut metadata = Map::new();
    for key in SHOWN {
        if let Some(value) = workload.meta(key) {
            metadata.insert(key, value.clone());
        }
    }
    let number = |path: [&str; 2]| workload.get(&path).and_then(Value::as_i64).unwrap_or_default();
    let mut spec = Map::new();
    if number(["spec", "replicas"]) != 0 {
        spec.insert("replicas", json!(number(["spec", "replicas"])));
    }
    let mut status = Map::new();
    status.insert("replicas", json!(number(["status", "replicas"])));
    let selector = selector::text(workload.get(&["spec", "selector"])).unwrap_or_default();
    if !selector.is_empty() {
        status.insert("selector", json!(selector));
    }
    let mut scale = Object::default();
    scale.0.insert("kind", json!("Scale"));
    scale.0.insert("apiVersion", json!("autoscaling/v1"));
    scale.0.insert("metadata", Value::Object(metadata));
    scale.0.insert("spec", Value::Object(spec));
    scale.0.insert("status", Value::Object(status));
    scale
}

fn invalid(name: &str, value: &Value, why: &str) -> ApiError {
    ApiError::Invalid {
        kind: GroupKind { group: GROUP.to_owned(), kind: KIND.to_owned() },
        name: name.to_owned(),
        errors: vec![FieldError::invalid("spec.replicas", value.to_string(), why)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    #[test]
    fn a_scale_shows_the_selector_as_a_text() {
        let workload = object(json!({
            "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"replicas": 3, "selector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["b", "a"]},
                    {"key": "x", "operator": "DoesNotExist"},
                ],
            }},
            "status": {"replicas": 2},
        }));
        let expected = object(json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {"replicas": 3},
            "status": {"replicas": 2, "selector": "app=web,tier in (a,b),!x"},
        }));
        assert_eq!(scale_of(&workload), expected);
    }
}
