//! Patching an object: the patch is applied to the newest state, and again when somebody was faster.

use keelson_meta::options::PatchOptions;
use keelson_meta::{ApiError, Object};
use keelson_patch::json_patch::{self, Limits};
use keelson_patch::merge_patch;
use serde_json::Value;

use crate::prepare::{fit, object_of};
use crate::registry::Registry;
use crate::target::Target;
use crate::update::replace;
use crate::write::Written;

/// A patch document and how to read it.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The form of the document.
    pub kind: PatchKind,
    /// The document.
    pub document: Value,
}

/// The forms of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// A list of operations (RFC 6902).
    Json,
    /// A partial object (RFC 7396).
    Merge,
}

impl Registry {
    /// Applies a patch to the object of the target's URL.
    ///
    /// # Errors
    /// 404 when there is none; 400 and 422 for a patch that does not apply; 409 when it names a resourceVersion that the
    /// object no longer has.
    pub async fn patch(
        &self,
        target: &Target,
        name: &str,
        patch: &Patch,
        options: &PatchOptions,
    ) -> Result<Written, ApiError> {
        self.change(target, name, options.dry_run, |current| {
            let mut shown = current.object.decode(current.revision);
            shown.set_type(&target.kind());
            let patched = apply(patch, shown)?;
            let mut next = object_of(patched, target.resource.kind)?;
            fit(target, &mut next)?;
            replace(target, name, current, next)
        })
        .await
    }
}

fn apply(patch: &Patch, mut object: Object) -> Result<Value, ApiError> {
    match patch.kind {
        PatchKind::Merge => {
            merge_patch::apply_to_object(&mut object, &patch.document)?;
            Ok(object.into_value())
        }
        PatchKind::Json => Ok(json_patch::apply(&object.into_value(), &patch.document, Limits::default())?),
    }
}
