//! Volumes of pods, and what persistent volumes share with them.

use crate::pod::pull_policy;
use crate::shape::Rule::{Always, Each, Flag, In, Number, Text};
use crate::shape::{Shape, Tree, set};
use crate::storage::CLAIM_SPEC;

/// The permissions of files that are made for a pod: 0644.
const MODE: i64 = 0o644;

/// A volume of a pod.
pub(crate) const VOLUME: Shape = Shape {
    fields: &[
        ("secret", In(&FILES)),
        ("configMap", In(&FILES)),
        ("downwardAPI", In(&DOWNWARD)),
        ("projected", In(&PROJECTED)),
        ("hostPath", In(&HOST_PATH)),
        ("azureDisk", In(&AZURE_DISK)),
        ("ephemeral", In(&EPHEMERAL)),
        ("image", In(&IMAGE)),
    ],
    then: &[empty_directory],
};

/// A path on the host; the empty type means that nothing is checked.
pub(crate) const HOST_PATH: Shape = Shape::of(&[("type", Text(""))]);

pub(crate) const AZURE_DISK: Shape = Shape::of(&[("readOnly", Flag(false))]);

/// A reference to a field of the pod itself.
pub(crate) const FIELD_REFERENCE: Shape = Shape::of(&[("apiVersion", Text("v1"))]);

const FILES: Shape = Shape::of(&[("defaultMode", Number(MODE))]);

const DOWNWARD: Shape = Shape::of(&[("defaultMode", Number(MODE)), ("items", Each(&ITEM))]);

const ITEM: Shape = Shape::of(&[("fieldRef", In(&FIELD_REFERENCE))]);

const PROJECTED: Shape = Shape::of(&[("defaultMode", Number(MODE)), ("sources", Each(&SOURCE))]);

const SOURCE: Shape = Shape::of(&[
    ("serviceAccountToken", In(&const { Shape::of(&[("expirationSeconds", Number(3600))]) })),
    ("downwardAPI", In(&const { Shape::of(&[("items", Each(&ITEM))]) })),
]);

const EPHEMERAL: Shape =
    Shape::of(&[("volumeClaimTemplate", In(&const { Shape::of(&[("spec", Always(&CLAIM_SPEC))]) }))]);

const IMAGE: Shape = Shape { fields: &[], then: &[|image| pull_policy(image, "reference", "pullPolicy")] };

/// A volume that does not say what it is, is an empty directory.
fn empty_directory(volume: &mut Tree) {
    if volume.iter().all(|(name, value)| name == "name" || value.is_null()) {
        set(volume, "emptyDir", Tree::new());
    }
}
