//! The parts of a definition that determine its names and whether it is served.
//!
//! The fields here are kept in memory for every definition. Properties of versions are read on use.

use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_resources::CLEANUP_FINALIZER;

use crate::conditions;

/// The kept parts of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Its creation time.
    pub(crate) created: String,
    pub(crate) generation: i64,
    pub(crate) group: String,
    /// The requested names.
    pub(crate) requested: Names,
    /// The accepted names.
    pub(crate) accepted: Names,
    pub(crate) names_accepted: bool,
    /// True after its names were accepted or refused in the status.
    pub(crate) names_decided: bool,
    pub(crate) established: bool,
    pub(crate) terminating: bool,
    /// True if it waits for the deletion of its objects.
    pub(crate) holds_objects: bool,
}

/// The names of a custom resource, as in `spec.names` and `status.acceptedNames`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) categories: Vec<String>,
}

impl Definition {
    pub(crate) fn read(object: &Object) -> Self {
        let holds = |condition| conditions::holds(object, condition);
        Self {
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            created: object.creation_timestamp().unwrap_or_default().to_owned(),
            generation: object.generation().unwrap_or_default(),
            group: text(object.get(&["spec", "group"])),
            requested: Names::read(object.get(&["spec", "names"])),
            accepted: Names::read(object.get(&["status", "acceptedNames"])),
            names_accepted: holds(conditions::NAMES_ACCEPTED),
            names_decided: conditions::find(object, conditions::NAMES_ACCEPTED).is_some(),
            established: holds(conditions::ESTABLISHED),
            terminating: object.deletion_timestamp().is_some(),
            holds_objects: object.finalizers().contains(&CLEANUP_FINALIZER),
        }
    }

    /// Returns true if its requests are served. Upstream shows it in discovery only after it is established, a moment
    /// later.
    pub(crate) fn is_served(&self) -> bool {
        self.names_accepted || self.established
    }

    /// A text of all inputs of the served resource, except two flags: `is_served`, and `terminating`, which refuses new
    /// objects.
    pub(crate) fn state(&self) -> String {
        format!("{} {} {:?}", self.uid, self.generation, self.accepted)
    }

    /// Returns true if another state of the definition gives the same served resource.
    pub(crate) fn is_served_alike(&self, other: &Self) -> bool {
        let served = |definition: &Self| (definition.is_served(), definition.terminating, definition.generation);
        self.uid == other.uid && served(self) == served(other) && self.accepted == other.accepted
    }
}

impl Names {
    pub(crate) fn read(names: Option<&Value>) -> Self {
        let field = |name: &str| text(names.and_then(|names| names.get(name)));
        Self {
            plural: field("plural"),
            singular: field("singular"),
            short_names: texts(names, "shortNames"),
            kind: field("kind"),
            list_kind: field("listKind"),
            categories: texts(names, "categories"),
        }
    }

    /// Returns the names with upstream's defaults for missing ones.
    pub(crate) fn completed(self) -> Self {
        let derived = |name: String, from: String| if name.is_empty() { from } else { name };
        Self {
            singular: derived(self.singular, self.kind.to_lowercase()),
            list_kind: derived(self.list_kind, format!("{}List", self.kind)),
            ..self
        }
    }

    /// The names in the form of a status, which always has `plural` and `kind`.
    pub(crate) fn write(&self) -> Value {
        let mut out = keelson_meta::json::Map::new();
        out.insert("plural", self.plural.as_str());
        if !self.singular.is_empty() {
            out.insert("singular", self.singular.as_str());
        }
        if !self.short_names.is_empty() {
            out.insert("shortNames", self.short_names.clone());
        }
        out.insert("kind", self.kind.as_str());
        if !self.list_kind.is_empty() {
            out.insert("listKind", self.list_kind.as_str());
        }
        if !self.categories.is_empty() {
            out.insert("categories", self.categories.clone());
        }
        Value::Object(out)
    }

    /// The names that identify resources in a group.
    pub(crate) fn of_resource(&self) -> impl Iterator<Item = &str> {
        [&self.plural, &self.singular].into_iter().chain(&self.short_names).map(String::as_str).filter(not_empty)
    }

    /// The kinds that identify objects in a group.
    pub(crate) fn of_kind(&self) -> impl Iterator<Item = &str> {
        [&self.kind, &self.list_kind].into_iter().map(String::as_str).filter(not_empty)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "it is a filter of an iterator")]
fn not_empty(text: &&str) -> bool {
    !text.is_empty()
}

/// A text. Empty if absent.
pub(crate) fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A list of texts. Empty if absent.
pub(crate) fn texts(of: Option<&Value>, field: &str) -> Vec<String> {
    let list = of.and_then(|of| of.get(field)).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
