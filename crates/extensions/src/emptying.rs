//! The deletion of a terminating definition's objects, through the registry, so that finalizers hold. The definition is
//! removed after them.
//!
//! No new objects appear meanwhile: the served resource refuses creates, and a server with an older state detects it at
//! its write.

use keelson_controllers::Outcome;
use keelson_meta::{ApiError, Object};
use keelson_registry::Target;
use keelson_resources::CLEANUP_FINALIZER;
use keelson_supervision::warn_repeated;

use crate::conditions::{self, Condition, TERMINATING};
use crate::definition::Definition;
use crate::extensions::Extensions;
use crate::serving::resource_of;

impl Extensions {
    /// Deletes the objects of a definition, and releases the definition when none is left.
    pub(crate) async fn empty(&self, name: String) -> Outcome {
        match self.empty_and_release(&name).await {
            Ok(true) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            Ok(false) | Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(&name; definition = name, %error, "deleting the objects of a definition failed; retrying");
                Outcome::Again
            }
        }
    }

    /// Empties and releases a definition. Returns true if nothing is left to do.
    async fn empty_and_release(&self, name: &str) -> Result<bool, ApiError> {
        let Some(stored) = self.client.get(&self.definitions, name).await? else { return Ok(true) };
        let mut object = stored.object;
        let definition = Definition::read(&object);
        if !definition.terminating || !definition.holds_objects {
            return Ok(true);
        }
        let last = match self.objects_of(&definition).await {
            Some(objects) => {
                object = self.say_of_deletion(object, in_progress()).await?;
                if !self.client.empty(&objects).await?.is_empty() {
                    return Ok(false);
                }
                Condition::new(TERMINATING, false, "InstanceDeletionCompleted", "removed all instances")
            }
            // A new definition will be served in a moment.
            None if definition.is_served() => return Ok(false),
            None => Condition::new(TERMINATING, false, "NeverEstablished", "resource was never established"),
        };
        let others: Vec<String> =
            object.finalizers().into_iter().filter(|held| *held != CLEANUP_FINALIZER).map(str::to_owned).collect();
        object.set_meta("finalizers", others);
        self.say_of_deletion(object, last).await?;
        Ok(true)
    }

    /// The collection of a definition. `None` if it is not served.
    async fn objects_of(&self, definition: &Definition) -> Option<Target> {
        if !self.serving.serves(definition).await {
            return None;
        }
        let resource = resource_of(definition);
        let surface = self.registry.surface();
        let stored = surface.resource(&resource.group, &resource.resource)?.stored()?.clone();
        surface.stored_target(&stored)
    }

    /// Writes a condition about the progress of deletion. Returns the stored definition.
    async fn say_of_deletion(&self, mut definition: Object, condition: Condition) -> Result<Object, ApiError> {
        let is_released = !definition.finalizers().contains(&CLEANUP_FINALIZER);
        if conditions::set(&mut definition, &condition, self.client.now()) || is_released {
            return Ok(self.update_status(definition).await?.object);
        }
        Ok(definition)
    }
}

fn in_progress() -> Condition {
    let message = "CustomResource deletion is in progress";
    Condition::new(TERMINATING, true, "InstanceDeletionInProgress", message)
}
