//! Warnings about ingresses.
//!
//! Messages are upstream's.

use keelson_meta::go_format::quote;

use crate::validating::ValidatedObject;
use crate::validating::at::At;

pub(crate) fn warnings(kind: &str, written: ValidatedObject<'_>, warnings: &mut Vec<String>) {
    if kind == "Ingress" && written.old.is_none() {
        ingress(written.at, warnings);
    }
}

fn ingress(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let metadata = at.field("metadata");
    let annotations = metadata.field("annotations");
    if annotations.key(CLASS).is_set() {
        warnings.push(format!("annotation {} is deprecated, please use 'spec.ingressClassName' instead", quote(CLASS)));
    }
}
