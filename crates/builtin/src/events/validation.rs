//! Validation of events of both groups. They are stored as core events. The newer group has stricter rules.
//!
//! An event that was created in the older form may keep that form.

#[cfg(test)]
mod tests;

use crate::validating::at::At;
use crate::validating::formats::{DNS_SUBDOMAIN, QUALIFIED_NAME};
use crate::validating::type_rules::Rule::{Always, Check, Immutable};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[kind("Event").object(&NEW_EVENT).then(&UPDATE)];

/// The rules of every event.
pub(crate) const EVENT: TypeRules =
    TypeRules::new(&[("", Check("in the namespace of the involved object; complete if it has an eventTime", event))]);

const NEW_EVENT: TypeRules = TypeRules::new(&[
    ("", Always(&EVENT)),
    ("", Check("eventTime and type are required; deprecated fields are not set", strict)),
]);

const UPDATE: TypeRules = TypeRules::new(&[
    (
        "",
        Check("a changed series has a count and a time", |at, run| {
            if !at.field("series").is_unchanged() {
                series(at, run);
            }
        }),
    ),
    ("involvedObject", Immutable),
    ("reason", Immutable),
    ("message", Immutable),
    ("source", Immutable),
    ("firstTimestamp", Immutable),
    ("lastTimestamp", Immutable),
    ("count", Immutable),
    ("type", Immutable),
    ("eventTime", Immutable),
    ("action", Immutable),
    ("related", Immutable),
    ("reportingComponent", Check("immutable", |at, run| Immutable.check(&at.called("reportingController"), run))),
    ("reportingInstance", Immutable),
]);

fn event(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MISMATCH: &str = "does not match event.namespace";
    let (metadata, involved) = (at.field("metadata"), at.field("involvedObject"));
    let namespace = metadata.field("namespace");
    let about = involved.field("namespace");
    let cluster_wide = about.is_empty();
    if at.field("eventTime").is_set() {
        if cluster_wide && !matches!(namespace.text(), "default" | "kube-system") {
            about.invalid(run, about.text(), MISMATCH);
        }
        complete(at, run);
    } else {
        let fits =
            if cluster_wide { matches!(namespace.text(), "" | "default") } else { namespace.text() == about.text() };
        if !fits {
            about.invalid(run, about.text(), MISMATCH);
        }
    }
    at.field("namespace").holding(namespace.value).complain(run, DNS_SUBDOMAIN.faults(namespace.text()));
}

fn complete(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: usize = 128;
    const NOTE_MOST: usize = 1024;
    let controller = at.field("reportingComponent");
    let controller = controller.called("reportingController");
    if controller.is_empty() {
        controller.required(run, "");
    }
    controller.complain(run, QUALIFIED_NAME.faults(controller.text()));
    for field in ["reportingInstance", "action", "reason"].map(|field| at.field(field)) {
        if field.is_empty() {
            field.required(run, "");
        }
        if field.text().len() > MOST {
            field.invalid(run, "", format!("can have at most {MOST} characters"));
        }
    }
    let message = at.field("message");
    if message.text().len() > NOTE_MOST {
        message.invalid(run, "", format!("can have at most {NOTE_MOST} characters"));
    }
}

fn strict(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_some() {
        return;
    }
    series(at, run);
    let (time, kind) = (at.field("eventTime"), at.field("type"));
    if !time.is_set() {
        time.required(run, "");
    }
    if !matches!(kind.text(), "Normal" | "Warning") {
        kind.invalid(run, "", format!("has invalid value: {}", kind.text()));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"].map(|field| at.field(field)) {
        let unset = field.is_empty() || *field.value == 0;
        if !unset {
            field.invalid(run, "", "needs to be unset");
        }
    }
}

fn series(at: &At<'_, '_>, run: &mut Run<'_>) {
    let series = at.field("series");
    if !series.is_set() {
        return;
    }
    if series.field("count").int() < 2 {
        series.field("count").invalid(run, "", "should be at least 2");
    }
    if !series.field("lastObservedTime").is_set() {
        series.field("lastObservedTime").required(run, "");
    }
}
