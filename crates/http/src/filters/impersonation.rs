//! Requests in the name of another user (`Impersonate-User` and the like, `kubectl --as`).
//!
//! Whoever makes one needs the right to `impersonate` that user or service account, each of the groups, the uid and each extra value.
//! From there on it is that user's request, with its rights and no others; the headers go no further.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;
use keelson_access::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};
use keelson_access::{Attributes, Authorizer, ResourceAttributes, User};
use keelson_meta::error::ForbiddenDetail;
use keelson_meta::names::{dns_label_faults, dns_subdomain_faults};
use keelson_meta::{ApiError, GroupResource};

use super::authentication::extra_key;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA: &str = "impersonate-extra-";

/// How the names of service accounts begin.
const ACCOUNT: &str = "system:serviceaccount:";
/// The group of what is no built-in resource but is impersonated all the same: uids and extra values.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The user whom the headers of a request name.
struct Asked {
    name: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

impl Asked {
    /// Whom they name; `None` for nobody.
    fn of(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        if !headers.keys().any(is_field) {
            return Ok(None);
        }
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for field in headers.keys() {
            if let Some(key) = field.as_str().strip_prefix(EXTRA) {
                extra.insert(extra_key(key), all(headers, field));
            }
        }
        let asked = Self { name: text(headers, &USER), groups: all(headers, &GROUP), uid: text(headers, &UID), extra };
        if !asked.name.is_empty() {
            return Ok(Some(asked));
        }
        if asked.groups.is_empty() && asked.uid.is_empty() && asked.extra.is_empty() {
            return Ok(None);
        }
        Err(ApiError::BadRequest(asked.without_a_name()))
    }

    /// What upstream says of a request for groups and the like of nobody, in the form of the language that it is written in.
    fn without_a_name(&self) -> String {
        let list = |values: &[String]| match values {
            [] => "[]string(nil)".to_owned(),
            values => {
                let quoted: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
                format!("[]string{{{}}}", quoted.join(", "))
            }
        };
        let extra: Vec<_> = self.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
        let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
        format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{}, Extra:map[string][]string{extra}}} without impersonating a user name",
            self.uid,
            list(&self.groups),
        )
    }
}

/// Whether a header field says in whose name a request is made.
fn is_field(name: &HeaderName) -> bool {
    *name == USER || *name == GROUP || *name == UID || name.as_str().starts_with(EXTRA)
}

/// The user in whose name a request is made, which is the one who makes it where the headers name nobody else.
///
/// Cost: a look at the names of all header fields, and a decision for each thing that is impersonated.
///
/// # Errors
/// [`ApiError::Forbidden`] for who may not act as that user, and [`ApiError::BadRequest`] where there are groups and the like of nobody.
pub(super) async fn acting_as(
    user: Arc<User>,
    headers: &HeaderMap,
    authorizer: &dyn Authorizer,
) -> Result<Arc<User>, ApiError> {
    let Some(Asked { name, groups, uid, extra }) = Asked::of(headers)? else { return Ok(user) };
    let ask = async |asked: ResourceAttributes<'_>| permit(&user, asked, authorizer).await;
    let account = account(&name);
    match account {
        Some((namespace, name)) => {
            let namespace = Some(namespace);
            ask(ResourceAttributes { resource: "serviceaccounts", namespace, name: Some(name), ..asked() }).await?;
        }
        None => ask(ResourceAttributes { resource: "users", name: Some(&name), ..asked() }).await?,
    }
    for group in &groups {
        ask(ResourceAttributes { resource: "groups", name: Some(group), ..asked() }).await?;
    }
    for (key, values) in &extra {
        for value in values {
            let (resource, subresource) = ("userextras", Some(&**key));
            let name = Some(&**value);
            ask(ResourceAttributes { group: AUTHENTICATION, resource, subresource, name, ..asked() }).await?;
        }
    }
    if !uid.is_empty() {
        ask(ResourceAttributes { group: AUTHENTICATION, resource: "uids", name: Some(&uid), ..asked() }).await?;
    }
    let groups = with_groups_of_all(&name, account, groups);
    Ok(Arc::new(User { name, uid: Some(uid).filter(|uid| !uid.is_empty()), groups, extra }))
}

/// The groups that somebody has whose name is impersonated: a service account its own unless others are named, and the one of those who
/// have proved who they are, or have not.
fn with_groups_of_all(name: &str, account: Option<(&str, &str)>, mut groups: Vec<String>) -> Vec<String> {
    if let (Some((namespace, name)), true) = (account, groups.is_empty()) {
        return User::service_account(namespace, name).groups;
    }
    let last = if name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    let is_said = |group: &String| group == last || (name != ANONYMOUS && group == UNAUTHENTICATED);
    if !groups.iter().any(is_said) {
        groups.push(last.to_owned());
    }
    groups
}

/// The namespace and the name of a service account, if that is one's name.
fn account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix(ACCOUNT)?.split_once(':')?;
    (dns_label_faults(namespace).is_empty() && dns_subdomain_faults(name).is_empty()).then_some((namespace, name))
}

fn asked() -> ResourceAttributes<'static> {
    ResourceAttributes { verb: "impersonate", ..ResourceAttributes::default() }
}

