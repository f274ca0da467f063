//! The controller of the status of validating policies: warnings about type errors in their expressions.
//!
//! Like upstream, a policy is checked once for each generation. Kinds that are added or changed later are not
//! considered.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_controllers::{Backoff, Client, Outcome, Queue, follow};
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};
use keelson_supervision::warn_repeated;
use tokio_util::sync::CancellationToken;

use super::GROUP;
use super::type_checking::warnings;

/// The user name of the controller and its field manager.
const ACCOUNT: &str = "validatingadmissionpolicy-status-controller";
const MANAGER: &str = "validatingadmissionpolicy-status";
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(30) };

/// The controller.
pub struct PolicyStatus {
    registry: Arc<Registry>,
    client: Client,
    policies: Target,
    /// The names of policies to check.
    queue: Queue<String>,
}

impl PolicyStatus {
    /// Creates the controller.
    ///
    /// # Errors
    /// 500 if policies are not served.
    pub fn new(registry: Arc<Registry>) -> Result<Self, ApiError> {
        let client = Client::of_controller(registry.clone(), ACCOUNT, MANAGER);
        let policies = client.collection(GROUP, "v1", "validatingadmissionpolicies", None)?;
        Ok(Self { registry, client, policies, queue: Queue::new("validatingadmissionpolicy-status", BACKOFF) })
    }

    /// Runs until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let all = FieldSelector::default();
        let following = follow(&self.registry, self.client.caller(), &self.policies, all, |entry| {
            self.queue.add(entry.name().to_owned());
        });
        let work = self.queue.run(1, |name| self.turn(name));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = following => match never {},
            never = work => match never {},
        }
    }

    async fn turn(&self, name: String) -> Outcome {
        match self.check(&name).await {
            Ok(()) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(&name; policy = name, %error, "checking the expressions of a policy failed; retrying");
                Outcome::Again
            }
        }
    }

    async fn check(&self, name: &str) -> Result<(), ApiError> {
        let Some(stored) = self.client.get(&self.policies, name).await? else { return Ok(()) };
        let mut next: Object = stored.object;
        let number = |path: &[&str]| next.get(path).and_then(Value::as_i64).unwrap_or_default();
        let generation = number(&["metadata", "generation"]);
        if generation <= number(&["status", "observedGeneration"]) {
            return Ok(());
        }
        let (surface, spec) = (self.registry.surface(), next.get(&["spec"]).cloned().unwrap_or_default());
        let checking = keelson_supervision::spawn_blocking(move || warnings(&surface, &spec));
        let warnings = checking.await.map_err(|error| ApiError::Internal(error.to_string()))?;
        let found = if warnings.is_empty() { json!({}) } else { json!({ "expressionWarnings": warnings }) };
        let status = next.0.entry("status").or_insert_with(|| Value::Object(Map::new()));
        status["observedGeneration"] = generation.into();
        status["typeChecking"] = found;
        self.client.update(&self.policies.clone().below("status").named(name), next).await.map(|_| ())
    }
}
