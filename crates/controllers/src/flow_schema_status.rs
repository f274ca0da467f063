//! Keeps the condition `Dangling` of flow schemas: true for a schema that names a priority level that does not exist.
//!
//! In kube-apiserver every server writes this condition. Here the bootstrap writes missing conditions, and later one
//! server of a store keeps them. kube-apiserver and keelson write only changes, so they don't alternate on one store.
//! Fields and texts are kube-apiserver's.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use keelson_meta::clock::rfc3339;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::go_format::quote;
use keelson_meta::json::{Value, json};
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::options::PatchOptions;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Patch, PatchKind, Registry, Target};
use keelson_supervision::warn_repeated;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, RevisedObject, collection};
use crate::follow::follow;
use crate::queue::{Backoff, Outcome, Queue};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const VERSION: &str = "v1";
const CONDITION: &str = "Dangling";
/// The manager of the condition in `managedFields`.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// The number of conditions that the bootstrap writes concurrently, so that they share commits.
const FILLED_AT_ONCE: usize = 16;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(30) };

/// The controller.
pub struct FlowSchemaStatus {
    registry: Arc<Registry>,
    client: Client,
    schemas: Target,
    levels: Target,
    queue: Queue<Key>,
}

/// The object that has changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Schema(String),
    /// Any priority level. One turn compares all schemas with all levels, since most changes of levels come together.
    Levels,
}

impl FlowSchemaStatus {
    /// Creates a controller over a registry.
    ///
    /// # Errors
    /// 500 when flow schemas or priority levels are not served.
    pub fn new(registry: Arc<Registry>) -> Result<Self, ApiError> {
        let schemas = collection(&registry, GROUP, VERSION, "flowschemas", None)?;
        let levels = collection(&registry, GROUP, VERSION, "prioritylevelconfigurations", None)?;
        let client = Client::of_server(registry.clone(), MANAGER);
        Ok(Self { registry, client, schemas, levels, queue: Queue::new("flow_schema_status", BACKOFF) })
    }

    /// Writes the conditions of all flow schemas as a step of the bootstrap. No authorizer, webhook or policy is
    /// called.
    ///
    /// # Errors
    /// Errors of reading and writing flow schemas.
    pub(crate) fn fill_all(registry: Arc<Registry>) -> BoxFuture<'static, Result<(), ApiError>> {
        Box::pin(async move {
            let client = Client::of_upkeep(registry.clone(), MANAGER);
            let filling = Self { client, ..Self::new(registry)? };
            let all = filling.client.list(&filling.schemas, LabelSelector::everything()).await?;
            let filling = &filling;
            let checks =
                stream::iter(all).map(|RevisedObject { object, .. }| async move { filling.check(object.name()).await });
            let mut checks = pin!(checks.buffer_unordered(FILLED_AT_ONCE));
            while let Some(checked) = checks.next().await {
                match checked {
                    Ok(()) | Err(ApiError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    /// Runs until the server stops.
    pub async fn run(self, stopping: CancellationToken) {
        let caller = self.client.caller();
        let schemas = follow(&self.registry, caller, &self.schemas, FieldSelector::default(), |entry| {
            self.queue.add(Key::Schema(entry.name().to_owned()));
        });
        let levels = follow(&self.registry, caller, &self.levels, FieldSelector::default(), |_| {
            self.queue.add(Key::Levels);
        });
        let work = self.queue.run(1, |key| self.turn(key));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = schemas => match never {},
            never = levels => match never {},
            never = work => match never {},
        }
    }

    async fn turn(&self, key: Key) -> Outcome {
        let done = match &key {
            Key::Schema(name) => self.check(name).await,
            Key::Levels => self.add_wrong_schemas().await,
        };
        match done {
            Ok(()) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(""; ?key, %error, "writing the condition Dangling failed; retrying");
                Outcome::Again
            }
        }
    }

    /// Enqueues the flow schemas whose condition does not fit the current priority levels.
    async fn add_wrong_schemas(&self) -> Result<(), ApiError> {
        let levels = self.client.list(&self.levels, LabelSelector::everything()).await?;
        let levels: HashSet<&str> = levels.iter().map(|stored| stored.object.name()).collect();
        for RevisedObject { object, .. } in self.client.list(&self.schemas, LabelSelector::everything()).await? {
            let level = level_of(&object);
            if !has(&object, &condition(level, levels.contains(level))) {
                self.queue.add(Key::Schema(object.name().to_owned()));
            }
        }
        Ok(())
    }

    /// Writes the condition of one flow schema, if it is missing or wrong.
    async fn check(&self, name: &str) -> Result<(), ApiError> {
        let Some(RevisedObject { object, .. }) = self.client.get(&self.schemas, name).await? else { return Ok(()) };
        let level = level_of(&object);
        let mut condition = condition(level, self.client.get(&self.levels, level).await?.is_some());
        if has(&object, &condition) {
            return Ok(());
        }
        condition["lastTransitionTime"] = rfc3339(self.client.now()).into();
        let document = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "FlowSchema",
            // The uid limits the write to this object. A schema that was deleted and created again is checked after its
            // own event.
            "metadata": { "name": name, "uid": object.uid() },
            "status": { "conditions": [condition] },
        });
        let patch = Patch { kind: PatchKind::Apply, document, faults: Vec::new() };
        let options = PatchOptions { force: Some(true), ..PatchOptions::default() };
        let status = self.schemas.clone().below("status");
        self.registry.apply(&status, name, &patch, self.client.caller(), &options).await.map(drop)
    }
}

/// The priority level that a flow schema names.
fn level_of(schema: &Object) -> &str {
    schema.get(&["spec", "priorityLevelConfiguration", "name"]).and_then(Value::as_str).unwrap_or_default()
}

/// The condition of a flow schema with this level, without a time.
fn condition(level: &str, exists: bool) -> Value {
    let (status, reason, end) = match exists {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let named = quote(level);
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {named} {end}");
    json!({ "type": CONDITION, "status": status, "reason": reason, "message": message })
}

/// Returns true if the flow schema has this condition, at any time.
fn has(schema: &Object, condition: &Value) -> bool {
    let conditions = schema.get(&["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let mut same_type = conditions.filter(|found| found["type"] == CONDITION);
    same_type.any(|found| ["status", "reason", "message"].iter().all(|field| found[*field] == condition[*field]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_conditions_are_not_written_again() {
        let schema = |conditions: Value| Object::from_value(json!({ "status": { "conditions": conditions } })).unwrap();
        let mut stored = condition("p", true);
        stored["lastTransitionTime"] = "2024-01-01T00:00:00Z".into();
        assert!(has(&schema(json!([{ "type": "Own" }, stored])), &condition("p", true)));
        assert!(!has(&schema(json!([stored])), &condition("p", false)));
        assert!(!has(&schema(json!([stored])), &condition("q", true)));
        assert!(!has(&schema(json!([])), &condition("p", true)) && !has(&Object::default(), &condition("p", true)));
        let missing =
            "This FlowSchema references the PriorityLevelConfiguration object named \"p\" but there is no such object";
        assert_eq!(condition("p", false)["message"], missing);
    }
}
