//! Counts the requests that each authorizer of a configuration has allowed or denied.
//!
//! Like upstream, verdicts without an opinion are not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::{BoxFuture, Either};
use keelson_access::{Attributes, Authorizer, Decision, HeldRules, PendingVerdict, User, Verdict};

/// The counts of one authorizer.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    allowed: AtomicU64,
    denied: AtomicU64,
}

/// The numbers of decisions of an authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionCounts {
    /// The kind of the authorizer, as in configurations.
    pub kind: String,
    /// The name of the authorizer.
    pub name: String,
    /// The number of allowed requests.
    pub allowed: u64,
    /// The number of denied requests.
    pub denied: u64,
}

impl Decisions {
    pub(super) fn snapshot(&self, kind: &str, name: &str) -> DecisionCounts {
        DecisionCounts {
            kind: kind.to_owned(),
            name: name.to_owned(),
            allowed: self.allowed.load(Ordering::Relaxed),
            denied: self.denied.load(Ordering::Relaxed),
        }
    }

    fn note(&self, verdict: &Verdict) {
        match verdict.decision {
            Decision::Allow => self.allowed.fetch_add(1, Ordering::Relaxed),
            Decision::Deny => self.denied.fetch_add(1, Ordering::Relaxed),
            Decision::NoOpinion => 0,
        };
    }
}

/// An authorizer, with counts of its decisions.
#[derive(Debug)]
pub(super) struct CountedAuthorizer {
    pub(super) authorizer: Arc<dyn Authorizer>,
    pub(super) decisions: Arc<Decisions>,
}

impl Authorizer for CountedAuthorizer {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        match self.authorizer.authorize(user, attributes) {
            Either::Left(decided) => {
                let verdict = decided.into_inner();
                self.decisions.note(&verdict);
                Either::Left(futures::future::ready(verdict))
            }
            Either::Right(waiting) => Either::Right(Box::pin(async move {
                let verdict = waiting.await;
                self.decisions.note(&verdict);
                verdict
            })),
        }
    }

    fn rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        self.authorizer.rules(user, namespace)
    }
}
