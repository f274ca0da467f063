//! Matches: the places of the searched words in the objects of a page.
//!
//! Matches are a separate result, since an ordinary list has no field for them in every encoding. The page is that of
//! the same query without matches. Both results have the revision, so that a client can join them.

use keelson_cache::Entry;
use keelson_meta::{ApiError, Revision};
use keelson_query::WordMatch;

use super::page::QueryPage;
use super::turns::Turns;
use super::{FailedEvaluations, PlannedQuery, QueryEvaluator, groups};

/// The number of objects without a limit.
pub(super) const DEFAULT_LIMIT: usize = 100;
/// The largest number of objects.
pub(super) const MAX_LIMIT: usize = 1000;

/// The places of the searched words.
pub struct Matches {
    /// The revision of the snapshot.
    pub revision: Revision,
    /// The token of the next page.
    pub continue_token: Option<String>,
    /// The number of objects after this page, if any.
    pub remaining: Option<u64>,
    /// The objects of the page.
    pub objects: Vec<MatchedPlaces>,
    /// The number of objects in the whole result.
    pub total: usize,
    /// The number of scanned objects.
    pub looked_at: usize,
    /// The objects for which the condition has no value.
    pub failures: FailedEvaluations,
}

/// The places in one object.
pub struct MatchedPlaces {
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The best place of each word.
    pub matches: Vec<WordMatch>,
}

impl Matches {
    pub(super) fn new(page: QueryPage, objects: Vec<MatchedPlaces>) -> Self {
        let QueryPage { revision, continue_token, remaining, total, looked_at, failures, items: _ } = page;
        Self { revision, continue_token, remaining, objects, total, looked_at, failures }
    }
}

/// Reads the objects of a page again, for their matches.
///
/// # Errors
/// 400 when their paths are too large.
pub(super) async fn told(query: &PlannedQuery, mut page: QueryPage) -> Result<Matches, ApiError> {
    let entries = std::mem::replace(&mut page.items, super::page::none()).into_entries().await?;
    let mut objects = Vec::with_capacity(entries.len());
    let mut turns = Turns::new(&query.sought.wanted);
    let mut bytes = 0;
    for entry in &entries {
        let matches = turns.look(entry, of_entry).await;
        // A path has names of fields, which have up to the size of an object.
        bytes += matches.iter().map(|found| found.field.len() + found.text.len()).sum::<usize>();
        if groups::is_too_large(bytes) {
            return Err(groups::too_large("matches", "paths"));
        }
        objects.push(MatchedPlaces {
            namespace: entry.namespace().map(str::to_owned),
            name: entry.name().to_owned(),
            matches,
        });
    }
    Ok(Matches::new(page, objects))
}

fn of_entry(wanted: &QueryEvaluator, entry: &Entry) -> Vec<WordMatch> {
    let Some(search) = &wanted.query.search else { return Vec::new() };
    wanted.look(entry, |subject| search.matches(subject, entry.layout().names().zip(entry.fields())))
}
