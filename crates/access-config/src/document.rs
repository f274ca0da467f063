//! Reads configuration files: YAML of a known kind and version, field by field.
//!
//! Like upstream, unknown fields and duplicate keys are errors. Other code validates the values.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use keelson_access::{FileError, read_bounded};
use keelson_cel::library::times;
use keelson_codec::yaml;
use keelson_meta::field_error::{self, FieldError};
use keelson_meta::go_format::quote;
use keelson_meta::json::{Map, Value, ValueKind};

/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
/// The largest number of reported form errors.
const TOLD: usize = 20;

/// The reason why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file cannot be read, or is too large.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not a configuration of this kind.
    #[error("failed to load {what} configuration from file {}: {fault}", quote(file))]
    Form {
        /// The kind of configuration.
        what: &'static str,
        /// The file.
        file: String,
        /// The fault.
        fault: String,
    },
    /// The content of the file is invalid.
    #[error("invalid {what} configuration: {}", field_error::join(faults))]
    Invalid {
        /// The kind of configuration.
        what: &'static str,
        /// All faults.
        faults: Vec<FieldError>,
    },
    /// A file or authorizer that the configuration names cannot be used.
    #[error("{0}")]
    Unusable(String),
}

/// A kind of document.
pub(crate) struct DocumentKind {
    pub(crate) what: &'static str,
    pub(crate) kind: &'static str,
    /// The groups of the kind.
    pub(crate) groups: &'static [&'static str],
    /// The accepted versions of these groups.
    pub(crate) versions: &'static [&'static str],
}

/// The group of most configuration files.
pub(crate) const CONFIG_GROUP: &str = "apiserver.config.k8s.io";

impl DocumentKind {
    /// Reads a document of this kind from a file. `read` parses its fields.
    pub(crate) fn load<T>(
        &self,
        file: &Path,
        known: &'static [&'static str],
        read: impl FnOnce(&Fields<'_>) -> T,
    ) -> Result<T, ConfigurationError> {
        let bytes = read_bounded(file, MOST_BYTES)?;
        self.parse(&bytes, known, read).map_err(|fault| ConfigurationError::Form {
            what: self.what,
            file: file.display().to_string(),
            fault,
        })
    }

    fn parse<T>(
        &self,
        bytes: &[u8],
        known: &'static [&'static str],
        read: impl FnOnce(&Fields<'_>) -> T,
    ) -> Result<T, String> {
        if bytes.trim_ascii().is_empty() {
            return Err("empty config data".to_owned());
        }
        let parsed = yaml::parse(bytes).map_err(|error| error.to_string())?;
        let text = |name: &str| parsed.value[name].as_str().unwrap_or_default();
        let (kind, version) = (text("kind"), text("apiVersion"));
        let is_known = |known: &&str| {
            version.split_once('/').is_some_and(|(group, version)| self.groups.contains(&group) && version == *known)
        };
        if kind.is_empty() {
            return Err("Object 'Kind' is missing".to_owned());
        }
        if kind != self.kind || !self.versions.iter().any(is_known) {
            return Err(format!("no kind {} is registered for version {}", quote(kind), quote(version)));
        }
        let faults = RefCell::new(parsed.duplicates);
        let read = read(&Fields::new(&parsed.value, String::new(), known, &faults));
        let mut faults = faults.into_inner();
        faults.truncate(TOLD);
        if faults.is_empty() { Ok(read) } else { Err(format!("strict decoding error: {}", faults.join(", "))) }
    }
}

/// The fields of an object. Errors are collected while fields are read.
pub(crate) struct Fields<'v> {
    path: String,
    map: Option<&'v Map>,
    faults: &'v RefCell<Vec<String>>,
}

impl<'v> Fields<'v> {
    fn new(value: &'v Value, path: String, known: &[&str], faults: &'v RefCell<Vec<String>>) -> Self {
        let fields = Self { map: value.as_object(), path, faults };
        match value {
            Value::Object(map) => {
                let at_root = fields.path.is_empty();
                let is_known = |key: &str| known.contains(&key) || at_root && matches!(key, "apiVersion" | "kind");
                for key in map.keys().filter(|key| !is_known(key)) {
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

    fn get(&self, name: &str) -> Option<&'v Value> {
        self.map?.get(name).filter(|value| !value.is_null())
    }

    fn read<T>(&self, name: &str, wanted: &str, read: impl FnOnce(&'v Value) -> Option<T>) -> Option<T> {
        let value = self.get(name)?;
        let read = read(value);
        if read.is_none() {
            self.mistyped(&self.child(name), wanted, value);
        }
        read
    }

    /// A text field, if present.
    pub(crate) fn optional_text(&self, name: &str) -> Option<String> {
        self.read(name, "string", |value| value.as_str().map(str::to_owned))
    }

    /// A text field; empty if absent.
    pub(crate) fn text(&self, name: &str) -> String {
        self.optional_text(name).unwrap_or_default()
    }

    /// A boolean field, if present.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.read(name, "boolean", Value::as_bool)
    }

    /// A whole number of 32 bits, if present.
    pub(crate) fn integer(&self, name: &str) -> Option<i64> {
        self.read(name, "integer", |value| value.as_i64().filter(|number| i32::try_from(*number).is_ok()))
    }

    /// A duration field in Go's format, if present.
    pub(crate) fn duration(&self, name: &str) -> Option<Seconds> {
        self.read(name, "duration", |value| Seconds::parse(value.as_str()?))
    }

    /// A list of texts.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let all = |value: &'v Value| value.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect();
        self.read(name, "list of strings", all).unwrap_or_default()
    }

    /// The fields of an object, if present.
    pub(crate) fn optional_object(&self, name: &str, known: &[&str]) -> Option<Fields<'v>> {
        Some(Fields::new(self.get(name)?, self.child(name), known, self.faults))
    }

    /// The fields of an object; none if absent.
    pub(crate) fn object(&self, name: &str, known: &[&str]) -> Fields<'v> {
        self.optional_object(name, known).unwrap_or_else(|| Fields {
            path: self.child(name),
            map: None,
            faults: self.faults,
        })
    }

