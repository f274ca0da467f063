//! Duplicate owner references: the second one is dropped, and the client is warned.
//!
//! Two references are equal when all of their fields are. The release in the text is kube-apiserver's.

use std::collections::HashSet;

use keelson_codec::json;
use keelson_meta::Object;
use keelson_meta::json::Value;

use crate::warnings::Warnings;

/// The cause of a duplicate owner.
#[derive(Clone, Copy)]
pub(crate) enum DuplicateCause {
    /// The client.
    Request,
    /// The client by a patch, or an admission plugin.
    Admission,
}

/// Removes repeated owner references. Returns true if there were any.
pub(crate) fn leave_out_repeated(object: &mut Object, by: DuplicateCause, warnings: &Warnings) -> bool {
    if object.meta_list("ownerReferences").len() < 2 {
        return false;
    }
    let Some(Value::Array(references)) = object.metadata_mut().get_mut("ownerReferences") else { return false };
    let mut seen = HashSet::new();
    let mut repeated = Vec::new();
    references.retain(|reference| {
        let is_first = seen.insert(json::to_vec(reference));
        if !is_first {
            repeated.push(reference.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned());
        }
        is_first
    });
    if repeated.is_empty() {
        return false;
    }
    let when = match by {
        DuplicateCause::Request => "",
        DuplicateCause::Admission => " after mutating admission happens",
    };
    warnings.add(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such \
         requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ));
    true
}
