//! The declaration of priority classes.
//!
//! A new pod gets the priority of the class that it names.

use keelson_resources::declare::{GroupDeclaration, cluster, version};

const GROUP: &str = "scheduling.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16600,
    versions: &[version("v1", 15)],
    resources: &[cluster(GROUP, "priorityclasses", "priorityclass", "PriorityClass")
        .short_names(&["pc"])
        .notes(&["globalDefault"])
        .counts_generations()],
};
