//! A place in an object: its value, its old value, and its path.
//!
//! The path is a linked list of places on the stack, so validation allocates nothing until it reports an error. As in
//! Go, an absent value reads as null, an empty string, or an empty list.

use keelson_meta::Object;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value};

use crate::validating::type_rules::Run;

static NOTHING: Value = Value::Null;

/// A place in the validated object. `'v` is the lifetime of the objects, `'p` that of the enclosing places.
#[derive(Clone, Copy)]
pub(crate) struct At<'v, 'p> {
    /// The value here; null if absent.
    pub(crate) value: &'v Value,
    /// The old value here; null if absent, and for a new object.
    pub(crate) old: &'v Value,
    parent: Option<&'p At<'v, 'p>>,
    segment: PathSegment<'v>,
}

/// The last segment of the path.
#[derive(Clone, Copy)]
enum PathSegment<'v> {
    /// The whole object, and the old object if there is one.
    Root(&'v Map, Option<&'v Map>),
    /// `.name`
    Field(&'v str),
    /// `[3]`
    Index(usize),
    /// `[name]`
    Key(&'v str),
}

/// A value for an error. It is copied only if the error is reported.
#[derive(Clone, Copy)]
pub(crate) struct PrintedValue<'v>(&'v Value);

impl From<PrintedValue<'_>> for Value {
    fn from(shown: PrintedValue<'_>) -> Self {
        shown.0.clone()
    }
}

