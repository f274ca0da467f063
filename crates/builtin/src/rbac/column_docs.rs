//! The descriptions of the columns in the tables of `rbac`.
//!
//! The descriptions are the API documentation of the fields that the columns show. The cells are in `columns.rs`.

pub(crate) const ROLE_BINDING_ROLE: &str = "\
    RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef \
    cannot be resolved, the Authorizer must return an error.";
pub(crate) const CLUSTER_ROLE_BINDING_ROLE: &str = "\
    RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the \
    Authorizer must return an error.";
