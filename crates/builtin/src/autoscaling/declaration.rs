//! Horizontal autoscaling of workloads.
//!
//! Autoscalers are served as `v1` and `v2`, whose fields differ, and stored as `v2` by default. `Scale` is a kind of
//! this group without its own resource.

use keelson_resources::declare::{GroupDeclaration, STATUS, namespaced, served, version};

const GROUP: &str = "autoscaling";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17500,
    versions: &[version("v2", 30), version("v1", 15)],
    resources: &[namespaced(GROUP, "horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler")
        .versions(&[served("v2").with(&[STATUS]), served("v1").with(&[STATUS])])
        .short_names(&["hpa"])
        .categories(&["all"])
        .stored_as(GROUP, "v2")
        .counts_generations_since(37)],
};
