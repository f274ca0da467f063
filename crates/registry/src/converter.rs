//! Conversion by a webhook, in batches. The webhook may be slow, fail, or return something else.
//!
//! A [`Converter`] only converts. This module checks its result: the same number of objects, in the requested version,
//! and the same objects. Of their metadata only labels and annotations may change.
//!
//! One call has at most [`BATCH_OBJECTS`] objects of about [`BATCH_BYTES`], and ends within [`CALL_TIME`]. A caller may
//! stop waiting earlier. Objects that grow too much are refused, and error texts are cut. Texts are upstream's, which
//! has only webhooks as converters of this kind.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use keelson_meta::go_format::quote;
use keelson_meta::json::{Map, Value, about_bytes_of_members};
use keelson_meta::metadata_rules::{annotation_errors, label_errors};
use keelson_meta::{ApiError, GroupVersionKind, Object};

/// The largest number of objects in one call: a usual chunk of a list.
pub const BATCH_OBJECTS: usize = 500;
/// The size of the stored objects in one call in bytes, approximately. One object alone may be larger.
pub const BATCH_BYTES: usize = 1 << 20;
/// The largest converted object in bytes, approximately. It is the largest object that can be stored. A converted
/// object may also have twice its size before the conversion.
pub(crate) const ANSWERED_OBJECT_BYTES: usize = keelson_storage::bounded::DEFAULT_BOUND;
/// The size of all converted objects of one call in bytes, approximately, or twice their size before the conversion.
pub const CONVERTED_BYTES: usize = 8 * BATCH_BYTES;
/// The largest error text of a failed conversion, in bytes.
pub(crate) const TOLD_BYTES: usize = 4 << 10;
/// The timeout of one call, which is upstream's for webhooks.
pub const CALL_TIME: Duration = Duration::from_secs(30);
/// The time that a converter has to report its own timeout, before this module reports one.
const LAST_WORD: Duration = Duration::from_secs(1);

/// A converter between the versions of a kind.
#[async_trait]
pub trait Converter: fmt::Debug + Send + Sync {
    /// Converts a batch to another version, in the same order. The objects have no resourceVersion, and no
    /// `metadata.managedFields` where these are kept separately. Only labels and annotations of the returned metadata
    /// count.
    ///
    /// # Errors
    /// The reason why the batch, or one of its objects, cannot be converted.
    async fn convert(&self, batch: ConversionBatch<'_>) -> Result<Vec<Object>, ConverterError>;
}

/// Objects to be converted.
#[derive(Clone, Copy, Debug)]
pub struct ConversionBatch<'b> {
    /// The version of the objects.
    pub from: &'b GroupVersionKind,
    /// The requested version.
    pub to: &'b GroupVersionKind,
    /// The objects: at least one, at most [`BATCH_OBJECTS`].
    pub objects: &'b [Object],
}

/// The reason why objects could not be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConverterError {
    /// The call as a whole failed.
    Call(String),
    /// One object cannot be converted: its index in the batch, and the reason.
    Object(usize, String),
    /// The response has this many objects, too many to be read.
    Count(usize),
    /// The response has too many bytes to be read.
    Size {
        /// The size of the object in bytes.
        bytes: usize,
        /// The limit in bytes.
        most: usize,
    },
    /// The limit on concurrent calls is reached. No call was made, and a retry may succeed.
    Busy,
}

/// Converts a batch, and checks the result.
///
/// # Errors
/// 500 with upstream's message, which names the object at fault if there is one.
pub(crate) async fn ask(
    converter: &dyn Converter,
    from: &GroupVersionKind,
    to: &GroupVersionKind,
    objects: &[Object],
) -> Result<Vec<Object>, ApiError> {
    let batch = ConversionBatch { from, to, objects };
    let failed = |mut what: String| {
        cut(&mut what);
        let version = from.group_version();
        ApiError::Unclassified(format!("conversion webhook for {version}, Kind={} {what}", from.kind))
    };
    let wrong_count = |found: usize| format!("returned {found} objects, expected {}", objects.len());
    let Ok(answer) = tokio::time::timeout(CALL_TIME + LAST_WORD, converter.convert(batch)).await else {
        return Err(failed(format!("failed: no answer after {} seconds", CALL_TIME.as_secs())));
    };
    let mut converted = match answer {
        Ok(converted) => converted,
        Err(ConverterError::Busy) => return Err(ApiError::TooManyRequests { retry_after_seconds: 1 }),
        Err(ConverterError::Call(why)) => return Err(failed(format!("failed: {why}"))),
        Err(ConverterError::Count(found)) => return Err(failed(wrong_count(found))),
        Err(ConverterError::Size { bytes, most }) => return Err(failed(too_many_bytes(bytes, most))),
        Err(ConverterError::Object(place, why)) => {
            let named = objects.get(place).map(name_of).unwrap_or_default();
            return Err(failed(format!("failed: {named}: {why}")));
        }
    };
    if converted.len() != objects.len() {
        return Err(failed(wrong_count(converted.len())));
    }
    for (place, (before, after)) in objects.iter().zip(&mut converted).enumerate() {
        check_type(to, after)
            .map_err(|why| ResponseFault { what: "object", at: Some(place), why })
            .and_then(|()| check_identity(before, after).map_err(|why| ResponseFault { what: "object", at: None, why }))
            .and_then(|()| {
                restore_metadata(before, after).map_err(|why| ResponseFault { what: "metadata", at: None, why })
            })
            .map_err(|lie| failed(lie.message(place, objects)))?;
    }
    check_size(objects, &converted).map_err(failed)?;
    Ok(converted)
}

