//! The selection of a query: decides whether an entry of the cache matches, and computes its sort key.
//!
//! An object is evaluated in the version of the request. A query that would need a conversion webhook for that fails as
//! a whole.

use std::borrow::Cow;
use std::hint::black_box;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use keelson_cache::{Entry, IndexTerm, ObjectRef, Places, PositionSource, ReservationError, View};
use keelson_codec::StoredObject;
use keelson_codec::stored::Marks;
use keelson_meta::options::ListOptions;
use keelson_meta::{ApiError, Revision};
use keelson_query::{Budget, CostExceeded, Decision, Filter, Path, Query, Search, Segment, Subject};

use super::FailedEvaluations;
use super::cells::RowCells;
use crate::config::RegistryConfig;
use crate::list::KeyRange;
use crate::selection::Selection;
use crate::target::Target;
use crate::view::VersionedView;

/// The cost of reading an object besides its bytes, in bytes.
const LOOK_BYTES: u64 = 256;
/// Building a tree of an object costs as much as this many walks through it.
const TREE_WEIGHT: u64 = 8;
/// The size of a cache line. The start of a searched text is prefetched by it.
const LINE_BYTES: usize = 64;
const FETCHED_LINES: usize = 3;
/// An object of more than this many bytes, in the same measure, may take longer than a request may hold a thread.
pub(super) const HEAVY_BYTES: u64 = 1 << 20;
/// The cost of a condition or a regular expression, in bytes. The scan yields after each such object.
const SLOW_BYTES: u64 = 256 << 10;

/// The selection of a query in a collection.
pub(crate) struct QueryEvaluator {
    pub(super) query: Query,
    /// The keys that the URL and the selectors allow.
    pub(super) range: KeyRange,
    selection: Selection,
    target: Target,
    version: VersionedView,
    /// A name for everything that decides the places of entries.
    pub(super) name: String,
    /// The members of an object that are read.
    heads: Vec<Box<str>>,
    /// True if managedFields are searched too.
    reads_all: bool,
    /// True if the order needs the cells of each object.
    reads_cells: bool,
    /// The paths that are always indexed.
    fixed: Vec<Path>,
    /// The least number of objects to scan for which a search builds an index.
    pub(super) search_from: usize,
    /// True if an object would need a conversion webhook.
    is_unknown: AtomicBool,
    /// The limit on the cost of its expressions for all objects. Watches have none, since they pause between updates.
    budget: Option<Budget>,
    /// The first reason why the condition has no value for an object.
    failure: OnceLock<String>,
    /// The parameter whose expression costs too much, and the object. No object if all objects together cost too much.
    too_costly: OnceLock<(&'static str, Option<Arc<str>>)>,
}

impl QueryEvaluator {
    pub(crate) fn new(target: &Target, options: &ListOptions, query: Query, selection: Selection) -> Self {
        let range = KeyRange::below(&target.key_prefix(), "").narrowed(target, &selection);
        let name = format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            target.version.api_version(),
            target.key_prefix(),
            target.name,
            options.label_selector.to_string(),
            options.field_selector.to_string(),
            selection.shard_text(),
            query.canonical(),
        );
        let version = target.view();
        let heads = query.heads().into_iter().map(Into::into).collect();
        Self {
            reads_all: query.reads_managed_fields() || (query.reads_cells() && target.version.printer().reads_all()),
            reads_cells: query.reads_cells(),
            query,
            heads,
            range,
            selection,
            target: target.clone(),
            version,
            name,
            fixed: Vec::new(),
            search_from: 0,
            is_unknown: AtomicBool::new(false),
            budget: None,
            failure: OnceLock::new(),
            too_costly: OnceLock::new(),
        }
    }

    /// Adds the operator's configured indexes.
    pub(crate) fn indexed(mut self, config: &RegistryConfig) -> Self {
        self.fixed = config.indexes.get(&self.target.group_resource().to_string()).cloned().unwrap_or_default();
        self.search_from = config.search_from;
        self
    }

    /// Sets a limit on the cost of expressions.
    pub(super) fn within_budget(self) -> Self {
        Self { budget: Some(Budget::default()), ..self }
    }

