//! Horizontal autoscaling of workloads.

use crate::declare::{GroupDeclaration, STATUS, namespaced, served, version};

const GROUP: &str = "autoscaling";

pub(super) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17500,
    versions: &[version("v2", 30), version("v1", 15)],
    resources: &[namespaced(GROUP, "horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler")
        .versions(&[served("v2").with(&[STATUS]), served("v1").with(&[STATUS])])
        .short_names(&["hpa"])
        .categories(&["all"])
        .stored_as(GROUP, "v2")],
};
