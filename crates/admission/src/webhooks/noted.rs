//! Audit annotations of webhooks: changes, patches, and webhooks that failed open.
//!
//! Keys and values are upstream's. A key contains the round (1 for reinvocations) and the index of the webhook.

use keelson_access::audit::{AuditRecord, Level};
use keelson_meta::go_format::json;
use keelson_meta::json::{Map, Value};

use super::WebhookKind;
use super::hook::Hook;

/// The round and the index of a webhook.
pub(super) type Turn = (usize, usize);

fn key(prefix: &str, (round, place): Turn) -> String {
    format!("{prefix}.webhook.admission.k8s.io/round_{round}_index_{place}")
}

fn value(hook: &Hook, more: impl IntoIterator<Item = (&'static str, Value)>) -> String {
    let own =
        [("configuration", Value::from(hook.configuration.as_str())), ("webhook", Value::from(hook.name.clone()))];
    let value: Map = own.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect();
    json(&Value::Object(value))
}

/// Records in the audit log whether a webhook changed the object.
pub(super) fn mutation(audit: &AuditRecord, hook: &Hook, turn: Turn, mutated: bool) {
    if audit.is_read() {
        audit.annotate(key("mutation", turn), value(hook, [("mutated", mutated.into())]));
    }
}

/// Records the patch of a webhook, if the audit level includes request bodies.
pub(super) fn patch(audit: &AuditRecord, hook: &Hook, turn: Turn, mut patch: Value) {
    if audit.level() < Level::Request {
        return;
    }
    for operation in patch.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        let mut members: Vec<_> = operation.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        members.sort_by(|(left, _), (right, _)| left.cmp(right));
        *operation = members.into_iter().collect();
    }
    audit.annotate(key("patch", turn), value(hook, [("patch", patch), ("patchType", "JSONPatch".into())]));
}

/// Records a webhook that failed open.
pub(super) fn failed_open(audit: &AuditRecord, kind: WebhookKind, hook: &Hook, turn: Turn) {
    let prefix = match kind {
        WebhookKind::Mutating => "failed-open.mutation",
        WebhookKind::Validating => "failed-open.validating",
    };
    audit.annotate(key(prefix, turn), hook.name.clone());
}
