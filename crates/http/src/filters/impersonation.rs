//! Impersonation: requests in the name of another user (`Impersonate-User` and the like, `kubectl --as`).
//!
//! The requester needs rights in one of two forms (KEP-5284). The verb `impersonate` for the user, each group, the uid
//! and each extra value permits any request. The verbs `impersonate:MODE` for these and `impersonate-on:MODE:VERB` for
//! the request permit that request, with a mode for nodes, service accounts or other users.
//!
//! Later filters see only the impersonated user, with its rights alone. The headers are removed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::header::HeaderName;
use http::{HeaderMap, Uri};
use keelson_access::user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED};
use keelson_access::{Attributes, Authorizer, ResourceAttributes, User};
use keelson_meta::error::ForbiddenDetail;
use keelson_meta::names::{dns_label_faults, dns_subdomain_faults};
use keelson_meta::{ApiError, GroupResource};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::authentication::extra_key;
use super::authorization::{Selectors, attributes};
use crate::metrics::ImpersonationMetrics;
use crate::request_info::RequestInfo;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA: &str = "impersonate-extra-";

/// The prefix of service accounts.
const ACCOUNT: &str = "system:serviceaccount:";
/// The prefix of node users, and the group of all nodes.
const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";
/// The extra key with the node of a token's pod, and the key that authorizers get in its place.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const ASSOCIATED_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
/// The API group of impersonated attributes that are no built-in resources: uids and extra values.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The user to impersonate, from the headers of a request.
struct ImpersonatedUser {
    name: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

impl ImpersonatedUser {
    /// Parses the headers. `None` if there are none.
    fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
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

    /// Upstream's error for groups, uid or extra values without a user, in Go's format.
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

/// Returns true for the name of an impersonation header.
fn is_field(name: &HeaderName) -> bool {
    *name == USER || *name == GROUP || *name == UID || name.as_str().starts_with(EXTRA)
}

/// A mode of impersonation. Each mode has verbs of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The node of the pod whose service account sends the request.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account.
    ServiceAccount,
    /// Any other user.
    UserInfo,
    /// Any user, for any request.
    Unconstrained,
}

/// The modes in the order in which they are tried, the one with the fewest rights first.
const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Unconstrained];

/// Up to this many values of one kind are authorized one by one. For more, one check for all values comes first.
const ONE_BY_ONE: usize = 3;
/// The number of users whose last mode is cached.
const REMEMBERED: usize = 10_000;

/// Authorizes impersonation.
#[derive(Debug, Default)]
pub(super) struct Impersonation {
    /// The mode of each user's last impersonation, which is tried first, since most users need only one.
    last: Mutex<HashMap<String, Mode>>,
    metrics: Arc<ImpersonationMetrics>,
}

impl Impersonation {
    /// The numbers of attempts.
    pub(super) fn metrics(&self) -> &Arc<ImpersonationMetrics> {
        &self.metrics
    }

    /// The effective user of a request, and the verb that permits a constrained impersonation. Without the headers it
    /// is the authenticated user.
    ///
    /// Cost: a comparison of all header names, and a decision for each impersonated value.
    ///
    /// # Errors
    /// [`ApiError::Forbidden`] without the rights, and [`ApiError::BadRequest`] for groups, uid or extra values without a user.
    pub(super) async fn acting_as(
        &self,
        user: Arc<User>,
        headers: &HeaderMap,
        (info, uri): (&RequestInfo, &Uri),
        authorizer: &dyn Authorizer,
    ) -> Result<(Arc<User>, Option<&'static str>), ApiError> {
        let Some(asked) = ImpersonatedUser::from_headers(headers)? else { return Ok((user, None)) };
        let begun = Instant::now();
        let selectors = Selectors::parse(info, uri);
        let attributes = attributes(info, &selectors);
        let last = self.last.lock().get(&user.name).copied();
        let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
        let mut refusal = None;
        for mode in last.into_iter().chain(others).filter(|mode| mode.is_for(&asked, &user)) {
            let requester = Requester { user: mode.shown(&user), mode, authorizer, metrics: &self.metrics };
            match requester.may_act_as(&asked, &attributes).await {
                Ok(()) => {
                    if Some(mode) != last {
                        self.remember(&user.name, mode);
                    }
                    self.metrics.note_attempt(Some(mode.label()), begun.elapsed());
                    let constraint = (mode != Mode::Unconstrained).then(|| mode.verb());
                    return Ok((Arc::new(asked.into_user(mode)), constraint));
                }
                Err(refused) => refusal = refusal.or(Some(refused)),
            }
        }
        self.metrics.note_attempt(None, begun.elapsed());
        // The last mode covers every user.
        Err(refusal.unwrap_or_else(|| ApiError::Internal("all impersonation modes failed".to_owned())))
    }

