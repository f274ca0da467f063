//! Warnings about persistent volumes and claims: deprecated fields, and fractional amounts of bytes.
//!
//! Provisioners round up an amount such as 1.5 bytes.

use keelson_meta::Quantity;
use keelson_meta::go_format::quote;

use crate::validating::at::At;

/// Volume sources that no longer work, with the release that removed them, for pods and persistent volumes.
pub(super) const GONE: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// The warnings for volume sources that Kubernetes no longer supports.
pub(super) fn gone(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    for (name, since) in GONE {
        let source = at.field(name);
        if source.is_set() {
            // Like upstream, the path has another name for this source.
            let source = if name == "storageos" { source.called("storageOS") } else { source };
            warnings.push(format!("{}: {since}", source.path()));
        }
    }
}

/// Warns about a fractional number of bytes.
pub(super) fn whole_bytes(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    if Quantity::parse(at.text()).is_some_and(|amount| !amount.is_whole()) {
        let (path, shown) = (at.path(), quote(at.text()));
        warnings.push(format!("{path}: fractional byte value {shown} is invalid, must be an integer"));
    }
}

/// Warns about fractional storage requests and limits of a claim.
pub(super) fn of_claim_spec(spec: &At<'_, '_>, warnings: &mut Vec<String>) {
    let resources = spec.field("resources");
    for list in ["requests", "limits"].map(|list| resources.field(list)) {
        whole_bytes(&list.key("storage"), warnings);
    }
}

pub(crate) fn of_claim(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    let metadata = at.field("metadata");
    class_annotation(&metadata, warnings);
    of_claim_spec(&at.field("spec"), warnings);
}

fn class_annotation(metadata: &At<'_, '_>, warnings: &mut Vec<String>) {
    let annotations = metadata.field("annotations");
    let class = annotations.key(CLASS);
    if class.is_set() {
        warnings.push(format!("{}: deprecated since v1.8; use \"storageClassName\" attribute instead", class.path()));
    }
}

pub(crate) fn of_volume(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    let (metadata, spec) = (at.field("metadata"), at.field("spec"));
    class_annotation(&metadata, warnings);
    let annotations = metadata.field("annotations");
    let options = annotations.key(OPTIONS);
    if options.is_set() {
        warnings.push(format!("{}: deprecated since v1.31; use \"mountOptions\" attribute instead", options.path()));
    }
    if spec.field("persistentVolumeReclaimPolicy").text() == "Recycle" {
        warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    gone(&spec, warnings);
    let capacity = spec.field("capacity");
    whole_bytes(&capacity.key("storage"), warnings);
}
