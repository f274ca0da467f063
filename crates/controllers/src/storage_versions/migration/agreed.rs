//! The agreement of all servers on a resource's storage version.
//!
//! A migration reads it at the start, and requires at the end that it has not changed.

use keelson_meta::ApiError;
use keelson_meta::label_selector::LabelSelector;
use keelson_storage::{Compare, Condition, StoreKey};

use super::{StorageVersionMigrator, Subject};
use crate::identity::{IDENTITY_LABEL, IDENTITY_VALUE};
use crate::storage_versions::agreement::{disagreement, servers};

/// Proof that all servers write a resource in this server's version.
pub(super) struct Agreement {
    /// The condition on a write that the storage version is unchanged since it was read.
    pub(super) stands: Compare,
}

impl StorageVersionMigrator {
    /// Returns the agreement of all servers, read from the store after the call began, or the reason why there is none.
    ///
    /// # Errors
    /// Errors of reading.
    pub(super) async fn agreement(&self, subject: &Subject) -> Result<Result<Agreement, String>, ApiError> {
        let name = subject.version_name();
        let Some(found) = self.client.get(&self.versions, &name).await? else {
            return Ok(Err(format!("no server has published its storage version of {}", subject.resource)));
        };
        if let Some(why) = disagreement(&found.object, &subject.version()) {
            return Ok(Err(why));
        }
        // A server that may write but has not published counts as disagreeing.
        let selector = LabelSelector::everything().and_label(IDENTITY_LABEL, IDENTITY_VALUE);
        for lease in self.client.list(&self.leases, selector).await? {
            if !servers(&found.object).any(|server| server == lease.object.name()) {
                let server = lease.object.name();
                return Ok(Err(format!(
                    "the server {server} has not published in which version it stores {}",
                    subject.resource
                )));
            }
        }
        let key = StoreKey::new(format!("{}{name}", self.versions.collection()?.prefix()));
        Ok(Ok(Agreement { stands: Compare { key, condition: Condition::At(found.revision) } }))
    }

    /// The reason why the servers do not agree, by this server's cache, without a read of the store; `None` where they
    /// do.
    pub(super) fn known_disagreement(&self, subject: &Subject) -> Option<String> {
        let Ok(versions) = self.versions.collection() else {
            return Some("storage versions are not served".to_owned());
        };
        let Some(entry) = versions.get(&subject.version_name()) else {
            return Some(format!("no server has published its storage version of {}", subject.resource));
        };
        disagreement(&entry.object().decode(entry.revision), &subject.version())
    }
}
