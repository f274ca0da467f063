//! The few rules that differ by kind. Everything here is called from one place in the generic verbs.

mod certificate;
mod device;
mod namespace;
mod node;
mod secret;
mod status;
mod workload;

use std::time::SystemTime;

use keelson_access::User;
use keelson_meta::options::FieldValidation;
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind, Object};

use crate::intake::shape;
use crate::target::Target;

pub(crate) use status::initial_status;

/// What a new object of this kind gets beyond what it was sent with. It has its name and its uid by then.
pub(crate) fn prepare_create(target: &Target, object: &mut Object, now: SystemTime) {
    match (target.resource.group, target.resource.plural) {
        ("", "namespaces") => namespace::prepare_create(object),
        ("", "nodes") => node::taint_until_ready(object),
        ("", "persistentvolumeclaims") => protect(object, "kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => protect(object, "kubernetes.io/pv-protection"),
        ("", "secrets") if object.0.contains_key("stringData") => secret::merge_string_data(object),
        ("apps", "daemonsets") => workload::count_first_template(object),
        ("batch", "jobs") => workload::select_pods_of_job(object),
        ("resource.k8s.io", "devicetaintrules" | "resourceslices") => device::date_taints(object, now),
        ("storage.k8s.io", "volumeattributesclasses") => protect(object, "kubernetes.io/vac-protection"),
        _ => return,
    }
    in_order(target, object);
}

/// What an object of this kind keeps or gets on an update.
pub(crate) fn prepare_update(target: &Target, current: &Object, next: &mut Object, now: SystemTime) {
    match (target.resource.group, target.resource.plural) {
        ("", "namespaces") => namespace::prepare_update(target, current, next),
        ("", "secrets") if next.0.contains_key("stringData") => secret::merge_string_data(next),
        ("apps", "daemonsets") => workload::count_templates(current, next),
        ("resource.k8s.io", "devicetaintrules" | "resourceslices") => device::date_taints(next, now),
        _ => return,
    }
    in_order(target, next);
}

/// What an object says of who makes it.
pub(crate) fn attribute(target: &Target, object: &mut Object, user: &User) {
    if (target.resource.group, target.resource.plural) == ("certificates.k8s.io", "certificatesigningrequests") {
        certificate::sign_with(object, user);
        in_order(target, object);
    }
}

/// Holds an object until nobody uses it any more.
fn protect(object: &mut Object, finalizer: &str) {
    let mut finalizers: Vec<String> = object.finalizers().into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|held| held == finalizer) {
        finalizers.push(finalizer.to_owned());
        object.set_meta("finalizers", finalizers);
    }
}

/// Puts fields that were added where they belong, so that equal objects have equal bytes.
fn in_order(target: &Target, object: &mut Object) {
    let Some(GroupVersion { group, version }) = object.api_version().and_then(GroupVersion::parse) else { return };
    let kind = GroupVersionKind { group, version, kind: target.resource.kind.to_owned() };
    if let Err(fault) = shape(&kind, object, &[], FieldValidation::Ignore) {
        tracing::error!(?kind, %fault, "what the server added to an object does not fit its schema");
    }
}

/// Whether the creator of an object also states its status. A kubelet registers its node whole.
pub(crate) fn keeps_status_on_create(target: &Target) -> bool {
    (target.resource.group, target.resource.plural) == ("", "nodes")
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

/// Refuses to delete an object that clients count on.
///
/// # Errors
/// 403 for a namespace that has to stay.
pub(crate) fn check_delete(target: &Target, name: &str) -> Result<(), ApiError> {
    match (target.resource.group, target.resource.plural) {
        ("", "namespaces") => namespace::check_delete(target, name),
        _ => Ok(()),
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

/// What an update of `/finalize` makes of an object.
///
/// # Errors
/// 422 for finalizers that are not named as they have to be.
pub(crate) fn replace_finalizers(target: &Target, object: &mut Object, from: &Object) -> Result<(), ApiError> {
    namespace::replace_finalizers(target, object, from)
}

/// Takes the finalizer off a namespace that stands for its content.
pub(crate) fn finalize_namespace(object: &mut Object) {
    namespace::finalize(object);
}
