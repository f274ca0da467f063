//! Server-side apply: merges the applied configuration of a client into an object, or creates it.
//!
//! The document is a set of fields that the client owns from now on. Fields that it owned and no longer applies are
//! removed. Fields of others conflict unless the request forces it. `patch` has the field sets, and `managed` the
//! owners.

use std::borrow::Cow;

use async_trait::async_trait;
use keelson_cache::Entry;
use keelson_meta::error::ConflictKind;
use keelson_meta::go_format::kind;
use keelson_meta::json::{Value, json};
use keelson_meta::options::PatchOptions;
use keelson_meta::{ApiError, Object};

use crate::admission::WriteOptions;
use crate::caller::Caller;
use crate::intake::{match_url, strict};
use crate::managed::{self, Application};
use crate::patch::Patch;
use crate::registry::Registry;
use crate::target::Target;
use crate::update::check_preconditions;
use crate::warnings::Warnings;
use crate::write::{Live, Ownership, Update, UpdateFn, WriteRequest, WriteResult};

impl Registry {
    /// Applies the document to the object of the URL, and creates the object if it does not exist.
    ///
    /// # Errors
    /// - 400 for another kind, name or namespace than the URL's
    /// - 404 for a subresource of an object that does not exist
    /// - 409 for fields of other owners, unless forced, and for another uid or resourceVersion
    /// - 422 and 500 for an invalid object
    pub async fn apply(
        &self,
        target: &Target,
        name: &str,
        patch: &Patch,
        caller: &Caller,
        options: &PatchOptions,
    ) -> Result<WriteResult, ApiError> {
        let object = document(patch)?;
        let options_of = WriteOptions::Patch(options);
        // Without owners, the next apply would find all fields owned by `before-first-apply`.
        let request = WriteRequest { keeps_owners: true, ..WriteRequest::new(target, name, caller, options_of) };
        let force = options.force.unwrap_or_default();
        let mut apply = Apply {
            target,
            name,
            application: Application { object: &object, manager: caller.field_manager(), force, now: self.now() },
            is_checked: false,
            warnings: caller.warnings(),
            minded: strict(patch.faults().into_iter(), options.field_validation)
                .map_err(|fault| ApiError::BadRequest(format!("error strict decoding YAML: {fault}"))),
        };
        self.write(&request, &mut apply).await
    }
}

/// Applies a document to an object, or creates the object.
struct Apply<'a> {
    target: &'a Target,
    name: &'a str,
    application: Application<'a>,
    /// The result of field validation. Upstream reports it after the conflicts.
    minded: Result<Vec<String>, ApiError>,
    warnings: &'a Warnings,
    is_checked: bool,
}

impl Apply<'_> {
    /// Returns the error of field validation, or records its warnings.
    fn mind(&self) -> Result<(), ApiError> {
        self.warnings.extend(self.minded.clone()?);
        Ok(())
    }
}

#[async_trait]
impl UpdateFn for Apply<'_> {
    fn makes(&self) -> bool {
        self.target.subresource.is_none()
    }

    async fn propose<'s>(&'s mut self, _: &'s Registry, live: Option<&'s Entry>) -> Result<Update, ApiError> {
        if !std::mem::replace(&mut self.is_checked, true) {
            managed::check(self.target, &self.application)?;
        }
        let Self { target, name, application, .. } = &*self;
        let Some(live) = live else {
            let mut nothing = Object::from_value(target.version.empty().clone()).unwrap_or_default();
            let applied = managed::apply(target, &mut nothing, None, application).await?;
            let (mut object, managed_fields) = applied;
            if !object.uid().is_empty() {
                let message = format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    object.uid()
                );
                return Err(ApiError::conflict(target.group_resource(), *name, ConflictKind::Other(message)));
            }
            object.remove_meta("resourceVersion");
            match_url(target, &mut object)?;
            self.mind()?;
            return Ok(Update::New(object, Ownership::Known(managed_fields)));
        };
        let mut live = Live::in_version_of(target, live).await?;
        let applied = managed::apply(target, &mut live.object, live.managed_fields.as_deref(), application).await?;
        let (mut next, managed_fields) = applied;
        self.mind()?;
        match_url(target, &mut next)?;
        check_preconditions(target, name, &live.object, &next)?;
        Ok(Update::Content { live, next, ownership: Ownership::Known(managed_fields) })
    }
}

/// The document as an object.
///
/// # Errors
/// 400 if the document is not an object.
pub(crate) fn document(patch: &Patch) -> Result<Cow<'_, Value>, ApiError> {
    match &patch.document {
        // An empty document becomes an object without a kind, and gets the error of such an object.
        Value::Null => Ok(Cow::Owned(json!({}))),
        object @ Value::Object(_) => Ok(Cow::Borrowed(object)),
        other => {
            let decoder = "error decoding YAML: error unmarshaling JSON: while decoding JSON";
            let fault =
                format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", kind(other));
            Err(ApiError::BadRequest(format!("{decoder}: {fault}")))
        }
    }
}
