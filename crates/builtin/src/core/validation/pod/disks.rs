//! Validation of volume sources with special formats: Azure disks and Quobyte volumes.
//!
//! Pods and persistent volumes share these sources.

use crate::validating::at::At;
use crate::validating::type_rules::Rule::{Check, OneOf, Required};
use crate::validating::type_rules::{Run, TypeRules};

pub(crate) const AZURE_DISK: TypeRules = TypeRules::new(&[
    ("diskName", Required("")),
    ("diskURI", Required("")),
    ("cachingMode", OneOf(&["None", "ReadOnly", "ReadWrite"])),
    ("kind", OneOf(&["Dedicated", "Managed", "Shared"])),
    ("", Check("a URI of the form that its kind has", azure_uri)),
]);

pub(crate) const QUOBYTE: TypeRules = TypeRules::new(&[
    ("registry", Required("must be a host:port pair or multiple pairs separated by commas")),
    ("registry", Check("pairs of host and port", quobyte_registry)),
    ("tenant", Check("at most 64 bytes", quobyte_tenant)),
    ("volume", Required("")),
]);

fn quobyte_registry(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.text().len() > 65_536 {
        at.invalid(run, at.text(), "registry specification too long");
    } else if !at.is_empty() && !at.text().split(',').all(is_host_and_port) {
        at.invalid(run, at.text(), "must be a host:port pair or multiple pairs separated by commas");
    }
}

fn is_host_and_port(pair: &str) -> bool {
    match pair.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").is_some_and(|(_, port)| !port.contains(':')),
        None => pair.split_once(':').is_some_and(|(_, port)| !port.contains(':')),
    }
}

fn quobyte_tenant(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: usize = 65;
    if at.text().len() >= MOST {
        at.required(run, format!("must be a UUID and may not exceed a length of {MOST} characters"));
    }
}

/// A managed disk has a path; another disk has the URL of a blob.
fn azure_uri(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let uri = at.field("diskURI");
    let managed = at.field("kind").text() == "Managed";
    if managed && !uri.text().starts_with("/subscriptions/") {
        uri.not_supported(run, uri.text(), &[MANAGED]);
    }
    if !managed && !uri.text().starts_with("https://") {
        uri.not_supported(run, uri.text(), &[BLOB]);
    }
}
