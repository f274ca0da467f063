//! Validation of the volumes of a pod. Each has exactly one source. Persistent volumes share most of the rules.
//!
//! Each source has its own rules. A function checks that there is exactly one source.

use std::collections::HashSet;

use keelson_meta::Quantity;

use super::container::PULL_POLICY;
use super::disks::{AZURE_DISK, QUOBYTE};
use super::references::{field_selector, resource_selector};
use crate::core::validation::volume_claims;
use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN};
use crate::validating::type_rules::Rule::{self, Check, Each, Format, In, Range, Required, With, Within};
use crate::validating::type_rules::{Run, TypeRules};

/// The message about an invalid file mode.
const MODE_TEXT: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const MODE: Rule = Within(0, 0o777, MODE_TEXT);
const ONLY_ONE: &str = "may not specify more than 1 volume type";

/// A volume of a pod.
pub(crate) const VOLUME: TypeRules = TypeRules::shared(
    "Volume",
    &[("", With("exactly one source", one_source, &SOURCES)), ("name", Required("")), ("name", Format(&DNS_LABEL))],
);

/// The volume sources. If there are several, the first one in this order is validated.
const SOURCES: TypeRules = TypeRules::shared(
    "Volume source",
    &[
        ("emptyDir", In(&const { TypeRules::new(&[("sizeLimit", Check("not negative", size_limit))]) })),
        ("hostPath", In(&HOST_PATH)),
        (
            "gitRepo",
            In(
                &const { TypeRules::new(&[REPOSITORY, ("directory", Check("path without steps back", relative_path))]) },
            ),
        ),
        ("gcePersistentDisk", In(&GCE)),
        ("awsElasticBlockStore", In(&AWS)),
        (
            "secret",
            In(&const {
                TypeRules::new(&[("secretName", Required("")), ("defaultMode", MODE), ("items", Each(&KEY_TO_PATH))])
            }),
        ),
        ("nfs", In(&NFS)),
        ("iscsi", In(&ISCSI)),
        ("glusterfs", In(&const { TypeRules::new(&[("endpoints", Required("")), ("path", Required(""))]) })),
        ("flocker", In(&const { TypeRules::new(&[("", Check("name or UUID of a dataset", flocker))]) })),
        ("persistentVolumeClaim", In(&const { TypeRules::new(&[("claimName", Required(""))]) })),
        ("rbd", In(&const { TypeRules::new(&[("monitors", Required("")), ("image", Required(""))]) })),
        ("cinder", In(&const { TypeRules::new(&[("volumeID", Required("")), SECRET_NAME]) })),
        ("cephfs", In(&const { TypeRules::new(&[("monitors", Required(""))]) })),
        ("quobyte", In(&QUOBYTE)),
        (
            "downwardAPI",
            In(&const {
                TypeRules::new(&[
                    ("defaultMode", MODE),
                    ("items", Check("fields and resources in files", downward_files)),
                ])
            }),
        ),
        ("fc", In(&const { TypeRules::new(&[("", Check("either targetWWNs with a lun, or wwids", fibre_channel))]) })),
        ("flexVolume", In(&FLEX)),
        (
            "configMap",
            In(
                &const { TypeRules::new(&[("name", Required("")), ("defaultMode", MODE), ("items", Each(&KEY_TO_PATH))]) },
            ),
        ),
        ("azureFile", In(&const { TypeRules::new(&[("secretName", Required("")), ("shareName", Required(""))]) })),
        ("vsphereVolume", In(&VSPHERE)),
        ("photonPersistentDisk", In(&PHOTON)),
        ("portworxVolume", In(&PORTWORX)),
        ("azureDisk", In(&AZURE_DISK)),
        (
            "storageos",
            In(&const {
                TypeRules::new(&[
                    ("volumeName", Required("")),
                    ("volumeName", Format(&DNS_LABEL)),
                    ("volumeNamespace", Format(&DNS_LABEL)),
                    SECRET_NAME,
                ])
            }),
        ),
        (
            "projected",
            In(&const {
                TypeRules::new(&[
                    ("defaultMode", MODE),
                    ("", Check("exactly one source for each, with unique paths", projected)),
                ])
            }),
        ),
        ("scaleIO", In(&SCALE_IO)),
        (
            "csi",
            In(&const {
                TypeRules::new(&[
                    ("driver", DRIVER),
                    ("nodePublishSecretRef", Check("a secret with a name", csi_secret)),
                ])
            }),
        ),
        (
            "ephemeral",
            In(&const {
                TypeRules::new(&[
                    ("volumeClaimTemplate", Required("")),
                    ("volumeClaimTemplate", In(&volume_claims::TEMPLATE)),
                ])
            }),
        ),
        (
            "image",
            In(&const {
                TypeRules::new(&[
                    ("reference", Check("required in pods", image_reference)),
                    ("pullPolicy", Required("")),
                    ("pullPolicy", PULL_POLICY),
                ])
            }),
        ),
    ],
);

