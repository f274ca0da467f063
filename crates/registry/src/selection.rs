//! The selection of a list or watch: label and field selectors, resolved against one resource. The fields that a
//! collection keeps can change while a selection is in use, so each entry has the layout of its fields.
//!
//! A selection narrows the result and never the position of a continue token, which is relative to the range of the URL
//! alone. A chunked walk with any selector therefore finds each object once. `selection/converted.rs` selects fields of
//! objects that a webhook converts.

mod converted;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use keelson_cache::{Entry, IndexTerm, Layout, ListIndex, Scope, ScopeTerm, SelectedScope, Snapshot};
use keelson_meta::ApiError;
use keelson_meta::field_selector::{FieldOperator, FieldSelector};
use keelson_meta::label_selector::{LabelSelector, Operator};
use keelson_meta::options::ListOptions;
use keelson_meta::shard_selector::{ShardField, ShardSelector};
use keelson_resources::{FieldRef, Text};

use crate::registry::Registry;
use crate::target::Target;
use crate::view::VersionedView;

/// The selectors of one request.
#[derive(Clone, Debug)]
pub struct Selection {
    labels: LabelSelector,
    fields: Vec<FieldCondition>,
    /// The namespace of the URL.
    within: Option<String>,
    /// The namespace of the URL, or the one that the field selector requires.
    namespace: Option<String>,
    name: Option<String>,
    /// The shard of the collection.
    shard: Option<Arc<ShardSelector>>,
    /// The view that has the fields, if a webhook converts the objects. Fields beside a cache entry are those of the
    /// stored version.
    converted: Option<VersionedView>,
}

/// The feature gate of shards.
const SHARDS: &str = "ShardedListAndWatch";
/// The largest number of terms looked up in the index. The first few rare terms decide the scan, and a selector may
/// have thousands.
const MAX_INDEX_TERMS: usize = 16;

/// All terms of a field selector on one field, so that many terms cost no more than one.
#[derive(Clone, Debug)]
struct FieldCondition {
    field: Field,
    /// The required value. Terms that require different values select nothing.
    exact: Option<String>,
    contradicts: bool,
    /// The forbidden values.
    refused: HashSet<String>,
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
    /// The paths of the field. Its value is the first of them that is not empty.
    paths: Vec<String>,
    /// The value of an absent field.
    absent: Text,
    /// The positions of the fields in the scanned entries. Nearly all entries have the same layout.
    places: OnceLock<(Arc<Layout>, Vec<usize>)>,
}

impl StoredField {
    fn text<'e>(&'e self, entry: &'e Entry) -> &'e str {
        let places = |layout: &Layout| self.paths.iter().filter_map(|path| layout.place(path)).collect();
        let (layout, known) = self.places.get_or_init(|| (entry.layout().clone(), places(entry.layout())));
        let text = |places: &[usize]| places.iter().map(|place| entry.field(*place)).find(|text| !text.is_empty());
        // A layout is identified by its address. The one that is held keeps its address.
        let found = if Arc::ptr_eq(layout, entry.layout()) { text(known) } else { text(&places(entry.layout())) };
        found.unwrap_or(&self.absent)
    }
}

impl Selection {
    /// Resolves the selectors of `options` for the resource of `target`.
    ///
    /// # Errors
    /// 400 for a field that cannot be selected on this resource, and for a name in the URL that contradicts the
    /// selector.
    pub fn new(target: &Target, options: &ListOptions) -> Result<Self, ApiError> {
        let fields = resolve(target, &options.field_selector)?;
        let exact = |wanted: &Field| {
            fields.iter().find(|condition| condition.field == *wanted).and_then(|condition| condition.exact.clone())
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
        let is_stored = |condition: &FieldCondition| matches!(condition.field, Field::Stored(_));
        let asks = target.resource.converter().is_some() && fields.iter().any(is_stored);
        let converted = asks.then(|| target.view());
        Ok(Self { labels: options.label_selector.clone(), fields, within, namespace, name, shard: None, converted })
    }

    /// The selection of everything, in all namespaces.
    pub(crate) fn of_everything() -> Self {
        let labels = ListOptions::default().label_selector;
        Self { labels, fields: Vec::new(), within: None, namespace: None, name: None, shard: None, converted: None }
    }

    /// Returns true if there is no selector. Only then can the remaining items be counted.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none() && self.shard.is_none()
    }

