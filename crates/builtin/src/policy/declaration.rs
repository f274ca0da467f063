//! The declaration of pod disruption budgets.
//!
//! The server checks budgets before it evicts a pod. `Eviction` is a kind of this group, the body of a subresource of
//! pods.

use keelson_resources::declare::{GroupDeclaration, STATUS, namespaced, served, version};

const GROUP: &str = "policy";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17100,
    versions: &[version("v1", 15)],
    resources: &[namespaced(GROUP, "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget")
        .versions(&[served("v1").with(&[STATUS])])
        .short_names(&["pdb"])
        .counts_generations()
        .updated_only_from_a_revision()],
};