    /// Resets the cost of expressions to zero.
    pub(super) fn renew_budget(&self) {
        self.budget.iter().for_each(Budget::renew);
    }

    /// The indexes that would find all matching objects, each with the value to look up. True if the operator
    /// configured the index.
    pub(super) fn indexes(&self) -> impl Iterator<Item = (Self, &str, bool)> {
        let filter = self.query.filter.iter().flat_map(Filter::exact_texts);
        let filter = filter.map(|(path, value)| (Cow::Borrowed(path), value));
        // Selectors are about fields of the stored object. A built-in kind may have such a field elsewhere in another
        // version. The trees of the cache already index one selectable field.
        let has_stored = self.target.version.is_sole() || self.target.version.structural().is_some();
        let in_trees = self.target.dispatch_field();
        let selected = self.selection.exact_fields().filter(move |(path, _)| has_stored && Some(*path) != in_trees);
        let selected =
            selected.filter_map(|(path, value)| Some((Cow::Owned(Path::parse("fieldSelector", path).ok()?), value)));
        filter.chain(selected).map(|(path, value)| (self.index_of(&path), value, self.fixed.contains(&*path)))
    }

    /// An index of all objects of the resource in the version of the request.
    fn index_of(&self, path: &Path) -> Self {
        self.of_all_by(Query::index(path.clone()))
    }

    /// All objects of the resource in the version of the request.
    pub(super) fn of_all(&self) -> Self {
        self.of_all_by(Query::default())
    }

    fn of_all_by(&self, query: Query) -> Self {
        let target = Target { namespace: None, name: None, ..self.target.clone() };
        Self::new(&target, &ListOptions::default(), query, Selection::of_everything())
    }

    /// The name of the index of all searches in the version of the request.
    pub(super) fn search_name(&self) -> String {
        format!("search {:?}", self.target.version.api_version())
    }

    /// Returns true if the selectors select everything in the range of the URL.
    pub(super) fn selects_all(&self) -> bool {
        self.selection.is_everything()
    }

    /// Returns true for all objects of a range in key order.
    pub(super) fn is_range(&self) -> bool {
        self.query.is_plain() && self.selection.is_everything()
    }

