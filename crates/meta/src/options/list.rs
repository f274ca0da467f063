//! Options of reading: get, list and watch.
//!
//! [`ListOptions::requested_version`] parses the resourceVersion later than the other options. Upstream parses it in
//! storage, after it has validated the field selector.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::query::Query;
use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::field_selector::FieldSelector;
use crate::go_format;
use crate::label_selector::LabelSelector;
use crate::revision::Revision;
use crate::shard_selector::ShardSelector;

const MATCH_FIELD: &str = "resourceVersionMatch";

/// The options of a list, a watch or the deletion of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `labelSelector`.
    pub label_selector: LabelSelector,
    /// `fieldSelector`, not yet validated against the fields of the kind.
    pub field_selector: FieldSelector,
    /// `watch`. Also set for paths that begin with `/watch`.
    pub watch: bool,
    /// `allowWatchBookmarks`.
    pub allow_bookmarks: bool,
    /// `resourceVersion` as given. [`Self::requested_version`] parses it.
    pub resource_version_raw: String,
    /// `resourceVersionMatch`.
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// `timeoutSeconds`. 0 means unset. With a negative value, the request times out at once.
    pub timeout: Option<Duration>,
    /// `limit`. 0 or a negative number means unset.
    pub limit: Option<NonZeroUsize>,
    /// `continue`.
    pub continue_token: Option<String>,
    /// `shardSelector` as given; empty if there is none. Only a server with the feature gate parses it.
    pub shard_selector_raw: String,
    /// `sendInitialEvents` of a watch. Its default is true if resourceVersion is absent or `0`.
    pub send_initial_events: bool,
}

/// The options of a get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// `resourceVersion` as given. [`Self::requested_version`] parses it.
    pub resource_version_raw: String,
}

/// The interpretation of a resourceVersion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceVersionMatch {
    /// The content at exactly this revision.
    Exact,
    /// The content at this revision or a later one.
    NotOlderThan,
}

/// The resourceVersion of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedVersion {
    /// No resourceVersion: the newest content.
    Unset,
    /// `0`: any content that the cache has.
    Any,
    /// A revision.
    At(Revision),
}

impl RequestedVersion {
    fn parse(text: &str) -> Result<Self, ApiError> {
        if text.is_empty() {
            return Ok(Self::Unset);
        }
        match go_format::parse_uint(text) {
            // As upstream, only the text `0` means any version.
            Ok(0) if text != "0" => Ok(Self::Unset),
            Ok(0) => Ok(Self::Any),
            Ok(number) => Ok(Self::At(Revision::new(number))),
            Err(why) => {
                let error = FieldError::invalid("resourceVersion", text, why);
                Err(ApiError::BadRequest(format!("invalid resource version: {error}")))
            }
        }
    }
}

impl GetOptions {
    /// Reads the options of a get. Nothing is validated yet.
    pub fn parse(query: &Query<'_>) -> Self {
        Self { resource_version_raw: query.text("resourceVersion").unwrap_or_default() }
    }

    /// The requested resourceVersion.
    ///
    /// # Errors
    /// 400 if it is not a number.
    pub fn requested_version(&self) -> Result<RequestedVersion, ApiError> {
        RequestedVersion::parse(&self.resource_version_raw)
    }
}