    /// Returns true for a selected entry. Returns false for an entry that must be converted first: [`Self::shown`]
    /// selects those.
    ///
    /// Cost: one look for each field and each label, or less. Nothing is allocated, unless the layout of the collection
    /// changes meanwhile.
    pub fn matches(&self, entry: &Entry) -> bool {
        self.converted.as_ref().is_none_or(|view| view.fits_entry(entry))
            && self.is_in_place(entry)
            && self.fields.iter().all(|condition| condition.matches(entry))
            && self.has_labels(entry)
    }

    /// Returns true for an entry with the selected name and namespace, in the selected shard.
    fn is_in_place(&self, entry: &Entry) -> bool {
        self.name.as_deref().is_none_or(|name| entry.name() == name)
            && self.within.as_deref().is_none_or(|namespace| entry.namespace() == Some(namespace))
            && self.shard.as_deref().is_none_or(|shard| match shard.field() {
                ShardField::Uid => shard.matches(&entry.object().uid()),
                ShardField::Namespace => shard.matches(entry.namespace().unwrap_or_default()),
            })
    }

    /// Returns true for an entry with the selected labels.
    fn has_labels(&self, entry: &Entry) -> bool {
        self.labels.is_empty() || self.labels.matches_labels(|key| entry.labels.get(key), || entry.labels.iter())
    }

    /// The only relative key that can match, if the selectors require a name.
    pub fn single_key(&self, namespaced: bool) -> Option<String> {
        let name = self.name.as_ref()?;
        match (&self.namespace, namespaced) {
            (Some(namespace), true) => Some(format!("{namespace}/{name}")),
            (None, true) => None,
            (_, false) => Some(name.clone()),
        }
    }

    /// The namespace of all selected objects, from the URL or the field selector.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The most selective set of events that contains every match of this selection. The snapshot gives the number of
    /// objects for each required term.
    pub fn scope(&self, target: &Target, snapshot: &Snapshot) -> Scope {
        if let Some(key) = self.single_key(target.is_namespaced()) {
            return Scope::Object { key };
        }
        let namespace = self.namespace.clone().filter(|_| target.is_namespaced());
        if let Some((path, value)) = self.dispatched(target)
            && self.fields.len() == 1
            && self.labels.is_empty()
            && namespace.is_none()
        {
            return Scope::Field { path: path.to_owned(), value: value.to_owned() };
        }
        if let Some(term) = self.scope_term(target, snapshot) {
            let (name, selection) = (self.identity().into(), self.clone());
            let test = Arc::new(move |entry: &Entry| selection.may_match(entry));
            return Scope::Selected(SelectedScope { term, namespace, name, test });
        }
        namespace.map_or(Scope::All, Scope::Namespace)
    }

    /// The rarest required term that events can be dispatched by.
    fn scope_term(&self, target: &Target, snapshot: &Snapshot) -> Option<ScopeTerm> {
        if let Some(name) = &self.name {
            return Some(ScopeTerm::Name(name.clone()));
        }
        let count = |term: &IndexTerm<'_>| {
            let found = snapshot.select(std::slice::from_ref(term), "", None).size_hint();
            found.1.unwrap_or(usize::MAX)
        };
        let indexed = self.index_terms(target).into_iter().min_by_key(count).map(|term| match term {
            IndexTerm::Label { key, value } => ScopeTerm::Label { key: key.to_owned(), value: value.to_owned() },
            IndexTerm::Field { path, value } => field_term(path, value),
        });
        let of_field = || self.exact_fields().next().map(|(path, value)| field_term(path, value));
        indexed.or_else(of_field).or_else(|| {
            let demanded = self.labels.requirements().iter().find(|requirement| {
                matches!(
                    requirement.operator(),
                    Operator::Exists | Operator::In | Operator::Equals | Operator::DoubleEquals
                )
            });
            demanded.map(|requirement| ScopeTerm::LabelKey(requirement.key().to_owned()))
        })
    }

    /// The selector of the shard, if there is one.
    pub(crate) fn shard_text(&self) -> Option<String> {
        self.shard.as_ref().map(ToString::to_string)
    }

    /// A text for the selection. Selections of one resource with equal texts select the same objects.
    fn identity(&self) -> String {
        let fields = self.fields.iter().map(|condition| {
            let mut refused: Vec<&String> = condition.refused.iter().collect();
            refused.sort_unstable();
            let field = match &condition.field {
                Field::Name => "name".to_owned(),
                Field::Namespace => "namespace".to_owned(),
                Field::Stored(StoredField { paths, absent, .. }) => format!("{paths:?} {absent:?}"),
            };
            format!("{field} {:?} {} {refused:?}", condition.exact, condition.contradicts)
        });
        let fields: Vec<String> = fields.collect();
        let version = self.converted.as_ref().map(VersionedView::kind);
        let (labels, shard) = (self.labels.to_string(), self.shard_text());
        format!("{labels:?} {:?} {:?} {shard:?} {fields:?} {version:?}", self.within, self.name)
    }
}

