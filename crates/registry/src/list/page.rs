//! Cuts one page out of a snapshot.
//!
//! A token is relative to the range of the URL. A selector may only narrow the scan inside it.

use std::sync::Arc;

use keelson_cache::{Entry, Snapshot};
use keelson_storage::{ContinueToken, StoreKey, behind};

use super::plan::ListPlan;
use super::{ListItems, ListPage};
use crate::config::ListBounds;
use crate::selection::Selection;
use crate::target::Target;

/// A half-open range of relative keys; no end means the end of the collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) from: String,
    pub(crate) to: Option<String>,
}

impl KeyRange {
    /// All keys that start with `prefix`, from `prefix + start` on.
    pub(crate) fn below(prefix: &str, start: &str) -> Self {
        Self { from: format!("{prefix}{start}"), to: prefix_end(prefix) }
    }

    /// Returns true if the range contains a key.
    fn holds(&self, key: &str) -> bool {
        *key >= *self.from && self.to.as_ref().is_none_or(|to| *key < **to)
    }

    /// The part of this range that a selected namespace or name leaves.
    pub(crate) fn narrowed(self, target: &Target, selection: &Selection) -> Self {
        let namespaced = target.is_namespaced();
        let inner = match (selection.single_key(namespaced), selection.namespace()) {
            (Some(key), _) => Self { to: Some(behind(&key)), from: key },
            (None, Some(namespace)) if namespaced => Self::below(&format!("{namespace}/"), ""),
            (None, _) => return self,
        };
        let to = match (self.to, inner.to) {
            (Some(outer), Some(inner)) => Some(outer.min(inner)),
            (outer, inner) => outer.or(inner),
        };
        Self { from: self.from.max(inner.from), to }
    }
}

/// Cuts the planned page, and returns the number of scanned objects. `found` are the objects from an index: all
/// selected ones, in the order of the keys.
pub(super) fn cut(
    snapshot: &Snapshot,
    target: &Target,
    plan: &ListPlan,
    (selection, found): (&Selection, Option<&[Arc<Entry>]>),
    bounds: ListBounds,
) -> (ListPage, usize) {
    let prefix = target.key_prefix();
    let range = KeyRange::below(&prefix, &plan.start).narrowed(target, selection);
    let relative = |key: &str| key.strip_prefix(prefix.as_str()).unwrap_or(key).to_owned();
    let token_after = |key: &str| plan.encode(&ContinueToken::after(snapshot.revision, &relative(key)));
    if selection.is_everything() {
        let page = cut_range(snapshot, &range, plan.limit, token_after);
        let returned = page.items.known_len();
        return (page, returned);
    }
    let mut chosen = Vec::new();
    let mut last = None;
    let mut continue_token = None;
    let mut seen = 0;
    let candidates: Box<dyn Iterator<Item = &Arc<Entry>>> = match found {
        Some(found) => Box::new(found.iter().filter(|entry| range.holds(&entry.key))),
        None => Box::new(snapshot.select(&selection.index_terms(target), &range.from, range.to.as_deref())),
    };
    for (looked_at, entry) in candidates.enumerate() {
        seen = looked_at + 1;
        if plan.to_next_visible {
            if !selection.matches(entry) {
                continue;
            }
            if plan.limit == Some(chosen.len()) {
                continue_token = Some(plan.encode(&ContinueToken::at(snapshot.revision, &relative(&entry.key))));
                break;
            }
            chosen.push(entry.clone());
            continue;
        }
        if plan.limit.is_some_and(|limit| chosen.len() == limit || looked_at == bounds.scan) {
            continue_token = last.map(token_after);
            break;
        }
        last = Some(&*entry.key);
        if selection.matches(entry) {
            chosen.push(entry.clone());
        }
    }
    let items = ListItems::Chosen(chosen);
    (ListPage { revision: snapshot.revision, continue_token, remaining: None, items }, seen)
}

/// Cost: O(log n), whatever the size of the page.
fn cut_range(
    snapshot: &Snapshot,
    range: &KeyRange,
    limit: Option<usize>,
    token_after: impl Fn(&str) -> String,
) -> ListPage {
    let all = |to: Option<&str>| ListItems::Range {
        cursor: snapshot.cursor(&range.from, to),
        bytes: snapshot.bytes(&range.from, to),
    };
    let total = snapshot.count(&range.from, range.to.as_deref());
    let last = limit
        .filter(|limit| *limit < total)
        .and_then(|limit| Some((limit, snapshot.nth(snapshot.rank(&range.from) + limit - 1)?)));
    match last {
        None => ListPage {
            revision: snapshot.revision,
            continue_token: None,
            remaining: None,
            items: all(range.to.as_deref()),
        },
        Some((limit, last)) => ListPage {
            revision: snapshot.revision,
            continue_token: Some(token_after(&last.key)),
            remaining: Some((total - limit) as u64),
            items: all(Some(&behind(&last.key))),
        },
    }
}

/// The first key after all keys that start with `prefix`. `None` if the prefix is empty.
fn prefix_end(prefix: &str) -> Option<String> {
    (!prefix.is_empty()).then(|| StoreKey::prefix_end(prefix).as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_sibling() {
        assert_eq!(prefix_end("team-a/"), Some("team-a0".to_owned()));
        assert_eq!(prefix_end(""), None);
        assert!("team-a/zzz" < "team-a0");
        assert!("team-a-b/x" < "team-a/", "siblings with a dash sort before");
    }
}
