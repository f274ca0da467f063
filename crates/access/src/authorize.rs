//! Authorization: an [`Authorizer`] decides whether a user may do something.
//!
//! A verdict has a decision and a reason. It may be immediate (a rule lookup) or a future (a remote call). This module
//! has the authorizers without rules, and the chain of several authorizers; `rbac` has roles. If no authorizer decides,
//! the caller of the chain refuses the request.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::{BoxFuture, Either, Ready, ready};
use smallvec::SmallVec;

use crate::rbac::{HeldRules, PolicyRule};
use crate::shared_text::SharedText;
use crate::user::{MASTERS, User};

/// The attributes of a request for authorization.
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
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural resource name.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: Option<&'a str>,
    /// The namespace of the path.
    pub namespace: Option<&'a str>,
    /// The name in the path or the selector.
    pub name: Option<&'a str>,
    /// The label selector of a collection request, unchanged and not validated.
    pub label_selector: Option<&'a str>,
    /// The field selector of a collection request, unchanged and not validated.
    pub field_selector: Option<&'a str>,
}

/// The decision of one authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed.
    Allow,
    /// The request is denied; later authorizers are not called.
    Deny,
    /// The authorizer does not decide. The request is refused if no other authorizer allows it.
    NoOpinion,
}

/// A decision with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// The reason, for reviews and error messages; may be empty.
    pub reason: SharedText,
}

impl Verdict {
    /// Returns true if the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.decision == Decision::Allow
    }
}

/// A verdict, immediate or as a future.
pub type PendingVerdict<'a> = Either<Ready<Verdict>, BoxFuture<'a, Verdict>>;

/// Decides what users may do.
pub trait Authorizer: Debug + Send + Sync {
    /// Decides if `user` may make the request. Errors never allow: the verdict is then [`Decision::NoOpinion`] with the
    /// error as its reason.
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a>;

    /// The rules of a user in a namespace, or cluster-wide, for rules reviews and checks of privilege escalation.
    /// Authorizers without rules return none.
    fn rules<'a>(&'a self, _user: &'a User, _namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        Box::pin(ready(HeldRules::default()))
    }
}

/// Allows all requests of members of `system:masters`.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrivilegedGroup;

impl PrivilegedGroup {
    fn decide(user: &User) -> Verdict {
        // Like upstream, no reason is given. The client gets a generic message anyway.
        let decision = if user.is_in(MASTERS) { Decision::Allow } else { Decision::NoOpinion };
        Verdict { decision, reason: SharedText::default() }
    }
}

impl Authorizer for PrivilegedGroup {
    fn authorize<'a>(&'a self, user: &'a User, _attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        Either::Left(ready(Self::decide(user)))
    }
}

/// Allows all requests: for development, on a server that no other client can reach.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize<'a>(&'a self, _user: &'a User, _attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        Either::Left(ready(Verdict { decision: Decision::Allow, reason: SharedText::default() }))
    }

    fn rules<'a>(&'a self, _user: &'a User, _namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        let rules = PolicyRule::everything().map(Arc::new).to_vec();
        Box::pin(ready(HeldRules { rules, ..HeldRules::default() }))
    }
}

/// A chain of authorizers. The first one that allows or denies decides. If none does, the reason has all reasons, one
/// per line.
#[derive(Clone, Debug)]
pub struct AuthorizerChain(Vec<Arc<dyn Authorizer>>);

impl AuthorizerChain {
    /// Creates a chain in this order.
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Self(authorizers)
    }

    async fn ask_from<'a>(
        &'a self,
        first: usize,
        mut reasons: Reasons,
        user: &'a User,
        attributes: &'a Attributes<'a>,
    ) -> Verdict {
        for authorizer in &self.0[first..] {
            let verdict = authorizer.authorize(user, attributes).await;
            if verdict.decision != Decision::NoOpinion {
                return verdict;
            }
            reasons.push(verdict.reason);
        }
        undecided(&reasons)
    }
}

