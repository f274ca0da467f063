//! What the API documentation says of the fields shown by the `rbac` tables. Clients see these texts.

pub(crate) const ROLE_BINDING_ROLE: &str = "\
    RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef \
    cannot be resolved, the Authorizer must return an error.";
pub(crate) const CLUSTER_ROLE_BINDING_ROLE: &str = "\
    RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the \
    Authorizer must return an error.";
