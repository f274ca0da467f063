//! Validation of persistent volumes: one source, a capacity, and the fields that cannot change.
//!
//! `pod/volumes` validates the sources that pods have too.

use keelson_meta::Quantity;

use super::volume_claims::ACCESS_MODES;
use crate::core::validation::pod::difference;
use crate::core::validation::pod::disks::{AZURE_DISK, QUOBYTE};
use crate::core::validation::pod::resources::amount;
use crate::core::validation::pod::scheduling::NODE_SELECTOR;
use crate::core::validation::pod::volumes::{
    AWS, DRIVER, FLEX, GCE, HOST_PATH, ISCSI, NFS, PHOTON, PORTWORX, SCALE_IO, VSPHERE, fibre_channel, flocker,
    path_without_backsteps,
};
use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN};
use crate::validating::type_rules::Rule::{Always, Check, Format, In, OneOf, OneOfIfSet, Required, With};
use crate::validating::type_rules::{IMMUTABLE, Run, TypeRules};

pub(super) const VOLUME: TypeRules = TypeRules::new(&[("spec", Always(&SPEC))]);

/// The rules of the spec of a volume. A volume attachment can contain such a spec too.
pub(crate) const SPEC: TypeRules = TypeRules::shared(
    "Persistent volume spec",
    &[
        ("accessModes", Required("")),
        ("accessModes", ACCESS_MODES),
        ("capacity", Check("a storage request greater than zero", capacity)),
        ("persistentVolumeReclaimPolicy", OneOf(&["Delete", "Recycle", "Retain"])),
        (
            "nodeAffinity",
            In(
                &const { TypeRules::new(&[("required", Check("required", needed_nodes)), ("required", In(&NODE_SELECTOR))]) },
            ),
        ),
        ("", With("exactly one source", one_source, &SOURCES)),
        ("", Check("the reclaim policy Recycle is not allowed for the path `/`", root_is_kept)),
        ("storageClassName", Format(&DNS_SUBDOMAIN)),
        ("volumeMode", OneOfIfSet(&["Block", "Filesystem"])),
        ("volumeAttributesClassName", Check("DNS subdomain, with csi", attributes_class)),
    ],
);

const SOURCES: TypeRules = TypeRules::shared(
    "Persistent volume source",
    &[
        ("hostPath", In(&HOST_PATH)),
        ("gcePersistentDisk", In(&GCE)),
        ("awsElasticBlockStore", In(&AWS)),
        (
            "glusterfs",
            In(&const {
                TypeRules::new(&[
                    ("endpoints", Required("")),
                    ("path", Required("")),
                    ("endpointsNamespace", Format(&DNS_LABEL)),
                ])
            }),
        ),
        ("flocker", In(&const { TypeRules::new(&[("", Check("name or UUID of a dataset", flocker))]) })),
        ("nfs", In(&NFS)),
        ("rbd", In(&const { TypeRules::new(&[("monitors", Required("")), ("image", Required(""))]) })),
        ("quobyte", In(&QUOBYTE)),
        ("cephfs", In(&const { TypeRules::new(&[("monitors", Required(""))]) })),
        ("iscsi", In(&ISCSI)),
        ("cinder", In(&const { TypeRules::new(&[("volumeID", Required("")), ("secretRef", In(&SECRET))]) })),
        ("fc", In(&const { TypeRules::new(&[("", Check("either targetWWNs with a lun, or wwids", fibre_channel))]) })),
        ("flexVolume", In(&FLEX)),
        (
            "azureFile",
            In(&const {
                TypeRules::new(&[
                    ("secretName", Required("")),
                    ("shareName", Required("")),
                    ("secretNamespace", Check("not empty", not_empty)),
                ])
            }),
        ),
        ("vsphereVolume", In(&VSPHERE)),
        ("photonPersistentDisk", In(&PHOTON)),
        ("portworxVolume", In(&PORTWORX)),
        ("azureDisk", In(&AZURE_DISK)),
        ("scaleIO", In(&SCALE_IO)),
        (
            "local",
            In(&const {
                TypeRules::new(&[
                    ("path", Required("")),
                    ("path", Check("path without steps back", path_without_backsteps)),
                ])
            }),
        ),
        (
            "storageos",
            In(&const {
                TypeRules::new(&[
                    ("volumeName", Required("")),
                    ("volumeName", Format(&DNS_LABEL)),
                    ("volumeNamespace", Format(&DNS_LABEL)),
                    ("secretRef", In(&SECRET)),
                ])
            }),
        ),
        ("csi", In(&CSI)),
    ],
);