    /// The index terms that every matching object has.
    pub(super) fn index_terms(&self) -> Vec<IndexTerm<'_>> {
        let filter = self.query.filter.iter().flat_map(Filter::exact_texts);
        let labels = filter.filter_map(|(path, value)| match path.segments() {
            [Segment::Member(metadata), Segment::Member(labels), Segment::Member(key)] => {
                let is_label = **metadata == *"metadata" && **labels == *"labels";
                is_label.then_some(IndexTerm::Label { key, value })
            }
            _ => None,
        });
        self.selection.index_terms(&self.target).into_iter().chain(labels).collect()
    }

    /// The cost of reading an object, in bytes.
    pub(crate) fn weight(&self, entry: &Entry) -> u64 {
        let slow = if self.query.is_slow() { SLOW_BYTES } else { 0 };
        LOOK_BYTES + self.cost_of(entry) + slow
    }

    /// Returns true if one object may take some milliseconds.
    pub(super) fn is_slow(&self) -> bool {
        self.query.is_slow()
    }

    /// Prefetches the bytes of objects that will be read. They are scattered in memory: reading them one by one waits
    /// for each, and prefetching overlaps these waits.
    pub(super) fn fetch(&self, entries: &[&Arc<Entry>]) {
        let mut sum = 0_u8;
        for entry in entries {
            // Decoding a packed object here would be in vain.
            let object = entry.plain_object();
            let (bytes, marks) = (object.as_ref().map_or(&[][..], |object| object.skeleton()), entry.marks());
            sum ^= entry.key.as_bytes().first().copied().unwrap_or_default();
            for head in &self.heads {
                let at = marks.before(head).unwrap_or_default();
                for line in 0..FETCHED_LINES {
                    sum ^= bytes.get(at + line * LINE_BYTES).copied().unwrap_or_default();
                }
            }
        }
        black_box(sum);
    }

    /// Returns true if reading the object of an entry may block a thread for too long.
    pub(crate) fn is_heavy(&self, entry: &Entry) -> bool {
        self.cost_of(entry) > HEAVY_BYTES
    }

    fn cost_of(&self, entry: &Entry) -> u64 {
        self.query.cost(entry.list_bytes()) + entry.list_bytes() * self.tree_weight()
    }

    /// The usual cost of each byte of an object.
    pub(super) fn weight_of_byte(&self) -> u64 {
        self.query.walks() as u64 + self.tree_weight()
    }

    const fn tree_weight(&self) -> u64 {
        if self.query.condition.is_some() || self.reads_cells { TREE_WEIGHT } else { 0 }
    }

    /// The error when the view of the query exceeds the memory limit.
    pub(super) fn no_room(&self, why: ReservationError) -> ApiError {
        match why {
            ReservationError::Ever => {
                let parameter = self.query.ordering_parameter();
                ApiError::BadRequest(format!(
                    "{parameter}: the answer costs more memory than it may to be put in order"
                ))
            }
            ReservationError::Now => ApiError::TooManyRequests { retry_after_seconds: 1 },
        }
    }

    /// # Errors
    /// 400 when an object was not evaluated: it would need a conversion webhook, or the condition costs too much.
    pub(crate) fn check_known(&self) -> Result<(), ApiError> {
        match self.too_costly.get() {
            None => {}
            Some((parameter, Some(key))) => {
                return Err(ApiError::BadRequest(format!(
                    "{parameter}: the expression costs more than it may for {key}"
                )));
            }
            Some((parameter, None)) => {
                return Err(ApiError::BadRequest(format!(
                    "{parameter}: the expression costs more than it may for all objects together; choose fewer by a namespace, a \
                     selector or keelson.io/filter, or write a cheaper expression"
                )));
            }
        }
        if !self.is_unknown.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(ApiError::BadRequest(format!(
            "objects of {} are stored in other versions, which a webhook converts: a query with keelson.io parameters looks at \
             objects as they are stored, so ask for the version that they are stored in",
            self.target.group_resource()
        )))
    }

    /// The object in the version of the request.
    fn shown<'e>(&self, entry: &'e Entry) -> VersionedObject<'e> {
        if self.version.fits_entry(entry) {
            return if self.reads_all {
                VersionedObject::whole(entry, SourceObject::Stored(entry.object()))
            } else {
                VersionedObject::stored(entry)
            };
        }
        if self.version.asks() {
            self.is_unknown.store(true, Ordering::Relaxed);
            return VersionedObject::stored(entry);
        }
        // The page with an object that cannot be converted reports the error.
        let converted = self.version.show_now(entry);
        converted.map_or_else(
            |_| VersionedObject::stored(entry),
            |object| VersionedObject::whole(entry, SourceObject::Converted(object)),
        )
    }

    /// Returns true if the object matches. `None` if its condition has no value.
    fn holds(&self, entry: &Entry, seen: &VersionedObject<'_>) -> Option<bool> {
        // The whole query is refused by now, so further objects are not read.
        if self.too_costly.get().is_some() {
            return Some(false);
        }
        let subject = seen.subject();
        let refused = |why: CostExceeded, parameter| {
            self.too_costly.get_or_init(|| (parameter, (why == CostExceeded::ForObject).then(|| entry.key.clone())));
            false
        };
        let budget = self.budget.as_ref();
        if let Some(filter) = &self.query.filter
            && !filter.holds(&subject, budget).unwrap_or_else(|why| refused(why, "keelson.io/filter"))
        {
            return Some(false);
        }
        let Some(condition) = &self.query.condition else { return Some(true) };
        match condition.holds(&subject, || seen.object.decode(entry.revision).into_value(), budget) {
            Ok(Decision::Holds(holds)) => Some(holds),
            Ok(Decision::Failed(why)) => {
                self.failure.get_or_init(|| why.to_string());
                None
            }
            Err(why) => Some(refused(why, "keelson.io/where")),
        }
    }

    /// The objects of a view for which the condition has no value.
    pub(super) fn failures(&self, view: &View) -> FailedEvaluations {
        FailedEvaluations { count: view.failures(), first: self.failure.get().cloned() }
    }

    /// Returns true if the object of an entry matches.
    pub(crate) fn wants(&self, entry: &Entry) -> bool {
        self.is_selected(entry) && {
            let seen = self.shown(entry);
            let subject = seen.subject();
            let is_found = |search: &Search| search.score(&subject, entry.fields()).is_some();
            self.holds(entry, &seen) == Some(true) && self.query.search.as_ref().is_none_or(is_found)
        }
    }

    /// Returns true if the URL and the selectors select an entry.
    pub(super) fn is_selected(&self, entry: &Entry) -> bool {
        let is_behind_start = *entry.key >= *self.range.from;
        let is_before_end = self.range.to.as_ref().is_none_or(|to| *entry.key < **to);
        if !is_behind_start || !is_before_end {
            return false;
        }
        let selection = &self.selection;
        if selection.is_of_converted() && !self.version.fits_entry(entry) && selection.may_match(entry) {
            self.is_unknown.store(true, Ordering::Relaxed);
        }
        selection.matches(entry)
    }

    /// Calls `look` with the object of an entry.
    pub(super) fn look<T>(&self, entry: &Entry, look: impl FnOnce(&Subject<'_>) -> T) -> T {
        look(&self.shown(entry).subject())
    }
}

