//! The owners of the fields of an object: `metadata.managedFields`.
//!
//! Owners are identified by name, operation and subresource, and for updates also by version. A manager that applies
//! has one entry for all versions.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use keelson_meta::clock::parse_rfc3339;
use keelson_meta::json::{Map, Value};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use super::owned::Fields;
use super::set::FieldSet;
use super::text::{FieldsError, NO_FIELDS, write_json};

/// The maximum number of update entries of an object. If there are more, the oldest are merged.
const MAX_UPDATE_MANAGERS: usize = 10;
/// The name of the entry that the oldest updates are merged into.
const OLD_UPDATES: &str = "ancient-changes";
/// The approximate text length of an entry without its fields, in bytes.
const ENTRY_SIZE: usize = 192;
/// The only format of fields.
const FIELDS_TYPE: &str = "FieldsV1";

/// The operation of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Manager {
    /// The name that the client gave.
    pub name: String,
    /// The operation.
    pub operation: Operation,
    /// The version of its writes. Empty for apply.
    pub version: String,
    /// The subresource of its writes. Empty for the object itself.
    pub subresource: String,
}

impl Manager {
    /// A manager that applies.
    pub fn applies(name: &str, subresource: &str) -> Self {
        Self::new(name, Operation::Apply, "", subresource)
    }

    /// A manager of other writes in this version, such as `apps/v1`.
    pub fn updates(name: &str, version: &str, subresource: &str) -> Self {
        Self::new(name, Operation::Update, version, subresource)
    }

    fn new(name: &str, operation: Operation, version: &str, subresource: &str) -> Self {
        Self { name: name.to_owned(), operation, version: version.to_owned(), subresource: subresource.to_owned() }
    }
}

/// The ownership of one manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerFields {
    /// The fields.
    pub fields: Fields,
    /// The version of the fields, such as `apps/v1`.
    pub version: String,
    /// The time of the owner's last change in RFC 3339.
    pub time: Option<String>,
}

/// All owners of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners(pub(super) BTreeMap<Manager, ManagerFields>);

/// The reason why `managedFields` cannot be read. Upstream then ignores them.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OwnersError {
    /// The value is not a list of objects.
    #[error("managed fields are not a list of objects")]
    NotAList,
    /// An operation that does not exist.
    #[error("operation must be `Apply` or `Update`")]
    UnknownOperation,
    /// An entry without a version.
    #[error("apiVersion must not be empty")]
    NoVersion,
    /// An entry without a format.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// A format that does not exist.
    #[error("invalid fieldsType {0:?} in managed fields entry {1}")]
    UnknownFieldsType(String, usize),
    /// The fields cannot be read.
    #[error("error decoding set: {0}")]
    BadFields(#[from] FieldsError),
}

impl Owners {
    /// Reads `metadata.managedFields`. Null means no owners.
    ///
    /// # Errors
    /// The first malformed entry.
    pub fn read(managed_fields: &Value) -> Result<Self, OwnersError> {
        let entries = match managed_fields {
            Value::Null => return Ok(Self::default()),
            Value::Array(entries) => entries,
            _ => return Err(OwnersError::NotAList),
        };
        entries.iter().enumerate().map(|(place, entry)| read_tree(place, entry)).collect::<Result<_, _>>().map(Self)
    }

    /// Reads the stored compact JSON text of `metadata.managedFields`. Fields are parsed on demand.
    ///
    /// # Errors
    /// The first malformed entry.
    pub fn read_text(managed_fields: &str) -> Result<Self, OwnersError> {
        let entries: Vec<EntryText<'_>> = serde_json::from_str(managed_fields).map_err(|_| OwnersError::NotAList)?;
        let entry = |(place, entry): (usize, &EntryText<'_>)| {
            let fields = entry.fields.map(RawValue::get).filter(|text| *text != "null").unwrap_or(NO_FIELDS);
            read_entry(place, &entry.head(), Fields::of_text(fields))
        };
        entries.iter().enumerate().map(entry).collect::<Result<_, _>>().map(Self)
    }

    /// Returns true if the client's value requests a reset of all owners: a list with one empty entry, or an empty
    /// list.
    pub fn is_reset(managed_fields: &Value) -> bool {
        match managed_fields.as_array().map(Vec::as_slice) {
            Some([]) => true,
            Some([Value::Object(entry)]) => entry.is_empty(),
            _ => false,
        }
    }

