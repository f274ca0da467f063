//! Cuts a page of objects that must be converted before their selector can be evaluated.
//!
//! Objects are converted in blocks, in the order of their keys. The page has the converted objects, so no webhook is
//! called again for the response. Tokens are those of any list with a selector.

use std::sync::Arc;

use keelson_cache::{Entry, Snapshot};
use keelson_meta::ApiError;
use keelson_storage::ContinueToken;

use super::page::KeyRange;
use super::plan::ListPlan;
use super::{ListItems, ListPage};
use crate::config::ListBounds;
use crate::converter::BATCH_OBJECTS;
use crate::selection::Selection;
use crate::target::Target;

/// Cuts the planned page.
///
/// # Errors
/// 500 if an object cannot be converted.
pub(super) async fn cut(
    snapshot: &Snapshot,
    target: &Target,
    plan: &ListPlan,
    selection: &Selection,
    bounds: ListBounds,
) -> Result<ListPage, ApiError> {
    let prefix = target.key_prefix();
    let range = KeyRange::below(&prefix, &plan.start).narrowed(target, selection);
    let mut filling = PageBuilder { plan, scan: bounds.scan, chosen: Vec::new(), looked_at: 0, last: None };
    let mut cursor = snapshot.cursor(&range.from, range.to.as_deref());
    let page = |filling: PageBuilder<'_>, next: Option<Next>| {
        let relative = |key: &str| key.strip_prefix(prefix.as_str()).unwrap_or(key).to_owned();
        let token = next.map(|next| match next {
            Next::At(key) => ContinueToken::at(snapshot.revision, &relative(&key)),
            Next::After(key) => ContinueToken::after(snapshot.revision, &relative(&key)),
        });
        let continue_token = token.map(|token| plan.encode(&token));
        let items = ListItems::Chosen(filling.chosen);
        ListPage { revision: snapshot.revision, continue_token, remaining: None, items }
    };
    loop {
        let mut block: Vec<Arc<Entry>> = Vec::new();
        while block.len() < BATCH_OBJECTS
            && let Some(leaf) = cursor.next_leaf()
        {
            block.extend_from_slice(leaf.entries());
        }
        if block.is_empty() {
            return Ok(page(filling, None));
        }
        let keys: Vec<Arc<str>> = block.iter().map(|entry| entry.key.clone()).collect();
        for (key, shown) in keys.into_iter().zip(selection.shown(block).await?) {
            if let Some(next) = filling.take(key, shown) {
                return Ok(page(filling, Some(next)));
            }
        }
    }
}

/// A page that is being filled.
struct PageBuilder<'p> {
    plan: &'p ListPlan,
    /// The largest number of entries that a list with a limit scans.
    scan: usize,
    chosen: Vec<Arc<Entry>>,
    looked_at: usize,
    /// The key that was scanned last.
    last: Option<Arc<str>>,
}

/// The start of the next page.
enum Next {
    At(Arc<str>),
    After(Arc<str>),
}

impl PageBuilder<'_> {
    /// Adds the next entry, or returns the start of the next page if this one is full.
    fn take(&mut self, key: Arc<str>, shown: Option<Arc<Entry>>) -> Option<Next> {
        let is_full = self.plan.limit == Some(self.chosen.len());
        if self.plan.to_next_visible {
            return match shown {
                Some(_) if is_full => Some(Next::At(key)),
                shown => {
                    self.chosen.extend(shown);
                    None
                }
            };
        }
        if self.plan.limit.is_some() && (is_full || self.looked_at == self.scan) {
            return self.last.clone().map(Next::After);
        }
        self.looked_at += 1;
        self.last = Some(key);
        self.chosen.extend(shown);
        None
    }
}
