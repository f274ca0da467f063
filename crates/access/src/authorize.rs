//! Authorization: an [`Authorizer`] decides whether a user may do what it asks.
//!
//! A decision may have to be waited for (another server is asked) or not (a rule is looked up), and says why it is as it
//! is. The one authorizer here knows the group whose members may do anything; roles are not enforced yet. What becomes of a
//! request that nobody allowed is decided by who asked.

use std::borrow::Cow;
use std::fmt::Debug;

use futures::future::{BoxFuture, Either, Ready, ready};

use crate::user::{MASTERS, User};

/// A request as authorization sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes<'a> {
    /// A request for a resource.
    Resource(ResourceAttributes<'a>),
    /// A request for any other path.
    Path {
        /// The lower-case method.
        verb: &'a str,
        /// The decoded path.
        path: &'a str,
    },
}

/// A request for a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes<'a> {
    /// The verb, such as `list`.
    pub verb: &'a str,
    /// The group, empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural resource name.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: Option<&'a str>,
    /// The namespace of the path.
    pub namespace: Option<&'a str>,
    /// The name of the path or of the selector.
    pub name: Option<&'a str>,
    /// The label selector of a request for a collection, as it was sent: it may not be one.
    pub label_selector: Option<&'a str>,
    /// The field selector of a request for a collection, as it was sent: it may not be one.
    pub field_selector: Option<&'a str>,
}

/// What an authorizer says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request may go on.
    Allow,
    /// It may not, whatever others say.
    Deny,
    /// This authorizer knows no rule for it. A request that nobody allows may not go on.
    NoOpinion,
}

/// A decision, and why it is as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// The reason, for who reviews it; empty for none.
    pub reason: Cow<'static, str>,
}

impl Verdict {
    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.decision == Decision::Allow
    }
}

/// A verdict that is there already, or that has to be waited for.
pub type Deciding<'a> = Either<Ready<Verdict>, BoxFuture<'a, Verdict>>;

/// Decides what users may do.
pub trait Authorizer: Debug + Send + Sync {
    /// Whether `user` may do what `attributes` describe. What goes wrong on the way is no permission: the verdict is
    /// [`Decision::NoOpinion`] then, and its reason says what it was.
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> Deciding<'a>;
}

/// The paths that tell whether the server is well, which load balancers ask without credentials.
const HEALTH_PATHS: [&str; 3] = ["/livez", "/readyz", "/healthz"];

/// Lets members of `system:masters` do anything, and anybody ask whether the server is well, as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrivilegedGroup;

impl PrivilegedGroup {
    fn decide(user: &User, attributes: &Attributes<'_>) -> Verdict {
        let allowed = user.is_in(MASTERS)
            || matches!(attributes, Attributes::Path { verb: "get" | "head", path } if HEALTH_PATHS.contains(path));
        if allowed {
            return Verdict { decision: Decision::Allow, reason: Cow::Borrowed("") };
        }
        let reason = Cow::Borrowed("only members of system:masters are allowed anything");
        Verdict { decision: Decision::NoOpinion, reason }
    }
}

impl Authorizer for PrivilegedGroup {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> Deciding<'a> {
        Either::Left(ready(Self::decide(user, attributes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(groups: &[&str]) -> User {
        User { name: "u".into(), groups: groups.iter().map(ToString::to_string).collect(), ..User::default() }
    }

    fn check(user: &User, attributes: Attributes<'_>, expected: Decision) {
        let Either::Left(verdict) = PrivilegedGroup.authorize(user, &attributes) else { panic!("no wait is needed") };
        assert_eq!(verdict.into_inner().decision, expected, "{user:?} {attributes:?}");
    }

    #[test]
    fn masters_may_do_anything_and_others_nothing() {
        let list = Attributes::Resource(ResourceAttributes {
            verb: "list",
            version: "v1",
            resource: "pods",
            ..Default::default()
        });
        check(&user(&[MASTERS]), list, Decision::Allow);
        check(&user(&["system:authenticated"]), list, Decision::NoOpinion);
        check(&User::anonymous(), list, Decision::NoOpinion);
    }

    #[test]
    fn anybody_may_ask_for_health_but_not_for_more() {
        let get = |path| Attributes::Path { verb: "get", path };
        check(&User::anonymous(), get("/readyz"), Decision::Allow);
        check(&User::anonymous(), get("/readyz/ping"), Decision::NoOpinion);
        check(&User::anonymous(), get("/version"), Decision::NoOpinion);
    }
}
