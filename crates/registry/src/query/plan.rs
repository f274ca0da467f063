//! The plan of a query: revision, start and length, as its parameters and the ordinary options say together.
//!
//! Unlike an ordinary list a query honours its limit at any revision: no client counts on its being ignored.

use std::num::NonZeroUsize;

use keelson_cache::ViewOwner;
use keelson_meta::options::{ListOptions, RequestedVersion};
use keelson_meta::{ApiError, Revision};
use keelson_query::{Query, QueryToken, TokenRevision};

use crate::caller::Caller;
use crate::list::{ReadAt, TokenForm, read_at};
use crate::target::Target;

/// A query, planned.
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
    /// The user that views are made for.
    pub(super) owner: ViewOwner,
}

/// The start of a page.
#[derive(Clone)]
pub(super) enum Start {
    /// With this object, from 0.
    Rank(usize),
    /// Behind the last object of another page.
    Behind(QueryToken),
}

impl QueryPlan {
    /// Plans a query, which is about a revision of the past where that is given.
    ///
    /// # Errors
    /// 400 for tokens that are none or of another query, unreadable resourceVersions, and what can't be given together.
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
            return refused("keelson.io/at stands in place of a resourceVersion and of a resourceVersionMatch");
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
    pub(super) fn of(self, caller: &Caller) -> Self {
        Self { owner: ViewOwner::of(&caller.user().name), ..self }
    }

    /// The number of objects before the page, where it is reached by its number.
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

/// A hash of everything that decides which objects come in which order. Tokens of other hashes do not fit.
fn fingerprint(target: &Target, options: &ListOptions, query: &Query) -> u64 {
    let text = format!(
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
    keelson_query::fingerprint(&text)
}
