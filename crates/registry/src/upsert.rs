//! An update of a name that is absent: for some resources it makes the object, as their declarations say
//! (`create_on_update`), so that a client can renew what it holds without asking whether it still is there.

use keelson_meta::error::ConflictKind;
use keelson_meta::options::{CreateOptions, UpdateOptions};
use keelson_meta::{ApiError, Object};

use crate::apply::Applied;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::modified;
use crate::writer::Writer;

/// How often an update begins anew because the object comes and goes under it.
const ATTEMPTS: usize = 8;

impl Registry {
    /// Updates the object of the target's URL, or makes it where there is none and its resource is declared so.
    ///
    /// # Errors
    /// Those of [`Registry::update`] and [`Registry::create`].
    pub async fn update_or_create(
        &self,
        target: &Target,
        name: &str,
        mut sent: impl FnMut() -> Result<Object, ApiError>,
        writer: &Writer,
        options: &UpdateOptions,
    ) -> Result<Applied, ApiError> {
        let creates = target.resource.create_on_update && target.subresource.is_none();
        for _ in 0..ATTEMPTS {
            match self.update(target, name, &mut sent, writer, options).await {
                Err(ApiError::NotFound { .. }) if creates => {}
                updated => return Ok(Applied { written: updated?, created: false }),
            }
            let mut new = sent()?;
            if !new.uid().is_empty() {
                let message = format!("Precondition failed: UID in precondition: {}, UID in object meta: ", new.uid());
                return Err(ApiError::conflict(target.group_resource(), name, ConflictKind::Other(message)));
            }
            let UpdateOptions { dry_run, field_manager, field_validation } = options.clone();
            new.remove_meta("resourceVersion");
            let options = CreateOptions { dry_run, field_manager, field_validation };
            match self.create(target, new, writer, &options).await {
                Err(ApiError::AlreadyExists { .. }) => {}
                created => return Ok(Applied { written: created?, created: true }),
            }
        }
        Err(modified(target, name))
    }
}
