//! What a list or watch selects: label and field selectors, resolved against one resource. Where a field is, each entry
//! says itself: what a collection keeps can change while a selection is in use.
//!
//! A selection narrows what is returned and never what a continue token is relative to: that is the range of the URL
//! alone, so that a chunked walk with any selector finds each object once.

use std::sync::{Arc, OnceLock};

use keelson_cache::{Entry, IndexTerm, Layout, Scope};
use keelson_meta::ApiError;
use keelson_meta::field_selector::{FieldOperator, FieldSelector};
use keelson_meta::label_selector::{LabelSelector, Operator};
use keelson_meta::options::ListOptions;
use keelson_resources::{FieldRef, Text};

use crate::target::Target;

/// The selectors of one request.
#[derive(Clone, Debug)]
pub struct Selection {
    labels: LabelSelector,
    fields: Vec<ResolvedTerm>,
    /// The namespace of the URL.
    within: Option<String>,
    /// The namespace of the URL, or the one that the fields demand.
    namespace: Option<String>,
    name: Option<String>,
}

/// One term of a field selector.
#[derive(Clone, Debug)]
struct ResolvedTerm {
    field: Field,
    op: FieldOperator,
    value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// A field that the cache keeps beside an entry.
    Stored(StoredField),
}

/// A field that the cache keeps beside an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredField {
    /// The first of these that is not empty has its text.
    paths: Vec<String>,
    /// The text of an absent field.
    absent: Text,
    /// Where the fields are in the entries that are looked at, nearly all of which have one layout.
    places: OnceLock<(Arc<Layout>, Vec<usize>)>,
}

impl StoredField {
    fn text<'e>(&'e self, entry: &'e Entry) -> &'e str {
        let places = |layout: &Layout| self.paths.iter().filter_map(|path| layout.place(path)).collect();
        let (layout, known) = self.places.get_or_init(|| (entry.layout().clone(), places(entry.layout())));
        let text = |places: &[usize]| places.iter().map(|place| entry.field(*place)).find(|text| !text.is_empty());
        // A layout is known by where it is: the one that is held can't be anywhere else.
        let found = if Arc::ptr_eq(layout, entry.layout()) { text(known) } else { text(&places(entry.layout())) };
        found.unwrap_or(&self.absent)
    }
}

impl Selection {
    /// Resolves the selectors of `options` for the resource of `target`.
    ///
    /// # Errors
    /// 400 for a field that can't be selected on this resource, and for a name in the URL that the selector contradicts.
    pub fn new(target: &Target, options: &ListOptions) -> Result<Self, ApiError> {
        let fields = resolve(target, &options.field_selector)?;
        let exact = |wanted: &Field| {
            fields
                .iter()
                .find(|term| term.field == *wanted && term.op == FieldOperator::Equal)
                .map(|term| term.value.clone())
        };
        let mut name = exact(&Field::Name);
        if let Some(in_path) = &target.name {
            if name.as_ref().is_some_and(|selected| selected != in_path) {
                return Err(ApiError::BadRequest(
                    "fieldSelector metadata.name doesn't match requested name".to_owned(),
                ));
            }
            name = Some(in_path.clone());
        }
        let within = target.namespace.clone().filter(|_| target.is_namespaced());
        let namespace = within.clone().or_else(|| exact(&Field::Namespace));
        Ok(Self { labels: options.label_selector.clone(), fields, within, namespace, name })
    }

    /// Whether nothing is selected away: the only case in which the remaining items can be counted.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none()
    }

    /// Whether the entry is selected.
    ///
    /// Cost: one comparison a term; no allocation, but where the layout of the collection changes meanwhile.
    pub fn matches(&self, entry: &Entry) -> bool {
        self.name.as_deref().is_none_or(|name| entry.name() == name)
            && self.within.as_deref().is_none_or(|namespace| entry.namespace() == Some(namespace))
            && self.fields.iter().all(|term| term.matches(entry))
            && (self.labels.is_empty() || self.labels.matches(|key| entry.labels.get(key)))
    }

    /// The one relative key that can match, when the selectors name it.
    pub fn single_key(&self, namespaced: bool) -> Option<String> {
        let name = self.name.as_ref()?;
        match (&self.namespace, namespaced) {
            (Some(namespace), true) => Some(format!("{namespace}/{name}")),
            (None, true) => None,
            (_, false) => Some(name.clone()),
        }
    }

    /// The namespace that everything selected is in, by the URL or by the selector.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The most selective set of events that holds all that this selection can match.
    pub fn scope(&self, target: &Target) -> Scope {
        if let Some(key) = self.single_key(target.is_namespaced()) {
            return Scope::Object { key };
        }
        if let Some((path, value)) = self.dispatched(target) {
            return Scope::Field { path: path.to_owned(), value: value.to_owned() };
        }
        match &self.namespace {
            Some(namespace) if target.is_namespaced() => Scope::Namespace(namespace.clone()),
            _ => Scope::All,
        }
    }
}

impl Selection {
    /// What every selected entry has and the index knows, so that a list need not look at the rest.
    pub fn index_terms(&self, target: &Target) -> Vec<IndexTerm<'_>> {
        let labels = self.labels.requirements().iter().filter_map(|requirement| {
            let mut values = requirement.values();
            match (requirement.operator(), values.next(), values.next()) {
                (Operator::Equals | Operator::DoubleEquals | Operator::In, Some(value), None) => {
                    Some(IndexTerm::Label { key: requirement.key(), value })
                }
                _ => None,
            }
        });
        labels.chain(self.dispatched(target).map(|(path, value)| IndexTerm::Field { path, value })).collect()
    }

    /// The dispatch field, and the one value of it that everything selected has. Never empty: that is also what an absent
    /// field has, and those are in no index.
    fn dispatched(&self, target: &Target) -> Option<(&str, &str)> {
        let dispatched = target.dispatch_field()?;
        self.fields.iter().find_map(|term| match (&term.field, term.op) {
            (Field::Stored(StoredField { paths, .. }), FieldOperator::Equal) if *paths == [dispatched] => {
                Some((paths[0].as_str(), term.value.as_str())).filter(|(_, value)| !value.is_empty())
            }
            _ => None,
        })
    }
}

impl ResolvedTerm {
    fn matches(&self, entry: &Entry) -> bool {
        let actual = match &self.field {
            Field::Name => entry.name(),
            Field::Namespace => entry.namespace().unwrap_or_default(),
            Field::Stored(field) => field.text(entry),
        };
        match self.op {
            FieldOperator::Equal => actual == self.value,
            FieldOperator::NotEqual => actual != self.value,
        }
    }
}

fn resolve(target: &Target, selector: &FieldSelector) -> Result<Vec<ResolvedTerm>, ApiError> {
    selector
        .terms()
        .iter()
        .map(|term| {
            let known = target.resource.field(&target.version.name, &term.field).map_err(ApiError::BadRequest)?;
            let field = match known {
                FieldRef::Name => Field::Name,
                FieldRef::Namespace => Field::Namespace,
                FieldRef::Declared(declared) => Field::Stored(StoredField {
                    paths: declared.paths.iter().map(ToString::to_string).collect(),
                    absent: declared.absent.clone(),
                    places: OnceLock::new(),
                }),
            };
            Ok(ResolvedTerm { field, op: term.op, value: term.value.clone() })
        })
        .collect()
}