const REPOSITORY: (&str, Rule) = ("repository", Required(""));
const SECRET_NAME: (&str, Rule) = ("secretRef", In(&const { TypeRules::new(&[("name", Required(""))]) }));

pub(crate) const HOST_PATH: TypeRules = TypeRules::new(&[
    ("path", Required("")),
    ("path", Check("path without steps back", path_without_backsteps)),
    ("", Check("a known type", host_path_type)),
]);
pub(crate) const GCE: TypeRules =
    TypeRules::new(&[("pdName", Required("")), ("partition", Within(0, 255, "must be between 1 and 255, inclusive"))]);
pub(crate) const AWS: TypeRules = TypeRules::new(&[
    ("volumeID", Required("")),
    ("partition", Within(0, 255, "must be between 1 and 255, inclusive")),
]);
pub(crate) const NFS: TypeRules = TypeRules::new(&[
    ("server", Required("")),
    ("path", Required("")),
    ("path", Check("absolute path", absolute_path)),
]);
pub(crate) const FLEX: TypeRules = TypeRules::new(&[
    ("driver", Required("")),
    ("options", Check("no options that belong to Kubernetes", flex_options)),
]);
pub(crate) const VSPHERE: TypeRules = TypeRules::new(&[("volumePath", Required(""))]);
pub(crate) const PHOTON: TypeRules = TypeRules::new(&[("pdID", Required(""))]);
pub(crate) const PORTWORX: TypeRules = TypeRules::new(&[("volumeID", Required(""))]);
pub(crate) const SCALE_IO: TypeRules =
    TypeRules::new(&[("gateway", Required("")), ("system", Required("")), ("volumeName", Required(""))]);
pub(crate) const ISCSI: TypeRules = TypeRules::new(&[
    ("targetPortal", Required("")),
    ("iqn", Required("")),
    ("iqn", Check("iqn, eui or naa", iscsi_name)),
    ("lun", Range(0, 255)),
    ("", Check("a secret if CHAP is used", chap_secret)),
    ("initiatorName", Check("iqn, eui or naa", |at, run| iscsi_name(&at.called("initiatorname"), run))),
]);

const KEY_TO_PATH: TypeRules = TypeRules::new(&[
    ("key", Required("")),
    ("path", Required("")),
    ("path", Check("path without steps back", |at, run| local_path(at, at.text(), run))),
    ("mode", MODE),
]);

/// The name of a CSI driver.
pub(crate) const DRIVER: Rule = Check("required, DNS subdomain of 63 bytes", csi_driver_name);

pub(super) fn volumes<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    if at.is_empty() {
        return;
    }
    let mut names = HashSet::new();
    let ephemeral = at.list().iter().filter(|volume| volume.get("ephemeral").is_some());
    let made: HashSet<&str> = ephemeral.filter_map(|volume| volume.get("name")?.as_str()).collect();
    for volume in at.items() {
        let faults = run.faults.len();
        VOLUME.check(&volume, run);
        let name = volume.field("name");
        if names.contains(name.text()) {
            name.duplicate(run, name.text());
        }
        if run.faults.len() == faults {
            names.insert(name.text());
            run.pod.volumes.insert(name.text(), volume.value);
        }
        let claim = volume.field("persistentVolumeClaim");
        let claim = claim.field("claimName");
        let own = claim.text().strip_prefix(run.pod.name).and_then(|rest| rest.strip_prefix('-'));
        if run.pod.is_pod && own.is_some_and(|own| made.contains(own)) {
            claim.invalid(run, claim.text(), "must not reference a PVC that gets created for an ephemeral volume");
        }
    }
}