impl Registry {
    /// The selection of a request: its selectors, and its shard if the feature gate is on.
    pub(crate) fn selection(&self, target: &Target, options: &ListOptions) -> Result<Selection, ApiError> {
        let selection = Selection::new(target, options)?;
        Ok(Selection { shard: self.shard(options)?.map(Arc::new), ..selection })
    }

    /// The shard that a request selects; `None` for the whole collection, and while the feature gate is off.
    ///
    /// # Errors
    /// 400 for an invalid selector.
    pub fn shard(&self, options: &ListOptions) -> Result<Option<ShardSelector>, ApiError> {
        // Nearly all requests have no selector, and need not look up the gate.
        if options.shard_selector_raw.is_empty() || !self.config.gates.is_on(SHARDS) {
            return Ok(None);
        }
        options.shard_selector()
    }
}

fn field_term(path: &str, value: &str) -> ScopeTerm {
    ScopeTerm::Field { path: path.to_owned(), value: value.to_owned() }
}

impl Selection {
    /// The index terms that every selected entry has, so that a list scans only entries with them.
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
        let dispatched = self.dispatched(target).map(|(path, value)| IndexTerm::Field { path, value });
        dispatched.into_iter().chain(labels).take(MAX_INDEX_TERMS).collect()
    }

    /// The kind of index from which a list with this selection is read. `is_found` is true if an index of a declared
    /// field was used.
    pub(crate) fn list_index(&self, target: &Target, is_found: bool) -> ListIndex {
        match self.index_terms(target).first() {
            _ if is_found => ListIndex::Field,
            Some(IndexTerm::Field { .. }) => ListIndex::Field,
            Some(IndexTerm::Label { .. }) => ListIndex::Label,
            None => ListIndex::None,
        }
    }

    /// The paths of single fields, each with the only value that selected objects have there. Objects without the field
    /// never have this value. Empty if objects are converted, since stored ones may have other values.
    pub fn exact_fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let stored = self.fields.iter().filter(|_| self.converted.is_none());
        stored.filter_map(|condition| {
            let Field::Stored(StoredField { paths, absent, .. }) = &condition.field else { return None };
            let value = condition.exact.as_deref().filter(|value| !value.is_empty() && **absent != **value)?;
            let [path] = paths.as_slice() else { return None };
            Some((path.as_str(), value))
        })
    }

    /// The dispatch field, and the only value of it that selected objects have. The value is never empty: an absent
    /// field is empty too, and such objects are in no index.
    fn dispatched(&self, target: &Target) -> Option<(&str, &str)> {
        let dispatched = target.dispatch_field().filter(|_| self.converted.is_none())?;
        self.fields.iter().find_map(|condition| match &condition.field {
            Field::Stored(StoredField { paths, .. }) if *paths == [dispatched] => {
                let value = condition.exact.as_deref().filter(|value| !value.is_empty())?;
                Some((paths[0].as_str(), value))
            }
            Field::Stored(_) | Field::Name | Field::Namespace => None,
        })
    }
}

impl FieldCondition {
    fn add(&mut self, op: FieldOperator, value: &str) {
        match op {
            FieldOperator::Equal => {
                self.contradicts |= self.exact.as_deref().is_some_and(|exact| exact != value);
                self.exact.get_or_insert_with(|| value.to_owned());
            }
            FieldOperator::NotEqual => {
                self.refused.insert(value.to_owned());
            }
        }
    }

    fn matches(&self, entry: &Entry) -> bool {
        let actual = match &self.field {
            Field::Name => entry.name(),
            Field::Namespace => entry.namespace().unwrap_or_default(),
            Field::Stored(field) => field.text(entry),
        };
        !self.contradicts
            && self.exact.as_deref().is_none_or(|exact| exact == actual)
            && (self.refused.is_empty() || !self.refused.contains(actual))
    }
}

fn resolve(target: &Target, selector: &FieldSelector) -> Result<Vec<FieldCondition>, ApiError> {
    let mut conditions: Vec<FieldCondition> = Vec::new();
    for term in selector.terms() {
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
        match conditions.iter_mut().find(|condition| condition.field == field) {
            Some(condition) => condition.add(term.op, &term.value),
            None => {
                let mut condition = FieldCondition { field, exact: None, contradicts: false, refused: HashSet::new() };
                condition.add(term.op, &term.value);
                conditions.push(condition);
            }
        }
    }
    Ok(conditions)
}
