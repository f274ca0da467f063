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
    /// The error of an authorizer that could not decide. A request with an error that is not allowed gets 500, not 403.
    pub error: Option<SharedText>,
}

impl Verdict {
    /// A decision without an error.
    pub fn new(decision: Decision, reason: impl Into<SharedText>) -> Self {
        Self { decision, reason: reason.into(), error: None }
    }

    /// The decision of an authorizer that failed: no opinion or a denial.
    pub fn failed(decision: Decision, error: impl Into<SharedText>) -> Self {
        Self { decision, reason: SharedText::default(), error: Some(error.into()) }
    }

    /// Returns true if the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.decision == Decision::Allow
    }
}

/// A verdict, immediate or as a future.
pub type PendingVerdict<'a> = Either<Ready<Verdict>, BoxFuture<'a, Verdict>>;

/// Decides what users may do.
pub trait Authorizer: Debug + Send + Sync {
    /// Decides if `user` may make the request. Errors never allow: the verdict is then [`Verdict::failed`].
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
        Verdict::new(decision, "")
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
        Either::Left(ready(Verdict::new(Decision::Allow, "")))
    }

    fn rules<'a>(&'a self, _user: &'a User, _namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        let rules = PolicyRule::everything().map(Arc::new).to_vec();
        Box::pin(ready(HeldRules { rules, ..HeldRules::default() }))
    }
}

/// A chain of authorizers. The first one that allows or denies decides, also after errors of others. If none does, the
/// reason has all reasons, one per line, and the error all errors.
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
        mut undecided: Undecided,
        user: &'a User,
        attributes: &'a Attributes<'a>,
    ) -> Verdict {
        for authorizer in &self.0[first..] {
            let verdict = authorizer.authorize(user, attributes).await;
            if verdict.decision != Decision::NoOpinion {
                return verdict;
            }
            undecided.add(verdict);
        }
        undecided.verdict()
    }
}

/// The reasons and errors of the authorizers that were called and did not decide.
#[derive(Default)]
struct Undecided {
    reasons: SmallVec<[SharedText; 4]>,
    /// The errors without repetitions.
    errors: Vec<SharedText>,
}

impl Undecided {
    fn add(&mut self, verdict: Verdict) {
        if !verdict.reason.is_empty() {
            self.reasons.push(verdict.reason);
        }
        if let Some(error) = verdict.error.filter(|error| !self.errors.contains(error)) {
            self.errors.push(error);
        }
    }

    fn verdict(self) -> Verdict {
        // As upstream, several errors stand in brackets.
        let error = match self.errors.as_slice() {
            [] | [_] => self.errors.into_iter().next(),
            several => Some(format!("[{}]", joined(several, ", ")).into()),
        };
        Verdict { decision: Decision::NoOpinion, reason: joined(&self.reasons, "\n").into(), error }
    }
}

fn joined(texts: &[SharedText], separator: &str) -> String {
    texts.iter().map(|text| &**text).collect::<Vec<_>>().join(separator)
}

impl Authorizer for AuthorizerChain {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        let mut undecided = Undecided::default();
        for (place, authorizer) in self.0.iter().enumerate() {
            match authorizer.authorize(user, attributes) {
                Either::Left(decided) => {
                    let verdict = decided.into_inner();
                    if verdict.decision != Decision::NoOpinion {
                        return Either::Left(ready(verdict));
                    }
                    undecided.add(verdict);
                }
                Either::Right(waiting) => {
                    return Either::Right(Box::pin(async move {
                        let verdict = waiting.await;
                        if verdict.decision != Decision::NoOpinion {
                            return verdict;
                        }
                        undecided.add(verdict);
                        self.ask_from(place + 1, undecided, user, attributes).await
                    }));
                }
            }
        }
        Either::Left(ready(undecided.verdict()))
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

    /// An authorizer with a fixed verdict, immediate or as a future. A reason that begins with `error` is an error.
    #[derive(Debug)]
    struct Answers(Decision, &'static str, bool);

    impl Authorizer for Answers {
        fn authorize<'a>(&'a self, _: &'a User, _: &'a Attributes<'a>) -> PendingVerdict<'a> {
            let verdict = match self.1.strip_prefix("error ") {
                Some(error) => Verdict::failed(self.0, error),
                None => Verdict::new(self.0, self.1),
            };
            if self.2 { Either::Right(Box::pin(ready(verdict))) } else { Either::Left(ready(verdict)) }
        }
    }

    async fn ask(authorizers: Vec<Answers>) -> (Decision, String) {
        let verdict = verdict(authorizers).await;
        assert_eq!(verdict.error, None);
        (verdict.decision, verdict.reason.to_string())
    }

    async fn verdict(authorizers: Vec<Answers>) -> Verdict {
        let authorizers = authorizers.into_iter().map(|one| Arc::new(one) as Arc<dyn Authorizer>).collect();
        let chain = AuthorizerChain::new(authorizers);
        let (user, attributes) = (User::anonymous(), Attributes::Path { verb: "get", path: "/" });
        chain.authorize(&user, &attributes).await
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
    async fn an_error_counts_if_no_later_authorizer_decides() {
        use Decision::{Allow, Deny, NoOpinion};
        for later in [false, true] {
            let failing = |text| Answers(NoOpinion, text, later);
            for decision in [Allow, Deny] {
                let found = verdict(vec![failing("error lost"), Answers(decision, "b", later)]).await;
                assert_eq!(found, Verdict::new(decision, "b"));
            }
            let found = verdict(vec![failing("error lost"), failing("c"), Answers(NoOpinion, "", false)]).await;
            assert_eq!((&*found.reason, found.error.as_deref()), ("c", Some("lost")));
            let found = verdict(vec![failing("error lost"), failing("error late"), failing("error lost")]).await;
            assert_eq!(found, Verdict::failed(NoOpinion, "[lost, late]"));
            let found = verdict(vec![Answers(Deny, "error lost", later), Answers(Allow, "b", later)]).await;
            assert_eq!(found, Verdict::failed(Deny, "lost"));
        }
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
