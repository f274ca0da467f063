//! Groups: how many of the objects that a query wants have which value.
//!
//! The view of such a query has the objects by value, so that a group is counted without a look at its objects.

use keelson_cache::{Position, View};
use keelson_meta::json::Value as Json;
use keelson_meta::{ApiError, Revision};
use keelson_query::Value;
use tokio::task::yield_now;

use super::Asked;

/// How many groups are told where no limit is given.
const DEFAULT_LIMIT: usize = 100;
/// How many are told at the most.
const MAX_LIMIT: usize = 1000;
/// After so many groups were counted others have their turn.
const COUNTED_AT_ONCE: usize = 256;

/// How many objects have which value.
pub struct Groups {
    /// The revision of the snapshot.
    pub revision: Revision,
    /// The largest groups, and those of one size by their values.
    pub groups: Vec<Group>,
    /// How many groups there are.
    pub total: usize,
    /// How many objects were looked at to find that out.
    pub looked_at: usize,
}

/// The objects that have one value.
#[derive(Debug, PartialEq)]
pub struct Group {
    /// The value; `None` for the objects that have none.
    pub value: Option<Json>,
    /// How many.
    pub count: usize,
}

impl Groups {
    pub(super) const fn empty(revision: Revision) -> Self {
        Self { revision, groups: Vec::new(), total: 0, looked_at: 0 }
    }
}

/// A group that was counted: how many, the place of all, and the key of one.
struct Counted {
    count: usize,
    place: Vec<u8>,
    key: String,
}

/// Counts the groups of a view.
pub(super) async fn count(asked: &Asked, view: &View, looked_at: usize) -> Result<Groups, ApiError> {
    let mut counted: Vec<Counted> = Vec::new();
    let mut rank = 0;
    while let Some(Position { place, key }) = view.positions(rank, rank + 1).next_position() {
        let behind = view.rank_behind_place(place);
        counted.push(Counted { count: behind - rank, place: place.to_vec(), key: key.to_owned() });
        rank = behind;
        if counted.len().is_multiple_of(COUNTED_AT_ONCE) {
            yield_now().await;
        }
    }
    let total = counted.len();
    counted.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.place.cmp(&other.place)));
    counted.truncate(asked.plan.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT));
    let groups = counted.into_iter().map(|group| named(asked, &group)).collect::<Result<_, _>>()?;
    Ok(Groups { revision: asked.snapshot.revision, groups, total, looked_at })
}

/// The value of a group, which one of its objects tells.
fn named(asked: &Asked, group: &Counted) -> Result<Group, ApiError> {
    let Counted { count, place, key } = group;
    let missing = || ApiError::Internal(format!("{key:?} stands in a view of a snapshot that it is not in"));
    let entry = asked.snapshot.get(key).ok_or_else(missing)?;
    let value = asked.wanted.look(entry, |subject| {
        asked.wanted.query.value_at(subject, place).map(|value| match value {
            Value::Bool(value) => Json::from(value),
            Value::Number(number) => {
                keelson_codec::json::parse(number.as_bytes()).map_or(Json::Null, |parsed| parsed.value)
            }
            Value::Text(text) => Json::from(text.into_owned()),
        })
    });
    Ok(Group { value, count: *count })
}
