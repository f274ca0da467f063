//! The few rules that differ by kind. Everything here is called from one place in the generic verbs.

mod namespace;
mod secret;

use keelson_meta::Object;

use crate::target::Target;

/// What a new object of this kind gets beyond what it was sent with.
pub(crate) fn prepare_create(target: &Target, object: &mut Object) {
    match (target.resource.group, target.resource.plural) {
        ("", "namespaces") => namespace::prepare_create(object),
        ("", "secrets") => secret::merge_string_data(object),
        _ => {}
    }
}

/// What an object of this kind keeps or gets on an update.
pub(crate) fn prepare_update(target: &Target, current: &Object, next: &mut Object) {
    match (target.resource.group, target.resource.plural) {
        ("", "namespaces") => namespace::prepare_update(target, current, next),
        ("", "secrets") => secret::merge_string_data(next),
        _ => {}
    }
}

/// Changes an object that is being deleted but may not go yet.
pub(crate) fn mark_terminating(target: &Target, object: &mut Object) {
    if (target.resource.group, target.resource.plural) == ("", "namespaces") {
        namespace::mark_terminating(object);
    }
}

/// Whether an object without `metadata.finalizers` may go, as far as its kind is concerned.
pub(crate) fn may_go(target: &Target, object: &Object) -> bool {
    match (target.resource.group, target.resource.plural) {
        ("", "namespaces") => namespace::is_finalized(object),
        _ => true,
    }
}

/// Whether deletion of this kind is graceful at all: only then does a marked object carry a grace period.
pub(crate) fn has_grace_period(target: &Target) -> bool {
    (target.resource.group, target.resource.plural) != ("", "namespaces")
}

/// The kinds whose deletion is answered with the object itself.
const RETURNED_ON_DELETE: [&str; 8] = [
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "storageclasses",
];

/// Whether a delete of this kind is answered with the object as it was, rather than with a `Status`.
pub(crate) fn returns_deleted(target: &Target) -> bool {
    matches!(target.resource.group, "" | "storage.k8s.io") && RETURNED_ON_DELETE.contains(&target.resource.plural)
}

/// Takes the finalizer off a namespace that stands for its content.
pub(crate) fn finalize_namespace(object: &mut Object) {
    namespace::finalize(object);
}
