//! A small controller manager, scheduler and kubelet in one, for tests of a working cluster. It manages replica sets of
//! deployments and pods of replica sets, binds, runs and ends pods, and counts pods for disruption budgets.
//!
//! The controller is an ordinary client. A watch event only signals that something changed. A round then reads all
//! objects, which include the writes of earlier rounds, and moves each object one step. Rounds repeat until one changes
//! nothing.

mod api;
mod budgets;
mod deployments;
mod pods;
mod protection;
mod replica_sets;
mod sizes;

use anyhow::Result;
use futures::future::try_join_all;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub use pods::BROKEN_IMAGE;

use crate::Endpoint;
use api::{Api, BUDGETS, CLAIMS, DEPLOYMENTS, Kind, NODES, PODS, REPLICA_SETS, VOLUMES, owned_by};

/// A running controller. Stops when dropped.
#[derive(Debug)]
#[must_use]
pub struct TestController {
    task: JoinHandle<()>,
}

impl TestController {
    /// Starts the controller on a server. It ends with the server.
    pub fn start(endpoint: &Endpoint) -> Self {
        let api = Api::new(endpoint.raw());
        let work = async move {
            let changed = Notify::new();
            let watches = [BUDGETS, CLAIMS, DEPLOYMENTS, NODES, PODS, REPLICA_SETS, VOLUMES];
            let watched = try_join_all(watches.map(|kind| watch(&api, kind, &changed)));
            // Both futures end only with an error, when the server is gone.
            tokio::select! {
                _ = watched => {}
                _ = rounds(&api, &changed) => {}
            }
        };
        Self { task: tokio::spawn(work) }
    }
}

impl Drop for TestController {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(api: &Api, kind: Kind, changed: &Notify) -> Result<()> {
    loop {
        // A watch begins with events for the existing objects, so a new watch misses no change.
        let mut events = api.watch(kind).await?;
        while events.next_chunk().await?.is_some() {
            changed.notify_one();
        }
    }
}

async fn rounds(api: &Api, changed: &Notify) -> Result<()> {
    loop {
        changed.notified().await;
        // ORDER: owners and budgets are read before the pods that they own and count. So no list of pods is older than
        // its owner.
        let budgets = api.list(BUDGETS).await?;
        let deployments = api.list(DEPLOYMENTS).await?;
        let sets = api.list(REPLICA_SETS).await?;
        let pods = api.list(PODS).await?;
        let nodes = api.list(NODES).await?;
        for pod in &pods {
            pods::reconcile(api, pod, &pods, &nodes).await?;
        }
        for set in &sets {
            replica_sets::reconcile(api, set, &owned_by(set, &pods)).await?;
        }
        for deployment in &deployments {
            deployments::reconcile(api, deployment, &owned_by(deployment, &sets)).await?;
        }
        for budget in &budgets {
            budgets::reconcile(api, budget, &pods).await?;
        }
        protection::reconcile(api, &pods).await?;
    }
}
