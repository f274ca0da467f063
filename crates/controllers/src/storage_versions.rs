//! Storage versions (KEP-2339): objects that say in which version each server stores a resource, and whether all agree.
//!
//! Every server publishes what it encodes, decodes and serves before it writes (`publication`); one of them takes away what servers
//! published that are gone (`collection`), and writes anew what lies in the store in another version than all agree on (`migration`).
//! What the objects say is made in `agreement`, which knows no store. In which versions objects may be stored is told besides, for those
//! who upgrade servers (`states`).

mod agreement;
mod collection;
mod entry;
mod migration;
mod publication;
mod states;

use keelson_meta::{ApiError, Object};
use keelson_registry::Target;
use keelson_storage::Compare;

/// Migrations as servers do them that ask another one for the objects in which they say so.
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

use crate::client::{Client, Stored};

const GROUP: &str = "internal.apiserver.k8s.io";
const PLURAL: &str = "storageversions";

/// All storage versions.
///
/// # Errors
/// 500 when they are not served.
fn target(client: &Client) -> Result<Target, ApiError> {
    client.collection(GROUP, "v1alpha1", PLURAL, None)
}

/// Writes the status of a storage version that is still as it was read.
///
/// # Errors
/// 409 when it is not.
async fn update_status(client: &Client, target: &Target, next: Object) -> Result<Stored, ApiError> {
    update_status_if(client, target, next, Vec::new()).await
}

/// The same on these conditions besides.
///
/// # Errors
/// 409 when the object is not as it was read, 503 when they do not hold.
async fn update_status_if(
    client: &Client,
    target: &Target,
    next: Object,
    conditions: Vec<Compare>,
) -> Result<Stored, ApiError> {
    let status = target.clone().below("status").named(next.name());
    client.update_while(&status, next, conditions).await
}