    /// The fields of each object in a list field.
    pub(crate) fn objects(&self, name: &str, known: &[&str]) -> Vec<Fields<'v>> {
        let list = self.read(name, "list of objects", |value| value.as_array()).map_or(&[][..], Vec::as_slice);
        let place = |at: usize| format!("{}[{at}]", self.child(name));
        list.iter().enumerate().map(|(at, value)| Fields::new(value, place(at), known, self.faults)).collect()
    }
}

/// A duration that may be negative, so that validation can report negative values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seconds {
    pub(crate) nanos: i64,
}

impl Seconds {
    /// Parses Go's format: `1h30m`, `500ms`, `-5s`, `0`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        times::parse_duration(text).map(|nanos| Self { nanos })
    }

    /// The duration; `None` if it is 0 or negative.
    pub(crate) fn positive(self) -> Option<Duration> {
        u64::try_from(self.nanos).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }
}

/// Writes Go's format: `1m30s`, `500ms`.
impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: u64 = 1_000_000_000;
        let nanos = self.nanos.unsigned_abs();
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        if nanos > 0 && nanos < SECOND {
            let (unit, name) = [(1_000_000, "ms"), (1_000, "µs"), (1, "ns")]
                .into_iter()
                .find(|(unit, _)| nanos >= *unit)
                .unwrap_or((1, "ns"));
            return write!(f, "{}{name}", nanos as f64 / unit as f64);
        }
        let (minutes, seconds) = (nanos / SECOND / 60, (nanos % (60 * SECOND)) as f64 / SECOND as f64);
        match (minutes / 60, minutes % 60) {
            (0, 0) => write!(f, "{seconds}s"),
            (0, minutes) => write!(f, "{minutes}m{seconds}s"),
            (hours, minutes) => write!(f, "{hours}h{minutes}m{seconds}s"),
        }
    }
}

/// The SHA-256 hash of bytes as metrics show it.
pub(crate) fn hash_of(bytes: &[u8]) -> String {
    hash_of_parts([bytes])
}

/// The SHA-256 hash of these parts, one after the other, as metrics show it.
pub fn hash_of_parts<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut hash = Context::new(&SHA256);
    parts.into_iter().for_each(|part| hash.update(part));
    let digits: String = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// The hash of a configuration file; `None` if it can't be read.
pub(crate) fn hash_of_file(file: &Path) -> Option<String> {
    read_bounded(file, MOST_BYTES).ok().map(|bytes| hash_of(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: DocumentKind = DocumentKind { what: "test", kind: "Thing", groups: &[CONFIG_GROUP], versions: &["v1"] };

    fn check(text: &str, expected: Result<&str, &str>) {
        let read = KIND.parse(text.as_bytes(), &["a", "list"], |fields| {
            let list: Vec<String> = fields.objects("list", &["b"]).iter().map(|one| one.text("b")).collect();
            format!("{}{}", fields.text("a"), list.concat())
        });
        assert_eq!(read.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn documents_are_read_strictly() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: Thing\n";
        check(&format!("{head}a: x\nlist: [{{b: z}}, {{}}]\n"), Ok("xz"));
        check(head, Ok(""));
        check("", Err("empty config data"));
        check("kind: Other\napiVersion: v1\n", Err(r#"no kind "Other" is registered for version "v1""#));
        check(
            &format!("{head}list: [{{c: 1}}]\nd: 2\n"),
            Err(r#"strict decoding error: unknown field "d", unknown field "list[0].c""#),
        );
        check(&format!("{head}a: 5\n"), Err(r#"strict decoding error: field "a" must be of type string, not integer"#));
    }

    #[test]
    fn durations_are_parsed_as_in_go() {
        let nanos = |text: &str| Seconds::parse(text).map(|seconds| seconds.nanos);
        assert_eq!(nanos("1m30s"), Some(90_000_000_000));
        assert_eq!(nanos("-5s"), Some(-5_000_000_000));
        assert_eq!((nanos("0"), nanos("5")), (Some(0), None));
        for text in ["0s", "31s", "1m0s", "1h0m1.5s", "500ms", "-5s", "1.5ms"] {
            assert_eq!(Seconds::parse(text).unwrap().to_string(), text);
        }
    }
}
