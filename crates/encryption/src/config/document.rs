//! Parses the configuration file strictly: unknown and duplicate fields are errors.
//!
//! `config` interprets the fields, and `validation` checks their values.

use std::cell::RefCell;

use keelson_codec::yaml;
use keelson_meta::go_format::quote;
use keelson_meta::json::{Map, Value, ValueKind};

use super::duration;

const KIND: &str = "EncryptionConfiguration";
const VERSION: &str = "apiserver.config.k8s.io/v1";
/// The source line that upstream names in its error for unknown kinds.
const SCHEME: &str = "k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go:142";
/// The maximum number of unknown or duplicate fields that an error lists.
const NAMED: usize = 20;

/// Reads a document. `read` gets its fields.
pub(super) fn parse<T>(bytes: &[u8], read: impl FnOnce(&Fields<'_>) -> T) -> Result<T, String> {
    let parsed = yaml::parse(bytes).map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    let text = |name: &str| parsed.value[name].as_str().unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if kind.is_empty() {
        return Err("Object 'Kind' is missing".to_owned());
    }
    if (kind, version) != (KIND, VERSION) {
        let (kind, version) = (quote(kind), quote(version));
        return Err(format!("no kind {kind} is registered for version {version} in scheme {}", quote(SCHEME)));
    }
    let faults = RefCell::new(parsed.duplicates);
    let read = read(&Fields::new(&parsed.value, String::new(), &["apiVersion", "kind", "resources"], &faults));
    let mut faults = faults.into_inner();
    faults.truncate(NAMED);
    if faults.is_empty() { Ok(read) } else { Err(format!("strict decoding error: {}", faults.join(", "))) }
}

/// The fields of an object. Collects errors about unknown and duplicate ones.
pub(super) struct Fields<'v> {
    path: String,
    map: Option<&'v Map>,
    faults: &'v RefCell<Vec<String>>,
}

impl<'v> Fields<'v> {
    fn new(value: &'v Value, path: String, known: &[&str], faults: &'v RefCell<Vec<String>>) -> Self {
        let fields = Self { map: value.as_object(), path, faults };
        match value {
            Value::Object(map) => {
                for key in map.keys().filter(|key| !known.contains(key)) {
                    faults.borrow_mut().push(format!("unknown field {}", quote(&fields.child(key))));
                }
            }
            Value::Null => {}
            other => fields.mistyped(&fields.path, "object", other),
        }
        fields
    }

    fn child(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn mistyped(&self, path: &str, wanted: &str, found: &Value) {
        let found = ValueKind::from_value(found).name();
        self.faults.borrow_mut().push(format!("field {} must be of type {wanted}, not {found}", quote(path)));
    }

    fn read<T>(&self, name: &str, wanted: &str, read: impl FnOnce(&'v Value) -> Option<T>) -> Option<T> {
        let value = self.map?.get(name).filter(|value| !value.is_null())?;
        let read = read(value);
        if read.is_none() {
            self.mistyped(&self.child(name), wanted, value);
        }
        read
    }

    /// A text, which is empty where it is absent.
    pub(super) fn text(&self, name: &str) -> String {
        self.read(name, "string", |value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// An integer of 32 bits.
    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        self.read(name, "integer", |value| value.as_i64().filter(|number| i32::try_from(*number).is_ok()))
    }

    /// A duration in nanoseconds.
    pub(super) fn duration(&self, name: &str) -> Option<i64> {
        self.read(name, "duration", |value| duration::parse(value.as_str()?))
    }

    /// The texts of a list.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let all = |value: &'v Value| value.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect();
        self.read(name, "list of strings", all).unwrap_or_default()
    }

    /// The fields of an object, where it is there.
    pub(super) fn object(&self, name: &str, known: &[&str]) -> Option<Self> {
        let value = self.map?.get(name).filter(|value| !value.is_null())?;
        Some(Self::new(value, self.child(name), known, self.faults))
    }

    /// The fields of each object of a list.
    pub(super) fn objects(&self, name: &str, known: &[&str]) -> Vec<Self> {
        let list = self.read(name, "list of objects", |value| value.as_array()).map_or(&[][..], Vec::as_slice);
        let place = |at: usize| format!("{}[{at}]", self.child(name));
        list.iter().enumerate().map(|(at, value)| Self::new(value, place(at), known, self.faults)).collect()
    }
}
