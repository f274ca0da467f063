//! Validation of persistent volume claims, and of the claim templates in pods and stateful sets.
//!
//! Few fields of a claim can change: the requested storage can grow, and the volume attributes class can change.

use keelson_meta::json::{Value, json};
use keelson_meta::{Object, Quantity};

use crate::core::validation::pod::resources::{amount, is_native, quantity};
use crate::core::validation::pod::{difference, restore};
use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, QUALIFIED_NAME};
use crate::validating::selectors::{SELECTOR, labels};
use crate::validating::type_rules::Rule::{self, Always, Check, Format, OneOfIfSet, Required};
use crate::validating::type_rules::{IMMUTABLE, Run, TypeRules};

/// A claim template in a pod.
pub(crate) const TEMPLATE: TypeRules = TypeRules::shared(
    "Claim template",
    &[("metadata", Check("only labels and annotations are allowed", template_metadata)), ("spec", Always(&SPEC))],
);

/// The rules of the spec of a claim.
pub(crate) const SPEC: TypeRules = TypeRules::shared(
    "Claim spec",
    &[
        ("accessModes", Required("at least 1 access mode is required")),
        ("selector", SELECTOR),
        ("accessModes", ACCESS_MODES),
        ("resources", Check("a storage request greater than zero", storage)),
        ("storageClassName", Format(&DNS_SUBDOMAIN)),
        ("volumeMode", OneOfIfSet(&["Block", "Filesystem"])),
        ("dataSource", Check("name and kind; PersistentVolumeClaim if the group is empty", data_source)),
        ("dataSourceRef", Check("name and kind; PersistentVolumeClaim if the group is empty", data_source)),
        ("", Check("both sources are the same", same_sources)),
        ("volumeAttributesClassName", Format(&DNS_SUBDOMAIN)),
    ],
);

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The access modes of a volume.
pub(crate) const ACCESS_MODES: Rule = Check("known modes; ReadWriteOncePod must be the only one", |at, run| {
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
        if !matches!(name, "labels" | "annotations") && !field.is_empty() {
            // Like upstream, the field name is Go's with a lower-case first letter.
            let field = if name == "uid" { field.called("uID") } else { field };
            field.forbidden(run, "cannot be set");
        }
    }
}

/// Like upstream, the path omits `requests`.
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

/// Like upstream, the error contains the Go structure of the path.
fn same_sources(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (source, reference) = (at.field("dataSource"), at.field("dataSourceRef"));
    if !source.is_set() || !reference.is_set() {
        return;
    }
    let same = |field: &str| source.value.get(field) == reference.value.get(field);
    if !reference.field("namespace").is_empty() {
        at.invalid(run, json!({}), "may not be specified when dataSourceRef.namespace is specified");
    } else if !["apiGroup", "kind", "name"].into_iter().all(same) {
        at.invalid(run, json!({}), "must match dataSourceRef");
    }
}

/// The rules of a new or updated claim.
pub(super) const CLAIM: TypeRules = TypeRules::new(&[("spec", Always(&SPEC))]);

/// The permitted changes of a claim. A bound claim may request more storage and another class. The volume can be set
/// once.
pub(super) const UPDATE: TypeRules = TypeRules::new(&[
    ("metadata", Check("the class annotation is immutable", class_annotation_stays)),
    (
        "",
        Check(
            "only the storage request and volumeAttributesClassName of a bound claim can change; volumeName is set once",
            spec_stays,
        ),
    ),
    ("", Check("the storage request can't become smaller than the capacity in the status", storage_stays)),
    ("", Check("the mode is immutable; the attributes class can't be removed", modes_stay)),
]);

/// The rules of the status of a claim.
pub(super) const STATUS: TypeRules =
    TypeRules::new(&[("status", Check("quantities of storage, known states of a resize", status))]);

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn class_annotation_stays(at: &At<'_, '_>, run: &mut Run<'_>) {
    let annotations = at.field("annotations");
    let class = annotations.field(CLASS_ANNOTATION);
    if !class.is_unchanged() && !run.before.is_some_and(|old| upgrades(old, run.object)) {
        class.invalid(run, class.text(), IMMUTABLE);
    }
}

/// Returns true if the class moves from the annotation to the field.
fn upgrades(old: &Object, new: &Object) -> bool {
    let annotation = |object: &Object| object.get(&["metadata", "annotations", CLASS_ANNOTATION]).cloned();
    let class = |object: &Object| object.get(&["spec", "storageClassName"]).cloned();
    annotation(old).is_some()
        && class(old).is_none()
        && class(new) == annotation(old)
        && annotation(new).is_none_or(|kept| Some(kept) == annotation(old))
}

