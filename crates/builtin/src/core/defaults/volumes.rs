//! Defaults of the volumes of pods, and of the sources that persistent volumes share with them.
//!
//! Each volume source has its own defaults, named after its field.

use crate::core::defaults::CLAIM_SPEC;
use crate::core::defaults::pod::pull_policy;
use crate::defaulting::type_defaults::Rule::{Always, By, Each, Flag, In, Number, Text, TextIfAbsent};
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults, text};

/// The default permissions of files in a pod's volume.
const MODE: i64 = 0o644;

/// A volume of a pod.
pub(crate) const VOLUME: TypeDefaults = TypeDefaults {
    fields: &[
        ("secret", In(&FILES)),
        ("configMap", In(&FILES)),
        ("downwardAPI", In(&DOWNWARD)),
        ("projected", In(&PROJECTED)),
        ("hostPath", In(&HOST_PATH)),
        ("azureDisk", In(&AZURE_DISK)),
        ("iscsi", In(&ISCSI)),
        ("rbd", In(&RBD)),
        ("scaleIO", In(&SCALE_IO)),
        ("ephemeral", In(&EPHEMERAL)),
        ("image", In(&IMAGE)),
    ],
    // A volume without a source is an empty directory.
    then: &[FollowUp::WithoutAll { fields: &SOURCES, gets: "emptyDir" }],
};

/// The volume sources in the order of the search. The most frequent ones are first.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "secret",
    "configMap",
    "projected",
    "persistentVolumeClaim",
    "hostPath",
    "downwardAPI",
    "csi",
    "ephemeral",
    "image",
    "nfs",
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "iscsi",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// A path on the host. The empty type means that the host is not checked.
pub(crate) const HOST_PATH: TypeDefaults = TypeDefaults::new(&[("type", TextIfAbsent(""))]);

pub(crate) const AZURE_DISK: TypeDefaults = TypeDefaults::new(&[
    ("cachingMode", TextIfAbsent("ReadWrite")),
    ("fsType", TextIfAbsent("ext4")),
    ("readOnly", Flag(false)),
    ("kind", TextIfAbsent("Shared")),
]);

pub(crate) const ISCSI: TypeDefaults = TypeDefaults::new(&[("iscsiInterface", Text("default"))]);

pub(crate) const RBD: TypeDefaults =
    TypeDefaults::new(&[("pool", Text("rbd")), ("user", Text("admin")), ("keyring", Text("/etc/ceph/keyring"))]);

pub(crate) const SCALE_IO: TypeDefaults =
    TypeDefaults::new(&[("storageMode", Text("ThinProvisioned")), ("fsType", Text("xfs"))]);

/// A reference to a field of the pod itself.
pub(crate) const FIELD_REFERENCE: TypeDefaults = TypeDefaults::new(&[("apiVersion", Text("v1"))]);

const FILES: TypeDefaults = TypeDefaults::new(&[("defaultMode", Number(MODE))]);

const DOWNWARD: TypeDefaults = TypeDefaults::new(&[("defaultMode", Number(MODE)), ("items", Each(&ITEM))]);

const ITEM: TypeDefaults = TypeDefaults::new(&[("fieldRef", In(&FIELD_REFERENCE))]);

const PROJECTED: TypeDefaults = TypeDefaults::new(&[("defaultMode", Number(MODE)), ("sources", Each(&SOURCE))]);

const SOURCE: TypeDefaults = TypeDefaults::new(&[
    ("serviceAccountToken", In(&const { TypeDefaults::new(&[("expirationSeconds", Number(3600))]) })),
    ("downwardAPI", In(&const { TypeDefaults::new(&[("items", Each(&ITEM))]) })),
]);

const EPHEMERAL: TypeDefaults =
    TypeDefaults::new(&[("volumeClaimTemplate", In(&const { TypeDefaults::new(&[("spec", Always(&CLAIM_SPEC))]) }))]);

const IMAGE: TypeDefaults =
    TypeDefaults::new(&[("pullPolicy", By("reference", |image| Some(pull_policy(text(image, "reference")))))]);
