//! Matches: where the words of a search are found in the objects of a page.
//!
//! They are told beside the objects and not in them: an ordinary list has no place for them in every encoding. The page is that of the
//! same query without them, so that who has the one finds the other by its revision.

use keelson_cache::Entry;
use keelson_meta::{ApiError, Revision};
use keelson_query::WordMatch;

use super::page::QueryPage;
use super::turns::Turns;
use super::{Asked, FailedEvaluations, Wanted};

/// How many objects are told of where no limit is given.
pub(super) const DEFAULT_LIMIT: usize = 100;
/// How many objects are told of at the most.
pub(super) const MAX_LIMIT: usize = 1000;

/// Where the words of a search are found.
pub struct Matches {
    /// The revision of the snapshot.
    pub revision: Revision,
    /// Where the next page starts.
    pub continue_token: Option<String>,
    /// How many objects follow this page, where there are some.
    pub remaining: Option<u64>,
    /// The objects of the page.
    pub objects: Vec<Matched>,
    /// How many objects the whole answer has.
    pub total: usize,
    /// How many objects were looked at to find out which these are.
    pub looked_at: usize,
    /// The objects for which the condition has no value.
    pub failures: FailedEvaluations,
}

/// Where they are found in one object.
pub struct Matched {
    /// Its namespace, where objects have one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Where each word is found best.
    pub matches: Vec<WordMatch>,
}

impl Matches {
    pub(super) fn of(page: QueryPage, objects: Vec<Matched>) -> Self {
        let QueryPage { revision, continue_token, remaining, total, looked_at, failures, items: _ } = page;
        Self { revision, continue_token, remaining, objects, total, looked_at, failures }
    }
}

/// Looks into the objects of a page once more.
pub(super) async fn told(asked: &Asked, mut page: QueryPage) -> Result<Matches, ApiError> {
    let entries = std::mem::replace(&mut page.items, super::page::none()).into_entries().await?;
    let mut objects = Vec::with_capacity(entries.len());
    let mut turns = Turns::new(&asked.sought.wanted);
    for entry in &entries {
        objects.push(Matched {
            namespace: entry.namespace().map(str::to_owned),
            name: entry.name().to_owned(),
            matches: turns.look(entry, of_entry).await,
        });
    }
    Ok(Matches::of(page, objects))
}

fn of_entry(wanted: &Wanted, entry: &Entry) -> Vec<WordMatch> {
    let Some(search) = &wanted.query.search else { return Vec::new() };
    wanted.look(entry, |subject| search.matches(subject, entry.layout().names().zip(entry.fields())))
}
