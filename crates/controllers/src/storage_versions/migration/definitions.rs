//! Definitions of custom resources during a migration: their condition, and their list of stored versions.
//!
//! Other versions are removed from the list only after all objects have been rewritten.

use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};
use keelson_storage::Compare;

use super::objects::{Condition, End, holds, set_condition};
use super::{ATTEMPTS, StorageVersionMigrator, Subject};
use crate::conflicts::retry_conflicts;

const MIGRATING: &str = "StorageMigrating";

impl StorageVersionMigrator {
    /// Returns true if the definition lists stored versions other than the subject's.
    pub(super) fn lists_other_versions(&self, subject: &Subject) -> bool {
        let Some(name) = subject.definition() else { return false };
        let Ok(definitions) = self.definitions.collection() else { return false };
        let Some(entry) = definitions.get(&name).filter(|entry| !entry.terminating) else { return false };
        let definition = entry.object().decode(entry.revision);
        storage_version(&definition) == Some(subject.kind.version.as_str())
            && stored_versions(&definition).any(|version| version != subject.kind.version)
    }

    /// Returns true if the cached definition has a running migration.
    pub(super) fn says_migrating(&self, subject: &Subject) -> bool {
        let Some(name) = subject.definition() else { return false };
        let Ok(definitions) = self.definitions.collection() else { return false };
        definitions.get(&name).is_some_and(|entry| holds(&entry.object().decode(entry.revision), MIGRATING))
    }

    /// Sets the condition of the definition for a running migration.
    ///
    /// # Errors
    /// Errors of the verbs.
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

    /// Sets the condition of the definition after a migration. After a success, also removes all other versions from
    /// the stored versions, on the condition that the agreement is unchanged.
    ///
    /// # Errors
    /// Errors of the verbs: 503 when the agreement has changed.
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

    /// Ends the condition of the definition for a migration that was deleted, or that another client ended.
    ///
    /// # Errors
    /// Errors of the verbs.
    pub(super) async fn forget_migration(&self, subject: &Subject) -> Result<(), ApiError> {
        self.edit_definition(subject, Vec::new(), |definition| {
            let message = "The migration was stopped before its end".to_owned();
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
