//! The declarations of priority classes, workloads and groups of pods.
//!
//! A new pod or group gets the priority of the class that it names.

use keelson_resources::declare::{GroupDeclaration, STATUS, cluster, namespaced, served, version};

const GROUP: &str = "scheduling.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16600,
    versions: &[version("v1", 15), version("v1beta1", 12), version("v1alpha3", 9)],
    resources: &[
        namespaced(GROUP, "compositepodgroups", "compositepodgroup", "CompositePodGroup")
            .versions(&[served("v1alpha3").with(&[STATUS]).since(37)])
            .stored_as(GROUP, "v1alpha3")
            .updated_only_from_a_revision()
            .behind("CompositePodGroup"),
        namespaced(GROUP, "podgroups", "podgroup", "PodGroup")
            .versions(&[served("v1beta1").with(&[STATUS]).since(37), served("v1alpha3").with(&[STATUS]).since(37)])
            .stored_as(GROUP, "v1beta1")
            .updated_only_from_a_revision()
            .behind("GenericWorkload"),
        cluster(GROUP, "priorityclasses", "priorityclass", "PriorityClass")
            .short_names(&["pc"])
            .notes(&["globalDefault"])
            .counts_generations(),
        namespaced(GROUP, "workloads", "workload", "Workload")
            .versions(&[served("v1beta1").since(37), served("v1alpha3").since(37)])
            .stored_as(GROUP, "v1beta1")
            .updated_only_from_a_revision()
            .behind("GenericWorkload"),
    ],
};