/// Cuts an error text for clients.
fn cut(text: &mut String) {
    if text.len() > TOLD_BYTES {
        text.truncate(text.floor_char_boundary(TOLD_BYTES));
        text.push_str("...");
    }
}

/// Refuses converted objects that are too large.
fn check_size(before: &[Object], after: &[Object]) -> Result<(), String> {
    let mut sum = 0;
    for (before, after) in before.iter().zip(after) {
        let size = about_bytes_of_members(&after.0);
        if size > ANSWERED_OBJECT_BYTES && size > 2 * about_bytes_of_members(&before.0) {
            let named = name_of(after);
            return Err(format!(
                "returned invalid object: {named} has {size} bytes, expected {ANSWERED_OBJECT_BYTES} at most"
            ));
        }
        sum += size;
    }
    if sum > CONVERTED_BYTES && sum > 2 * before.iter().map(|object| about_bytes_of_members(&object.0)).sum::<usize>() {
        return Err(too_many_bytes(sum, CONVERTED_BYTES));
    }
    Ok(())
}

fn too_many_bytes(found: usize, most: usize) -> String {
    format!("returned {found} bytes, expected {most} at most")
}

/// A fault of a returned object.
struct ResponseFault {
    what: &'static str,
    /// The index that the message has even for a single object.
    at: Option<usize>,
    why: String,
}

impl ResponseFault {
    /// The message for the object at this index. It has the index only if there are several objects.
    fn message(self, place: usize, objects: &[Object]) -> String {
        let Self { what, at, why } = self;
        match (objects, at) {
            ([_], Some(at)) => format!("returned invalid {what} at index {at}: {why}"),
            ([_], None) => format!("returned invalid {what}: {why}"),
            (objects, _) => {
                let named = objects.get(place).map(name_of).unwrap_or_default();
                let what = if what == "object" { "converted object" } else { "metadata in object" };
                format!("returned invalid {what} at index {place} ({named}): {why}")
            }
        }
    }
}

/// The name of the object in errors.
pub(crate) fn name_of(object: &Object) -> String {
    let name = if object.name().is_empty() { object.generate_name() } else { object.name() };
    match object.namespace() {
        "" => quote(name),
        namespace => quote(&format!("{namespace}/{name}")),
    }
}

fn check_type(wanted: &GroupVersionKind, object: &Object) -> Result<(), String> {
    let version = wanted.group_version().to_string();
    let found = object.api_version().unwrap_or_default();
    if found != version {
        return Err(format!("invalid groupVersion (expected {version}, received {found})"));
    }
    let found = object.kind().unwrap_or_default();
    if found != wanted.kind {
        return Err(format!("invalid kind (expected {}, received {found})", wanted.kind));
    }
    Ok(())
}

fn check_identity(before: &Object, after: &Object) -> Result<(), String> {
    let same = |what: &str, before: &str, after: &str| {
        if before == after { Ok(()) } else { Err(format!("must have the same {what}: {before} != {after}")) }
    };
    same("name", before.name(), after.name())?;
    same("namespace", before.namespace(), after.namespace())?;
    same("UID", before.uid(), after.uid())
}

