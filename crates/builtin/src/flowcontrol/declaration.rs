//! The declarations of flow schemas and priority levels (KEP-1040).
//!
//! The crate `fairness` uses the stored objects for the flow control of this server.

use keelson_resources::declare::{GroupDeclaration, STATUS, cluster, served, version};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16100,
    versions: &[version("v1", 21)],
    resources: &[
        cluster(GROUP, "flowschemas", "flowschema", "FlowSchema")
            .versions(&[served("v1").with(&[STATUS])])
            .counts_generations(),
        cluster(GROUP, "prioritylevelconfigurations", "prioritylevelconfiguration", "PriorityLevelConfiguration")
            .versions(&[served("v1").with(&[STATUS])])
            .counts_generations(),
    ],
};
