//! Server-side apply: an object that says what its sender wants is laid over the one that is, or makes it.

use std::borrow::Cow;

use keelson_meta::error::ConflictKind;
use keelson_meta::json::{Value, json};
use keelson_meta::options::PatchOptions;
use keelson_meta::{ApiError, Object};

use crate::intake::{place, strict};
use crate::kinds;
use crate::managed::{self, Application};
use crate::patch::Patch;
use crate::registry::Registry;
use crate::subresources;
use crate::target::Target;
use crate::update::check_preconditions;
use crate::write::{Draft, Written};
use crate::writer::Writer;

/// How often an apply begins anew because the object comes and goes under it.
const ATTEMPTS: usize = 8;

/// What an apply did.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The object as it now stands.
    pub written: Written,
    /// Whether it was made.
    pub created: bool,
}

impl Registry {
    /// Applies the document to the object of the target's URL, and makes the object if there is none.
    ///
    /// # Errors
    /// 400 for another kind, name or namespace than the URL's; 404 below a subresource of what does not exist; 409 for
    /// fields that others own, unless it is forced, and for another uid or resourceVersion than is stated; 422 and 500 for
    /// what is not valid.
    pub async fn apply(
        &self,
        target: &Target,
        name: &str,
        patch: &Patch,
        writer: &Writer,
        options: &PatchOptions,
    ) -> Result<Applied, ApiError> {
        let object = document(patch)?;
        let warnings = strict(patch.faults().into_iter(), options.field_validation);
        let strict =
            || warnings.clone().map_err(|fault| ApiError::BadRequest(format!("error strict decoding YAML: {fault}")));
        let force = options.force.unwrap_or_default();
        let now = self.now();
        let application = Application { object: &object, manager: writer.manager(), force, now };
        for _ in 0..ATTEMPTS {
            let applied = self.change(target, name, options.dry_run, |current| {
                let mut shown = self.shown(target, current)?;
                let Draft { object: mut next, managed } =
                    managed::apply(target, &mut shown.object, shown.managed, &application)?;
                strict()?;
                place(target, &mut next)?;
                check_preconditions(target, name, &shown.object, &next)?;
                next = subresources::confine(target, &shown.object, next, now)?;
                kinds::complete_update(target, &shown.object, &mut next, now);
                self.settle(target, &shown, Draft { object: next, managed })
            });
            match applied.await {
                // Nobody but the change itself says that the object is not there.
                Err(ApiError::NotFound { .. }) if target.subresource.is_none() => {}
                applied => {
                    return Ok(Applied { written: Written { warnings: strict()?, ..applied? }, created: false });
                }
            }
            let new = self.first(target, name, &application)?;
            let warnings = strict()?;
            if let Some(written) = self.create_tracked(target, new, writer, options.dry_run).await? {
                return Ok(Applied { written: Written { warnings, ..written }, created: true });
            }
        }
        Err(ApiError::conflict(target.group_resource(), name, ConflictKind::Modified))
    }

    /// The object that an apply makes where there is none.
    fn first(&self, target: &Target, name: &str, application: &Application<'_>) -> Result<Draft, ApiError> {
        let mut nothing = Object::from_value(target.version.empty().clone()).unwrap_or_default();
        let Draft { mut object, managed } = managed::apply(target, &mut nothing, None, application)?;
        if !object.uid().is_empty() {
            let message = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                object.uid()
            );
            return Err(ApiError::conflict(target.group_resource(), name, ConflictKind::Other(message)));
        }
        object.remove_meta("resourceVersion");
        place(target, &mut object)?;
        kinds::complete_new(target, &mut object, application.now);
        Ok(Draft { object, managed })
    }
}

/// The document, which has to be an object.
///
/// # Errors
/// 400 when it is none.
pub(crate) fn document(patch: &Patch) -> Result<Cow<'_, Value>, ApiError> {
    match &patch.document {
        // Nothing applied is an object of no kind, which is refused as such.
        Value::Null => Ok(Cow::Owned(json!({}))),
        object @ Value::Object(_) => Ok(Cow::Borrowed(object)),
        _ => Err(ApiError::BadRequest(
            "error decoding YAML: error unmarshaling JSON: the document is no object".to_owned(),
        )),
    }
}