    fn remember(&self, name: &str, mode: Mode) {
        let mut last = self.last.lock();
        if last.len() >= REMEMBERED {
            last.clear();
        }
        last.insert(name.to_owned(), mode);
    }
}

impl Mode {
    /// The name of the mode in verbs.
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo | Self::Unconstrained => "user-info",
        }
    }

    /// The name in metrics.
    fn label(self) -> &'static str {
        if self == Self::Unconstrained { "legacy" } else { self.name() }
    }

    /// The verb that the requester needs for the impersonated user.
    fn verb(self) -> &'static str {
        match self {
            Self::AssociatedNode => "impersonate:associated-node",
            Self::ArbitraryNode => "impersonate:arbitrary-node",
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
            Self::Unconstrained => "impersonate",
        }
    }

    /// Returns true if this mode covers impersonation of this user by that one.
    fn is_for(self, user: &ImpersonatedUser, by: &User) -> bool {
        let is_name_alone = user.groups.is_empty() && user.uid.is_empty() && user.extra.is_empty();
        match self {
            Self::AssociatedNode => is_name_alone && node(&user.name).is_some_and(|node| is_on(by, node)),
            Self::ArbitraryNode => is_name_alone && node(&user.name).is_some(),
            Self::ServiceAccount => is_name_alone && account(&user.name).is_some(),
            Self::UserInfo => node(&user.name).is_none() && account(&user.name).is_none(),
            Self::Unconstrained => true,
        }
    }

    /// The requester as authorizers get it. In the mode for its own node the node was checked, so other extra values
    /// are removed.
    fn shown(self, user: &Arc<User>) -> Arc<User> {
        if self != Self::AssociatedNode {
            return user.clone();
        }
        let keys = user.extra.keys().cloned().collect();
        let extra = BTreeMap::from([(ASSOCIATED_KEYS.to_owned(), keys)]);
        Arc::new(User { extra, ..User::clone(user) })
    }
}

/// The requester of an impersonation, in one mode.
struct Requester<'r> {
    user: Arc<User>,
    mode: Mode,
    authorizer: &'r dyn Authorizer,
    metrics: &'r ImpersonationMetrics,
}

