//! Empties namespaces that are being deleted and lets them go when nothing is left.
//!
//! The finalizer `kubernetes` in a namespace's `spec` stands for "content is left". Nothing can be created in a namespace
//! once it is marked, so a pass that finds nothing is final. Following the namespaces and emptying them are apart, and
//! each namespace has its own turns, so that content that is held in one holds up no other. What holds a namespace is told
//! in its conditions.

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

/// How many namespaces are emptied at once.
const AT_ONCE: usize = 8;
/// How long a namespace whose content is held is left alone before it is looked at again.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(8) };
/// How long a turn waits for what one kind on another server holds, so that no such server keeps a turn from other namespaces for
/// longer.
const ELSEWHERE_TIME: Duration = Duration::from_secs(10);
/// The account by which it deletes.
const ACCOUNT: &str = "namespace-controller";

/// The controller.
pub struct NamespaceDeletion {
    registry: Arc<Registry>,
    client: Client,
    /// The same as it lets a namespace go.
    releasing: Caller,
    namespaces: Target,
    /// What namespaces hold beside the collections that are served.
    others: Vec<Box<dyn Content>>,
    /// What they hold that other servers keep.
    elsewhere: Option<Arc<dyn Elsewhere>>,
    /// The names of namespaces that are being deleted.
    queue: Queue<String>,
}

impl NamespaceDeletion {
    /// A controller over a registry.
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

    /// Has it empty something else as well.
    #[must_use]
    pub fn also(mut self, content: Box<dyn Content>) -> Self {
        self.others.push(content);
        self
    }

    /// Has it empty what other servers keep as well.
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
            // Somebody else changed the namespace; what they left is looked at.
            Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(&namespace; namespace, %error, "emptying a namespace failed and is tried again");
                Outcome::Again
            }
        }
    }

    /// Empties a namespace as far as nobody holds its content, tells what is left, and lets it go if that is nothing;
    /// whether there is nothing more to do.
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

    /// Deletes everything in the namespace, pods first. What can't be deleted of one kind does not keep the others. Other servers come
    /// last and all at once, so that one that does not answer keeps nothing.
    async fn empty(&self, namespace: &str) -> Findings {
        let mut findings = Findings::default();
        let served = contents::of_surface(&self.registry.surface(), &self.client);
        for content in served.iter().chain(&self.others) {
            findings.add_outcome(content.resource(), content.empty(namespace).await);
        }
        if let Some(elsewhere) = &self.elsewhere {
            // ORDER: what is not known is asked first. What becomes known meanwhile is looked at in the next turn.
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