/// The reasons of the authorizers that were called.
type Reasons = SmallVec<[SharedText; 4]>;

fn undecided(reasons: &[SharedText]) -> Verdict {
    let messages: Vec<&str> = reasons.iter().map(|reason| &**reason).filter(|reason| !reason.is_empty()).collect();
    Verdict { decision: Decision::NoOpinion, reason: messages.join("\n").into() }
}

impl Authorizer for AuthorizerChain {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        let mut reasons = Reasons::new();
        for (place, authorizer) in self.0.iter().enumerate() {
            match authorizer.authorize(user, attributes) {
                Either::Left(decided) => {
                    let verdict = decided.into_inner();
                    if verdict.decision != Decision::NoOpinion {
                        return Either::Left(ready(verdict));
                    }
                    reasons.push(verdict.reason);
                }
                Either::Right(waiting) => {
                    return Either::Right(Box::pin(async move {
                        let verdict = waiting.await;
                        if verdict.decision != Decision::NoOpinion {
                            return verdict;
                        }
                        reasons.push(verdict.reason);
                        self.ask_from(place + 1, reasons, user, attributes).await
                    }));
                }
            }
        }
        Either::Left(ready(undecided(&reasons)))
    }

    fn rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        Box::pin(async move {
            let mut all = HeldRules::default();
            for authorizer in &self.0 {
                let HeldRules { rules, shown, missing, unresolved } = authorizer.rules(user, namespace).await;
                all.rules.extend(rules);
                all.shown.extend(shown);
                all.missing.extend(missing);
                all.unresolved.extend(unresolved);
            }
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An authorizer with a fixed verdict, immediate or as a future.
    #[derive(Debug)]
    struct Answers(Decision, &'static str, bool);

    impl Authorizer for Answers {
        fn authorize<'a>(&'a self, _: &'a User, _: &'a Attributes<'a>) -> PendingVerdict<'a> {
            let verdict = Verdict { decision: self.0, reason: self.1.into() };
            if self.2 { Either::Right(Box::pin(ready(verdict))) } else { Either::Left(ready(verdict)) }
        }
    }

    async fn ask(authorizers: Vec<Answers>) -> (Decision, String) {
        let authorizers = authorizers.into_iter().map(|one| Arc::new(one) as Arc<dyn Authorizer>).collect();
        let chain = AuthorizerChain::new(authorizers);
        let (user, attributes) = (User::anonymous(), Attributes::Path { verb: "get", path: "/" });
        let Verdict { decision, reason } = chain.authorize(&user, &attributes).await;
        (decision, reason.to_string())
    }

    #[tokio::test]
    async fn the_first_authorizer_with_an_opinion_decides() {
        use Decision::{Allow, Deny, NoOpinion};
        for later in [false, true] {
            let all = vec![Answers(NoOpinion, "a", later), Answers(Deny, "b", later), Answers(Allow, "c", later)];
            assert_eq!(ask(all).await, (Deny, "b".to_owned()));
            let none =
                vec![Answers(NoOpinion, "a", later), Answers(NoOpinion, "", false), Answers(NoOpinion, "c", later)];
            assert_eq!(ask(none).await, (NoOpinion, "a\nc".to_owned()));
        }
        assert_eq!(ask(Vec::new()).await, (NoOpinion, String::new()));
    }

    #[tokio::test]
    async fn masters_may_do_anything_and_others_nothing() {
        let attributes = Attributes::Path { verb: "get", path: "/metrics" };
        let decided = async |user: User| PrivilegedGroup.authorize(&user, &attributes).await.decision;
        assert_eq!(decided(User::api_server()).await, Decision::Allow);
        assert_eq!(decided(User::anonymous()).await, Decision::NoOpinion);
        assert_eq!(
            decided(User::service_account("kube-system", "generic-garbage-collector")).await,
            Decision::NoOpinion
        );
    }
}
