//! The objects of the made-up cluster for a number of pods, in the order of their creation.
//!
//! Nothing is random, so a second run finds the objects of the first.

use std::collections::BTreeSet;

use super::objects::{
    CUSTOM_RESOURCES, Object, State, Workload, account, config_map, custom, definition, deployment, event, namespace,
    node, pod, pod_name, service,
};

/// An application: name, component, image.
type Application = (&'static str, &'static str, &'static str);

/// Namespaces with their teams and their applications.
const NAMESPACES: [(&str, &str, &[Application]); 6] = [
    (
        "shop",
        "storefront",
        &[
            ("web", "frontend", "registry.example/shop/web:3.14.2"),
            ("cart", "backend", "registry.example/shop/cart:2.7.0"),
            ("catalog", "backend", "registry.example/shop/catalog:5.1.9"),
        ],
    ),
    (
        "payments",
        "payments",
        &[
            ("checkout", "backend", "registry.example/payments/checkout:1.42.0"),
            ("ledger", "backend", "registry.example/payments/ledger:0.9.3"),
        ],
    ),
    (
        "search",
        "discovery",
        &[
            ("query", "backend", "registry.example/search/query:7.0.1"),
            ("indexer", "worker", "registry.example/search/indexer:7.0.1"),
        ],
    ),
    ("media", "storefront", &[("thumbnails", "worker", "registry.example/media/thumbnails:1.3.0")]),
    (
        "platform",
        "platform",
        &[
            ("gateway", "edge", "registry.example/platform/gateway:4.4.0"),
            ("auth", "backend", "registry.example/platform/auth:2.2.2"),
        ],
    ),
    ("batch", "data", &[("nightly-report", "job", "registry.example/data/report:2026.1")]),
];
/// The namespace whose pods have completed.
const JOBS: &str = "batch";
/// The index of the stage with the definitions of custom resources.
pub(super) const DEFINITIONS: usize = 0;
/// The number of pods on a node.
const PODS_ON_A_NODE: u32 = 50;
/// One event is created for this many pods.
const EVENT_EVERY: u32 = 4;
/// The number of custom resources of each kind in each namespace.
const CUSTOM_OF_A_NAMESPACE: u32 = 12;

/// The objects of the cluster.
pub(super) struct Cluster {
    stages: [Vec<Object>; 5],
    nodes: u32,
}

impl Cluster {
    /// The cluster with this number of pods.
    pub(super) fn with_pods(pods: u32) -> Self {
        let nodes = pods.div_ceil(PODS_ON_A_NODE);
        let mut stages: [Vec<Object>; 5] = Default::default();
        let [first, second, workloads, running, custom_resources] = &mut stages;
        first.extend(NAMESPACES.map(|(name, team, _)| namespace(name, team)));
        first.extend((0..nodes).map(node));
        first.extend(CUSTOM_RESOURCES.map(definition));
        second.extend(NAMESPACES.map(|(name, ..)| account(name)));
        let apps: u32 = NAMESPACES.iter().map(|(_, _, apps)| u32::try_from(apps.len()).unwrap_or(u32::MAX)).sum();
        let mut number = 0;
        for (at, (namespace, (app, tier, image))) in
            NAMESPACES.iter().flat_map(|(name, _, apps)| apps.iter().map(move |app| (*name, *app))).enumerate()
        {
            // Pods that do not divide evenly go to the first applications, one each.
            let is_one_more = u32::try_from(at).is_ok_and(|at| at < pods % apps);
            let replicas = pods / apps + u32::from(is_one_more);
            let workload = Workload { namespace, app, tier, image, replicas };
            let ready = workload_pods(&workload, &mut number, nodes, running);
            workloads.push(config_map(&workload));
            if namespace != JOBS {
                workloads.push(service(&workload));
                workloads.push(deployment(&workload, ready));
            }
        }
        for (namespace, ..) in NAMESPACES {
            for kind in CUSTOM_RESOURCES {
                custom_resources.extend((0..CUSTOM_OF_A_NAMESPACE).map(|number| custom(kind, namespace, number)));
            }
        }
        Self { stages, nodes }
    }

    /// The objects in stages. The objects of a stage need those of earlier stages.
    pub(super) fn stages(&self) -> &[Vec<Object>] {
        &self.stages
    }

    pub(super) fn nodes(&self) -> u32 {
        self.nodes
    }

    pub(super) fn namespaces(&self) -> usize {
        NAMESPACES.len()
    }
}

/// Adds the pods of a workload and their events. Returns the number of ready pods.
fn workload_pods(workload: &Workload<'_>, number: &mut u32, nodes: u32, running: &mut Vec<Object>) -> u32 {
    let mut ready = 0;
    let mut names = BTreeSet::new();
    for _ in 0..workload.replicas {
        // Two numbers may give the same letters.
        while !names.insert(pod_name(workload.app, *number)) {
            *number += 1;
        }
        let state = state(workload.namespace, *number);
        ready += u32::from(state == State::Running);
        running.push(pod(workload, *number, *number % nodes, state));
        if !matches!(state, State::Running) || number.is_multiple_of(EVENT_EVERY) {
            running.push(event(workload, *number, state));
        }
        *number += 1;
    }
    ready
}

/// The state of a pod by its number. Most pods run.
fn state(namespace: &str, number: u32) -> State {
    match number % 97 {
        _ if namespace == JOBS => State::Succeeded,
        13 | 58 => State::Crashing,
        71 => State::Pending,
        _ => State::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_cluster_has_the_requested_pods_with_unique_names() {
        for pods in [1, 7, 2000] {
            let cluster = Cluster::with_pods(pods);
            let all = cluster.stages().iter().flatten();
            let mut names: Vec<_> = all.map(|object| (&object.collection, &object.name)).collect();
            let of_pods = names.iter().filter(|(collection, _)| collection.ends_with("/pods")).count();
            assert_eq!(of_pods, pods as usize);
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn some_pods_are_in_trouble_and_have_events() {
        let cluster = Cluster::with_pods(2000);
        let events: Vec<_> = cluster.stages().iter().flatten().filter(|object| object.kind == "Event").collect();
        let warnings = events.iter().filter(|event| event.body["type"] == "Warning").count();
        assert!(warnings > 20 && events.len() > 500, "{warnings} of {}", events.len());
    }
}
