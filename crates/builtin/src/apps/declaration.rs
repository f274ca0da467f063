//! The group `apps`: workloads.
//!
//! All kinds except ControllerRevision have a status. All except DaemonSet and ControllerRevision have the subresource
//! `scale`. Their controllers run outside of this server.

use keelson_meta::names::NameRule;
use keelson_resources::declare::{GroupDeclaration, SCALE, STATUS, namespaced, served, version};

const GROUP: &str = "apps";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17800,
    versions: &[version("v1", 15)],
    resources: &[
        namespaced(GROUP, "controllerrevisions", "controllerrevision", "ControllerRevision"),
        namespaced(GROUP, "daemonsets", "daemonset", "DaemonSet")
            .versions(&[served("v1").with(&[STATUS])])
            .short_names(&["ds"])
            .categories(&["all"])
            .counts_generations(),
        namespaced(GROUP, "deployments", "deployment", "Deployment")
            .versions(&[served("v1").with(&[SCALE, STATUS])])
            .short_names(&["deploy"])
            .categories(&["all"])
            .counts_generations(),
        namespaced(GROUP, "replicasets", "replicaset", "ReplicaSet")
            .versions(&[served("v1").with(&[SCALE, STATUS])])
            .short_names(&["rs"])
            .categories(&["all"])
            .counts_generations(),
        namespaced(GROUP, "statefulsets", "statefulset", "StatefulSet")
            .versions(&[served("v1").with(&[SCALE, STATUS])])
            .short_names(&["sts"])
            .categories(&["all"])
            .names(NameRule::DnsLabel)
            .counts_generations(),
    ],
};