impl Requester<'_> {
    async fn may_act_as(&self, user: &ImpersonatedUser, request: &Attributes<'_>) -> Result<(), ApiError> {
        if self.mode != Mode::Unconstrained {
            let verb = |verb: &str| format!("impersonate-on:{}:{verb}", self.mode.name());
            match *request {
                Attributes::Resource(resource) => {
                    let verb = verb(resource.verb);
                    self.permit(&Attributes::Resource(ResourceAttributes { verb: &verb, ..resource })).await?;
                }
                Attributes::Path { verb: user, path } => {
                    self.permit(&Attributes::Path { verb: &verb(user), path }).await?;
                }
            }
        }
        self.may_have_name(&user.name).await?;
        if !user.uid.is_empty() {
            self.ask(ResourceAttributes { resource: "uids", name: Some(&user.uid), ..self.of_authentication() })
                .await?;
        }
        self.may_have_groups(&user.groups).await?;
        self.may_have_extra(&user.extra).await
    }

    /// The attributes that all checks share: unconstrained names and groups belong to the core group.
    fn of_names(&self) -> ResourceAttributes<'static> {
        let group = if self.mode == Mode::Unconstrained { "" } else { AUTHENTICATION };
        ResourceAttributes { group, ..self.of_authentication() }
    }

    fn of_authentication(&self) -> ResourceAttributes<'static> {
        ResourceAttributes {
            verb: self.mode.verb(),
            group: AUTHENTICATION,
            version: "v1",
            ..ResourceAttributes::default()
        }
    }

    async fn may_have_name(&self, name: &str) -> Result<(), ApiError> {
        let of = self.of_names();
        if let Some((namespace, name)) = account(name) {
            let (namespace, name) = (Some(namespace), Some(name));
            return self.ask(ResourceAttributes { resource: "serviceaccounts", namespace, name, ..of }).await;
        }
        match (node(name), self.mode) {
            // The right to impersonate the associated node is granted for the name `*`.
            (Some(_), Mode::AssociatedNode) => {
                self.ask(ResourceAttributes { resource: "nodes", name: Some("*"), ..of }).await
            }
            (Some(node), Mode::ArbitraryNode) => {
                self.ask(ResourceAttributes { resource: "nodes", name: Some(node), ..of }).await
            }
            _ => self.ask(ResourceAttributes { resource: "users", name: Some(name), ..of }).await,
        }
    }

    async fn may_have_groups(&self, groups: &[String]) -> Result<(), ApiError> {
        let of = ResourceAttributes { resource: "groups", ..self.of_names() };
        let named = |name| ResourceAttributes { name: Some(name), ..of };
        if self.mode != Mode::Unconstrained {
            if groups.iter().any(String::is_empty) {
                return Err(
                    self.refused(&Attributes::Resource(of), "impersonating the empty string group is not allowed")
                );
            }
            if groups.iter().any(|group| group == MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(self.refused(&Attributes::Resource(named(MASTERS)), why));
            }
            if groups.len() > ONE_BY_ONE && self.ask(named("*")).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.ask(named(group)).await?;
        }
        Ok(())
    }

    async fn may_have_extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), ApiError> {
        let of = ResourceAttributes { resource: "userextras", ..self.of_authentication() };
        if self.mode != Mode::Unconstrained {
            if let Some(why) = extra.iter().find_map(|(key, values)| extra_fault(key, values)) {
                return Err(self.refused(&Attributes::Resource(of), &why));
            }
            let is_much = extra.len() > ONE_BY_ONE || extra.values().map(Vec::len).sum::<usize>() > ONE_BY_ONE;
            let all = ResourceAttributes { subresource: Some("*"), name: Some("*"), ..of };
            if is_much && self.ask(all).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.ask(ResourceAttributes { subresource: Some(key), name: Some(value), ..of }).await?;
            }
        }
        Ok(())
    }

    async fn ask(&self, attributes: ResourceAttributes<'_>) -> Result<(), ApiError> {
        self.permit(&Attributes::Resource(attributes)).await
    }

    async fn permit(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        let begun = Instant::now();
        let verdict = self.authorizer.authorize(&self.user, attributes).await;
        self.metrics.note_check(self.mode.label(), verdict.is_allowed(), begun.elapsed());
        if verdict.is_allowed() { Ok(()) } else { Err(self.refused(attributes, &verdict.reason)) }
    }

    fn refused(&self, attributes: &Attributes<'_>, reason: &str) -> ApiError {
        let (user, reason) = (self.user.name.clone(), reason.to_owned());
        ApiError::forbidden(match *attributes {
            Attributes::Path { verb, path } => ForbiddenDetail {
                user,
                verb: verb.to_owned(),
                resource: None,
                name: String::new(),
                namespace: None,
                path: Some(path.to_owned()),
                subresource: None,
                reason,
            },
            Attributes::Resource(attributes) => ForbiddenDetail {
                user,
                verb: attributes.verb.to_owned(),
                resource: Some(GroupResource {
                    group: attributes.group.to_owned(),
                    resource: attributes.resource.to_owned(),
                }),
                name: attributes.name.unwrap_or_default().to_owned(),
                namespace: attributes.namespace.map(str::to_owned),
                path: None,
                subresource: attributes.subresource.map(str::to_owned),
                reason,
            },
        })
    }
}

