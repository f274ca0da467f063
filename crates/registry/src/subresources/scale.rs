//! The scale of a workload: its desired and current replicas, and the selector of its pods (`autoscaling/v1` Scale, the
//! subresource that `kubectl scale` and autoscalers use).

use async_trait::async_trait;
use keelson_cache::Entry;
use keelson_meta::field_error::FieldError;
use keelson_meta::go_format;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::options::PatchOptions;
use keelson_meta::{ApiError, GroupKind, GroupVersionKind, Object};
use keelson_resources::{ScalePaths, SubresourceHandler, Text};

use crate::admission::WriteOptions;
use crate::apply::document;
use crate::caller::Caller;
use crate::managed;
use crate::patch::{Patch, PatchKind};
use crate::registry::Registry;
use crate::target::Target;
use crate::update::replacement;
use crate::versions::convert;
use crate::write::{Live, Update, UpdateFn, WriteRequest, WriteResult, existing};

/// The subresource.
const SCALE: &str = "scale";
/// The group and the kind of a scale.
const GROUP: &str = "autoscaling";
const KIND: &str = "Scale";
/// The path of the desired replicas of workloads.
const WANTED: [Text; 2] = [Text::Borrowed("spec"), Text::Borrowed("replicas")];
const ACTUAL: [Text; 2] = [Text::Borrowed("status"), Text::Borrowed("replicas")];
/// The desired replicas of a custom resource that has none, while its scale is changed.
const UNSET: i64 = i32::MIN as i64;
/// The metadata fields of an object that its scale has.
const SHOWN: [&str; 5] = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];

/// The paths of the fields in a scale.
#[derive(Clone, Copy)]
enum ScaleFields<'p> {
    /// The fields of workloads, with their selector as an object.
    Workload,
    /// The paths that a definition declares.
    Stated(&'p ScalePaths),
}

impl<'p> ScaleFields<'p> {
    fn from_target(target: &'p Target) -> Self {
        let stated = target.version.subresource(SCALE).and_then(|scale| scale.scale.as_ref());
        stated.map_or(Self::Workload, Self::Stated)
    }

    fn wanted(self) -> &'p [Text] {
        match self {
            Self::Workload => &WANTED,
            Self::Stated(paths) => &paths.wanted,
        }
    }

    fn actual(self) -> &'p [Text] {
        match self {
            Self::Workload => &ACTUAL,
            Self::Stated(paths) => &paths.actual,
        }
    }

    fn selector(self, object: &Object) -> String {
        match self {
            Self::Workload => object.get(&["spec", "selector"]).and_then(selector).unwrap_or_default().to_string(),
            Self::Stated(paths) => {
                let found = paths.selector.as_ref().and_then(|path| at(object, path));
                found.and_then(Value::as_str).unwrap_or_default().to_owned()
            }
        }
    }
}

/// The selector of a workload. Replication controllers have a map of labels there.
fn selector(selector: &Value) -> Option<LabelSelector> {
    let is_structured = ["matchLabels", "matchExpressions"].iter().any(|member| selector.get(member).is_some());
    if is_structured { LabelSelector::of_object(selector) } else { LabelSelector::of_labels(selector) }
}

impl Registry {
    /// The scale of a stored object, in the version of the target.
    ///
    /// # Errors
    /// 500 if the object cannot be converted. For a custom resource, also if its replicas are not a number, or if its
    /// desired replicas are missing.
    pub async fn scale(&self, target: &Target, entry: &Entry) -> Result<Object, ApiError> {
        let live = Live::in_version_of(target, entry).await?;
        scale_of(ScaleFields::from_target(target), &live.object)
    }

    /// Changes the desired replicas: `change` returns the new scale for the present one.
    ///
    /// # Errors
    /// The error of `change`. 404 and 409 as for an update. 422 for a negative number.
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
        self.scale_written(target, &written).await
    }

    /// Applies a scale. Only the desired replicas change in the workload.
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
    ) -> Result<WriteResult, ApiError> {
        let scale = document(patch)?;
        let document = configuration(target, &scale)?.into_value();
        let patch = Patch { kind: PatchKind::Apply, document, faults: patch.faults.clone() };
        self.apply(target, name, &patch, caller, options).await
    }

    /// The scale of a written object.
    ///
    /// # Errors
    /// As for [`Registry::scale`].
    pub async fn scale_written(&self, target: &Target, written: &WriteResult) -> Result<Object, ApiError> {
        let mut object = written.object.decode(written.revision.unwrap_or_default());
        if Some(target.kind()) != target.resource.storage_kind() {
            convert(target, &mut object, target.kind()).await?;
        }
        scale_of(ScaleFields::from_target(target), &object)
    }
}

/// A change of the desired replicas of a workload.
struct Rescale<'r, F> {
    target: &'r Target,
    name: &'r str,
    change: F,
}

