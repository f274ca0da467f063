//! Metrics of authentication and authorization: token issuers, webhooks, and the files that configure them.
//!
//! Names are upstream's if upstream has the metric.

use std::time::UNIX_EPOCH;

use keelson_access::FileReads;
use keelson_access_config::{
    CallCounts, ConfiguredAuthorizers, ConfiguredIssuers, DecisionCounts, IssuerSample, IssuerTimes, Reloads,
    TOKEN_CACHE, WebhookCounts,
};
use keelson_encryption::sha256_of;
use keelson_http::metrics::{HistogramSample, Sample};
use keelson_meta::metering::AtomicHistogram;

use super::{counter, gauge};

/// The counts of reads of files that are applied when they change.
pub(crate) fn read_samples(files: &[(&'static str, FileReads)]) -> Vec<Sample> {
    let help = "Reloads of the operator's files, by kind and success";
    let of = |(what, reads): &(&'static str, FileReads)| {
        let labels = |status: &str| vec![("contents", (*what).to_owned()), ("status", status.to_owned())];
        let sample =
            |(status, count)| Sample { labels: labels(status), ..counter("keelson_file_reads_total", help, count) };
        reads.counts().map(sample)
    };
    files.iter().flat_map(of).collect()
}

/// The counts of issuers and authorizers.
pub(crate) fn access_samples(
    issuers: Option<&ConfiguredIssuers>,
    authorizers: &ConfiguredAuthorizers,
    server_id: &str,
) -> Vec<Sample> {
    let server = sha256_of(server_id.as_bytes());
    let mut samples = config_samples(issuers, authorizers, &server);
    let mut reloads = |count: &'static str, last: &'static str, what: &Reloads| {
        let counts = what.counts();
        let labelled = |status: &str| vec![("status", status.to_owned()), ("apiserver_id_hash", server.clone())];
        samples.extend(counts.map(|counts| Sample {
            labels: labelled(counts.status),
            ..counter(count, "Reloads of the configuration file, by result", counts.count)
        }));
        samples.extend(counts.map(|counts| Sample {
            labels: labelled(counts.status),
            ..gauge(last, "When the file of the configuration was read again last, in seconds since 1970", counts.last)
        }));
    };
    if let Some(issuers) = issuers {
        reloads(
            "apiserver_authentication_config_controller_automatic_reloads_total",
            "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
            issuers.reloads(),
        );
    }
    reloads(
        "apiserver_authorization_config_controller_automatic_reloads_total",
        "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
        authorizers.reloads(),
    );
    let issuers = issuers.map(ConfiguredIssuers::samples).unwrap_or_default();
    for IssuerSample { url, succeeded, failed, .. } in &issuers {
        samples.extend([("success", *succeeded), ("failure", *failed)].map(|(result, count)| Sample {
            labels: vec![("issuer", url.clone()), ("result", result.to_owned())],
            ..counter("keelson_jwt_tokens_total", "Validated tokens of an issuer, by result", count)
        }));
    }
    samples.extend(issuers.iter().map(|issuer| Sample {
        labels: vec![("issuer", issuer.url.clone())],
        ..gauge("keelson_jwt_issuer_known", "1 for an issuer of tokens that was reached", issuer.is_known.into())
    }));
    samples.extend(key_samples(&issuers, &server));
    samples.extend(decision_samples(&authorizers.decision_counts()));
    samples.extend(webhook_samples(&authorizers.webhook_counts()));
    samples.extend(token_cache_samples());
    samples
}

/// The hashes of the configuration files in force.
fn config_samples(
    issuers: Option<&ConfiguredIssuers>,
    authorizers: &ConfiguredAuthorizers,
    server: &str,
) -> Vec<Sample> {
    let of = |name, help, hash: Option<String>| {
        let labels = vec![("apiserver_id_hash", server.to_owned()), ("hash", hash?)];
        Some(Sample { labels, ..gauge(name, help, 1) })
    };
    let authentication = of(
        "apiserver_authentication_config_controller_last_config_info",
        "1 for the hash of the file that configures authentication",
        issuers.and_then(ConfiguredIssuers::hash),
    );
    let authorization = of(
        "apiserver_authorization_config_controller_last_config_info",
        "1 for the hash of the file that configures authorization",
        authorizers.hash(),
    );
    authentication.into_iter().chain(authorization).collect()
}

/// The fetches of the issuers' keys.
fn key_samples(issuers: &[IssuerSample], server: &str) -> Vec<Sample> {
    let (mut times, mut sets) = (Vec::new(), Vec::new());
    for issuer in issuers {
        let labels = |more: (&'static str, String)| {
            vec![("apiserver_id_hash", server.to_owned()), ("jwt_issuer_hash", issuer.issuer_hash.clone()), more]
        };
        times.extend(issuer.fetched.iter().filter_map(|(result, time)| {
            let since = time.as_ref()?.duration_since(UNIX_EPOCH).ok()?;
            let (name, help) = (
                "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
                "Time of the last fetch of an issuer's keys, by outcome, in seconds since 1970",
            );
            Some(Sample { labels: labels(("result", (*result).to_owned())), ..gauge(name, help, since.as_secs()) })
        }));
        sets.extend(issuer.key_set_hash.iter().map(|hash| {
            let (name, help) = (
                "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
                "1 for the hash of the document with an issuer's keys",
            );
            Sample { labels: labels(("hash", hash.clone())), ..gauge(name, help, 1) }
        }));
    }
    times.extend(sets);
    times
}

/// The durations of token verifications, by issuer.
pub(crate) fn issuer_times(issuers: &ConfiguredIssuers) -> Vec<HistogramSample> {
    let (name, help) = (
        "apiserver_authentication_jwt_authenticator_latency_seconds",
        "Duration of the check of an issuer's tokens that were not cached, in seconds, by result",
    );
    let of = |IssuerTimes { issuer_hash, by_result }: IssuerTimes| {
        let measured = by_result.into_iter().filter(|(_, times)| times.count() > 0);
        let sample = |(result, times): (&str, std::sync::Arc<AtomicHistogram>)| {
            let labels = vec![("result", result.to_owned()), ("jwt_issuer_hash", issuer_hash.clone())];
            Some(HistogramSample::sum(&[&*times], name, help)?.with(labels))
        };
        measured.filter_map(sample).collect::<Vec<_>>()
    };
    let mut all: Vec<HistogramSample> = issuers.times().into_iter().flat_map(of).collect();
    all.dedup_by(|one, other| one.labels == other.labels);
    all
}

/// The cached results of token webhooks.
fn token_cache_samples() -> Vec<Sample> {
    let of = |name, help, status: &str, value| Sample {
        labels: vec![("status", status.to_owned())],
        ..counter(name, help, value)
    };
    let help = "Tokens for webhooks, by whether an answer was kept";
    let name = "authentication_token_cache_request_total";
    let requests =
        [of(name, help, "hit", TOKEN_CACHE.hits.count()), of(name, help, "miss", TOKEN_CACHE.misses.count())];
    let help = "Calls of token webhooks, by outcome";
    let name = "authentication_token_cache_fetch_total";
    let fetches = [of(name, help, "ok", TOKEN_CACHE.fetched.get()), of(name, help, "error", TOKEN_CACHE.failed.get())];
    let active = Sample {
        labels: vec![("status", "in_flight".to_owned())],
        ..gauge(
            "authentication_token_cache_active_fetch_count",
            "Calls of token webhooks that are under way",
            TOKEN_CACHE.in_flight(),
        )
    };
    requests.into_iter().chain(fetches).chain([active]).collect()
}

/// The durations of token webhook requests.
pub(crate) fn token_cache_times() -> Vec<HistogramSample> {
    let (name, help) = (
        "authentication_token_cache_request_duration_seconds",
        "Duration of checks of tokens for webhooks, in seconds, by use of the cache",
    );
    let of = |(status, times): (&str, &AtomicHistogram)| {
        Some(HistogramSample::sum(&[times], name, help)?.with(vec![("status", status.to_owned())]))
    };
    let all: [(&str, &AtomicHistogram); 2] = [("hit", &TOKEN_CACHE.hits), ("miss", &TOKEN_CACHE.misses)];
    all.into_iter().filter_map(of).collect()
}

fn decision_samples(authorizers: &[DecisionCounts]) -> Vec<Sample> {
    let of_one = |one: &DecisionCounts| {
        [("allowed", one.allowed), ("denied", one.denied)].map(|(decision, count)| Sample {
            labels: vec![("decision", decision.to_owned()), ("name", one.name.clone()), ("type", one.kind.clone())],
            ..counter("apiserver_authorization_decisions_total", "Requests that an authorizer allowed or denied", count)
        })
    };
    authorizers.iter().flat_map(of_one).collect()
}

fn webhook_samples(webhooks: &[WebhookCounts]) -> Vec<Sample> {
    let of = |name: &'static str, help: &'static str, count: fn(&WebhookCounts) -> u64| {
        webhooks.iter().map(move |webhook| Sample {
            labels: vec![("name", webhook.name.clone()), ("type", "Webhook".to_owned())],
            ..counter(name, help, count(webhook))
        })
    };
    let by_result = |name: &'static str, help: &'static str, count: fn(&CallCounts) -> u64| {
        webhooks.iter().flat_map(move |webhook| {
            webhook.asked.iter().map(move |asked| Sample {
                labels: result_labels(&webhook.name, asked),
                ..counter(name, help, count(asked))
            })
        })
    };
    let asked = by_result(
        "apiserver_authorization_webhook_evaluations_total",
        "Calls of an authorization webhook, by result",
        |asked| asked.count,
    );
    let failed_open = by_result(
        "apiserver_authorization_webhook_evaluations_fail_open_total",
        "Failed calls of an authorization webhook after which the next authorizer decided, by result",
        |asked| asked.failed_open,
    )
    .filter(|sample| sample.value > 0.0);
    let unmatched = of(
        "apiserver_authorization_match_condition_evaluation_errors_total",
        "Evaluations of the conditions of an authorization webhook that failed",
        |webhook| webhook.unmatched,
    );
    let excluded = of(
        "apiserver_authorization_match_condition_exclusions_total",
        "Requests that the conditions of an authorization webhook excluded",
        |webhook| webhook.excluded,
    );
    asked.chain(failed_open).chain(unmatched).chain(excluded).collect()
}

/// The durations of authorization webhooks.
pub(crate) fn review_times(authorizers: &ConfiguredAuthorizers) -> Vec<HistogramSample> {
    let of_one = |webhook: &WebhookCounts| {
        let asked = webhook.asked.iter().filter(|asked| asked.count > 0);
        let sample = |asked: &CallCounts| HistogramSample {
            name: "apiserver_authorization_webhook_duration_seconds",
            help: "Duration of calls of an authorization webhook, in seconds, by result",
            labels: result_labels(&webhook.name, asked),
            sum: asked.seconds,
            count: asked.count,
            buckets: asked.buckets.clone(),
        };
        asked.map(sample).collect::<Vec<_>>()
    };
    let mut samples: Vec<HistogramSample> = authorizers.webhook_counts().iter().flat_map(of_one).collect();
    samples.extend(authorizers.matching_times().into_iter().filter(|(_, times)| times.count() > 0).filter_map(
        |(name, times)| {
            let (family, help) = (
                "apiserver_authorization_match_condition_evaluation_seconds",
                "Duration of the evaluation of an authorizer's match conditions, in seconds",
            );
            let labels = vec![("name", name), ("type", "Webhook".to_owned())];
            Some(HistogramSample::sum(&[&*times], family, help)?.with(labels))
        },
    ));
    samples
}

fn result_labels(name: &str, counts: &CallCounts) -> Vec<(&'static str, String)> {
    vec![("name", name.to_owned()), ("result", counts.result.to_owned())]
}