impl<'v> At<'v, '_> {
    /// The value, for an error.
    pub(crate) fn shown(&self) -> PrintedValue<'v> {
        PrintedValue(self.value)
    }

    /// The root of an object and of the old object. Only its fields have values.
    pub(crate) fn object(object: &'v Object, before: Option<&'v Object>) -> At<'v, 'v> {
        let segment = PathSegment::Root(&object.0, before.map(|before| &before.0));
        At { value: &NOTHING, old: &NOTHING, parent: None, segment }
    }

    /// A field of this object.
    pub(crate) fn field(&self, name: &'v str) -> At<'v, '_> {
        let (value, old) = match self.segment {
            PathSegment::Root(new, old) => (new.get(name), old.and_then(|old| old.get(name))),
            _ => (self.value.get(name), self.old.get(name)),
        };
        At {
            value: value.unwrap_or(&NOTHING),
            old: old.unwrap_or(&NOTHING),
            parent: Some(self),
            segment: PathSegment::Field(name),
        }
    }

    /// An entry of this map, whose path is written `[name]`.
    pub(crate) fn key(&self, name: &'v str) -> At<'v, '_> {
        At { segment: PathSegment::Key(name), ..self.field(name) }
    }

    /// An item of this list, with the old item of the same index.
    pub(crate) fn index(&self, index: usize) -> At<'v, '_> {
        let item = |list: &'v Value| list.get(index).unwrap_or(&NOTHING);
        At { value: item(self.value), old: item(self.old), parent: Some(self), segment: PathSegment::Index(index) }
    }

    /// The items of this list.
    pub(crate) fn items(&self) -> impl Iterator<Item = At<'v, '_>> {
        (0..self.list().len()).map(|index| self.index(index))
    }

    /// The entries of this map, whose paths are written `[name]`.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'v str, At<'v, '_>)> {
        let tree = self.value.as_object();
        tree.into_iter().flat_map(Map::keys).map(|name| (name, self.key(name)))
    }

    /// This position with another name in the path, for errors in which upstream's name differs from the API's.
    pub(crate) fn called(&self, name: &'v str) -> At<'v, '_> {
        At { segment: PathSegment::Field(name), ..*self }
    }

    /// The enclosing object or list.
    pub(crate) fn parent(&self) -> Option<&At<'v, '_>> {
        self.parent
    }

    /// This position with another value, for errors in which upstream shows another value.
    pub(crate) fn holding(&self, value: &'v Value) -> At<'v, '_> {
        At { value, ..*self }
    }

    /// This position with another value and another old value.
    pub(crate) fn between<'o>(&self, value: &'o Value, old: &'o Value) -> At<'o, '_>
    where
        'v: 'o,
    {
        At { value, old, ..*self }
    }

    /// Returns true if a field of this object is set.
    pub(crate) fn field_is_set(&self, name: &str) -> bool {
        self.value.get(name).is_some_and(|value| !value.is_null())
    }

    /// Returns true if there is a value.
    pub(crate) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Returns true if the value is absent, or an empty string, list or object.
    pub(crate) fn is_empty(&self) -> bool {
        is_empty(self.value)
    }

    /// Returns true if this is an update that does not change the value.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.value == self.old
    }

    /// The string; empty if absent.
    pub(crate) fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    /// The number, if there is one.
    pub(crate) fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// The number; 0 if absent.
    pub(crate) fn int(&self) -> i64 {
        self.number().unwrap_or_default()
    }

    /// Returns true if the value is `true`.
    pub(crate) fn is_true(&self) -> bool {
        self.value.as_bool() == Some(true)
    }

    /// The list; empty if absent.
    pub(crate) fn list(&self) -> &'v [Value] {
        self.value.as_array().map_or(&[], Vec::as_slice)
    }

    /// The object, if there is one.
    pub(crate) fn tree(&self) -> Option<&'v Map> {
        self.value.as_object()
    }

    /// The path of this place, such as `spec.containers[0].name`.
    pub(crate) fn path(&self) -> String {
        let mut path = self.parent.map(At::path).unwrap_or_default();
        match self.segment {
            PathSegment::Root(..) => {}
            PathSegment::Field(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
            PathSegment::Index(index) => path.push_str(&format!("[{index}]")),
            PathSegment::Key(name) => {
                path.push('[');
                path.push_str(name);
                path.push(']');
            }
        }
        path
    }

    /// Reports that a value is required.
    pub(crate) fn required(&self, run: &mut Run<'_>, detail: impl Into<String>) {
        run.report(|| FieldError::required(self.path(), detail));
    }

    /// Reports that `value` breaks a rule.
    pub(crate) fn invalid(&self, run: &mut Run<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        run.report(|| FieldError::invalid(self.path(), value, detail));
    }

    /// Reports that the value here is invalid, with the value.
    pub(crate) fn refused(&self, run: &mut Run<'_>, detail: impl Into<String>) {
        run.report(|| FieldError::invalid_unshown(self.path(), detail));
    }

    /// Reports each of these errors about the string here.
    pub(crate) fn complain(&self, run: &mut Run<'_>, faults: Vec<String>) {
        for fault in faults {
            self.invalid(run, self.text(), fault);
        }
    }

    /// Reports that no value is permitted.
    pub(crate) fn forbidden(&self, run: &mut Run<'_>, detail: impl Into<String>) {
        run.report(|| FieldError::forbidden(self.path(), detail));
    }

    /// Reports a duplicate value.
    pub(crate) fn duplicate(&self, run: &mut Run<'_>, value: impl Into<Value>) {
        run.report(|| FieldError::duplicate(self.path(), value));
    }

    /// Reports that the value is not one of the supported values.
    pub(crate) fn not_supported(&self, run: &mut Run<'_>, value: impl Into<Value>, supported: &[&str]) {
        run.report(|| FieldError::not_supported(self.path(), value, supported));
    }

    /// Reports that the object that `value` names does not exist.
    pub(crate) fn not_found(&self, run: &mut Run<'_>, value: impl Into<Value>) {
        run.report(|| FieldError::not_found(self.path(), value));
    }

    /// Reports that the value here could not be validated.
    pub(crate) fn internal(&self, run: &mut Run<'_>, detail: impl Into<String>) {
        run.report(|| FieldError::internal(self.path(), detail));
    }

    /// Reports that the value is longer than `limit` bytes.
    pub(crate) fn too_long(&self, run: &mut Run<'_>, limit: usize) {
        run.report(|| FieldError::too_long(self.path(), limit));
    }

    /// Reports that the list has more than `limit` items.
    pub(crate) fn too_many(&self, run: &mut Run<'_>, limit: usize) {
        run.report(|| FieldError::too_many(self.path(), self.list().len(), limit));
    }
}

/// Returns true for null, and for an empty string, list or object.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(tree) => tree.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn a_position_has_its_path_and_its_old_value() {
        let object = |value| Object::from_value(value).expect("an object");
        let new = object(json!({"spec": {"ports": [{"name": "a"}], "labels": {"x": "y"}}}));
        let old = object(json!({"spec": {"ports": [{"name": "b"}]}}));
        let root = At::object(&new, Some(&old));
        let spec = root.field("spec");
        let ports = spec.field("ports");
        let port = ports.index(0);
        let name = port.field("name");
        assert_eq!((name.path().as_str(), name.text()), ("spec.ports[0].name", "a"));
        assert_eq!(name.old, &json!("b"));
        let labels = spec.field("labels");
        let paths: Vec<String> = labels.entries().map(|(_, entry)| entry.path()).collect();
        assert_eq!(paths, ["spec.labels[x]"]);
        assert!(!root.field("status").is_set());
        assert_eq!(root.path(), "");
    }
}
