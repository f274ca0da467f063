//! Validation of storage classes, CSI drivers, CSI nodes, capacities and volume attachments.
//!
//! This file only has the rules of these kinds. Shared rules are in `validating`.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use keelson_meta::json::{Value, json};

use crate::core::validation::pod::resources::quantity;
use crate::core::validation::pod::volumes::DRIVER as CSI_NAME;
use crate::validating::at::At;
use crate::validating::formats::{DNS_SUBDOMAIN, QUALIFIED_NAME};
use crate::validating::selectors::SELECTOR;
use crate::validating::type_rules::Rule::{
    Always, Check, Immutable, NonNegative, OneOf, Range, Required, With, Within,
};
use crate::validating::type_rules::{IMMUTABLE, Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[
    kind("CSIDriver")
        .object(&const { TypeRules::new(&[("spec", Always(&DRIVER))]) })
        .then(&const { TypeRules::new(&[("spec", Always(&DRIVER_UPDATE))]) }),
    kind("CSINode").object(&const { TypeRules::new(&[("spec", Always(&NODE))]) }).then(
        &const { TypeRules::new(&[("spec", Check("drivers are immutable, except for `allocatable`", drivers_stay))]) },
    ),
    kind("CSIStorageCapacity").object(&CAPACITY).then(&CAPACITY_UPDATE),
    kind("StorageClass").object(&CLASS).then(&CLASS_UPDATE),
    kind("VolumeAttachment").object(&ATTACHMENT).then(&ATTACHMENT_UPDATE).below(&[("status", &ATTACHMENT)]),
    kind("VolumeAttributesClass").first(&ATTRIBUTES_UPDATE).object(&ATTRIBUTES),
];

const CLASS: TypeRules = TypeRules::new(&[
    ("provisioner", Required("")),
    ("provisioner", Check("qualified name in any case", driver)),
    ("parameters", Check("at most 512, in at most 256 KiB", parameters)),
    ("reclaimPolicy", OneOf(&["Delete", "Retain"])),
    ("volumeBindingMode", Required("")),
    ("volumeBindingMode", OneOf(&["Immediate", "WaitForFirstConsumer"])),
    ("allowedTopologies", Check("keys without duplicates, each with values; no duplicate terms", topologies)),
]);

const CLASS_UPDATE: TypeRules = TypeRules::new(&[
    ("parameters", Check("immutable", class_parameters_stay)),
    ("provisioner", Immutable),
    ("reclaimPolicy", Immutable),
    ("volumeBindingMode", Immutable),
]);

fn class_parameters_stay(at: &At<'_, '_>, run: &mut Run<'_>) {
    let stays_empty = at.is_empty() && crate::validating::at::is_empty(at.old);
    if !at.is_unchanged() && !stays_empty {
        at.invalid(run, at.shown(), IMMUTABLE);
    }
}

const ATTRIBUTES: TypeRules = TypeRules::new(&[
    ("driverName", Required("")),
    ("driverName", Check("qualified name in any case", driver)),
    ("parameters", Check("at most 512, in at most 256 KiB", parameters)),
    ("parameters", Required("must contain at least one key/value pair")),
]);

const ATTRIBUTES_UPDATE: TypeRules = TypeRules::new(&[
    ("driverName", Check("immutable", |at, run| stays(at, "updates to driverName are forbidden.", run))),
    ("parameters", Check("immutable", |at, run| stays(at, "updates to parameters are forbidden.", run))),
]);

fn stays(at: &At<'_, '_>, detail: &str, run: &mut Run<'_>) {
    let same = at.is_unchanged() || (at.is_empty() && crate::validating::at::is_empty(at.old));
    if !same {
        at.forbidden(run, detail);
    }
}

/// Like upstream, the error contains the name in lower case.
fn driver(at: &At<'_, '_>, run: &mut Run<'_>) {
    let name = at.text().to_lowercase();
    if !name.is_empty() {
        for fault in QUALIFIED_NAME.faults(&name) {
            at.invalid(run, name.as_str(), fault);
        }
    }
}

fn parameters(at: &At<'_, '_>, run: &mut Run<'_>) {
    /// The largest number of parameters.
    const MAX: usize = 512;
    let Some(tree) = at.tree() else { return };
    if tree.len() > MAX {
        return at.too_long(run, MAX);
    }
    if tree.contains_key("") {
        at.invalid(run, "", "field can not be empty.");
    }
    limited(at, run);
}

/// Validates the total size of the parameters: keys and values together.
fn limited(at: &At<'_, '_>, run: &mut Run<'_>) {
    /// The largest size of all parameters, in bytes.
    const MAX_BYTES: usize = 256 * 1024;
    let lengths = at.tree().into_iter().flatten().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    if lengths.sum::<usize>() > MAX_BYTES {
        at.too_long(run, MAX_BYTES);
    }
}

fn topologies(at: &At<'_, '_>, run: &mut Run<'_>) {
    // Like upstream, starts with as many empty terms as there are terms.
    let mut seen: HashMap<BTreeMap<&str, BTreeSet<&str>>, usize> = HashMap::from([(BTreeMap::new(), at.list().len())]);
    for term in at.items() {
        let expressions = term.field("matchLabelExpressions");
        let mut keys = BTreeMap::new();
        for expression in expressions.items() {
            let (key, values) = (expression.field("key"), expression.field("values"));
            let mut set = BTreeSet::new();
            if values.is_empty() {
                values.required(run, "");
            }
            for value in values.items() {
                if !set.insert(value.text()) {
                    value.duplicate(run, value.text());
                }
            }
            key.complain(run, QUALIFIED_NAME.faults(key.text()));
            if keys.insert(key.text(), set).is_some() {
                key.duplicate(run, key.text());
            }
        }
        let same = seen.entry(keys).or_default();
        for _ in 0..*same {
            if run.is_full() {
                break;
            }
            expressions.duplicate(run, "");
        }
        *same += 1;
    }
}

const DRIVER: TypeRules = TypeRules::new(&[
    (
        "attachRequired",
        // Like upstream, the path has another name for the field.
        Check("required", |at, run| {
            if !at.is_set() {
                at.called("attachedRequired").required(run, "");
            }
        }),
    ),
    ("podInfoOnMount", Required("")),
    ("storageCapacity", Required("")),
    ("fsGroupPolicy", OneOf(&["File", "None", "ReadWriteOnceWithFSType"])),
    ("tokenRequests", Check("audiences without duplicates; an expiration of 10 minutes to 2^32 seconds", tokens)),
    (
        "volumeLifecycleModes",
        Check("Persistent or Ephemeral", |at, run| {
            const KNOWN: [&str; 2] = ["Persistent", "Ephemeral"];
            for mode in at.items().filter(|mode| !KNOWN.contains(&mode.text())) {
                at.not_supported(run, mode.text(), &KNOWN);
            }
        }),
    ),
    ("seLinuxMount", Required("")),
    ("nodeAllocatableUpdatePeriodSeconds", Within(10, i64::MAX, "must be greater than or equal to 10 seconds")),
]);

const DRIVER_UPDATE: TypeRules = TypeRules::new(&[
    (
        "attachRequired",
        Check("immutable", |at, run| {
            if !at.is_unchanged() {
                at.called("attachedRequired").invalid(run, at.shown(), IMMUTABLE);
            }
        }),
    ),
    ("volumeLifecycleModes", Immutable),
]);

fn tokens(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut audiences = HashSet::new();
    for request in at.items() {
        let (audience, seconds) = (request.field("audience"), request.field("expirationSeconds"));
        if !audiences.insert(audience.text()) {
            audience.duplicate(run, audience.text());
            continue;
        }
        match seconds.number() {
            Some(given) if given < 10 * 60 => {
                seconds.invalid(run, given, "may not specify a duration less than 10 minutes");
            }
            Some(given) if given > 1 << 32 => {
                seconds.invalid(run, given, "may not specify a duration larger than 2^32 seconds");
            }
            _ => {}
        }
    }
}

const NODE: TypeRules = TypeRules::new(&[("drivers", With("unique names", drivers, &NODE_DRIVER))]);

const NODE_DRIVER: TypeRules = TypeRules::new(&[
    ("name", CSI_NAME),
    ("nodeID", Required("")),
    (
        "nodeID",
        Check("at most 192 bytes", |at, run| {
            if at.text().len() > NODE_ID_MAX {
                at.invalid(run, at.text(), format!("must be {NODE_ID_MAX} characters or less"));
            }
        }),
    ),
    ("allocatable", Always(&const { TypeRules::new(&[("count", NonNegative)]) })),
]);

/// The longest node ID of a driver, in bytes.
const NODE_ID_MAX: usize = 192;

fn drivers<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let mut names = HashSet::new();
    for item in at.items() {
        NODE_DRIVER.check(&item, run);
        let name = item.field("name");
        if !names.insert(name.text()) {
            name.duplicate(run, name.text());
        }
        let mut keys = HashSet::new();
        for key in item.field("topologyKeys").list().iter().map(|key| key.as_str().unwrap_or_default()) {
            if key.is_empty() {
                item.required(run, "");
            }
            if !keys.insert(key) {
                item.duplicate(run, key);
            }
            for fault in QUALIFIED_NAME.faults(key) {
                item.invalid(run, key, fault);
            }
        }
    }
}

