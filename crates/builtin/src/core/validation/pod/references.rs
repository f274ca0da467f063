//! Validation of references from environment variables and files to fields of the pod and to resources.
//!
//! Each may refer to a subset of the fields, which the caller passes in.

use keelson_meta::Quantity;

use super::volumes::local_path;
use crate::validating::at::At;
use crate::validating::formats::{ENV_NAME, QUALIFIED_NAME};
use crate::validating::type_rules::Run;

/// The pod fields in `v1` that references may name. Each caller allows a part of them.
const POD_FIELDS: [&str; 13] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
];

/// A reference to a field of the pod.
pub(super) fn field_selector(at: &At<'_, '_>, allowed: &[&str], run: &mut Run<'_>) {
    let (version, path) = (at.field("apiVersion"), at.field("fieldPath"));
    if version.is_empty() {
        return version.required(run, "");
    }
    if path.is_empty() {
        return path.required(run, "");
    }
    let text = path.text();
    let subscript = text.strip_suffix("']").and_then(|text| text.split_once("['"));
    if version.text() != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {}", version.text());
        return path.invalid(run, text, detail);
    }
    let base = subscript.map_or(text, |(base, _)| base);
    let known = match subscript {
        Some(_) => base == "metadata.annotations" || base == "metadata.labels",
        None => POD_FIELDS.contains(&base) || base == "status.podIPs" || base == "spec.host",
    };
    if !known {
        let detail = match subscript {
            Some(_) => format!("error converting fieldPath: field label does not support subscript: {text}"),
            None => format!("error converting fieldPath: field label not supported: {text}"),
        };
        return path.invalid(run, text, detail);
    }
    match subscript {
        Some((base, key)) => {
            let folded = if base == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
            for fault in QUALIFIED_NAME.faults(&folded) {
                at.invalid(run, folded.as_str(), fault);
            }
        }
        None if !allowed.contains(&text) => path.not_supported(run, text, allowed),
        None => {}
    }
}

/// A reference to a variable in a file that another container writes.
pub(super) fn file_key(at: &At<'_, '_>, run: &mut Run<'_>) {
    let [volume, path, key] = ["volumeName", "path", "key"].map(|field| at.field(field));
    if key.is_empty() {
        key.required(run, "");
    } else {
        key.complain(run, ENV_NAME.faults(key.text()));
    }
    if volume.is_empty() {
        volume.required(run, "");
    }
    if path.is_empty() {
        path.required(run, "");
    } else {
        local_path(&path, path.text(), run);
    }
}

/// A file with variables must be in a volume of type `emptyDir`, where the pod itself writes it.
pub(super) fn files_of_variables(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let volumes = spec.field("volumes").list();
    let volume = |name: &str| volumes.iter().find(|volume| volume["name"] == name);
    for list in ["initContainers", "containers", "ephemeralContainers"].map(|list| spec.field(list)) {
        for container in list.items() {
            for variable in container.field("env").items() {
                let source = variable.field("valueFrom");
                let file = source.field("fileKeyRef");
                let name = file.field("volumeName");
                if !file.is_set() {
                    continue;
                }
                match volume(name.text()) {
                    None => name.not_found(run, name.text()),
                    Some(volume) if volume.get("emptyDir").is_none() => {
                        name.invalid(run, name.text(), "referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// A reference to a resource of a container.
pub(super) fn resource_selector(at: &At<'_, '_>, in_volume: bool, run: &mut Run<'_>) {
    let resource = at.field("resource");
    let name = resource.text();
    let huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    if in_volume && at.field("containerName").is_empty() {
        at.field("containerName").required(run, "");
    } else if name.is_empty() {
        resource.required(run, "");
    } else if !huge && !RESOURCE_FIELDS.contains(&name) {
        resource.not_supported(run, name, &RESOURCE_FIELDS);
    }
    let divisor = at.field("divisor");
    if Quantity::parse(divisor.text()).is_none_or(|divisor| divisor == Quantity::ZERO) {
        return;
    }
    const SIZES: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
    let (known, what) = match name.split_once('.').map_or("", |(_, name)| name) {
        "cpu" => ("1m, 1", "1m and 1 are supported with the cpu".to_owned()),
        "memory" => (SIZES, format!("{SIZES} are supported with the memory")),
        "ephemeral-storage" => (SIZES, format!("{SIZES} are supported with the local ephemeral storage")),
        _ if huge => (SIZES, format!("{SIZES} are supported with the hugepages")),
        _ => return,
    };
    if !known.split(", ").any(|known| known == divisor.text()) {
        divisor.invalid(run, name, format!("only divisor's values {what} resource"));
    }
}