    /// Returns true if there are no owners.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the owners are the same as `before`. Equal fields with different texts count as changed.
    pub fn are_still(&self, before: &Self) -> bool {
        let is_still = |(left, right): ((&Manager, &ManagerFields), (&Manager, &ManagerFields))| {
            left.0 == right.0
                && (&left.1.version, &left.1.time) == (&right.1.version, &right.1.time)
                && left.1.fields.are_written_as(&right.1.fields)
        };
        self.0.len() == before.0.len() && self.0.iter().zip(&before.0).all(is_still)
    }

    /// The ownership of a manager.
    pub fn get(&self, manager: &Manager) -> Option<&ManagerFields> {
        self.0.get(manager)
    }

    /// Returns the owners without times.
    #[must_use]
    pub fn without_times(mut self) -> Self {
        self.0.values_mut().for_each(|owned| owned.time = None);
        self
    }

    /// All owners.
    pub fn iter(&self) -> impl Iterator<Item = (&Manager, &ManagerFields)> {
        self.0.iter()
    }

    /// Writes `metadata.managedFields`: entries of apply first, then by time.
    pub fn write(&self) -> Value {
        self.in_order().into_iter().map(|(manager, owned)| write_entry(manager, owned)).collect()
    }

    /// The compact JSON text of [`write`](Self::write)'s result.
    pub fn write_text(&self) -> String {
        let fields = self.0.values().map(|owned| owned.fields.text_len() + ENTRY_SIZE).sum::<usize>();
        let mut out = String::with_capacity(fields + 2);
        out.push('[');
        for (manager, owned) in self.in_order() {
            if out.len() > 1 {
                out.push(',');
            }
            write_entry_text(manager, owned, &mut out);
        }
        out.push(']');
        out
    }

    fn in_order(&self) -> Vec<(&Manager, &ManagerFields)> {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by(|left, right| left.0.operation.cmp(&right.0.operation).then_with(|| by_time(*left, *right)));
        entries
    }

    /// Merges the oldest updates into one entry for each version, until the limit is met.
    pub(super) fn limit_updates(&mut self) {
        let updates = self.0.iter().filter(|(manager, _)| manager.operation == Operation::Update);
        if updates.clone().count() <= MAX_UPDATE_MANAGERS {
            return;
        }
        let mut oldest: Vec<_> = updates.map(|(manager, owned)| (manager.clone(), owned.clone())).collect();
        oldest.sort_by(|left, right| by_time((&left.0, &left.1), (&right.0, &right.1)));
        let mut count = oldest.len();
        let mut first: BTreeMap<String, Manager> = BTreeMap::new();
        // The fields of each merged entry, by version. They are joined once, since each union copies what it joins.
        let mut merged: BTreeMap<String, Vec<Fields>> = BTreeMap::new();
        for (manager, owned) in oldest {
            if count <= MAX_UPDATE_MANAGERS {
                break;
            }
            let Some(first) = first.get(&owned.version) else {
                first.insert(owned.version.clone(), manager);
                continue;
            };
            let bucket = Manager::updates(OLD_UPDATES, &owned.version, "");
            let others = if self.0.contains_key(&bucket) { self.0.remove(&bucket) } else { self.0.remove(first) };
            let parts = merged.entry(owned.version.clone()).or_default();
            if parts.is_empty() {
                parts.extend(others.map(|others| others.fields));
            }
            self.0.remove(&manager);
            let ManagerFields { fields, version, time } = owned;
            parts.push(fields);
            self.0.insert(bucket, ManagerFields { fields: Fields::default(), version, time });
            count -= 1;
        }
        for (version, parts) in merged {
            if let Some(owned) = self.0.get_mut(&Manager::updates(OLD_UPDATES, &version, "")) {
                owned.fields = union_of(parts);
            }
        }
    }
}

/// The union of many sets. Joins neighbours until one is left, so that a field is copied a few times only.
fn union_of(mut parts: Vec<Fields>) -> Fields {
    while parts.len() > 1 {
        let joined = parts.chunks(2).map(|pair| match pair {
            [left, right] => left.union(right).into(),
            _ => pair.first().cloned().unwrap_or_default(),
        });
        parts = joined.collect();
    }
    parts.pop().unwrap_or_default()
}

fn by_time(left: (&Manager, &ManagerFields), right: (&Manager, &ManagerFields)) -> Ordering {
    let seconds = |owned: &ManagerFields| owned.time.as_deref().and_then(parse_rfc3339);
    let order = seconds(left.1).cmp(&seconds(right.1));
    order
        .then_with(|| left.0.name.cmp(&right.0.name))
        .then_with(|| left.1.version.cmp(&right.1.version))
        .then_with(|| left.0.subresource.cmp(&right.0.subresource))
}