#[async_trait]
impl<F: Fn(Object) -> Result<Object, ApiError> + Send> UpdateFn for Rescale<'_, F> {
    async fn propose<'s>(&'s mut self, _: &'s Registry, live: Option<&'s Entry>) -> Result<Update, ApiError> {
        let (entry, name) = (existing(live)?, self.name);
        let live = Live::in_version_of(self.target, entry).await?;
        let places = ScaleFields::from_target(self.target);
        let shown = match (places, at(&live.object, places.wanted())) {
            // As upstream, a change of such a scale must set the replicas.
            (ScaleFields::Stated(_), None) => with_wanted(places, &live.object, UNSET),
            _ => scale_of(places, &live.object)?,
        };
        let scale = (self.change)(shown)?;
        let wanted = wanted_by(places, name, &scale)?;
        let mut next = live.object.clone();
        next.set_meta("uid", scale.uid());
        // A scale may be changed without a resourceVersion, even if its object may not.
        if !matches!(scale.resource_version(), "" | "0") {
            next.set_meta("resourceVersion", scale.resource_version());
        }
        put(&mut next.0, places.wanted(), json!(wanted));
        replacement(self.target, name, live, next)
    }
}

/// The scale that admission sees for a change of an object through `/scale`, as upstream. `None` for other endpoints,
/// where admission sees the object.
pub(crate) fn shown_to_admission(target: &Target, object: &Object) -> Option<Object> {
    if target.subresource.as_ref().is_none_or(|below| below.handler != SubresourceHandler::Scale) {
        return None;
    }
    let places = ScaleFields::from_target(target);
    let absent = if matches!(places, ScaleFields::Stated(_)) { UNSET } else { 0 };
    Some(with_wanted(places, object, number(object, places.wanted()).unwrap_or(absent)))
}

/// Sets the replicas of an object from its scale, which admission has changed.
///
/// # Errors
/// 422 and 400 for invalid replicas.
pub(crate) fn rescale(target: &Target, scale: &Object, object: &mut Object) -> Result<(), ApiError> {
    let places = ScaleFields::from_target(target);
    let wanted = wanted_by(places, object.name(), scale)?;
    put(&mut object.0, places.wanted(), json!(wanted));
    Ok(())
}

/// The desired replicas of a scale.
///
/// # Errors
/// 422 for an invalid number of replicas, 400 if a definition requires a number and it is missing.
fn wanted_by(places: ScaleFields<'_>, name: &str, scale: &Object) -> Result<i64, ApiError> {
    let wanted = match scale.get(&["spec", "replicas"]) {
        None | Some(Value::Null) => 0,
        Some(number) => number.as_i64().ok_or_else(|| invalid(name, number, "must be an integer"))?,
    };
    if let (ScaleFields::Stated(paths), UNSET) = (places, wanted) {
        let message = format!("the spec replicas field {} cannot be empty", stated_path(paths));
        return Err(ApiError::BadRequest(message));
    }
    // The rules of a custom resource check more than this.
    if wanted < 0 && matches!(places, ScaleFields::Workload) {
        return Err(invalid(name, &json!(wanted), "must be greater than or equal to 0"));
    }
    Ok(wanted)
}

/// The applied configuration of the workload for an applied scale.
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
        put(&mut wanted.0, ScaleFields::from_target(target).wanted(), replicas.clone());
    }
    Ok(wanted)
}

/// The value at a path in an object.
fn at<'o>(object: &'o Object, path: &[Text]) -> Option<&'o Value> {
    let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    object.get(&path)
}

/// Sets a value at a path, and creates missing objects on the path. Another value on the path stays.
fn put(object: &mut Map, path: &[Text], value: Value) {
    match path {
        [] => {}
        [last] => {
            object.insert(last.to_string(), value);
        }
        [first, rest @ ..] => {
            if let Value::Object(below) = object.entry(&**first).or_insert_with(|| json!({})) {
                put(below, rest, value);
            }
        }
    }
}

fn scale_of(places: ScaleFields<'_>, object: &Object) -> Result<Object, ApiError> {
    let wanted = number(object, places.wanted());
    if let (ScaleFields::Stated(paths), None) = (places, wanted) {
        // As upstream, scaling needs the number of desired replicas.
        return Err(ApiError::Internal(format!("the spec replicas field {} does not exist", stated_path(paths))));
    }
    Ok(with_wanted(places, object, wanted.unwrap_or_default()))
}

fn number(object: &Object, path: &[Text]) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// The path of the desired replicas in messages.
fn stated_path(paths: &ScalePaths) -> String {
    go_format::quote(&format!(".{}", paths.wanted.join(".")))
}

/// The scale of an object with this number of desired replicas.
fn with_wanted(places: ScaleFields<'_>, object: &Object, wanted: i64) -> Object {
    let mut metadata = Map::new();
    for key in SHOWN {
        if let Some(value) = object.meta(key) {
            metadata.insert(key, value.clone());
        }
    }
    let mut spec = Map::new();
    if wanted != 0 {
        spec.insert("replicas", json!(wanted));
    }
    let mut status = Map::new();
    status.insert("replicas", json!(number(object, places.actual()).unwrap_or_default()));
    let selector = places.selector(object);
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
        assert_eq!(scale_of(ScaleFields::Workload, &workload).unwrap(), expected);
    }
}