/// Only the first source is validated; each further one is an error.
fn one_source<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let mut found = false;
    let Some(given) = at.tree() else { return };
    // Most volumes have only a name and one source. Then no search is needed.
    if let [source] = given.keys().filter(|name| *name != "name").collect::<Vec<_>>().as_slice() {
        found = check_source(at, source, run);
    } else {
        for (name, _) in SOURCES.rules.iter().filter(|(name, _)| at.field_is_set(name)) {
            if found {
                refused_source(at, name, run);
            } else {
                found = check_source(at, name, run);
            }
        }
    }
    if !found {
        at.required(run, "must specify a volume type");
    }
}

fn refused_source<'v>(at: &At<'v, '_>, name: &'static str, run: &mut Run<'v>) {
    // Upstream's paths differ from the names in the API.
    let called = match name {
        "cephfs" => "cephFS",
        "downwardAPI" => "downwarAPI",
        name => name,
    };
    at.field(called).forbidden(run, ONLY_ONE);
}

fn check_source<'v>(at: &At<'v, '_>, name: &str, run: &mut Run<'v>) -> bool {
    let Some((name, rule)) = SOURCES.rules.iter().find(|(known, _)| *known == name) else { return false };
    let source = at.field(name);
    if !source.is_set() {
        return false;
    }
    match *name {
        "gcePersistentDisk" => rule.check(&source.called("persistentDisk"), run),
        _ => rule.check(&source, run),
    }
    if *name == "iscsi" {
        portal_fits(at, run);
    }
    if *name == "ephemeral" {
        claim_name_fits(at, run);
    }
    true
}

fn portal_fits(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: usize = 64;
    let (iscsi, name) = (at.field("iscsi"), at.field("name"));
    let length = name.text().len() + 1 + iscsi.field("targetPortal").text().len();
    if iscsi.field("initiatorName").is_set() && length > MOST {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                      iscsi.initiatorName is specified.";
        name.invalid(run, name.text(), detail);
    }
}

fn claim_name_fits(at: &At<'_, '_>, run: &mut Run<'_>) {
    let name = at.field("name");
    if run.pod.name.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{}-{}", run.pod.name, name.text());
    for fault in DNS_SUBDOMAIN.faults(&claim) {
        let claim = keelson_meta::go_format::quote(&claim);
        name.invalid(run, name.text(), format!("PVC name {claim}: {fault}"));
    }
}

/// Returns true if a path contains `..`.
pub(super) fn steps_back(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// Refuses a path that contains `..`.
pub(crate) fn path_without_backsteps(at: &At<'_, '_>, run: &mut Run<'_>) {
    if steps_back(at.text()) {
        at.invalid(run, at.text(), "must not contain '..'");
    }
}

/// A relative path that does not contain `..`.
pub(super) fn descending_path(at: &At<'_, '_>, path: &str, run: &mut Run<'_>) {
    if path.starts_with('/') {
        at.invalid(run, path, "must be a relative path");
    }
    if steps_back(path) {
        at.invalid(run, path, "must not contain '..'");
    }
}

/// A relative path that has no segment `..` and does not start with `..`.
pub(super) fn local_path(at: &At<'_, '_>, path: &str, run: &mut Run<'_>) {
    descending_path(at, path, run);
    // A path that starts with `..` but whose first segment is longer causes a second error.
    if path.starts_with("..") && !path.starts_with("../") {
        at.invalid(run, path, "must not start with '..'");
    }
}

fn relative_path(at: &At<'_, '_>, run: &mut Run<'_>) {
    descending_path(at, at.text(), run);
}

fn absolute_path(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.text().starts_with('/') {
        at.invalid(run, at.text(), "must be an absolute path");
    }
}

fn size_limit(at: &At<'_, '_>, run: &mut Run<'_>) {
    if Quantity::parse(at.text()).is_some_and(|limit| limit < Quantity::ZERO) {
        at.forbidden(run, "SizeLimit field must be a valid resource quantity");
    }
}

fn host_path_type(at: &At<'_, '_>, run: &mut Run<'_>) {
    const KNOWN: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let kind = at.field("type");
    // Like upstream, the type is only validated if there is a path.
    if kind.is_set() && !at.field("path").is_empty() && !KNOWN.contains(&kind.text()) {
        kind.not_supported(run, kind.text(), &KNOWN);
    }
}

fn iscsi_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    let name = at.text();
    let alphanumeric =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let rest = |prefix: usize| name.get(prefix..).unwrap_or_default();
    let fits = match name.get(..3) {
        _ if name.is_empty() => true,
        Some("iqn") => is_iqn(rest(4)),
        Some("eui") => alphanumeric(rest(4), 16),
        Some("naa") => alphanumeric(rest(4), 32),
        _ => return at.invalid(run, name, "must be valid format starting with iqn, eui, or naa"),
    };
    if !fits {
        at.invalid(run, name, "must be valid format");
    }
}

