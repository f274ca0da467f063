//! Storage versions (KEP-2339): an object for each resource states the version in which each server stores it, and
//! whether all servers agree.
//!
//! Before it writes, every server publishes the versions that it encodes, decodes and serves (`publication`). One
//! server removes the entries of dead servers (`collection`), and rewrites objects that are stored in another version
//! than the agreed one (`migration`). `agreement` computes the status of an object and accesses no store. `states`
//! keeps a summary for users who upgrade servers.

mod agreement;
mod collection;
mod entry;
mod migration;
mod publication;
mod states;

use keelson_meta::{ApiError, Object};
use keelson_registry::Target;
use keelson_storage::Compare;

/// The parts of migrations that aggregated servers use, which request the migration objects from the main server.
pub mod migrations {
    pub use super::migration::objects::{
        AUTOMATIC_LABEL, End, has_ended, is_running, say_ended, say_progress, say_running, stated_total, subject,
    };
    pub use super::migration::{Failures, Rewriter, Subject, superseded};
}

pub use collection::StorageVersionCollection;
pub use entry::StorageVersionEntry;
pub use migration::StorageVersionMigrator;
pub use publication::{Publication, StorageVersionPublication};
pub use states::storage_state_definition;

use crate::client::{Client, RevisedObject};

const GROUP: &str = "internal.apiserver.k8s.io";
const PLURAL: &str = "storageversions";

/// The collection of all storage versions.
///
/// # Errors
/// 500 when they are not served.
fn target(client: &Client) -> Result<Target, ApiError> {
    client.collection(GROUP, "v1alpha1", PLURAL, None)
}

/// Writes the status of a storage version that has not changed since it was read.
///
/// # Errors
/// 409 when it has changed.
async fn update_status(client: &Client, target: &Target, next: Object) -> Result<RevisedObject, ApiError> {
    update_status_if(client, target, next, Vec::new()).await
}

/// Writes the status of a storage version if the conditions hold.
///
/// # Errors
/// 409 when the object has changed, 503 when a condition does not hold.
async fn update_status_if(
    client: &Client,
    target: &Target,
    next: Object,
    conditions: Vec<Compare>,
) -> Result<RevisedObject, ApiError> {
    let status = target.clone().below("status").named(next.name());
    Ok(client.update_while(&status, next, conditions).await?.read())
}