/// Restores the metadata of a converted object, except its labels and annotations.
fn restore_metadata(before: &Object, after: &mut Object) -> Result<(), String> {
    let answered = match after.0.get_mut("metadata") {
        Some(Value::Object(answered)) => std::mem::take(answered),
        Some(other) => return Err(format!("invalid metadata of type {} in converted object", go_type(other))),
        None => return Err("missing metadata in converted object".to_owned()),
    };
    let mut changed = [false; 2];
    for (field, changed) in ["labels", "annotations"].into_iter().zip(&mut changed) {
        let texts = match answered.get(field) {
            Some(Value::Object(texts)) => Some(texts),
            Some(Value::Null) | None => None,
            Some(other) => {
                return Err(format!("invalid metadata.{field} of type {} in converted object", go_type(other)));
            }
        };
        if let Some((key, other)) = texts.into_iter().flatten().find(|(_, text)| !text.is_string()) {
            let found = go_type(other);
            return Err(format!("metadata.{field}[{key}] must be a string, but is {found} in converted object"));
        }
        *changed = texts != before.meta(field).and_then(Value::as_object);
    }
    *after.metadata_mut() = metadata_of(before, answered);
    let faults = match changed {
        [true, _] if !label_errors(after).is_empty() => label_errors(after),
        [_, true] => annotation_errors(after),
        _ => Vec::new(),
    };
    match keelson_meta::field_error::told(&faults) {
        (_, text) if !text.is_empty() => Err(text),
        _ => Ok(()),
    }
}

/// The metadata before the conversion, with the labels and annotations of the converted object.
fn metadata_of(before: &Object, mut answered: Map) -> Map {
    let mut metadata = before.metadata().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match answered.remove(field) {
            Some(Value::Object(texts)) => {
                metadata.insert(field, texts);
            }
            _ => {
                metadata.remove(field);
            }
        }
    }
    metadata
}

