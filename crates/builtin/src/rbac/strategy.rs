//! Strategies of roles and bindings. Users must have the rights that they grant. A write takes effect before its
//! response.
//!
//! Like upstream, the verbs `escalate` on roles and `bind` on bound roles permit more.

use futures::future::BoxFuture;
use keelson_access::rbac::RoleRef;
use keelson_access::user::MASTERS;
use keelson_access::{HeldRules, PolicyRule, ResourceAttributes, missing_rights};
use keelson_meta::{ApiError, Object};
use keelson_registry::rights::is_allowed;
use keelson_registry::strategy::{Strategies, WriteStrategy};
use keelson_registry::{Registry, Target, WriteOptions, WriteRequest};

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "clusterrolebindings" | "rolebindings" => &const { Strategies::ORDINARY.write(&Grants::Bound) },
        "clusterroles" | "roles" => &const { Strategies::ORDINARY.write(&Grants::Stated) },
        _ => &Strategies::ORDINARY,
    }
}

const GROUP: &str = "rbac.authorization.k8s.io";

/// The kind of object that grants rights.
pub(super) enum Grants {
    /// Roles and cluster roles, which list the rights.
    Stated,
    /// Bindings, which grant the rights of a role.
    Bound,
}

impl WriteStrategy for Grants {
    /// Checking takes long even for a small binding, since its role may be large.
    fn has_long_validation(&self) -> bool {
        true
    }

    fn grants_rights(&self) -> bool {
        true
    }

    fn check_grant<'a>(
        &'a self,
        registry: &'a Registry,
        request: &'a WriteRequest<'a>,
        before: Option<&'a Object>,
        after: &'a Object,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if may_pass(request, before, after) {
                return Ok(());
            }
            match self {
                Self::Stated => check_stated(request, before, after).await,
                Self::Bound => check_bound(registry, request, after).await,
            }
        })
    }
}

async fn check_stated(request: &WriteRequest<'_>, before: Option<&Object>, after: &Object) -> Result<(), ApiError> {
    let target = request.target;
    // For a create by PUT or apply, the path has the name of the new object. A POST has no name in its path.
    let name = if matches!(request.options, WriteOptions::Create(_)) { None } else { Some(request.name) };
    let attributes = ResourceAttributes { verb: "escalate", name, ..attributes_of(target) };
    if is_allowed(request.caller, attributes).await {
        return Ok(());
    }
    let held = held_by(request).await;
    let is_aggregated = |object: &Object| object.get(&["aggregationRule"]).is_some_and(|rule| !rule.is_null());
    if is_aggregated(after) || before.is_some_and(is_aggregated) {
        // The aggregated role may later get any right.
        if missing_rights(request.caller.user(), &held, &PolicyRule::everything()).is_some() {
            let message = "must have cluster-admin privileges to use the aggregationRule".to_owned();
            return Err(refused(target, after, message));
        }
    }
    let stated: Vec<PolicyRule> = PolicyRule::all_of(after).collect();
    refuse_missing(request, after, &held, &stated)
}

async fn check_bound(registry: &Registry, request: &WriteRequest<'_>, after: &Object) -> Result<(), ApiError> {
    let target = request.target;
    let role = RoleRef::from_binding(after);
    let name = Some(&*role.name);
    let attributes = ResourceAttributes { verb: "bind", resource: role.plural(), name, ..attributes_of(target) };
    if is_allowed(request.caller, attributes).await {
        return Ok(());
    }
    registry.catch_up().await?;
    let Some(rules) = rules_in(registry, &role, target.namespace.as_deref())? else {
        // Like upstream, the error names a binding.
        return Err(ApiError::NotFound { resource: target.group_resource(), name: role.name });
    };
    refuse_missing(request, after, &held_by(request).await, &rules)
}

/// Returns true without a check: for users with all rights, and for deletions and changes of finalizers.
fn may_pass(request: &WriteRequest<'_>, before: Option<&Object>, after: &Object) -> bool {
    request.caller.user().is_in(MASTERS) || before.is_some_and(|before| same_but_for_collection(before, after))
}

/// Returns true if only fields for the garbage collector differ.
fn same_but_for_collection(before: &Object, after: &Object) -> bool {
    let bare = |object: &Object| {
        let mut object = object.clone();
        let metadata = object.metadata_mut();
        for field in ["finalizers", "ownerReferences", "managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
        object
    };
    bare(before) == bare(after)
}

fn attributes_of(target: &Target) -> ResourceAttributes<'_> {
    ResourceAttributes {
        group: GROUP,
        version: &target.version.name,
        resource: &target.resource.plural,
        namespace: target.namespace.as_deref(),
        ..ResourceAttributes::default()
    }
}

async fn held_by(request: &WriteRequest<'_>) -> HeldRules {
    let caller = request.caller;
    caller.authorizer().rules(caller.user(), request.target.namespace.as_deref()).await
}

fn refuse_missing(
    request: &WriteRequest<'_>,
    object: &Object,
    held: &HeldRules,
    wanted: &[PolicyRule],
) -> Result<(), ApiError> {
    match missing_rights(request.caller.user(), held, wanted) {
        Some(missing) => Err(refused(request.target, object, missing.to_string())),
        None => Ok(()),
    }
}

fn refused(target: &Target, object: &Object, message: String) -> ApiError {
    let name = object.name().to_owned();
    ApiError::Refused { resource: target.group_resource(), name, message, causes: Vec::new() }
}

/// The rules of the role that a binding names. `namespace` is that of the binding. Returns `None` if the role does not
/// exist.
fn rules_in(registry: &Registry, role: &RoleRef, namespace: Option<&str>) -> Result<Option<Vec<PolicyRule>>, ApiError> {
    let (surface, plural) = (registry.surface(), role.plural());
    let stored = surface.resource(GROUP, plural).and_then(|served| served.stored().cloned());
    let stored = stored.ok_or_else(|| ApiError::Internal(format!("{plural} are not stored")))?;
    let found = stored.cached.get(&role.key(namespace));
    Ok(found.map(|entry| PolicyRule::all_of(&entry.object().decode(entry.revision)).collect()))
}
