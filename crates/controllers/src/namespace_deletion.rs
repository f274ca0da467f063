//! Deletes the objects in namespaces that are being deleted, and removes the namespace's finalizer when none are left.
//!
//! The finalizer `kubernetes` in a namespace's `spec` means that objects are left. A terminating namespace accepts no
//! new objects, so a pass that finds none is final. Each namespace is a key of its own in the queue, so a namespace
//! whose objects can't be deleted delays no other. The conditions of the namespace report the reason of a delay.

mod conditions;
mod contents;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_meta::ApiError;
use keelson_meta::field_selector::FieldSelector;
use keelson_registry::{Caller, Registry, Target};
use keelson_supervision::{info_repeated, warn_repeated};
use tokio_util::sync::CancellationToken;

use crate::client::{CONTROLLER_MANAGER, Client, RevisedObject};
use crate::follow::follow;
use crate::queue::{Backoff, Outcome, Queue};
use conditions::Findings;
pub use contents::{Content, RemainingObjects, RemoteNamespaceContent};

/// The number of namespaces emptied concurrently.
const AT_ONCE: usize = 8;
/// The backoff of a namespace with objects that can't be deleted yet.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(8) };
/// The time limit for one kind on another server in one pass. It bounds the delay for other namespaces.
const ELSEWHERE_TIME: Duration = Duration::from_secs(10);
/// The controller's service account.
const ACCOUNT: &str = "namespace-controller";

/// The controller.
pub struct NamespaceDeletion {
    registry: Arc<Registry>,
    client: Client,
    /// The identity that removes the finalizer.
    releasing: Caller,
    namespaces: Target,
    /// Objects outside of the served collections.
    others: Vec<Box<dyn Content>>,
    /// Objects on other servers.
    elsewhere: Option<Arc<dyn RemoteNamespaceContent>>,
    /// The names of namespaces in deletion.
    queue: Queue<String>,
}

impl NamespaceDeletion {
    /// Creates a controller over a registry.
    ///
    /// # Errors
    /// 500 when namespaces are not served.
    pub fn new(registry: Arc<Registry>) -> Result<Self, ApiError> {
        let client = Client::of_controller(registry.clone(), ACCOUNT, CONTROLLER_MANAGER);
        let releasing = registry.controller(ACCOUNT);
        let namespaces = client.collection("", "v1", "namespaces", None)?;
        let queue = Queue::new("namespace", BACKOFF);
        Ok(Self { registry, client, releasing, namespaces, others: Vec::new(), elsewhere: None, queue })
    }

    /// Adds further objects to delete.
    #[must_use]
    pub fn also(mut self, content: Box<dyn Content>) -> Self {
        self.others.push(content);
        self
    }

    /// Adds objects on other servers to delete.
    #[must_use]
    pub fn also_elsewhere(mut self, elsewhere: Arc<dyn RemoteNamespaceContent>) -> Self {
        self.elsewhere = Some(elsewhere);
        self
    }

    /// Runs until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let empty = self.queue.run(AT_ONCE, |namespace| self.turn(namespace));
        let following =
            follow(&self.registry, self.client.caller(), &self.namespaces, FieldSelector::default(), |entry| {
                if entry.terminating {
                    self.queue.add(entry.name().to_owned());
                }
            });
        tokio::select! {
            () = stopping.cancelled() => {}
            never = following => match never {},
            never = empty => match never {},
        }
    }

    async fn turn(&self, namespace: String) -> Outcome {
        match self.empty_and_release(&namespace).await {
            Ok(true) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            Ok(false) => Outcome::Again,
            // Another writer changed the namespace. The new state is processed again.
            Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(&namespace; namespace, %error, "deleting the content of a namespace failed; retrying");
                Outcome::Again
            }
        }
    }

    /// Deletes the objects in a namespace, reports those that are left, and removes the finalizer if there are none.
    /// Returns true when the namespace needs no further pass.
    async fn empty_and_release(&self, name: &str) -> Result<bool, ApiError> {
        let Some(RevisedObject { object: namespace, .. }) = self.client.get(&self.namespaces, name).await? else {
            return Ok(true);
        };
        if namespace.deletion_timestamp().is_none() {
            return Ok(true);
        }
        let findings = self.empty(name).await;
        let mut told = namespace.clone();
        findings.tell(&mut told, self.client.now());
        let is_news = told != namespace;
        if is_news {
            let status = self.namespaces.clone().below("status").named(name);
            self.client.update(&status, told).await?;
        }
        if !findings.is_empty() {
            if is_news {
                info_repeated!(&name; namespace = name, %findings, "a namespace being deleted still has content");
            }
            return Ok(false);
        }
        self.registry.finalize_namespace(name, namespace.uid(), &self.releasing).await?;
        Ok(true)
    }

    /// Deletes all objects in the namespace, pods first. A failure for one kind does not stop the others. Other servers
    /// come last and concurrently, so a server that does not answer delays nothing else.
    async fn empty(&self, namespace: &str) -> Findings {
        let mut findings = Findings::default();
        let served = contents::of_surface(&self.registry.surface(), &self.client);
        for content in served.iter().chain(&self.others) {
            findings.add_outcome(content.resource(), content.empty(namespace).await);
        }
        if let Some(elsewhere) = &self.elsewhere {
            // ORDER: the list of unknown versions is read first. A kind that becomes known meanwhile is emptied in the
            // next pass.
            findings.add_undiscovered(elsewhere.undiscovered());
            let contents = elsewhere.contents();
            let emptied = contents.iter().map(|content| async {
                let late = |_| {
                    let why = format!("{}: its server has not answered within {ELSEWHERE_TIME:?}", content.resource());
                    Err(ApiError::Internal(why))
                };
                let emptied = tokio::time::timeout(ELSEWHERE_TIME, content.empty(namespace)).await;
                (content.resource(), emptied.unwrap_or_else(late))
            });
            for (resource, outcome) in futures::future::join_all(emptied).await {
                findings.add_outcome(resource, outcome);
            }
        }
        findings
    }
}