/// An object as stored, or converted.
enum SourceObject<'e> {
    Stored(ObjectRef<'e>),
    Converted(StoredObject),
}

impl Deref for SourceObject<'_> {
    type Target = StoredObject;

    fn deref(&self) -> &StoredObject {
        match self {
            Self::Stored(object) => object,
            Self::Converted(object) => object,
        }
    }
}

/// The object of an entry in the version of the request.
struct VersionedObject<'e> {
    object: SourceObject<'e>,
    /// The whole text, if the query may read managedFields.
    text: Option<Bytes>,
    /// The offsets of its parts, as far as they are known.
    marks: Marks,
    revision: Revision,
}

impl<'e> VersionedObject<'e> {
    fn stored(entry: &'e Entry) -> Self {
        Self {
            object: SourceObject::Stored(entry.object()),
            text: None,
            marks: entry.marks(),
            revision: entry.revision,
        }
    }

    /// The whole object, with managedFields.
    fn whole(entry: &Entry, object: SourceObject<'e>) -> Self {
        Self { text: Some(object.bytes()), object, marks: Marks::default(), revision: entry.revision }
    }

    fn subject(&self) -> Subject<'_> {
        Subject::new(self.text.as_deref().unwrap_or(self.object.skeleton()), self.revision).marked(self.marks)
    }
}

/// The largest number of groups of one object. Each group takes memory in the view, and work at each change of the
/// object.
const MOST_PLACES: usize = 1024;

impl PositionSource for QueryEvaluator {
    fn cost(&self, entry: &Entry) -> u64 {
        self.weight(entry)
    }

    fn is_heavy(&self, entry: &Entry) -> bool {
        self.is_heavy(entry)
    }

    fn places(&self, entry: &Entry, out: &mut Places) {
        if !self.is_selected(entry) {
            return;
        }
        if self.query.is_plain() {
            return out.push(&[]);
        }
        let seen = self.shown(entry);
        let (holds, subject) = (self.holds(entry, &seen), seen.subject());
        if holds.is_none() {
            // An object that the search does not find is not in the result anyway.
            let is_found = |search: &Search| search.score(&subject, entry.fields()).is_some();
            if self.query.search.as_ref().is_none_or(is_found) {
                out.fail();
            }
        }
        if holds == Some(true) {
            let cells = RowCells::new(self.target.version.printer(), subject.json);
            let subject = if self.reads_cells { subject.with_cells(&cells) } else { subject };
            let mut count = 0;
            self.query.places(&subject, entry.fields(), |place| {
                count += 1;
                if count <= MOST_PLACES {
                    out.push(place);
                }
                count <= MOST_PLACES
            });
            if count > MOST_PLACES {
                self.too_costly.get_or_init(|| ("keelson.io/groupBy", Some(entry.key.clone())));
            }
        }
    }
}