impl ListOptions {
    /// Reads the options of a list or watch. On a `watch_path` (`/api/v1/watch/...`) the request is always a watch.
    ///
    /// # Errors
    /// 400 for unreadable values, 422 for combinations that are not allowed.
    pub fn parse(query: &Query<'_>, watch_path: bool) -> Result<Self, ApiError> {
        // Upstream's order: numbers, then selectors, then the rules on combinations.
        let timeout = query.integer("timeoutSeconds")?;
        let limit = query.integer("limit")?;
        let label_selector = LabelSelector::parse(query.get("labelSelector").unwrap_or_default());
        let field_selector = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default());
        let watch = watch_path || query.flag("watch").unwrap_or(false);
        let versions = Versions::parse(query, watch);
        let options = Self {
            label_selector: label_selector.map_err(ApiError::BadRequest)?,
            field_selector: field_selector.map_err(ApiError::BadRequest)?,
            watch,
            allow_bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            resource_version_match: versions.known_match(),
            timeout: timeout.filter(|seconds| *seconds != 0).map(seconds),
            limit: limit.and_then(|limit| usize::try_from(limit).ok()).and_then(NonZeroUsize::new),
            send_initial_events: versions.send_initial_events == Some(true),
            resource_version_raw: versions.resource_version.clone(),
            continue_token: query.text("continue"),
            shard_selector_raw: query.text("shardSelector").unwrap_or_default(),
        };
        let paged = options.continue_token.is_some();
        super::check("ListOptions", if watch { versions.watch_errors(paged) } else { versions.list_errors(paged) })?;
        Ok(options)
    }

    /// The requested resourceVersion.
    ///
    /// # Errors
    /// 400 if it is not a number.
    pub fn requested_version(&self) -> Result<RequestedVersion, ApiError> {
        RequestedVersion::parse(&self.resource_version_raw)
    }

    /// The requested shard; `None` for the whole collection.
    ///
    /// # Errors
    /// 400 if the selector is invalid.
    pub fn shard_selector(&self) -> Result<Option<ShardSelector>, ApiError> {
        let text = Some(self.shard_selector_raw.as_str()).filter(|text| !text.is_empty());
        let parsed = text.map(ShardSelector::parse).transpose();
        parsed.map_err(|why| ApiError::BadRequest(format!("invalid shard selector: {why}")))
    }
}

/// Converts seconds to a duration. A negative number becomes 0, so the request times out at once.
fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// The options that select the version of a collection. They restrict each other.
struct Versions {
    resource_version: String,
    version_match: String,
    send_initial_events: Option<bool>,
}

impl Versions {
    fn parse(query: &Query<'_>, watch: bool) -> Self {
        let mut versions = Self {
            resource_version: query.text("resourceVersion").unwrap_or_default(),
            version_match: query.text(MATCH_FIELD).unwrap_or_default(),
            send_initial_events: query.flag("sendInitialEvents"),
        };
        // By default, a watch without a revision begins with the existing objects.
        let says = versions.send_initial_events.is_some() || !versions.version_match.is_empty();
        if watch && !says && matches!(versions.resource_version.as_str(), "" | "0") {
            versions.send_initial_events = Some(true);
            "NotOlderThan".clone_into(&mut versions.version_match);
        }
        versions
    }

    fn known_match(&self) -> Option<ResourceVersionMatch> {
        match self.version_match.as_str() {
            "Exact" => Some(ResourceVersionMatch::Exact),
            "NotOlderThan" => Some(ResourceVersionMatch::NotOlderThan),
            _ => None,
        }
    }

    fn list_errors(&self, paged: bool) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let given = !self.version_match.is_empty();
        if given && self.resource_version.is_empty() {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(MATCH_FIELD, detail));
        }
        if given && paged {
            errors.push(match_with_continue());
        }
        if given && self.known_match().is_none() {
            let known = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported(MATCH_FIELD, self.version_match.as_str(), &known));
        }
        if self.known_match() == Some(ResourceVersionMatch::Exact) && self.resource_version == "0" {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(MATCH_FIELD, detail));
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn watch_errors(&self, paged: bool) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let given = !self.version_match.is_empty();
        let not_older = self.known_match() == Some(ResourceVersionMatch::NotOlderThan);
        if self.send_initial_events.is_some() && !not_older {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(MATCH_FIELD, detail));
        }
        if given && self.send_initial_events.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(MATCH_FIELD, detail));
        }
        if given && !not_older {
            errors.push(FieldError::not_supported(MATCH_FIELD, self.version_match.as_str(), &["NotOlderThan"]));
        }
        if given && paged {
            errors.push(match_with_continue());
        }
        errors
    }
}

fn match_with_continue() -> FieldError {
    FieldError::forbidden(MATCH_FIELD, "resourceVersionMatch is forbidden when continue is provided")
}

#[cfg(test)]
mod tests;
