//! Patches an object: applies the patch to the newest state, and again after a conflict, so that it never loses a race.
//! Its document is parsed once. Server-side apply is in `apply.rs`.

use async_trait::async_trait;
use keelson_cache::Entry;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::Value;
use keelson_meta::options::{FieldValidation, PatchOptions};
use keelson_meta::{ApiError, GroupKind, Object};
use keelson_patch::json_patch::{self, Limits, Operations};
use keelson_patch::{PatchError, go_text, merge_patch, strategic};
use keelson_schema::{Fault, SchemaRef, WalkOptions, WalkReport};

use crate::admission::WriteOptions;
use crate::caller::Caller;
use crate::intake::{check_type, conform, match_url, object_of};
use crate::managed::MANAGED_FIELDS;
use crate::registry::Registry;
use crate::target::Target;
use crate::update::replacement;
use crate::warnings::Warnings;
use crate::write::{Live, Update, UpdateFn, WriteRequest, WriteResult, existing};

/// A patch document and its form.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The form of the document.
    pub kind: PatchKind,
    /// The document.
    pub document: Value,
    /// Duplicate fields of the document, for field validation.
    pub faults: Vec<String>,
}

/// The forms of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// A list of operations (RFC 6902).
    Json,
    /// A partial object (RFC 7396).
    Merge,
    /// A partial object whose lists are merged by the schema of the kind.
    Strategic,
    /// The applied configuration of a field manager (KEP-555).
    Apply,
}

impl Registry {
    /// Applies a patch to the object of the target's URL.
    ///
    /// # Errors
    /// - 404 if the object does not exist
    /// - 400 and 422 for a patch that cannot be applied or leaves an invalid object
    /// - 409 for another resourceVersion
    pub async fn patch(
        &self,
        target: &Target,
        name: &str,
        patch: &Patch,
        caller: &Caller,
        options: &PatchOptions,
    ) -> Result<WriteResult, ApiError> {
        let request = WriteRequest::new(target, name, caller, WriteOptions::Patch(options));
        let mut change = PatchOf {
            target,
            name,
            sent: patch,
            patch: patch.compile(),
            faults: patch.faults(),
            validation: options.field_validation,
            warnings: caller.warnings(),
        };
        self.write(&request, &mut change).await
    }
}

/// A patch of an object: parsed once, and applied to each newer state of the object.
struct PatchOf<'p> {
    target: &'p Target,
    name: &'p str,
    sent: &'p Patch,
    patch: CompiledPatch<'p>,
    /// The faults of the document for field validation.
    faults: Vec<String>,
    validation: FieldValidation,
    warnings: &'p Warnings,
}

#[async_trait]
impl UpdateFn for PatchOf<'_> {
    async fn propose<'s>(&'s mut self, _: &'s Registry, live: Option<&'s Entry>) -> Result<Update, ApiError> {
        let Self { target, name, patch, .. } = self;
        let schema = target.version.schema();
        let live = Live::in_version_of(target, existing(live)?).await?;
        let object = if patch.reaches_owners { live.with_managed_fields() } else { live.object.clone() };
        let mut next = object_of(patch.apply(schema, object)?, &target.resource.kind)?;
        check_type(target, &mut next)?;
        let shaped = conform(target, target.kind(), &mut next, &self.faults, self.validation);
        let minded =
            shaped.map_err(|fault| self.sent.unfit(target, live.with_managed_fields(), self.validation, fault))?;
        self.warnings.extend(minded);
        match_url(target, &mut next)?;
        replacement(target, name, live, next)
    }
}

/// A parsed patch, which can be applied any number of times.
pub struct CompiledPatch<'p> {
    form: Form<'p>,
    /// True if the patch may read or change managedFields.
    reaches_owners: bool,
}