/// `2001-04.com.example:storage`
fn is_iqn(text: &str) -> bool {
    let digits = |part: Option<&str>| part.is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let date =
        digits(text.get(..4)) && text.get(4..5) == Some("-") && digits(text.get(5..7)) && text.get(7..8) == Some(".");
    let Some((authority, name)) = text.get(8..).and_then(|rest| rest.split_once(':')) else { return false };
    let authority_fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let name_fits = |c: char| !c.is_whitespace() && !",;*&$|".contains(c);
    date && !authority.is_empty()
        && authority.chars().all(authority_fits)
        && !name.is_empty()
        && name.chars().all(name_fits)
}

fn chap_secret(at: &At<'_, '_>, run: &mut Run<'_>) {
    let used = ["chapAuthDiscovery", "chapAuthSession"].iter().any(|flag| at.field(flag).is_true());
    let secret = at.field("secretRef");
    if used && !secret.is_set() {
        secret.required(run, "");
    }
}

pub(crate) fn flocker(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (name, uuid) = (at.field("datasetName"), at.field("datasetUUID"));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => at.required(run, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            at.invalid(run, "resource", "datasetName and datasetUUID can not be specified simultaneously");
        }
        _ => {}
    }
    if name.text().contains('/') {
        name.invalid(run, name.text(), "must not contain '/'");
    }
}

pub(crate) fn fibre_channel<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let (targets, ids, lun) = (at.field("targetWWNs"), at.field("wwids"), at.field("lun"));
    if targets.is_empty() && ids.is_empty() {
        targets.required(run, "must specify either targetWWNs or wwids, but not both");
    }
    if targets.is_empty() {
        return;
    }
    if !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        targets.invalid(run, targets.shown(), detail);
    }
    match lun.number() {
        None => lun.required(run, "lun is required if targetWWNs is specified"),
        Some(_) => Range(0, 255).check(&lun, run),
    }
}

