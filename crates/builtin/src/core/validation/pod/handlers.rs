//! Validation of probes and lifecycle handlers: exactly one action, and valid times.
//!
//! `container` has the rules for init and ephemeral containers, which may have few or none.

use super::container::{headers, port_number_or_name};
use crate::validating::at::At;
use crate::validating::type_rules::Rule::{Always, Check, NonNegative, Within};
use crate::validating::type_rules::{Run, TypeRules};

const ONLY_ONE: &str = "may not specify more than 1 handler type";

/// The rules of all probes.
const PROBE: TypeRules = TypeRules::shared(
    "Probe",
    &[
        ("", Check("one handler", probe_handler)),
        ("initialDelaySeconds", NonNegative),
        ("timeoutSeconds", NonNegative),
        ("periodSeconds", NonNegative),
        ("successThreshold", NonNegative),
        ("failureThreshold", NonNegative),
        ("terminationGracePeriodSeconds", Within(1, i64::MAX, "must be greater than 0")),
    ],
);

/// The rules of liveness and startup probes, whose success threshold must be 1.
pub(super) const LIVENESS: TypeRules = TypeRules::new(&[
    ("", Always(&PROBE)),
    (
        "successThreshold",
        Check("1", |at, run| {
            if at.int() != 1 {
                at.invalid(run, at.int(), "must be 1");
            }
        }),
    ),
]);

/// The rules of readiness probes, which never stop a container.
pub(super) const READINESS: TypeRules = TypeRules::new(&[
    ("", Always(&PROBE)),
    (
        "terminationGracePeriodSeconds",
        Check("not set", |at, run| {
            if at.is_set() {
                at.invalid(run, at.int(), "must not be set for readinessProbes");
            }
        }),
    ),
]);

/// The handlers that a probe may have. If there are several, the first one in this order is validated.
const OF_PROBES: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const OF_LIFECYCLE: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

fn probe_handler(at: &At<'_, '_>, run: &mut Run<'_>) {
    handler(at, &OF_PROBES, run);
}

pub(super) fn lifecycle(at: &At<'_, '_>, run: &mut Run<'_>) {
    for event in ["postStart", "preStop"].map(|event| at.field(event)) {
        if event.is_set() {
            handler(&event, &OF_LIFECYCLE, run);
        }
    }
}

fn handler(at: &At<'_, '_>, known: &[&'static str], run: &mut Run<'_>) {
    let mut found = false;
    for name in known {
        let action = at.field(name);
        if !action.is_set() {
            continue;
        }
        if found {
            action.forbidden(run, ONLY_ONE);
        } else {
            found = true;
            check_action(name, &action, run);
        }
    }
    if !found {
        at.required(run, "must specify a handler type");
    }
}

fn check_action(name: &str, at: &At<'_, '_>, run: &mut Run<'_>) {
    match name {
        "exec" if at.field("command").is_empty() => at.field("command").required(run, ""),
        "httpGet" => {
            let scheme = at.field("scheme");
            if at.field("path").is_empty() {
                at.field("path").required(run, "");
            }
            port_number_or_name(&at.field("port"), run);
            if !matches!(scheme.text(), "HTTP" | "HTTPS") {
                scheme.not_supported(run, scheme.text(), &["HTTP", "HTTPS"]);
            }
            headers(&at.field("httpHeaders"), run);
        }
        "tcpSocket" | "grpc" => port_number_or_name(&at.field("port"), run),
        "sleep" => sleep(at, run),
        _ => {}
    }
}

fn sleep(at: &At<'_, '_>, run: &mut Run<'_>) {
    let seconds = at.field("seconds").int();
    if let Some(grace) = run.pod.grace_period
        && !(0..=grace).contains(&seconds)
    {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        at.invalid(run, seconds, detail);
    }
}
