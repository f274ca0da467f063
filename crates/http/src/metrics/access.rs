//! Metrics of authentication and authorization: the number of attempts, their results, and their durations.
//!
//! Names, results and buckets are upstream's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keelson_access::{Decision, Verdict};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::filter_times::{Filter, FilterTimes};
use super::source::{MetricKind, Sample};

/// The result of authenticating a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authentication {
    /// The request has a user.
    Success,
    /// The request has no credential, and its path requires one.
    Failure,
    /// A credential was invalid, or could not be verified.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.001, 2.0, 15))
    }
}

/// A result, with its count and durations.
struct Outcome {
    result: &'static str,
    count: AtomicU64,
    times: Histogram,
}

impl Outcome {
    fn note(&self, took: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.times.observe(took.as_secs_f64());
    }
}

fn outcomes<const N: usize>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    results: [&'static str; N],
) -> [Outcome; N] {
    let times = Family::<ResultLabels, Histogram, Buckets>::new_with_constructor(Buckets);
    registry.register(name, help, times.clone());
    results.map(|result| Outcome {
        result,
        count: AtomicU64::default(),
        times: times.get_or_create_owned(&ResultLabels { result }),
    })
}

/// The metrics of a server.
pub(crate) struct AccessMetrics {
    authentication: [Outcome; 3],
    authorization: [Outcome; 4],
    users: [AtomicU64; USERS.len()],
    /// The remaining validity of the client certificates of requests, in seconds.
    certificates: Histogram,
    filters: Arc<FilterTimes>,
}

/// Upper ends of the buckets of [`AccessMetrics::note_client_certificate`] in seconds: from half an hour to a year, as
/// upstream.
const CERTIFICATE_BUCKETS: [f64; 14] = [
    0.,
    1800.,
    3600.,
    7200.,
    21_600.,
    43_200.,
    86_400.,
    172_800.,
    345_600.,
    604_800.,
    2_592_000.,
    7_776_000.,
    15_552_000.,
    31_104_000.,
];

/// The label values for users: names that upstream counts separately, then e-mail addresses, then all others.
const USERS: [&str; 7] =
    ["admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default", "email_id", "other"];
/// The number of label values that are names.
const NAMED_USERS: usize = 5;

impl AccessMetrics {
    pub(super) fn new(registry: &mut Registry, filters: Arc<FilterTimes>) -> Self {
        let help = "Duration of the authentication of a request, in seconds";
        let results = ["success", "failure", "error"];
        let authentication = outcomes(registry, "authentication_duration_seconds", help, results);
        let help = "Duration of the authorization of a request, in seconds";
        let results = ["allowed", "denied", "no-opinion", "error"];
        let authorization = outcomes(registry, "authorization_duration_seconds", help, results);
        let certificates = Histogram::new(CERTIFICATE_BUCKETS);
        let help = "Remaining lifetime of the client certificate of a request, in seconds";
        registry.register("apiserver_client_certificate_expiration_seconds", help, certificates.clone());
        Self { authentication, authorization, users: Default::default(), certificates, filters }
    }

    /// Counts an authentication with its result and duration.
    pub(crate) fn note_authentication(&self, result: Authentication, took: Duration) {
        self.authentication[result as usize].note(took);
        self.filters.note(Filter::Authentication, took);
    }

    /// Records the remaining validity of the client certificate of a request.
    pub(crate) fn note_client_certificate(&self, left: Duration) {
        self.certificates.observe(left.as_secs_f64());
    }

    /// Counts a request of a user with this name.
    pub(crate) fn note_user(&self, name: &str) {
        let place = USERS[..NAMED_USERS].iter().position(|known| *known == name);
        let place = place.unwrap_or(if name.contains('@') { NAMED_USERS } else { NAMED_USERS + 1 });
        self.users[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an authorization with its result and duration.
    pub(crate) fn note_authorization(&self, verdict: &Verdict, took: Duration) {
        let place = match verdict.decision {
            Decision::Allow => 0,
            _ if verdict.error.is_some() => 3,
            Decision::Deny => 1,
            Decision::NoOpinion => 2,
        };
        self.authorization[place].note(took);
        self.filters.note(Filter::Authorization, took);
    }

    pub(super) fn samples(&self) -> Vec<Sample> {
        let of =
            |name: &'static str, help: &'static str, label: &'static str, value: &'static str, count: &AtomicU64| {
                let (kind, labels) = (MetricKind::Counter, vec![(label, value.to_owned())]);
                // Metrics are floating point numbers, so counts above 2^53 are rounded.
                Sample { name, help, kind, labels, value: count.load(Ordering::Relaxed) as f64 }
            };
        let attempts = self.authentication.iter().map(|one| {
            let help = "Authentications of requests, by result";
            of("authentication_attempts", help, "result", one.result, &one.count)
        });
        let users = USERS.into_iter().zip(&self.users).map(|(name, count)| {
            let help = "Authenticated requests, by the kind of the user's name";
            of("authenticated_user_requests", help, "username", name, count)
        });
        let decisions = self.authorization.iter().map(|one| {
            let help = "Authorizations of requests, by result";
            of("authorization_attempts_total", help, "result", one.result, &one.count)
        });
        attempts.chain(users).chain(decisions).collect()
    }
}