fn flex_options(at: &At<'_, '_>, run: &mut Run<'_>) {
    for (name, entry) in at.entries() {
        let domain = format!(".{}", name.split('/').next().unwrap_or_default().to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            entry.invalid(run, name, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn csi_driver_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: usize = 63;
    if at.is_empty() {
        return at.required(run, "");
    }
    if at.text().len() > MOST {
        at.too_long(run, MOST);
    }
    at.complain(run, DNS_SUBDOMAIN.faults(&at.text().to_lowercase()));
}

fn csi_secret(at: &At<'_, '_>, run: &mut Run<'_>) {
    let name = at.field("name");
    if at.is_set() && name.is_empty() {
        name.required(run, "");
    } else if let (true, Some(source)) = (at.is_set(), at.parent()) {
        let named = source.field("name");
        named.holding(name.value).complain(run, DNS_SUBDOMAIN.faults(name.text()));
    }
}

fn image_reference(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.pod.is_pod && at.is_empty() {
        at.required(run, "");
    }
}

/// The pod fields that a file can contain.
const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Like upstream, some errors have the path of the volume, not of the file.
fn downward_files<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let Some(source) = at.parent() else { return };
    at.items().for_each(|file| downward_file(&source.holding(file.value), run));
}

fn downward_file<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let path = at.field("path");
    if path.is_empty() {
        path.required(run, "");
    }
    local_path(&path, path.text(), run);
    let (field, resource) = (at.field("fieldRef"), at.field("resourceFieldRef"));
    match (field.is_set(), resource.is_set()) {
        (true, both) => {
            field_selector(&field, &FILE_FIELDS, run);
            if both {
                at.invalid(run, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
        }
        (false, true) => resource_selector(&resource, true, run),
        (false, false) => at.required(run, "one of fieldRef and resourceFieldRef is required"),
    }
    MODE.check(&at.field("mode"), run);
}

/// The sources of a projected volume: each has exactly one type, and paths are unique.
fn projected<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let mut paths = HashSet::new();
    for source in at.field("sources").items() {
        let mut sources = 0;
        for keys in ["secret", "configMap"].map(|name| source.field(name)) {
            if keys.is_set() {
                sources += 1;
                projected_keys(&keys, at, &mut paths, run);
            }
        }
        let downward = source.field("downwardAPI");
        if downward.is_set() {
            sources += 1;
            for file in downward.field("items").items() {
                downward_file(&downward.holding(file.value), run);
                claim_path(at, file.field("path").text(), file.field("path").text(), &mut paths, run);
            }
        }
        let token = source.field("serviceAccountToken");
        if token.is_set() {
            sources += 1;
            service_account_token(&token, at, run);
        }
        let bundle = source.field("clusterTrustBundle");
        if bundle.is_set() {
            sources += 1;
            trust_bundle(&bundle, run);
            claim_path(at, bundle.field("path").text(), bundle.field("path").text(), &mut paths, run);
        }
        let certificate = source.field("podCertificate");
        if certificate.is_set() {
            sources += 1;
        }
        if sources > 1 {
            source.forbidden(run, "may not specify more than 1 volume type per source");
        }
    }
}

fn claim_path<'v>(volume: &At<'_, '_>, path: &'v str, value: &str, paths: &mut HashSet<&'v str>, run: &mut Run<'_>) {
    if !path.is_empty() && !paths.insert(path) {
        volume.invalid(run, value, "conflicting duplicate paths");
    }
}

fn projected_keys<'v>(at: &At<'v, '_>, volume: &At<'v, '_>, paths: &mut HashSet<&'v str>, run: &mut Run<'v>) {
    let name = at.field("name");
    if name.is_empty() {
        name.required(run, "");
    }
    for item in at.field("items").items() {
        KEY_TO_PATH.check(&item, run);
        claim_path(volume, item.field("path").text(), name.text(), paths, run);
    }
}

fn service_account_token<'v>(at: &At<'v, '_>, volume: &At<'v, '_>, run: &mut Run<'v>) {
    const LEAST: i64 = 10 * 60;
    let seconds = at.field("expirationSeconds");
    if seconds.int() < LEAST {
        seconds.invalid(run, seconds.int(), "may not specify a duration less than 10 minutes");
    }
    if seconds.int() > 1 << 32 {
        seconds.invalid(run, seconds.int(), "may not specify a duration larger than 2^32 seconds");
    }
    let path = at.field("path").text();
    let at = volume.field("path");
    if path.is_empty() {
        at.required(run, "");
    } else {
        local_path(&at, path, run);
    }
}

fn trust_bundle(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (name, signer, selector) = (at.field("name"), at.field("signerName"), at.field("labelSelector"));
    match (name.is_set(), signer.is_set()) {
        (true, true) => at.invalid(run, at.shown(), "only one of name and signerName may be used"),
        (true, false) => {
            if name.is_empty() {
                name.required(run, "must be a valid object name");
            }
            if selector.is_set() {
                selector.invalid(run, selector.shown(), "labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            if signer.is_empty() {
                signer.required(run, "must be a valid signer name");
            }
            crate::validating::selectors::label_selector(&selector, run);
        }
        (false, false) => at.required(run, "either name or signerName must be specified"),
    }
    let path = at.field("path");
    if path.is_empty() {
        path.required(run, "");
    }
    local_path(&path, path.text(), run);
}
