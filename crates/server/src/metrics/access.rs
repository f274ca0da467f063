//! Metrics of whom the operator has asked about users and their rights: issuers of tokens, webhooks, and the files that name them.
//!
//! Names are upstream's where it has such metrics.

use keelson_access_config::{
    ConfiguredAuthorizers, ConfiguredIssuers, DecisionCounts, IssuerSample, Reloads, WebhookCounts,
};
use keelson_http::metrics::Sample;

use super::{counter, gauge};

/// What is counted of those whom the operator has asked about users and their rights.
pub(crate) fn access_samples(issuers: Option<&ConfiguredIssuers>, authorizers: &ConfiguredAuthorizers) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut reloads = |count: &'static str, last: &'static str, what: &Reloads| {
        let counts = what.counts();
        let labelled = |status: &str| vec![("status", status.to_owned())];
        samples.extend(counts.map(|counts| Sample {
            labels: labelled(counts.status),
            ..counter(count, "How often the file of the configuration was read again, by what came of it", counts.count)
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
            ..counter("keelson_jwt_tokens_total", "Tokens of an issuer that were judged, by what came of it", count)
        }));
    }
    samples.extend(issuers.iter().map(|issuer| Sample {
        labels: vec![("issuer", issuer.url.clone())],
        ..gauge("keelson_jwt_issuer_known", "1 for an issuer of tokens that was reached", issuer.is_known.into())
    }));
    samples.extend(decision_samples(&authorizers.decision_counts()));
    samples.extend(webhook_samples(&authorizers.webhook_counts()));
    samples
}

fn decision_samples(authorizers: &[DecisionCounts]) -> Vec<Sample> {
    let of_one = |one: &DecisionCounts| {
        [("allowed", one.allowed), ("denied", one.denied)].map(|(decision, count)| Sample {
            labels: vec![("decision", decision.to_owned()), ("name", one.name.clone()), ("type", one.kind.clone())],
            ..counter(
                "apiserver_authorization_decisions_total",
                "How often an authorizer has allowed or denied something",
                count,
            )
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
    let asked = webhooks.iter().flat_map(|webhook| {
        webhook.asked.map(|(result, count)| Sample {
            labels: vec![("name", webhook.name.clone()), ("result", result.to_owned())],
            ..counter(
                "apiserver_authorization_webhook_evaluations_total",
                "How often an authorizing webhook was asked, by what came of it",
                count,
            )
        })
    });
    let failed_open = of(
        "apiserver_authorization_webhook_evaluations_fail_open_total",
        "How often an authorizing webhook could not be asked and the next authorizer was",
        |webhook| webhook.failed_open,
    );
    let unmatched = of(
        "apiserver_authorization_match_condition_evaluation_errors_total",
        "How often the conditions of an authorizing webhook had no value",
        |webhook| webhook.unmatched,
    );
    let excluded = of(
        "apiserver_authorization_match_condition_exclusions_total",
        "How often the conditions of an authorizing webhook kept it from being asked",
        |webhook| webhook.excluded,
    );
    asked.chain(failed_open).chain(unmatched).chain(excluded).collect()
}
