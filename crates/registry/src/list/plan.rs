//! The plan of a list: its revision, start and length.
//!
//! The options are combined by the table of the Kubernetes API concepts. A continue token overrides them. Nothing is
//! read yet.

use std::num::NonZeroUsize;

use keelson_meta::options::{ListOptions, RequestedVersion, ResourceVersionMatch};
use keelson_meta::{ApiError, Revision};
use keelson_storage::ContinueToken;
use keelson_storage::continue_token::TokenRevision;

use super::token_form::TokenForm;
use crate::config::{PartialRights, RegistryConfig};
use crate::target::Target;

/// A list, planned.
#[derive(Debug)]
pub(crate) struct ListPlan {
    pub(super) at: ReadAt,
    /// The key to start at, relative to the range of the URL; empty for the beginning of that range.
    pub(crate) start: String,
    /// The largest number of items.
    pub(crate) limit: Option<usize>,
    /// True if the token shows the next selected key and no other.
    pub(super) to_next_visible: bool,
    /// The token of a continued list, for the response if its revision is gone.
    pub(super) token: Option<ContinueToken>,
    form: TokenForm,
}

/// The revision a list is read at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAt {
    /// As new as every write acknowledged before the list began.
    Newest,
    /// The present state of the cache.
    Any,
    /// This revision or a newer one.
    NotOlderThan(Revision),
    /// Exactly this revision.
    Exactly(Revision),
}

impl ListPlan {
    /// Plans a list for a caller, given its user name and its rights to the range. Without a caller only the cost is
    /// estimated, and no token is made.
    ///
    /// # Errors
    /// 400 for an invalid resourceVersion or token, for both together, and for a sealed token of another caller. 410
    /// for a token whose key is gone.
    pub(crate) fn new(
        target: &Target,
        options: &ListOptions,
        config: &RegistryConfig,
        caller: Option<&str>,
        rights: PartialRights,
    ) -> Result<Self, ApiError> {
        let form = TokenForm::new(target, config, caller);
        let is_cut = config.chunking && rights != PartialRights::Whole;
        let chunked = is_cut && !config.unchunked.contains(&target.group_resource().to_string());
        let requested = options.requested_version()?;
        let token = options.continue_token.as_deref().filter(|_| chunked);
        // Clients that request any version with a limit, and no match, expect the whole list, also when they continue:
        // client-go's reflector does.
        let ignore_limit = options.resource_version_raw == "0"
            && options.resource_version_match.is_none()
            && !config.limit_at_any_version;
        let limit = options.limit.filter(|_| chunked && !ignore_limit).map(NonZeroUsize::get);
        if let Some(text) = token {
            let plan = Self::continued(text, requested, limit, form)?;
            return Ok(Self { to_next_visible: rights == PartialRights::NextVisible, ..plan });
        }
        Ok(Self {
            at: read_at(requested, options.resource_version_match, limit.is_some()),
            start: String::new(),
            limit,
            to_next_visible: rights == PartialRights::NextVisible,
            token: None,
            form,
        })
    }

    fn continued(
        text: &str,
        requested: RequestedVersion,
        limit: Option<usize>,
        form: TokenForm,
    ) -> Result<Self, ApiError> {
        let token = ContinueToken::decode(&form.take(text)?)
            .map_err(|error| ApiError::BadRequest(format!("invalid continue token: {error}")))?;
        if matches!(requested, RequestedVersion::At(_)) {
            return Err(ApiError::BadRequest(
                "specifying resource version is not allowed when using continue".to_owned(),
            ));
        }
        let at = match token.revision {
            TokenRevision::At(revision) => ReadAt::Exactly(revision),
            TokenRevision::Newest => ReadAt::Newest,
        };
        Ok(Self { at, start: token.start.clone(), limit, to_next_visible: false, token: Some(token), form })
    }

    /// A token in the form for the client.
    pub(super) fn encode(&self, token: &ContinueToken) -> String {
        self.form.give(token.encode())
    }
}

/// The table of `resourceVersion`, `resourceVersionMatch` and `limit` (Kubernetes API concepts, "resource versions").
pub(crate) fn read_at(requested: RequestedVersion, rule: Option<ResourceVersionMatch>, limited: bool) -> ReadAt {
    match (requested, rule) {
        (RequestedVersion::Unset, _) => ReadAt::Newest,
        (RequestedVersion::Any, _) => ReadAt::Any,
        (RequestedVersion::At(revision), Some(ResourceVersionMatch::Exact)) => ReadAt::Exactly(revision),
        (RequestedVersion::At(revision), Some(ResourceVersionMatch::NotOlderThan)) => ReadAt::NotOlderThan(revision),
        // Before resourceVersionMatch existed a limited list at a revision meant exactly that revision.
        (RequestedVersion::At(revision), None) if limited => ReadAt::Exactly(revision),
        (RequestedVersion::At(revision), None) => ReadAt::NotOlderThan(revision),
    }
}
