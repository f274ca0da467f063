//! Warnings about CSI drivers: settings that should accompany token requests.
//!
//! Volumes and claims are in the core group.

use crate::validating::ValidatedObject;
use crate::validating::at::At;

pub(crate) fn warnings(kind: &str, written: ValidatedObject<'_>, warnings: &mut Vec<String>) {
    if kind == "CSIDriver" {
        of_driver(written.at, warnings);
    }
}

fn of_driver(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    let spec = at.field("spec");
    if !spec.field("tokenRequests").is_empty() && !spec.field_is_set("serviceAccountTokenInSecrets") {
        warnings.push(
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible \
             logging of tokens in volume attributes"
                .to_owned(),
        );
    }
}
