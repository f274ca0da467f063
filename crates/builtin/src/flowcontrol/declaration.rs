//! Priority and fairness of requests.
//!
//! The objects are kept for those who manage them. The server's own flow control goes by what a request costs and not by
//! these.

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
