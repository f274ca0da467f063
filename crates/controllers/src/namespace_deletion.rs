//! Empties namespaces in deletion, and removes their finalizer when nothing is left.
//!
//! The finalizer `kubernetes` in a namespace's `spec` means that content is left. A terminating namespace accepts no
//! new objects, so a pass that finds nothing is final. Each namespace is a key of its own in the queue: held content in
//! one delays no other. The namespace's conditions report the reason of a delay.

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

use crate::client::{CONTROLLER_MANAGER, Client, Stored};
use crate::follow::follow;
use crate::queue::{Backoff, Outcome, Queue};
use conditions::Findings;
pub use contents::{Content, Elsewhere, Left};

/// The number of namespaces emptied concurrently.
const AT_ONCE: usize = 8;
/// The backoff of a namespace whose content is held.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(8) };
/// The time limit of a turn for one kind on another server. It bounds the delay for other namespaces.
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
    /// Content outside of the served collections.
    others: Vec<Box<dyn Content>>,
    /// Content on other servers.
    elsewhere: Option<Arc<dyn Elsewhere>>,
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

    /// Adds further content to empty.
    #[must_use]
    pub fn also(mut self, content: Box<dyn Content>) -> Self {
        self.others.push(content);
        self
    }

    /// Adds content on other servers to empty.
    #[must_use]
    pub fn also_elsewhere(mut self, elsewhere: Arc<dyn Elsewhere>) -> Self {
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
                warn_repeated!(&namespace; namespace, %error, "emptying a namespace failed and is tried again");
                Outcome::Again
            }
        }
    }

    /// Deletes the content of a namespace, reports the rest, and removes the finalizer if nothing is left. Returns true
    /// when nothing more is to be done.
    async fn empty_and_release(&self, name: &str) -> Result<bool, ApiError> {
        let Some(Stored { object: namespace, .. }) = self.client.get(&self.namespaces, name).await? else {
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

    /// Deletes everything in the namespace, pods first. A failure for one kind does not stop the others. Other servers
    /// come last and concurrently, so one that does not answer delays nothing else.
    async fn empty(&self, namespace: &str) -> Findings {
        let mut findings = Findings::default();
        let served = contents::of_surface(&self.registry.surface(), &self.client);
        for content in served.iter().chain(&self.others) {
            findings.add_outcome(content.resource(), content.empty(namespace).await);
        }
        if let Some(elsewhere) = &self.elsewhere {
            // ORDER: undiscovered versions are read first. Kinds that are discovered meanwhile are emptied in the next
            // turn.
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