async fn permit(user: &User, asked: ResourceAttributes<'_>, authorizer: &dyn Authorizer) -> Result<(), ApiError> {
    let verdict = authorizer.authorize(user, &Attributes::Resource(asked)).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    Err(ApiError::forbidden(ForbiddenDetail {
        user: user.name.clone(),
        verb: asked.verb.to_owned(),
        resource: Some(GroupResource { group: asked.group.to_owned(), resource: asked.resource.to_owned() }),
        name: asked.name.unwrap_or_default().to_owned(),
        namespace: asked.namespace.map(str::to_owned),
        path: None,
        subresource: asked.subresource.map(str::to_owned),
        reason: verdict.reason.into_owned(),
    }))
}

fn all(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
}

fn text(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use keelson_access::PrivilegedGroup;

    use super::*;

    /// As whom a request acts that a member of these groups makes.
    fn acts(own: &[&str], headers: &[(&str, &str)]) -> Result<User, (u16, String)> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap()));
        let groups = own.iter().map(ToString::to_string).collect();
        let user = Arc::new(User { name: "bob".to_owned(), groups, ..User::default() });
        let headers = HeaderMap::from_iter(headers);
        let acting = acting_as(user, &headers, &PrivilegedGroup).now_or_never().expect("it needs no wait");
        acting.map(|user| User::clone(&user)).map_err(|error| (error.code(), error.status().message))
    }

    fn check(headers: &[(&str, &str)], expect: Result<(), (u16, &str)>) {
        let expect = expect.map_err(|(code, message)| (code, message.to_owned()));
        assert_eq!(acts(&[], headers).map(|_| ()), expect, "{headers:?}");
    }

    #[test]
    fn nobody_acts_as_another_without_the_right_to() {
        check(&[("user-agent", "x")], Ok(()));
        check(&[("impersonate-user", "")], Ok(()));
        check(
            &[("Impersonate-User", "x"), ("Impersonate-Group", "a")],
            Err((
                403,
                "users \"x\" is forbidden: User \"bob\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
            )),
        );
        check(
            &[("impersonate-user", "system:serviceaccount:a:b")],
            Err((
                403,
                "serviceaccounts \"b\" is forbidden: User \"bob\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"a\"",
            )),
        );
    }

    #[test]
    fn who_is_impersonated_has_the_groups_that_such_users_have() {
        let check = |headers: &[(&str, &str)], name: &str, groups: &[&str]| {
            let user = acts(&["system:masters"], headers).unwrap();
            assert_eq!(
                (&*user.name, user.groups.iter().map(String::as_str).collect::<Vec<_>>()),
                (name, groups.to_vec())
            );
        };
        let (user, group) = ("Impersonate-User", "Impersonate-Group");
        check(&[(user, "x")], "x", &[AUTHENTICATED]);
        check(&[(user, "x"), (group, "a"), (group, "a")], "x", &["a", "a", AUTHENTICATED]);
        check(&[(user, "x"), (group, AUTHENTICATED)], "x", &[AUTHENTICATED]);
        check(&[(user, "x"), (group, UNAUTHENTICATED)], "x", &[UNAUTHENTICATED]);
        check(&[(user, ANONYMOUS)], ANONYMOUS, &[UNAUTHENTICATED]);
        check(&[(user, ANONYMOUS), (group, AUTHENTICATED)], ANONYMOUS, &[AUTHENTICATED, UNAUTHENTICATED]);
        let (robot, own) =
            ("system:serviceaccount:a:b", ["system:serviceaccounts", "system:serviceaccounts:a", AUTHENTICATED]);
        check(&[(user, robot)], robot, &own);
        check(&[(user, robot), (group, "g")], robot, &["g", AUTHENTICATED]);
        check(&[(user, "system:serviceaccount:A:b")], "system:serviceaccount:A:b", &[AUTHENTICATED]);
        let all = [
            (user, "x"),
            ("Impersonate-Uid", "u"),
            ("Impersonate-Extra-Example.org%2fScopes", "v"),
            ("Impersonate-Extra-A%zz", "w"),
        ];
        let asked = acts(&["system:masters"], &all).unwrap();
        let extra = [("a%zz", "w"), ("example.org/scopes", "v")];
        let extra: BTreeMap<_, _> = extra.map(|(key, value)| (key.to_owned(), vec![value.to_owned()])).into();
        assert_eq!((asked.uid.as_deref(), asked.extra), (Some("u"), extra));
    }

    #[test]
    fn groups_of_nobody_are_no_request() {
        check(
            &[("Impersonate-Group", "a")],
            Err((
                400,
                "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"a\"}, Extra:map[string][]string(nil)} without impersonating a user name",
            )),
        );
        check(
            &[("Impersonate-Uid", "u")],
            Err((
                400,
                "requested &user.DefaultInfo{Name:\"\", UID:\"u\", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name",
            )),
        );
        check(
            &[("Impersonate-Extra-Scopes", "view")],
            Err((
                400,
                "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string(nil), Extra:map[string][]string{\"scopes\":[]string{\"view\"}}} without impersonating a user name",
            )),
        );
    }
}
