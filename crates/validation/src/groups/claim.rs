//! Persistent volume claims, and the templates for them that pods and stateful sets hold.

use keelson_meta::Quantity;

use crate::at::At;
use crate::formats::{DNS_LABEL, DNS_SUBDOMAIN};
use crate::selectors::{SELECTOR, labels};
use crate::shape::Rule::{self, Always, Check, Format, OneOf, Required};
use crate::shape::{Run, Shape};

use crate::pod::resources::{amount, quantity};

/// A claim that is made for a pod.
pub(crate) const TEMPLATE: Shape = Shape::shared(
    "Claim template",
    &[("metadata", Check("only labels and annotations", template_metadata)), ("spec", Always(&SPEC))],
);

/// What a claim asks for.
pub(crate) const SPEC: Shape = Shape::shared(
    "Claim spec",
    &[
        ("accessModes", Required("at least 1 access mode is required")),
        ("selector", SELECTOR),
        ("accessModes", ACCESS_MODES),
        ("resources", Check("an amount of storage above zero", storage)),
        ("storageClassName", Format(&DNS_SUBDOMAIN)),
        ("volumeMode", OneOf(&["Block", "Filesystem"])),
        ("dataSource", Check("name and kind; a claim unless it has a group", data_source)),
        ("dataSourceRef", Check("name and kind; a claim unless it has a group", data_source)),
        ("", Check("both sources are the same", same_sources)),
        ("volumeAttributesClassName", Format(&DNS_SUBDOMAIN)),
    ],
);

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// How a volume can be mounted.
pub(crate) const ACCESS_MODES: Rule = Check("known modes, ReadWriteOncePod only alone", |at, run| {
    for mode in at.items().filter(|mode| !MODES.contains(&mode.text())) {
        at.not_supported(run, mode.text(), &MODES);
    }
    let (single, others): (Vec<_>, Vec<_>) = at
        .items()
        .filter(|mode| MODES.contains(&mode.text()))
        .map(|mode| mode.text())
        .partition(|mode| *mode == "ReadWriteOncePod");
    if !single.is_empty() && !others.is_empty() {
        at.forbidden(run, "may not use ReadWriteOncePod with other access modes");
    }
});

fn template_metadata(at: &At<'_, '_>, run: &mut Run<'_>) {
    labels(&at.field("labels"), run);
    for (name, _) in at.tree().into_iter().flatten() {
        let field = at.field(name);
        if !matches!(name.as_str(), "labels" | "annotations") && !field.is_empty() {
            field.forbidden(run, "cannot be set");
        }
    }
}

/// Upstream leaves `requests` out of the path.
fn storage(at: &At<'_, '_>, run: &mut Run<'_>) {
    let asked = at.field("requests");
    let asked = asked.field("storage");
    let place = at.key("storage");
    let place = place.holding(asked.value);
    match amount(&place) {
        None => place.required(run, ""),
        Some(amount) if amount <= Quantity::ZERO => place.invalid(run, place.text(), "must be greater than zero"),
        Some(_) => quantity(&place, "storage", run),
    }
}

fn data_source(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        return;
    }
    for field in ["name", "kind"].map(|field| at.field(field)) {
        if field.is_empty() {
            field.required(run, "");
        }
    }
    let (group, kind, namespace) = (at.field("apiGroup"), at.field("kind"), at.field("namespace"));
    if group.is_empty() && kind.text() != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        at.invalid(run, kind.text(), detail);
    }
    if !group.is_empty() && group.old.is_null() {
        group.complain(run, DNS_SUBDOMAIN.faults(group.text()));
    }
    if !namespace.is_empty() {
        namespace.complain(run, DNS_LABEL.faults(namespace.text()));
    }
}

fn same_sources(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (source, reference) = (at.field("dataSource"), at.field("dataSourceRef"));
    if !source.is_set() || !reference.is_set() {
        return;
    }
    let same = |field: &str| source.value.get(field) == reference.value.get(field);
    if !reference.field("namespace").is_empty() {
        at.invalid(run, source.path(), "may not be specified when dataSourceRef.namespace is specified");
    } else if !["apiGroup", "kind", "name"].into_iter().all(same) {
        at.invalid(run, source.path(), "must match dataSourceRef");
    }
}
