//! Who owns which fields of an object: `metadata.managedFields`.
//!
//! An owner is told apart by name, operation and subresource, one that updates also by version: a manager that applies has
//! one entry, whatever version it applies.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use keelson_meta::clock::parse_rfc3339;
use serde_json::{Map, Value};
use thiserror::Error;

use super::set::FieldSet;
use super::text::FieldsError;

/// How many entries of updates an object keeps; the oldest are merged beyond that.
const MAX_UPDATE_MANAGERS: usize = 10;
/// The name of the entry that the oldest updates are merged into.
const OLD_UPDATES: &str = "ancient-changes";
/// The only format of fields there is.
const FIELDS_TYPE: &str = "FieldsV1";

/// What a manager did.
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

/// What tells owners apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Manager {
    /// The name that the client gave.
    pub name: String,
    /// What it did.
    pub operation: Operation,
    /// The version it used; empty for one that applies.
    pub version: String,
    /// The subresource it wrote to; empty for the object itself.
    pub subresource: String,
}

impl Manager {
    /// A manager that applies.
    pub fn applies(name: &str, subresource: &str) -> Self {
        Self::new(name, Operation::Apply, "", subresource)
    }

    /// A manager that writes objects of this version (such as `apps/v1`) in any other way.
    pub fn updates(name: &str, version: &str, subresource: &str) -> Self {
        Self::new(name, Operation::Update, version, subresource)
    }

    fn new(name: &str, operation: Operation, version: &str, subresource: &str) -> Self {
        Self { name: name.to_owned(), operation, version: version.to_owned(), subresource: subresource.to_owned() }
    }
}

/// What an owner owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The fields.
    pub fields: FieldSet,
    /// The version whose fields they are, such as `apps/v1`.
    pub version: String,
    /// When the owner last changed the object, as RFC 3339 text.
    pub time: Option<String>,
}

/// All owners of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners(pub(super) BTreeMap<Manager, Owned>);

/// Why `managedFields` cannot be read. Upstream then goes on as if there were none.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OwnersError {
    /// What should be a list of objects is none.
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
    /// Reads `metadata.managedFields`; null is none.
    ///
    /// # Errors
    /// The first entry that is not as it has to be.
    pub fn read(managed_fields: &Value) -> Result<Self, OwnersError> {
        let entries = match managed_fields {
            Value::Null => return Ok(Self::default()),
            Value::Array(entries) => entries,
            _ => return Err(OwnersError::NotAList),
        };
        entries.iter().enumerate().map(|(place, entry)| read_entry(place, entry)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the value asks to forget all owners: one empty entry, or an empty list.
    pub fn is_reset(managed_fields: &Value) -> bool {
        match managed_fields.as_array().map(Vec::as_slice) {
            Some([]) => true,
            Some([Value::Object(entry)]) => entry.is_empty(),
            _ => false,
        }
    }

    /// Whether nobody owns anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a manager owns.
    pub fn get(&self, manager: &Manager) -> Option<&Owned> {
        self.0.get(manager)
    }

    /// All owners.
    pub fn iter(&self) -> impl Iterator<Item = (&Manager, &Owned)> {
        self.0.iter()
    }

    /// As `metadata.managedFields`: those that apply first, then by time.
    pub fn write(&self) -> Value {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by(|left, right| left.0.operation.cmp(&right.0.operation).then_with(|| by_time(*left, *right)));
        entries.into_iter().map(|(manager, owned)| write_entry(manager, owned)).collect()
    }

    /// Merges the oldest updates into one entry for each version, until there are not too many.
    pub(super) fn limit_updates(&mut self) {
        let updates = self.0.iter().filter(|(manager, _)| manager.operation == Operation::Update);
        let mut oldest: Vec<_> = updates.map(|(manager, owned)| (manager.clone(), owned.clone())).collect();
        oldest.sort_by(|left, right| by_time((&left.0, &left.1), (&right.0, &right.1)));
        let mut count = oldest.len();
        let mut first: BTreeMap<String, Manager> = BTreeMap::new();
        for (manager, owned) in oldest {
            if count <= MAX_UPDATE_MANAGERS {
                return;
            }
            let Some(first) = first.get(&owned.version) else {
                first.insert(owned.version.clone(), manager);
                continue;
            };
            let bucket = Manager::updates(OLD_UPDATES, &owned.version, "");
            let others = if self.0.contains_key(&bucket) { self.0.remove(&bucket) } else { self.0.remove(first) };
            let fields = others.map_or_else(FieldSet::new, |others| others.fields).union(&owned.fields);
            self.0.remove(&manager);
            self.0.insert(bucket, Owned { fields, ..owned });
            count -= 1;
        }
    }
}

fn by_time(left: (&Manager, &Owned), right: (&Manager, &Owned)) -> Ordering {
    let seconds = |owned: &Owned| owned.time.as_deref().and_then(parse_rfc3339);
    let identity =
        |manager: &Manager, owned: &Owned| (manager.name.clone(), owned.version.clone(), manager.subresource.clone());
    let order = seconds(left.1).cmp(&seconds(right.1));
    order.then_with(|| identity(left.0, left.1).cmp(&identity(right.0, right.1)))
}

fn read_entry(place: usize, entry: &Value) -> Result<(Manager, Owned), OwnersError> {
    let entry = entry.as_object().ok_or(OwnersError::NotAList)?;
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(OwnersError::UnknownOperation),
    };
    let version = text("apiVersion");
    if version.is_empty() {
        return Err(OwnersError::NoVersion);
    }
    match text("fieldsType") {
        FIELDS_TYPE => {}
        "" => return Err(OwnersError::NoFieldsType(place)),
        other => return Err(OwnersError::UnknownFieldsType(other.to_owned(), place)),
    }
    let fields = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::new(),
        Some(fields) => FieldSet::from_fields_v1(fields)?,
    };
    let of_identity = if operation == Operation::Update { version } else { "" };
    let manager = Manager::new(text("manager"), operation, of_identity, text("subresource"));
    let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
    Ok((manager, Owned { fields, version: version.to_owned(), time }))
}

fn write_entry(manager: &Manager, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let mut set = |name: &str, value: &str| {
        if !value.is_empty() {
            entry.insert(name.to_owned(), value.into());
        }
    };
    set("manager", &manager.name);
    set("operation", manager.operation.as_str());
    set("apiVersion", &owned.version);
    set("time", owned.time.as_deref().unwrap_or_default());
    set("fieldsType", FIELDS_TYPE);
    entry.insert("fieldsV1".to_owned(), owned.fields.to_fields_v1());
    if !manager.subresource.is_empty() {
        entry.insert("subresource".to_owned(), manager.subresource.clone().into());
    }
    entry.into()
}