fn drivers_stay(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let at = spec.field("drivers");
    // Like upstream, the error contains the Go structure.
    let shown = |driver: &Value| {
        let field = |name: &str| driver.get(name).cloned().unwrap_or_default();
        json!({ "Name": field("name"), "NodeID": field("nodeID"), "TopologyKeys": field("topologyKeys"), "Allocatable": null })
    };
    let named = |driver: &Value| driver.get("name").cloned();
    for old in at.old.as_array().into_iter().flatten() {
        for new in at.list().iter().filter(|new| named(new) == named(old)) {
            if shown(old) != shown(new) {
                at.invalid(run, shown(new), IMMUTABLE);
            }
        }
    }
}

const CAPACITY: TypeRules = TypeRules::new(&[
    ("nodeTopology", SELECTOR),
    ("storageClassName", Check("DNS subdomain", |at, run| at.complain(run, DNS_SUBDOMAIN.faults(at.text())))),
    ("capacity", Check("not negative", |at, run| quantity(at, "storage", run))),
]);

const CAPACITY_UPDATE: TypeRules = TypeRules::new(&[("nodeTopology", Immutable), ("storageClassName", Immutable)]);

const ATTACHMENT: TypeRules = TypeRules::new(&[
    ("spec", Always(&ATTACHMENT_SPEC)),
    ("status", Always(&ATTACHMENT_STATUS)),
    ("spec", Check("a new object: names are DNS subdomains", new_attachment)),
]);

