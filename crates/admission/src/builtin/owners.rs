//! Upstream's plugin OwnerReferencesPermissionEnforcement. Changing the owners of an object needs the right to delete
//! the object. Setting `blockOwnerDeletion` needs the right to set finalizers of the owner.
//!
//! Without this plugin, a user could have an object deleted by giving it an owner that is about to be deleted.

use futures::future::BoxFuture;
use keelson_access::{Attributes, ResourceAttributes, Verdict};
use keelson_meta::json::Value;
use keelson_meta::{ApiError, GroupVersion, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Operation};

use super::reading::{is_about, items};

/// Checks the rights of users who change owners.
#[derive(Debug)]
pub(crate) struct OwnerReferencesPermissionEnforcement;

fn owners(object: Option<&Object>) -> &[Value] {
    items(object.and_then(|object| object.get(&["metadata", "ownerReferences"])))
}

fn text<'v>(owner: &'v Value, field: &str) -> &'v str {
    owner.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn holds(owner: &Value) -> bool {
    owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true)
}

/// The owners whose deletion the write newly blocks.
fn newly_held<'o>(old: &[Value], new: &'o [Value]) -> impl Iterator<Item = &'o Value> {
    let was_held = |owner: &Value| old.iter().any(|known| holds(known) && text(known, "uid") == text(owner, "uid"));
    new.iter().filter(move |owner| holds(owner) && !was_held(owner))
}

/// The reason in upstream's form, which ends with the error of the check: `<nil>` for a denial.
fn reason(verdict: &Verdict) -> String {
    format!("{}, {}", verdict.reason, verdict.error.as_deref().unwrap_or("<nil>"))
}

async fn ask(attributes: &AdmissionAttributes<'_>, asked: ResourceAttributes<'_>) -> Verdict {
    attributes.caller.authorizer().authorize(attributes.caller.user(), &Attributes::Resource(asked)).await
}

async fn may_delete(attributes: &AdmissionAttributes<'_>) -> Result<(), ApiError> {
    let (target, below) = (attributes.target, attributes.subresource());
    let asked = ResourceAttributes {
        verb: "delete",
        group: &target.resource.group,
        version: &target.version.name,
        resource: &target.resource.plural,
        subresource: Some(below).filter(|below| !below.is_empty()),
        namespace: target.namespace.as_deref(),
        name: Some(attributes.name).filter(|name| !name.is_empty()),
        ..ResourceAttributes::default()
    };
    let verdict = ask(attributes, asked).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    let why = format!("cannot set an ownerRef on a resource you can't delete: {}", reason(&verdict));
    Err(attributes.refused(why))
}

async fn may_hold(attributes: &AdmissionAttributes<'_>, owner: &Value) -> Result<(), ApiError> {
    let (stated, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
    let of = GroupVersion::parse(stated).unwrap_or_default();
    let served = attributes.target.surface.by_kind(&of.group, kind);
    let Some(served) = served.filter(|served| served.version(&of.version).is_some()) else {
        return Err(attributes.refused(format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {stated} Kind {kind}: \
             no matches for kind \"{kind}\" in version \"{stated}\""
        )));
    };
    let asked = ResourceAttributes {
        verb: "update",
        group: &of.group,
        version: &of.version,
        resource: &served.plural,
        subresource: Some("finalizers"),
        namespace: attributes.target.namespace.as_deref().filter(|_| served.is_namespaced()),
        name: Some(text(owner, "name")),
        ..ResourceAttributes::default()
    };
    let verdict = ask(attributes, asked).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    let why = format!(
        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}",
        reason(&verdict)
    );
    Err(attributes.refused(why))
}

impl Admission for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let is_written = matches!(attributes.operation, Operation::Create | Operation::Update);
        // A kubelet that does not know ownerReferences may omit them when it writes the status of a pod. Such a write
        // changes no owners.
        let is_status = attributes.subresource() == "status" && is_about(attributes, "pods");
        if is_written && !is_status { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let (old, new) = (owners(attributes.old), owners(object));
            if old == new {
                return Ok(());
            }
            may_delete(attributes).await?;
            for owner in newly_held(old, new) {
                may_hold(attributes, owner).await?;
            }
            Ok(())
        })
    }
}