enum Form<'p> {
    /// The operations, or the error of the document, which is reported when it is applied.
    Json(Result<Operations<'p>, PatchError>),
    Merge(&'p Value),
    Strategic(&'p Value),
    /// The result of an apply depends on the owners of the fields; see `managed`.
    Apply,
}

impl CompiledPatch<'_> {
    /// Applies the patch to an object of a kind with this schema.
    ///
    /// # Errors
    /// 400, 413 and 422 for a patch that cannot be applied. 415 for a strategic patch of a kind without a schema.
    pub fn apply(&self, schema: Option<SchemaRef<'_>>, mut object: Object) -> Result<Value, ApiError> {
        match &self.form {
            Form::Merge(document) => {
                merge_patch::apply_to_object(&mut object, document)?;
                Ok(object.into_value())
            }
            Form::Strategic(document) => {
                // Structural schemas have no rules for merging lists.
                let schema = schema.filter(|schema| !schema.is_structural()).ok_or(ApiError::UnsupportedPatchType)?;
                Ok(strategic::apply_to_object(object, document, schema)?.into_value())
            }
            Form::Apply => Err(ApiError::UnsupportedPatchType),
            Form::Json(operations) => Ok(operations.as_ref().map_err(Clone::clone)?.apply(object.into_value())?),
        }
    }
}

impl Patch {
    /// Parses the document.
    pub fn compile(&self) -> CompiledPatch<'_> {
        let form = match self.kind {
            PatchKind::Json => Form::Json(Operations::read(&self.document, Limits::default())),
            PatchKind::Merge => Form::Merge(&self.document),
            PatchKind::Strategic => Form::Strategic(&self.document),
            PatchKind::Apply => Form::Apply,
        };
        CompiledPatch { form, reaches_owners: self.reaches_owners() }
    }

    /// 422: the patched `object` is not an object of its kind, for the reason in `fault`.
    ///
    /// Upstream shows the result of a JSON or merge patch in its order of encoding. For a strategic patch it shows the
    /// patch, and words types differently.
    fn unfit(&self, target: &Target, object: Object, validation: FieldValidation, fault: String) -> ApiError {
        let schema = target.version.schema();
        let (shown, fault) = match self.kind {
            PatchKind::Strategic => {
                let patched = self.apply(schema, object).ok().and_then(Object::from_value);
                (
                    go_text::value(&self.document),
                    patched.and_then(|object| type_fault(schema?, object)).unwrap_or(fault),
                )
            }
            PatchKind::Json | PatchKind::Merge | PatchKind::Apply => {
                let mut patched = self.in_order(schema, object);
                if target.is_custom_kind() {
                    patched.sort_all_keys();
                }
                let again = Object::from_value(patched.clone()).and_then(|mut object| {
                    conform(target, target.kind(), &mut object, &self.faults(), validation).err()
                });
                (patched.to_string(), again.unwrap_or(fault))
            }
        };
        let errors = vec![FieldError::invalid("patch", shown, fault)];
        ApiError::Invalid { kind: GroupKind { group: String::new(), kind: String::new() }, name: String::new(), errors }
    }

    /// The patched object, with the members of changed objects in alphabetical order.
    fn in_order(&self, schema: Option<SchemaRef<'_>>, object: Object) -> Value {
        if self.kind == PatchKind::Json {
            let object = object.into_value();
            return json_patch::apply_in_order(&object, &self.document, Limits::default()).unwrap_or_default();
        }
        let mut patched = self.apply(schema, object).unwrap_or_default();
        merge_patch::order(&mut patched, &self.document);
        patched
    }

    /// Applies the patch once.
    ///
    /// # Errors
    /// As for [`CompiledPatch::apply`].
    pub fn apply(&self, schema: Option<SchemaRef<'_>>, object: Object) -> Result<Value, ApiError> {
        self.compile().apply(schema, object)
    }

    /// Returns true if the patch may read or change managedFields.
    fn reaches_owners(&self) -> bool {
        match self.kind {
            PatchKind::Merge | PatchKind::Strategic | PatchKind::Apply => {
                !self.document["metadata"][MANAGED_FIELDS].is_null() || !self.document["metadata"].is_object()
            }
            PatchKind::Json => {
                let operations = self.document.as_array().into_iter().flatten();
                let mut paths = operations.flat_map(|operation| [&operation["path"], &operation["from"]]);
                paths.any(|path| reaches_owners(path.as_str().unwrap_or_default()))
            }
        }
    }

    /// The faults of the document for field validation.
    pub(crate) fn faults(&self) -> Vec<String> {
        let found = self.faults.iter().cloned();
        match self.kind {
            PatchKind::Merge | PatchKind::Strategic | PatchKind::Apply => found.collect(),
            PatchKind::Json => {
                let faults = unknown_operation_fields(&self.document).chain(found);
                faults.map(|fault| format!("json patch {fault}")).collect()
            }
        }
    }
}

/// Returns true if a JSON pointer names managedFields, a part of them, or an object that contains them.
fn reaches_owners(pointer: &str) -> bool {
    let mut steps = pointer.split('/').skip(1);
    match (steps.next(), steps.next()) {
        (None, _) | (Some("metadata"), None | Some(MANAGED_FIELDS)) => true,
        (Some(_), _) => false,
    }
}

/// The fields of an operation (RFC 6902, section 4).
const OPERATION: [&str; 4] = ["op", "from", "path", "value"];

fn unknown_operation_fields(document: &Value) -> impl Iterator<Item = String> {
    let operations = document.as_array().into_iter().flatten().enumerate();
    operations.flat_map(|(index, operation)| {
        let names = operation.as_object().into_iter().flatten().map(|(name, _)| name);
        let unknown = names.filter(|name| !OPERATION.contains(name));
        unknown.map(move |name| format!("unknown field \"[{index}].{name}\""))
    })
}

/// The first value of a wrong type, in upstream's words for the result of a strategic patch.
fn type_fault(schema: SchemaRef<'_>, mut object: Object) -> Option<String> {
    let mut report = WalkReport::default();
    schema.walk(&mut object, &mut report, WalkOptions::CHECK);
    report.fault().map(Fault::converter_text)
}
