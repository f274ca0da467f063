//! Whether a request may be made by its user.

use keelson_access::authorize::is_open_to;
use keelson_access::{Attributes, Decision, User, authorize};
use keelson_meta::error::ForbiddenDetail;
use keelson_meta::{ApiError, GroupResource};

use crate::request_info::RequestInfo;

/// Lets a request pass, or says why not.
///
/// # Errors
/// [`ApiError::Unauthorized`] when credentials are missing, [`ApiError::Forbidden`] when they do not suffice.
pub(super) fn permit(user: &User, info: &RequestInfo) -> Result<(), ApiError> {
    let attributes = attributes(info);
    if !is_open_to(user, &attributes) {
        return Err(ApiError::Unauthorized);
    }
    match authorize(user, &attributes) {
        Decision::Allow => Ok(()),
        Decision::Deny => Err(ApiError::Forbidden(Box::new(refusal(user, info)))),
    }
}

fn attributes(info: &RequestInfo) -> Attributes<'_> {
    if !info.is_resource_request {
        return Attributes::Path { verb: info.verb.as_str(), path: &info.path };
    }
    Attributes::Resource {
        verb: info.verb.as_str(),
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: info.subresource.as_deref(),
        namespace: info.namespace.as_deref(),
        name: info.name.as_deref(),
    }
}

fn refusal(user: &User, info: &RequestInfo) -> ForbiddenDetail {
    let resource = GroupResource { group: info.group.clone(), resource: info.resource.clone() };
    ForbiddenDetail {
        user: user.name.clone(),
        verb: info.verb.as_str().to_owned(),
        resource: info.is_resource_request.then_some(resource),
        name: info.name.clone().unwrap_or_default(),
        namespace: info.namespace.clone(),
        path: (!info.is_resource_request).then(|| info.path.clone()),
        subresource: info.subresource.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn check(groups: &[&str], target: &str, expect: Result<(), &str>) {
        let groups = groups.iter().map(ToString::to_string).collect();
        let user = User { name: "alice".to_owned(), groups, ..User::default() };
        let info = RequestInfo::parse(&Method::GET, &target.parse().unwrap());
        let outcome = permit(&user, &info).map_err(|error| error.status().message);
        assert_eq!(outcome, expect.map_err(str::to_owned), "{target}");
    }

    #[test]
    fn refusals_say_who_may_not_do_what() {
        check(&["system:masters"], "/api/v1/pods", Ok(()));
        check(
            &[],
            "/api/v1/pods",
            Err(
                "pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" at the cluster scope",
            ),
        );
        check(
            &[],
            "/apis/apps/v1/namespaces/a/deployments/d",
            Err(
                "deployments.apps \"d\" is forbidden: User \"alice\" cannot get resource \"deployments\" in API group \
                 \"apps\" in the namespace \"a\"",
            ),
        );
        check(&[], "/foo", Err("forbidden: User \"alice\" cannot get path \"/foo\""));
        check(&["system:unauthenticated"], "/foo", Err("Unauthorized"));
        check(&["system:unauthenticated"], "/livez", Ok(()));
    }
}