fn spec_stays(at: &At<'_, '_>, run: &mut Run<'_>) {
    let spec = at.field("spec");
    if spec.is_unchanged() {
        return;
    }
    let bound = at.field("status").field("phase").text() == "Bound";
    let mut same = spec.value.clone();
    let had = |field: &str| spec.old.get(field).is_some_and(|old| !crate::validating::at::is_empty(old));
    if !had("volumeName") {
        restore(&mut same, spec.old, "volumeName");
    }
    let annotated = at.field("metadata").field("annotations").old.get(CLASS_ANNOTATION).cloned();
    if spec.old.get("storageClassName").is_none()
        && annotated.is_none_or(|class| Some(&class) == spec.value.get("storageClassName"))
    {
        restore(&mut same, spec.old, "storageClassName");
    }
    if bound {
        if same.get("volumeAttributesClassName").is_some() {
            restore(&mut same, spec.old, "volumeAttributesClassName");
        }
        let old = spec.old.get("resources").and_then(|resources| resources.get("requests")).unwrap_or(&Value::Null);
        if let Some(requests) = same.get_mut("resources").and_then(|resources| resources.get_mut("requests")) {
            restore(requests, old, "storage");
        }
    }
    if same != *spec.old {
        let changes = difference(spec.old, &same);
        let detail =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        spec.forbidden(run, format!("{detail}\n{changes}"));
    }
}

fn storage_stays(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (spec, status) = (at.field("spec"), at.field("status"));
    let resources = spec.field("resources");
    let requests = resources.field("requests");
    let storage = requests.field("storage");
    let old = storage.old.as_str().and_then(Quantity::parse);
    let capacity = status.field("capacity");
    let there = amount(&capacity.field("storage")).unwrap_or_default();
    let (new, old) = (amount(&storage).unwrap_or_default(), old.unwrap_or_default());
    if new < old && new <= there {
        storage.forbidden(run, "field can not be less than status.capacity");
    }
}

/// Like upstream, the path of the mode omits `spec`.
fn modes_stay(at: &At<'_, '_>, run: &mut Run<'_>) {
    let spec = at.field("spec");
    let (mode, class) = (spec.field("volumeMode"), spec.field("volumeAttributesClassName"));
    if !mode.is_unchanged() {
        at.field("volumeMode").invalid(run, mode.shown(), IMMUTABLE);
    }
    let status = at.field("status");
    if !class.old.is_null() && !class.is_set() {
        // A claim that is not bound cannot change at all; another rule reports that.
        if status.field("phase").text() == "Bound" {
            class.forbidden(run, "update from non-nil value to nil is forbidden");
        }
    } else if !class.old.is_null() && class.is_empty() && !class.is_unchanged() {
        class.forbidden(run, "update from non-nil value to an empty string is forbidden");
    }
}

const RESIZES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

fn status(at: &At<'_, '_>, run: &mut Run<'_>) {
    for (_, entry) in at.field("capacity").entries() {
        basic(&entry, run);
    }
    let resizes = at.field("allocatedResourceStatuses");
    for (resource, entry) in resizes.entries() {
        resource_key(&resizes, resource, run);
        if !RESIZES.contains(&entry.text()) {
            resizes.not_supported(run, resource, &RESIZES);
        }
    }
    let allocated = at.field("allocatedResources");
    for (resource, entry) in allocated.entries() {
        if resource_key(&allocated, resource, run) && basic(&entry, run) {
            quantity(&entry, "storage", run);
        }
    }
}

fn basic(at: &At<'_, '_>, run: &mut Run<'_>) -> bool {
    match amount(at) {
        Some(amount) if amount < Quantity::ZERO => {
            at.invalid(
                run,
                i64::try_from(amount.rounded_up()).unwrap_or(i64::MIN),
                "must be a valid resource quantity",
            );
            false
        }
        _ => true,
    }
}

fn resource_key(at: &At<'_, '_>, resource: &str, run: &mut Run<'_>) -> bool {
    let faults = QUALIFIED_NAME.faults(resource);
    let named = faults.is_empty();
    for fault in faults {
        at.invalid(run, resource, fault);
    }
    if named && is_native(resource) && resource != "storage" {
        at.not_supported(run, resource, &["storage"]);
        return false;
    }
    named
}
