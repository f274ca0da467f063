//! Rights that a request requires in addition to the right to its endpoint, which the HTTP filter has checked.
//!
//! The caller's own authorizer decides. The server's own calls have one that allows everything.

use keelson_access::{Attributes, ResourceAttributes};
use keelson_meta::error::ForbiddenDetail;
use keelson_meta::{ApiError, GroupResource};

use crate::caller::Caller;
use crate::registry::Registry;
use crate::target::Target;

/// A verb on the endpoint of a target and in its namespace: on all objects, or on the one of this name.
pub fn attributes<'a>(target: &'a Target, verb: &'a str, name: Option<&'a str>) -> ResourceAttributes<'a> {
    ResourceAttributes {
        verb,
        group: &target.kind().group,
        version: &target.version.name,
        resource: &target.resource.plural,
        subresource: target.subresource_name(),
        namespace: target.namespace.as_deref(),
        name,
        ..ResourceAttributes::default()
    }
}

/// Returns true if the caller has a right.
pub async fn is_allowed(caller: &Caller, attributes: ResourceAttributes<'_>) -> bool {
    caller.authorizer().authorize(caller.user(), &Attributes::Resource(attributes)).await.is_allowed()
}

/// Refuses a caller that lacks a right.
///
/// # Errors
/// 403 with the text of a refused request. 500 if an authorizer failed.
pub async fn require(caller: &Caller, attributes: ResourceAttributes<'_>) -> Result<(), ApiError> {
    let verdict = caller.authorizer().authorize(caller.user(), &Attributes::Resource(attributes)).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    if let Some(error) = verdict.error {
        return Err(ApiError::Internal(error.to_string()));
    }
    Err(ApiError::Forbidden(Box::new(ForbiddenDetail {
        user: caller.user().name.clone(),
        verb: attributes.verb.to_owned(),
        resource: Some(GroupResource { group: attributes.group.to_owned(), resource: attributes.resource.to_owned() }),
        name: attributes.name.unwrap_or_default().to_owned(),
        namespace: attributes.namespace.map(str::to_owned),
        path: None,
        subresource: attributes.subresource.map(str::to_owned),
        reason: verdict.reason.to_string(),
    })))
}

impl Registry {
    /// Returns true if the caller may list every object of a resource, in all namespaces and without a selector. Counts
    /// that include objects outside of a request's selection are for such callers alone.
    pub async fn may_list_all(&self, target: &Target, caller: &Caller) -> bool {
        let asked = ResourceAttributes { namespace: None, ..attributes(target, "list", None) };
        is_allowed(caller, asked).await
    }
}
