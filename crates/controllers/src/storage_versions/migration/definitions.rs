//! Definitions of custom resources during a migration: what is said of it in them, and the list of stored versions, which is trimmed
//! when everything has been written anew, and not before.

use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};
use keelson_storage::Compare;

use super::objects::{Condition, End, holds, set_condition};
use super::{ATTEMPTS, StorageVersionMigrator, Subject};
use crate::conflicts::retry_conflicts;

const MIGRATING: &str = "StorageMigrating";

impl StorageVersionMigrator {
    /// Whether the definition says that objects may be stored in another version than the subject's.
    pub(super) fn lists_other_versions(&self, subject: &Subject) -> bool {
        let Some(name) = subject.definition() else { return false };
        let Ok(definitions) = self.definitions.collection() else { return false };
        let Some(entry) = definitions.get(&name).filter(|entry| !entry.terminating) else { return false };
        let definition = entry.object.decode(entry.revision);
        storage_version(&definition) == Some(subject.kind.version.as_str())
            && stored_versions(&definition).any(|version| version != subject.kind.version)
    }

    /// Whether the definition says that a migration runs, as far as the cache has come.
    pub(super) fn says_migrating(&self, subject: &Subject) -> bool {
        let Some(name) = subject.definition() else { return false };
        let Ok(definitions) = self.definitions.collection() else { return false };
        definitions.get(&name).is_some_and(|entry| holds(&entry.object.decode(entry.revision), MIGRATING))
    }

    /// Has the definition say that a migration runs.
    ///
    /// # Errors
    /// Those of the verbs.
    pub(super) async fn say_migrating(&self, subject: &Subject, migration: &str) -> Result<(), ApiError> {
        let message = format!("Migration {migration} is running");
        self.edit_definition(subject, Vec::new(), |definition| {
            let observed_generation = definition.generation();
            let message = message.clone();
            let running =
                Condition { kind: MIGRATING, holds: true, reason: "MigrationRunning", message, observed_generation };
            set_condition(definition, &running, self.client.now())
        })
        .await
    }

    /// Has the definition say how a migration ended. After a success its list of stored versions has that one alone, on the
    /// condition that the agreement of the servers stands.
    ///
    /// # Errors
    /// Those of the verbs, of which 503 says that the agreement does not stand.
    pub(super) async fn settle_definition(
        &self,
        subject: &Subject,
        end: &End,
        stands: Option<Compare>,
    ) -> Result<(), ApiError> {
        self.edit_definition(subject, stands.into_iter().collect(), |definition| {
            let is_current = storage_version(definition) == Some(subject.kind.version.as_str());
            let (reason, message) = match end {
                End::Succeeded if is_current => {
                    definition.0.entry("status").or_insert_with(|| json!({}))["storedVersions"] = json!([subject.kind.version]);
                    ("MigrationSucceeded", "The migration has succeeded and the stored versions have been updated")
                }
                End::Succeeded => (
                    "MigrationSucceeded",
                    "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
                ),
                End::Failed(_) => ("MigrationFailed", "The migration has failed"),
            };
            let (message, observed_generation) = (message.to_owned(), definition.generation());
            let over = Condition { kind: MIGRATING, holds: false, reason, message, observed_generation };
            set_condition(definition, &over, self.client.now())
        })
        .await
    }

    /// The same where a migration was deleted, or said to have ended by somebody else, if the definition still says that it runs.
    ///
    /// # Errors
    /// Those of the verbs.
    pub(super) async fn forget_migration(&self, subject: &Subject) -> Result<(), ApiError> {
        self.edit_definition(subject, Vec::new(), |definition| {
            let message = "The migration was given up before it had come to its end".to_owned();
            let observed_generation = definition.generation();
            let over =
                Condition { kind: MIGRATING, holds: false, reason: "MigrationFailed", message, observed_generation };
            holds(definition, MIGRATING) && set_condition(definition, &over, self.client.now())
        })
        .await
    }

    async fn edit_definition(
        &self,
        subject: &Subject,
        conditions: Vec<Compare>,
        edit: impl Fn(&mut Object) -> bool + Send + Sync,
    ) -> Result<(), ApiError> {
        let Some(name) = subject.definition() else { return Ok(()) };
        let status = self.definitions.clone().below("status").named(&name);
        let (edit, status, name, conditions) = (&edit, &status, &name, &conditions);
        let attempt = async || {
            let Some(mut found) = self.client.get(&self.definitions, name).await? else { return Ok(()) };
            if edit(&mut found.object) {
                self.definer.update_while(status, found.object, conditions.clone()).await?;
            }
            Ok(())
        };
        retry_conflicts(ATTEMPTS, attempt).await
    }
}

/// The version that objects are written in.
fn storage_version(definition: &Object) -> Option<&str> {
    let versions = definition.get(&["spec", "versions"])?.as_array()?;
    let stored = versions.iter().find(|version| version.get("storage").and_then(Value::as_bool) == Some(true))?;
    stored.get("name")?.as_str()
}

fn stored_versions(definition: &Object) -> impl Iterator<Item = &str> {
    let listed = definition.get(&["status", "storedVersions"]).and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(Value::as_str)
}