/// The error of an extra value whose key has an invalid domain.
fn extra_fault(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let invalid = |value: &str, why: &str| {
        Some(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {value:?}: {why}"
        ))
    };
    match key.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            if let Some(fault) = dns_subdomain_faults(domain).first() {
                return invalid(domain, fault);
            }
        }
        _ => return invalid(key, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if key != key.to_lowercase() {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"));
    }
    let is_empty = values.iter().any(String::is_empty);
    is_empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

impl ImpersonatedUser {
    /// The impersonated user, which later filters use.
    fn into_user(self, mode: Mode) -> User {
        let Self { name, groups, uid, extra } = self;
        let groups = match mode {
            // A node that is impersonated in a constrained mode has the groups of nodes.
            Mode::AssociatedNode | Mode::ArbitraryNode => vec![NODES.to_owned()],
            _ => groups,
        };
        let groups = with_groups_of_all(&name, account(&name), groups);
        User { name, uid: Some(uid).filter(|uid| !uid.is_empty()), groups, extra }
    }
}

/// The groups of an impersonated user. Every user gets the group of authenticated or unauthenticated users. A service
/// account gets its own groups unless the request names groups.
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

/// The namespace and the name of a service account, if the user name is that of one.
fn account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix(ACCOUNT)?.split_once(':')?;
    (dns_label_faults(namespace).is_empty() && dns_subdomain_faults(name).is_empty()).then_some((namespace, name))
}

/// The name of a node, if the user name is that of one.
fn node(name: &str) -> Option<&str> {
    name.strip_prefix(NODE).filter(|name| dns_subdomain_faults(name).is_empty())
}

/// Returns true for a service account whose token names this node.
fn is_on(user: &User, node: &str) -> bool {
    let stated = user.extra.get(NODE_NAME).map_or(&[][..], Vec::as_slice);
    account(&user.name).is_some() && matches!(stated, [one] if one == node)
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

    /// Runs the filter for a requester with these groups, and returns the effective user.
    fn acts(own: &[&str], headers: &[(&str, &str)]) -> Result<User, (u16, String)> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap()));
        let groups = own.iter().map(ToString::to_string).collect();
        let user = Arc::new(User { name: "bob".to_owned(), groups, ..User::default() });
        let headers = HeaderMap::from_iter(headers);
        let uri: Uri = "/api/v1/pods".parse().unwrap();
        let info = RequestInfo::parse(&http::Method::GET, &uri);
        let impersonation = Impersonation::default();
        let acting = impersonation.acting_as(user, &headers, (&info, &uri), &PrivilegedGroup).now_or_never();
        let acting = acting.expect("it needs no wait");
        acting.map(|(user, _)| User::clone(&user)).map_err(|error| (error.code(), error.status().message))
    }

    fn check(headers: &[(&str, &str)], expect: Result<(), (u16, &str)>) {
        let expect = expect.map_err(|(code, message)| (code, message.to_owned()));
        assert_eq!(acts(&[], headers).map(|_| ()), expect, "{headers:?}");
    }

    #[test]
    fn impersonation_requires_the_right_to_impersonate() {
        check(&[("user-agent", "x")], Ok(()));
        check(&[("impersonate-user", "")], Ok(()));
        check(
            &[("Impersonate-User", "x"), ("Impersonate-Group", "a")],
            Err((
                403,
                "pods is forbidden: User \"bob\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" at the cluster scope",
            )),
        );
        check(
            &[("impersonate-user", "system:serviceaccount:a:b")],
            Err((
                403,
                "pods is forbidden: User \"bob\" cannot impersonate-on:serviceaccount:list resource \"pods\" in API group \"\" at the cluster scope",
            )),
        );
    }

    #[test]
    fn impersonated_users_get_the_groups_of_their_kind() {
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
    fn impersonated_groups_without_a_user_are_bad_requests() {
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
