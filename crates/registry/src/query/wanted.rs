//! The objects that a query wants, as the cache asks: where each entry stands, if it is wanted at all.
//!
//! An object is looked at in the version of the request. What can't be told without asking somebody fails the query as a whole.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use keelson_cache::{Entry, IndexTerm, Places, Sight};
use keelson_meta::ApiError;
use keelson_meta::options::ListOptions;
use keelson_query::{Query, Subject};

use crate::list::KeyRange;
use crate::selection::Selection;
use crate::target::Target;
use crate::view::VersionedView;

/// What a query wants of a collection.
pub(crate) struct Wanted {
    pub(super) query: Query,
    /// The keys that the URL and the selectors leave.
    pub(super) range: KeyRange,
    selection: Selection,
    target: Target,
    version: VersionedView,
    /// Names all that the places of entries depend on.
    pub(super) name: String,
    /// Whether an object came by that somebody would have to be asked about.
    is_unknown: AtomicBool,
}

impl Wanted {
    pub(crate) fn new(target: &Target, options: &ListOptions, query: Query, selection: Selection) -> Self {
        let range = KeyRange::below(&target.key_prefix(), "").narrowed(target, &selection);
        let name = format!(
            "{:?} {:?} {:?} {:?} {:?} {:?}",
            target.version.api_version(),
            target.key_prefix(),
            target.name,
            options.label_selector.to_string(),
            options.field_selector.to_string(),
            query.canonical(),
        );
        let version = target.view();
        Self { query, range, selection, target: target.clone(), version, name, is_unknown: AtomicBool::new(false) }
    }

    /// Whether these are all objects of a range in the order of their keys.
    pub(super) fn is_range(&self) -> bool {
        self.query.is_plain() && self.selection.is_everything()
    }

    /// What every object that is wanted has and the index knows.
    pub(super) fn index_terms(&self) -> Vec<IndexTerm<'_>> {
        self.selection.index_terms(&self.target)
    }

    /// # Errors
    /// 400 when an object was not looked at, because somebody would have to be asked what it is in the version of the request.
    pub(super) fn check_known(&self) -> Result<(), ApiError> {
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
    fn json<'e>(&self, entry: &'e Entry) -> Cow<'e, [u8]> {
        if self.version.fits(&entry.object) {
            return Cow::Borrowed(entry.object.bytes());
        }
        if self.version.asks() {
            self.is_unknown.store(true, Ordering::Relaxed);
            return Cow::Borrowed(entry.object.bytes());
        }
        match self.version.show_now(entry) {
            Ok(shown) => Cow::Owned(shown.bytes().to_vec()),
            // The page that it is on says what is wrong with it.
            Err(_) => Cow::Borrowed(entry.object.bytes()),
        }
    }

    /// Hands an object to be looked at.
    pub(super) fn look<T>(&self, entry: &Entry, look: impl FnOnce(&Subject<'_>) -> T) -> T {
        let json = self.json(entry);
        look(&Subject { json: &json, revision: entry.revision })
    }
}

impl Sight for Wanted {
    fn places(&self, entry: &Entry, out: &mut Places) {
        let is_behind_start = *entry.key >= *self.range.from;
        let is_before_end = self.range.to.as_ref().is_none_or(|to| *entry.key < **to);
        if !is_behind_start || !is_before_end || !self.selection.matches(entry) {
            return;
        }
        if self.query.is_plain() {
            return out.push(&[]);
        }
        self.look(entry, |subject| self.query.places(subject, |place| out.push(place)));
    }
}
