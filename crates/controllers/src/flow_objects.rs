//! Creates and maintains the mandatory and the suggested flow schemas and priority levels (KEP-1040, "Default
//! Behavior").
//!
//! Missing objects are created. The annotation `apf.kubernetes.io/autoupdate-spec` states who owns the spec of an
//! object: with `true` the controller restores the suggested spec, with `false` the operator's spec stays. An object
//! without the annotation gets one: `false` if its spec was ever changed, else `true`. Mandatory objects are always
//! restored, except the seats of the level `exempt`. Objects with the annotation `true` that this release no longer
//! suggests are deleted.

use std::sync::Arc;
use std::time::Duration;

use keelson_fairness::{EXEMPT, defaults};
use keelson_meta::json::{Map, Value};
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};
use keelson_supervision::warn_repeated;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, RevisedObject};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// The field manager, as upstream.
const MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
/// The number of attempts to write an object that other writers change.
const ATTEMPTS: usize = 4;

/// The controller.
pub struct FlowObjects {
    client: Client,
    interval: Duration,
}

impl FlowObjects {
    /// The default interval between checks of all objects, as upstream.
    pub const INTERVAL: Duration = Duration::from_secs(60);

    /// Creates a controller over a registry, with this interval between checks of all objects.
    pub fn new(registry: Arc<Registry>, interval: Duration) -> Self {
        Self { client: Client::of_upkeep(registry, MANAGER), interval }
    }

    /// Checks all objects after each interval, until the server stops. The bootstrap creates missing objects at start.
    pub async fn run(self, stopping: CancellationToken) {
        let keeping = async {
            loop {
                tokio::time::sleep(self.interval).await;
                if let Err(error) = self.keep().await {
                    warn_repeated!(""; %error, "updating the default flow schemas and priority levels failed; retrying");
                }
            }
        };
        let _: Option<()> = stopping.run_until_cancelled(keeping).await;
    }

    /// Creates, restores and deletes all flow control objects as needed.
    ///
    /// # Errors
    /// Errors of reading or writing an object. The other objects are written nevertheless.
    pub async fn keep(&self) -> Result<(), ApiError> {
        let levels = self.keep_all("prioritylevelconfigurations", defaults::priority_level_objects()).await;
        let schemas = self.keep_all("flowschemas", defaults::flow_schema_objects()).await;
        levels.and(schemas)
    }

    async fn keep_all(&self, plural: &str, suggested: Vec<Value>) -> Result<(), ApiError> {
        let target = self.client.collection(GROUP, "v1", plural, None)?;
        let mut outcome = Ok(());
        for stored in self.client.list(&target, LabelSelector::everything()).await? {
            let is_kept = annotation(&stored.object) == Some("true");
            let is_known = suggested.iter().any(|value| value["metadata"]["name"] == stored.object.name());
            if is_kept && !is_known && !defaults::is_mandatory(stored.object.name()) {
                outcome = outcome.and(self.client.delete(&target, &stored).await);
            }
        }
        for value in suggested {
            outcome = outcome.and(self.keep_one(&target, value).await);
        }
        outcome
    }

    async fn keep_one(&self, target: &Target, suggested: Value) -> Result<(), ApiError> {
        let name = suggested["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut attempts = ATTEMPTS;
        loop {
            let Some(RevisedObject { object, .. }) = self.client.get(target, &name).await? else {
                return match self.client.create(target, suggested.clone()).await {
                    Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
                    Err(error) => Err(error),
                };
            };
            let Some(kept) = updated(&object, &suggested) else { return Ok(()) };
            attempts -= 1;
            match self.client.update(target, kept).await {
                Err(ApiError::Conflict { .. }) if attempts > 0 => {}
                Ok(_) | Err(ApiError::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn annotation(object: &Object) -> Option<&str> {
    object.annotations().find(|(name, _)| *name == defaults::AUTO_UPDATE).map(|(_, value)| value)
}

/// The object with the right annotation and spec; `None` if it needs no change.
fn updated(object: &Object, suggested: &Value) -> Option<Object> {
    let is_mandatory = defaults::is_mandatory(object.name());
    let is_kept = is_mandatory
        || match annotation(object) {
            Some("true") => true,
            Some("false") => false,
            // Generation 1: the spec has not changed since the object was created.
            Some(_) | None => object.generation() == Some(1),
        };
    let mut kept = object.clone();
    let mark = if is_kept { "true" } else { "false" };
    if annotation(object) != Some(mark) {
        let metadata = kept.metadata_mut();
        let mut annotations = match metadata.get("annotations") {
            Some(Value::Object(annotations)) => annotations.clone(),
            Some(_) | None => Map::new(),
        };
        annotations.insert(defaults::AUTO_UPDATE, Value::from(mark));
        metadata.insert("annotations", Value::Object(annotations));
    }
    let is_exempt_level = object.name() == EXEMPT && object.get(&["spec", "exempt"]).is_some();
    if is_kept && !is_exempt_level && object.get(&["spec"]) != Some(&suggested["spec"]) {
        kept.0.insert("spec", suggested["spec"].clone());
    }
    (kept != *object).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::json;

    fn check(object: Value, suggested: &Value, expect: Option<&Value>) {
        let object = Object::from_value(object).unwrap();
        let kept = updated(&object, suggested).map(Object::into_value);
        assert_eq!(kept.as_ref(), expect, "{object:?}");
    }

    fn object(name: &str, generation: u32, mark: Option<&str>, spec: &Value) -> Value {
        let mut metadata = json!({ "name": name, "generation": generation });
        if let Some(mark) = mark {
            metadata["annotations"] = json!({ "apf.kubernetes.io/autoupdate-spec": mark });
        }
        json!({ "metadata": metadata, "spec": spec })
    }

    #[test]
    fn the_annotation_states_whether_a_spec_is_kept() {
        let (own, usual) = (json!({ "a": 1 }), json!({ "a": 2 }));
        let suggested = object("s", 1, Some("true"), &usual);
        check(object("s", 1, Some("true"), &usual), &suggested, None);
        check(object("s", 2, Some("true"), &own), &suggested, Some(&object("s", 2, Some("true"), &usual)));
        check(object("s", 2, Some("false"), &own), &suggested, None);
        check(object("s", 2, None, &own), &suggested, Some(&object("s", 2, Some("false"), &own)));
        check(object("s", 1, None, &own), &suggested, Some(&object("s", 1, Some("true"), &usual)));
        let mandatory = object("catch-all", 1, Some("true"), &usual);
        check(
            object("catch-all", 3, Some("false"), &own),
            &mandatory,
            Some(&object("catch-all", 3, Some("true"), &usual)),
        );
    }

    #[test]
    fn the_seats_of_the_exempt_level_are_the_operators() {
        let (own, usual) = (json!({ "exempt": { "nominalConcurrencyShares": 9 } }), json!({ "exempt": {} }));
        check(object("exempt", 2, Some("true"), &own), &object("exempt", 1, Some("true"), &usual), None);
    }
}