const ATTACHMENT_SPEC: TypeRules = TypeRules::new(&[
    ("attacher", Required("")),
    ("source", Check("either the name of a volume or an inline volume spec", source)),
    ("nodeName", Check("DNS subdomain", |at, run| at.complain(run, DNS_SUBDOMAIN.faults(at.text())))),
]);

const ATTACHMENT_STATUS: TypeRules = TypeRules::new(&[
    ("attachmentMetadata", Check("at most 256 KiB", limited)),
    ("attachError", Always(&VOLUME_ERROR)),
    ("detachError", Always(&VOLUME_ERROR)),
]);

const VOLUME_ERROR: TypeRules = TypeRules::shared(
    "Volume error",
    &[
        (
            "message",
            Check("at most 1024 bytes", |at, run| {
                // Like upstream, the message has the limit of another field.
                if at.text().len() > 1024 {
                    at.too_long(run, 256 * 1024);
                }
            }),
        ),
        ("errorCode", Range(0, i32::MAX as i64)),
    ],
);

const ATTACHMENT_UPDATE: TypeRules = TypeRules::new(&[(
    "spec",
    Check("immutable", |at, run| {
        if !at.is_unchanged() {
            let (attacher, node, source) = (at.field("attacher"), at.field("nodeName"), at.field("source"));
            let (volume, inline) = (source.field("persistentVolumeName"), source.field("inlineVolumeSpec"));
            // Like upstream, the error contains the Go structure.
            let source = json!({ "PersistentVolumeName": volume.value, "InlineVolumeSpec": inline.value });
            let shown = json!({ "Attacher": attacher.text(), "Source": source, "NodeName": node.text() });
            at.invalid(run, shown, IMMUTABLE);
        }
    }),
)]);

fn source(at: &At<'_, '_>, run: &mut Run<'_>) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let (name, inline) = (at.field("persistentVolumeName"), at.field("inlineVolumeSpec"));
    match (name.is_set(), inline.is_set()) {
        (false, false) => at.required(run, ONE),
        (true, true) => at.forbidden(run, ONE),
        (true, false) if name.is_empty() => name.required(run, "must specify non empty persistentVolumeName"),
        (true, false) => {}
        (false, true) => inline_volume(&inline, run),
    }
}

fn inline_volume(at: &At<'_, '_>, run: &mut Run<'_>) {
    for field in ["claimRef", "capacity"].map(|field| at.field(field)) {
        if !field.is_empty() {
            field.forbidden(run, "may not be specified in the context of inline volumes");
        }
    }
    let (csi, modes) = (at.field("csi"), at.field("accessModes"));
    if !csi.is_set() {
        csi.required(run, "has to be specified in the context of inline volumes");
    }
    if modes.is_empty() {
        modes.required(run, "");
    }
}

fn new_attachment<'v>(spec: &At<'v, '_>, run: &mut Run<'v>) {
    if run.before.is_some() {
        return;
    }
    let (attacher, source) = (spec.field("attacher"), spec.field("source"));
    let volume = source.field("persistentVolumeName");
    CSI_NAME.check(&attacher, run);
    if volume.is_set() {
        volume.complain(run, DNS_SUBDOMAIN.faults(volume.text()));
    }
}