/// An entry in the text of `managedFields`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryText<'a> {
    #[serde(borrow, default)]
    manager: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    operation: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    fields_type: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
    #[serde(borrow, default)]
    subresource: Option<Cow<'a, str>>,
}

/// The members of an entry except its fields. Absent members are empty.
struct Head<'a> {
    manager: &'a str,
    operation: &'a str,
    version: &'a str,
    time: Option<&'a str>,
    fields_type: &'a str,
    subresource: &'a str,
}

impl EntryText<'_> {
    fn head(&self) -> Head<'_> {
        Head {
            manager: self.manager.as_deref().unwrap_or_default(),
            operation: self.operation.as_deref().unwrap_or_default(),
            version: self.api_version.as_deref().unwrap_or_default(),
            time: self.time.as_deref(),
            fields_type: self.fields_type.as_deref().unwrap_or_default(),
            subresource: self.subresource.as_deref().unwrap_or_default(),
        }
    }
}

fn read_tree(place: usize, entry: &Value) -> Result<(Manager, ManagerFields), OwnersError> {
    let entry = entry.as_object().ok_or(OwnersError::NotAList)?;
    let stated = |name: &str| entry.get(name).and_then(Value::as_str);
    let text = |name: &str| stated(name).unwrap_or_default();
    let head = Head {
        manager: text("manager"),
        operation: text("operation"),
        version: text("apiVersion"),
        time: stated("time"),
        fields_type: text("fieldsType"),
        subresource: text("subresource"),
    };
    let (manager, owned) = read_entry(place, &head, Fields::default())?;
    let fields = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::new(),
        Some(fields) => FieldSet::from_fields_v1(fields)?,
    };
    Ok((manager, ManagerFields { fields: fields.into(), ..owned }))
}

fn read_entry(place: usize, entry: &Head<'_>, fields: Fields) -> Result<(Manager, ManagerFields), OwnersError> {
    let operation = match entry.operation {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(OwnersError::UnknownOperation),
    };
    if entry.version.is_empty() {
        return Err(OwnersError::NoVersion);
    }
    match entry.fields_type {
        FIELDS_TYPE => {}
        "" => return Err(OwnersError::NoFieldsType(place)),
        other => return Err(OwnersError::UnknownFieldsType(other.to_owned(), place)),
    }
    let of_identity = if operation == Operation::Update { entry.version } else { "" };
    let manager = Manager::new(entry.manager, operation, of_identity, entry.subresource);
    Ok((manager, ManagerFields { fields, version: entry.version.to_owned(), time: entry.time.map(str::to_owned) }))
}

fn write_entry_text(manager: &Manager, owned: &ManagerFields, out: &mut String) {
    let start = out.len();
    let set = |name: &str, value: &str, out: &mut String| {
        if !value.is_empty() {
            out.push(if out.len() == start { '{' } else { ',' });
            out.extend(["\"", name, "\":"]);
            write_json(value, out);
        }
    };
    set("manager", &manager.name, out);
    set("operation", manager.operation.as_str(), out);
    set("apiVersion", &owned.version, out);
    set("time", owned.time.as_deref().unwrap_or_default(), out);
    set("fieldsType", FIELDS_TYPE, out);
    out.push_str(",\"fieldsV1\":");
    owned.fields.write_text(out);
    set("subresource", &manager.subresource, out);
    out.push('}');
}

fn write_entry(manager: &Manager, owned: &ManagerFields) -> Value {
    let mut entry = Map::new();
    let mut set = |name: &str, value: &str| {
        if !value.is_empty() {
            entry.insert(name, value);
        }
    };
    set("manager", &manager.name);
    set("operation", manager.operation.as_str());
    set("apiVersion", &owned.version);
    set("time", owned.time.as_deref().unwrap_or_default());
    set("fieldsType", FIELDS_TYPE);
    entry.insert("fieldsV1", owned.fields.to_fields_v1());
    if !manager.subresource.is_empty() {
        entry.insert("subresource", manager.subresource.clone());
    }
    entry.into()
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn many_updates_are_merged_with_all_their_fields() {
        let count = 2000;
        let entry = |number: usize| {
            let fields = json!({"f:data": {format!("f:key-{number}"): {}}});
            json!({"manager": format!("m{number}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
        };
        let mut owners = Owners::read(&(0..count).map(entry).collect::<Value>()).unwrap();
        owners.limit_updates();
        assert_eq!(owners.0.len(), MAX_UPDATE_MANAGERS);
        let mut text = String::new();
        owners.0.values().for_each(|owned| owned.fields.write_text(&mut text));
        assert!((0..count).all(|number| text.contains(&format!("\"f:key-{number}\""))));
    }
}