/// The type of a value as Go names it.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.as_i64().is_some() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    /// A converter that returns the given objects.
    #[derive(Debug)]
    struct Answers(Result<Vec<Value>, ConverterError>);

    #[async_trait]
    impl Converter for Answers {
        async fn convert(&self, _: ConversionBatch<'_>) -> Result<Vec<Object>, ConverterError> {
            let objects = self.0.clone()?.into_iter();
            Ok(objects.map(|object| Object::from_value(object).unwrap()).collect())
        }
    }

    #[derive(Debug)]
    struct Hangs;

    #[async_trait]
    impl Converter for Hangs {
        async fn convert(&self, _: ConversionBatch<'_>) -> Result<Vec<Object>, ConverterError> {
            std::future::pending().await
        }
    }

    fn kind(version: &str) -> GroupVersionKind {
        GroupVersionKind { group: "hook.example.com".into(), version: version.into(), kind: "Host".into() }
    }

    #[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
    fn host(version: &str, metadata: Value) -> Value {
        json!({"apiVersion": format!("hook.example.com/{version}"), "kind": "Host", "metadata": metadata})
    }

    fn stored(name: &str) -> Object {
        let metadata = json!({"name": name, "namespace": "team", "uid": "u", "generation": 3, "labels": {"own": "1"}});
        Object::from_value(host("v1", metadata)).unwrap()
    }

    async fn convert_answers(
        objects: &[&str],
        answer: Result<Vec<Value>, ConverterError>,
    ) -> Result<Vec<Object>, String> {
        let objects: Vec<Object> = objects.iter().map(|name| stored(name)).collect();
        let asked = ask(&Answers(answer), &kind("v1"), &kind("v2"), &objects).await;
        asked.map_err(|error| {
            assert_eq!((error.status().reason.as_deref(), error.code()), (None, 500));
            error.to_string()
        })
    }

    #[tokio::test]
    async fn converters_must_return_the_same_objects_in_the_requested_version() {
        let same = |name: &str| json!({"name": name, "namespace": "team", "uid": "u"});
        let check = async |objects: &[&str], answer: Vec<Value>, expected: &str| {
            let error = convert_answers(objects, Ok(answer)).await.unwrap_err();
            assert_eq!(error, format!("conversion webhook for hook.example.com/v1, Kind=Host {expected}"));
        };
        check(&["a"], vec![], "returned 0 objects, expected 1").await;
        check(&["a"], vec![host("v2", same("a")), host("v2", same("a"))], "returned 2 objects, expected 1").await;
        let wrong = "returned invalid object at index 0: invalid groupVersion (expected hook.example.com/v2, received \
            hook.example.com/v1)";
        check(&["a"], vec![host("v1", same("a"))], wrong).await;
        let mut other = host("v2", same("a"));
        other["kind"] = json!("Other");
        check(&["a"], vec![other], "returned invalid object at index 0: invalid kind (expected Host, received Other)")
            .await;
        check(&["a"], vec![host("v2", same("b"))], "returned invalid object: must have the same name: a != b").await;
        let moved = host("v2", json!({"name": "a", "namespace": "x", "uid": "u"}));
        check(&["a"], vec![moved], "returned invalid object: must have the same namespace: team != x").await;
        let reborn = host("v2", json!({"name": "a", "namespace": "team"}));
        check(&["a"], vec![reborn], "returned invalid object: must have the same UID: u != ").await;
        let second = "returned invalid converted object at index 1 (\"team/b\"): must have the same name: b != c";
        check(&["a", "b"], vec![host("v2", same("a")), host("v2", same("c"))], second).await;

        let with = |field: &str, value: Value| {
            let mut metadata = same("a");
            metadata[field] = value;
            vec![host("v2", metadata)]
        };
        let no_map = "returned invalid metadata: invalid metadata.labels of type []interface {} in converted object";
        check(&["a"], with("labels", json!([])), no_map).await;
        let no_text =
            "returned invalid metadata: metadata.annotations[a] must be a string, but is int64 in converted object";
        check(&["a"], with("annotations", json!({"a": 1})), no_text).await;
        let bad = convert_answers(&["a"], Ok(with("labels", json!({"x": "a b"})))).await.unwrap_err();
        let start = "conversion webhook for hook.example.com/v1, Kind=Host returned invalid metadata: metadata.labels: \
            Invalid value: \"a b\": ";
        assert!(bad.starts_with(start), "{bad}");
    }

    #[tokio::test]
    async fn of_the_metadata_only_labels_and_annotations_change() {
        let metadata = json!({"name": "a", "namespace": "team", "uid": "u", "generation": 7, "finalizers": ["x/y"],
            "labels": {"by": "hook"}, "annotations": {"by": "hook"}});
        let converted = convert_answers(&["a"], Ok(vec![host("v2", metadata)])).await.unwrap();
        let object = &converted[0];
        assert_eq!((object.generation(), object.finalizers()), (Some(3), Vec::new()));
        assert_eq!(object.labels().collect::<Vec<_>>(), [("by", "hook")]);
        assert_eq!(object.annotations().collect::<Vec<_>>(), [("by", "hook")]);
        let bare = json!({"name": "a", "namespace": "team", "uid": "u"});
        let converted = convert_answers(&["a"], Ok(vec![host("v2", bare)])).await.unwrap();
        assert_eq!(converted[0].labels().count(), 0);
    }

    #[tokio::test]
    async fn responses_and_errors_of_converters_are_limited() {
        let with = |name: &str, length: usize| {
            let mut object = host("v2", json!({"name": name, "namespace": "team", "uid": "u"}));
            object["spec"] = json!({"text": "x".repeat(length)});
            object
        };
        let error = convert_answers(&["a"], Ok(vec![with("a", ANSWERED_OBJECT_BYTES)])).await.unwrap_err();
        assert!(error.contains(r#"returned invalid object: "team/a" has 15"#), "{error}");
        assert!(convert_answers(&["a"], Ok(vec![with("a", ANSWERED_OBJECT_BYTES - 1000)])).await.is_ok());
        let names = ["a", "b", "c", "d", "e", "f"];
        let many = names.map(|name| with(name, ANSWERED_OBJECT_BYTES - 1000)).into();
        let error = convert_answers(&names, Ok(many)).await.unwrap_err();
        assert!(error.ends_with("bytes, expected 8388608 at most"), "{error}");
        let error = convert_answers(&["a"], Err(ConverterError::Call("é".repeat(1 << 20)))).await.unwrap_err();
        assert!(error.len() < TOLD_BYTES + 100 && error.ends_with("é..."), "{}", error.len());
    }

    #[tokio::test(start_paused = true)]
    async fn failing_converters_are_reported() {
        let failed = convert_answers(&["a"], Err(ConverterError::Call("cannot convert: too odd".to_owned()))).await;
        let expected = "conversion webhook for hook.example.com/v1, Kind=Host failed: cannot convert: too odd";
        assert_eq!(failed.unwrap_err(), expected);
        let failed = convert_answers(&["a", "b"], Err(ConverterError::Object(1, "too odd".to_owned()))).await;
        let expected = "conversion webhook for hook.example.com/v1, Kind=Host failed: \"team/b\": too odd";
        assert_eq!(failed.unwrap_err(), expected);
        let begun = tokio::time::Instant::now();
        let error = ask(&Hangs, &kind("v1"), &kind("v2"), &[stored("a")]).await.unwrap_err();
        assert!(error.to_string().ends_with("failed: no answer after 30 seconds"), "{error}");
        assert_eq!(begun.elapsed(), CALL_TIME + LAST_WORD);
    }
}
