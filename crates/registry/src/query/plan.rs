//! The plan of a query: revision, start and length, as its parameters and the ordinary options say together.
//!
//! Unlike an ordinary list a query honours its limit at any revision: no client counts on its being ignored.

use std::num::NonZeroUsize;

use keelson_meta::ApiError;
use keelson_meta::options::{ListOptions, RequestedVersion};
use keelson_query::{Query, QueryToken, TokenRevision};

use crate::list::{ReadAt, TokenForm, read_at};
use crate::target::Target;

/// A query, planned.
pub(super) struct QueryPlan {
    pub(super) at: ReadAt,
    pub(super) start: Start,
    /// How many objects at the most.
    pub(super) limit: Option<usize>,
    /// What its tokens are bound to.
    pub(super) fingerprint: u64,
    pub(super) form: TokenForm,
}

/// Where a page begins.
pub(super) enum Start {
    /// With this object, from 0.
    Rank(usize),
    /// Behind the last object of another page.
    Behind(QueryToken),
}

impl QueryPlan {
    /// Plans a query.
    ///
    /// # Errors
    /// 400 for tokens that are none or of another query, unreadable resourceVersions, and what can't be given together.
    pub(super) fn new(
        target: &Target,
        options: &ListOptions,
        query: &Query,
        form: TokenForm,
    ) -> Result<Self, ApiError> {
        let requested = options.requested_version()?;
        let limit = options.limit.map(NonZeroUsize::get);
        let fingerprint = fingerprint(target, options, query);
        let refused = |why: &str| Err(ApiError::BadRequest(why.to_owned()));
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
            return Ok(Self { at, start: Start::Behind(token), limit, fingerprint, form });
        }
        let start = match (query.page, limit) {
            (None, _) => 0,
            (Some(page), Some(limit)) => (page.get() - 1).saturating_mul(limit),
            (Some(_), None) => return refused("keelson.io/page needs a limit, which says how long a page is"),
        };
        let at = read_at(requested, options.resource_version_match, limit.is_some());
        Ok(Self { at, start: Start::Rank(start), limit, fingerprint, form })
    }

    /// The token that the query goes on from.
    pub(super) const fn token(&self) -> Option<&QueryToken> {
        match &self.start {
            Start::Behind(token) => Some(token),
            Start::Rank(_) => None,
        }
    }
}

/// What tells queries apart whose tokens do not fit each other: all that decides which objects come in which order.
fn fingerprint(target: &Target, options: &ListOptions, query: &Query) -> u64 {
    let text = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        target.group_resource().to_string(),
        target.version.api_version(),
        target.key_prefix(),
        target.name,
        options.label_selector.to_string(),
        options.field_selector.to_string(),
        query.canonical(),
    );
    keelson_query::fingerprint(&text)
}
