//! The few rules that differ by kind. Everything here is called from one place in the generic verbs.

mod certificate;
mod classes;
mod definition;
mod device;
mod namespace;
mod node;
mod pod;
mod secret;
mod service;
mod status;
mod workload;

use std::time::SystemTime;

use keelson_access::User;
use keelson_meta::options::{DeleteOptions, FieldValidation};
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind, Object};

use crate::grace;
use crate::intake::shape;
use crate::registry::Registry;
use crate::target::Target;

pub(crate) use status::{initial_status, quality_of_service};

/// What a new object of this kind is read as having said, and who wrote it therefore owns. It is in the version of the
/// request.
pub(crate) fn complete_new(target: &Target, object: &mut Object, now: SystemTime) {
    match (target.resource.group, target.resource.plural) {
        ("", "namespaces") => namespace::label_with_name(object),
        ("", "secrets") if object.0.contains_key("stringData") => secret::merge_string_data(object),
        ("apps", "daemonsets") => workload::count_first_template(object),
        ("resource.k8s.io", "devicetaintrules" | "resourceslices") => device::date_taints(object, now),
        _ => return,
    }
    in_order(target, object);
}

/// The same of what an object of this kind shall become.
pub(crate) fn complete_update(target: &Target, current: &Object, next: &mut Object, now: SystemTime) {
    match (target.resource.group, target.resource.plural) {
        ("apps", "daemonsets") => workload::keep_count(current, next),
        _ => return complete_new(target, next, now),
    }
    in_order(target, next);
}

/// What a new object of this kind gets beyond what it was sent with. It has its name and its uid by then.
pub(crate) fn prepare_create(target: &Target, object: &mut Object) {
    match (target.resource.group, target.resource.plural) {
        ("", "namespaces") => namespace::prepare_create(object),
        ("", "nodes") => node::taint_until_ready(object),
        ("", "persistentvolumeclaims") => protect(object, "kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => protect(object, "kubernetes.io/pv-protection"),
        ("", "services") => service::prepare_create(object),
        ("batch", "jobs") => workload::select_pods_of_job(object),
        ("storage.k8s.io", "volumeattributesclasses") => protect(object, "kubernetes.io/vac-protection"),
        _ => return,
    }
    in_order(target, object);
}

/// What an object of this kind keeps or gets on an update.
pub(crate) fn prepare_update(target: &Target, current: &Object, next: &mut Object) {
    match (target.resource.group, target.resource.plural) {
        ("", "namespaces") => namespace::prepare_update(target, current, next),
        ("", "services") => service::prepare_update(current, next),
        ("apps", "daemonsets") => workload::count_templates(current, next),
        ("apiextensions.k8s.io", "customresourcedefinitions") if target.subresource.is_none() => {
            definition::add_stored_version(next);
        }
        _ => return,
    }
    in_order(target, next);
}

/// What a new object takes over from other objects: from the class that it names, or from the one that is the default.
///
/// # Errors
/// 403 when it contradicts its class, or there is none of that name.
pub(crate) fn admit(registry: &Registry, target: &Target, object: &mut Object) -> Result<(), ApiError> {
    match (target.resource.group, target.resource.plural) {
        ("", "pods") => {
            pod::tolerate_troubles(object);
            classes::pod_priority(registry, target, object)?;
            pod::spec_in_order(object);
            return Ok(());
        }
        ("", "persistentvolumeclaims") => classes::storage_class(registry, object)?,
        ("networking.k8s.io", "ingresses") => classes::ingress_class(registry, object)?,
        ("scheduling.k8s.io", "priorityclasses") => return classes::only_default(registry, target, object),
        _ => return Ok(()),
    }
    in_order(target, object);
    Ok(())
}

/// The same for what an object shall become.
///
/// # Errors
/// 403 for a second class that is the default.
pub(crate) fn admit_update(
    registry: &Registry,
    target: &Target,
    current: &Object,
    next: &mut Object,
) -> Result<(), ApiError> {
    match (target.resource.group, target.resource.plural) {
        ("", "pods") => {
            if target.subresource.is_none() {
                pod::tolerate_troubles(next);
            }
            classes::keep_priority(current, next);
            pod::spec_in_order(next);
            Ok(())
        }
        ("scheduling.k8s.io", "priorityclasses") => classes::only_default(registry, target, next),
        _ => Ok(()),
    }
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
pub(crate) fn in_order(target: &Target, object: &mut Object) {
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
        ("", "pods") => grace::is_over(object),
        _ => true,
    }
}

/// Whether dependents stay when an object of this kind is deleted by somebody who says nothing of them: so it was before
/// there was garbage collection.
pub(crate) fn orphans_by_default(target: &Target) -> bool {
    matches!((target.resource.group, target.resource.plural), ("", "replicationcontrollers") | ("batch", "jobs"))
}

/// What somebody should be told who deletes an object of this kind and says nothing of its dependents.
pub(crate) fn warn_on_delete(target: &Target, options: &DeleteOptions) -> Option<&'static str> {
    let silent = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    let job = (target.resource.group, target.resource.plural) == ("batch", "jobs");
    (silent && job).then_some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
         set propagationPolicy=Orphan to suppress this warning",
    )
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

/// Checks what an update of `/finalize` leaves in an object.
///
/// # Errors
/// 422 for finalizers that are not named as they have to be.
pub(crate) fn check_finalizers(target: &Target, object: &Object) -> Result<(), ApiError> {
    match target.subresource_name() {
        Some("finalize") => namespace::check_finalizers(target, object),
        _ => Ok(()),
    }
}

/// Takes the finalizer off a namespace that stands for its content.
pub(crate) fn finalize_namespace(object: &mut Object) {
    namespace::finalize(object);
}