const CSI: TypeRules = TypeRules::new(&[
    ("driver", DRIVER),
    ("volumeHandle", Required("")),
    ("controllerPublishSecretRef", In(&NAMED_SECRET)),
    ("controllerExpandSecretRef", In(&NAMED_SECRET)),
    ("nodePublishSecretRef", In(&NAMED_SECRET)),
    ("nodeExpandSecretRef", In(&NAMED_SECRET)),
]);

const SECRET: TypeRules = TypeRules::new(&[("name", Required("")), ("namespace", Required(""))]);
const NAMED_SECRET: TypeRules = TypeRules::new(&[
    ("name", Required("")),
    ("name", Format(&DNS_SUBDOMAIN)),
    ("namespace", Required("")),
    ("namespace", Format(&DNS_LABEL)),
]);

pub(super) const UPDATE: TypeRules = TypeRules::new(&[
    ("spec", Check("the source is immutable, except for the secret for expansion", source_stays)),
    ("spec", Check("the mode is immutable; node affinity is set once", placement_stays)),
]);

fn capacity(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        at.required(run, "");
    }
    if !at.field_is_set("storage") || at.tree().is_some_and(|tree| tree.len() > 1) {
        at.not_supported(run, at.shown(), &["storage"]);
    }
    for (_, entry) in at.entries() {
        let Some(amount) = amount(&entry) else { continue };
        if amount < Quantity::ZERO {
            entry.invalid(
                run,
                i64::try_from(amount.rounded_up()).unwrap_or(i64::MIN),
                "must be a valid resource quantity",
            );
        }
        if amount <= Quantity::ZERO {
            entry.invalid(run, entry.text(), "must be greater than zero");
        }
    }
}

fn needed_nodes(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        at.required(run, "must specify required node constraints");
    }
}

fn not_empty(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_set() && at.is_empty() {
        at.required(run, "");
    }
}

/// Only the first source is validated; each further one is an error.
fn one_source<'v>(spec: &At<'v, '_>, run: &mut Run<'v>) {
    let mut found = false;
    for (name, rule) in SOURCES.rules.iter().filter(|(name, _)| spec.field_is_set(name)) {
        let source = spec.field(name);
        if found {
            let called = if *name == "cephfs" { "cephFS" } else { name };
            source.called(called).forbidden(run, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        match *name {
            "gcePersistentDisk" => rule.check(&source.called("persistentDisk"), run),
            _ => rule.check(&source, run),
        }
        if *name == "local" && !spec.field_is_set("nodeAffinity") {
            spec.field("nodeAffinity").required(run, "Local volume requires node affinity");
        }
    }
    if !found {
        spec.required(run, "must specify a volume type");
    }
}

fn root_is_kept(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let host = spec.field("hostPath");
    let path = host.field("path").text();
    let is_root = path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."));
    let policy = spec.field("persistentVolumeReclaimPolicy");
    if is_root && policy.text() == "Recycle" {
        policy.forbidden(run, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

fn attributes_class(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        return;
    }
    if at.is_empty() {
        at.required(run, "an empty string is disallowed");
    } else {
        at.complain(run, DNS_SUBDOMAIN.faults(at.text()));
    }
    if let Some(spec) = at.parent().filter(|spec| !spec.field_is_set("csi")) {
        spec.field("csi").required(run, "has to be specified when using volumeAttributesClassName");
    }
}

fn source_stays(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let mut changes = String::new();
    for (name, _) in SOURCES.rules {
        let source = spec.field(name);
        let mut new = source.value.clone();
        let expand = "controllerExpandSecretRef";
        if source.old.is_object() && source.old.get(expand).is_none() {
            new.as_object_mut().map(|tree| tree.remove(expand));
        }
        changes.push_str(
            &difference(source.old, &new).replace("- ", &format!("- {name}.")).replace("+ ", &format!("+ {name}.")),
        );
    }
    if !changes.is_empty() {
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{changes}");
        spec.field("persistentvolumesource").forbidden(run, detail);
    }
}

/// Like upstream, these paths omit `spec`.
fn placement_stays(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let (mode, nodes) = (spec.field("volumeMode"), spec.field("nodeAffinity"));
    let Some(object) = spec.parent() else { return };
    if !mode.is_unchanged() {
        object.field("volumeMode").invalid(run, mode.shown(), IMMUTABLE);
    }
    if !nodes.old.is_null() && !nodes.is_unchanged() {
        let detail = format!("{IMMUTABLE}, except for updating from beta label to GA");
        object.field("nodeAffinity").invalid(run, nodes.shown(), detail);
    }
    let class = spec.field("volumeAttributesClassName");
    if !class.old.is_null() && !class.is_set() {
        class.forbidden(run, "update from non-nil value to nil is forbidden");
    }
}
