//! The plan of a query: revision, start and length, from its parameters and the options of a list.
//!
//! Unlike a list, a query applies its limit at any revision: no client relies on an ignored limit.

use std::num::NonZeroUsize;

use keelson_cache::ViewOwner;
use keelson_meta::options::{ListOptions, RequestedVersion};
use keelson_meta::{ApiError, Revision};
use keelson_query::{Query, QueryToken, TokenRevision};

use crate::caller::Caller;
use crate::list::{ReadAt, TokenForm, read_at};
use crate::target::Target;

/// A planned query.
#[derive(Clone)]
pub(super) struct QueryPlan {
    pub(super) at: ReadAt,
    pub(super) start: Start,
    /// The largest number of objects.
    pub(super) limit: Option<usize>,
    /// The hash that its tokens are bound to.
    pub(super) fingerprint: u64,
    pub(super) form: TokenForm,
    /// True for a query of a past revision.
    pub(super) is_past: bool,
    /// The user that views are built for.
    pub(super) owner: ViewOwner,
}

/// The start of a page.
#[derive(Clone)]
pub(super) enum Start {
    /// The object with this number, from 0.
    Rank(usize),
    /// The object after the last one of another page.
    Behind(QueryToken),
}

impl QueryPlan {
    /// Plans a query. `moment` is a past revision, if the query requests one.
    ///
    /// # Errors
    /// 400 for an invalid token, for a token of another query, for an invalid resourceVersion, and for mutually
    /// exclusive options.
    pub(super) fn new(
        target: &Target,
        options: &ListOptions,
        query: &Query,
        moment: Option<Revision>,
        form: TokenForm,
    ) -> Result<Self, ApiError> {
        let requested = options.requested_version()?;
        let limit = options.limit.map(NonZeroUsize::get);
        let fingerprint = fingerprint(target, options, query);
        let (is_past, owner) = (moment.is_some(), ViewOwner::default());
        let refused = |why: &str| Err(ApiError::BadRequest(why.to_owned()));
        if moment.is_some() && (requested != RequestedVersion::Unset || options.resource_version_match.is_some()) {
            return refused("keelson.io/at can't be combined with resourceVersion or resourceVersionMatch");
        }
        if let Some(text) = &options.continue_token {
            if query.page.is_some() || query.group_by.is_some() {
                return refused("keelson.io/page and keelson.io/groupBy are not allowed when using continue");
            }
            if matches!(requested, RequestedVersion::At(_)) {
                return refused("specifying resource version is not allowed when using continue");
            }
            let token = QueryToken::decode(&form.take(text)?, fingerprint)
                .map_err(|error| ApiError::BadRequest(format!("invalid continue token: {error}")))?;
            let at = match token.revision {
                TokenRevision::At(revision) => ReadAt::Exactly(revision),
                TokenRevision::Newest => ReadAt::Newest,
            };
            return Ok(Self { at, start: Start::Behind(token), limit, fingerprint, form, is_past, owner });
        }
        let start = match (query.page, limit) {
            (None, _) => 0,
            (Some(page), Some(limit)) => (page.get() - 1).saturating_mul(limit),
            (Some(_), None) => return refused("keelson.io/page needs a limit, which says how long a page is"),
        };
        let at = match moment {
            Some(revision) => ReadAt::Exactly(revision),
            None => read_at(requested, options.resource_version_match, limit.is_some()),
        };
        Ok(Self { at, start: Start::Rank(start), limit, fingerprint, form, is_past, owner })
    }

    /// The plan with the user of a caller.
    pub(super) fn for_caller(self, caller: &Caller) -> Self {
        Self { owner: ViewOwner::new(&caller.user().name), ..self }
    }

    /// The number of objects before the page, if the page begins at a number.
    pub(super) const fn first_rank(&self) -> usize {
        match &self.start {
            Start::Rank(rank) => *rank,
            Start::Behind(_) => 0,
        }
    }

    /// The token that the query continues from.
    pub(super) const fn token(&self) -> Option<&QueryToken> {
        match &self.start {
            Start::Behind(token) => Some(token),
            Start::Rank(_) => None,
        }
    }
}

/// A hash of everything that decides the objects and their order. Tokens with another hash are refused.
fn fingerprint(target: &Target, options: &ListOptions, query: &Query) -> u64 {
    let mut text = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        target.group_resource().to_string(),
        target.version.api_version(),
        target.key_prefix(),
        target.name,
        options.label_selector.to_string(),
        options.field_selector.to_string(),
        query.canonical(),
        query.at,
    );
    // Tokens of servers without shards are the same as before.
    text.push_str(&options.shard_selector_raw);
    keelson_query::fingerprint(&text)
}
