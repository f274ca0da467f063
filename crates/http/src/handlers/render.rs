//! Encodes stored objects in a version, a form and an encoding.
//!
//! Invariant: objects have the fields of the requested version, since the caller converts them first. Canonical bytes
//! are copied if the client requests them. Everything else is encoded one object at a time. Handlers select the
//! objects, and only this module knows encodings.

mod list;
mod object;
mod unstored;
mod watch;

use std::time::SystemTime;

use keelson_codec::{Outline, StoredObject, json};
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object, Revision};
use keelson_registry::{Registry, Target, VersionedView};
use keelson_resources::SubresourceHandler;
use keelson_tables::Printer;
use keelson_tables::wire::{IncludeObject, MetaVersion, Row, write_partial};

pub(super) use list::{ListWriter, LongItem, Part};
pub(super) use watch::EventEncoder;

use super::CREATE;
use crate::negotiation::{MediaType, ObjectForm, Origin, Representation, Subject, negotiate_representation};
use crate::service::ApiRequest;
use crate::shares::Holder;

/// Fields of a spec that no column of a built-in kind needs. They are skipped when rows are built.
const PASSED_OVER: &[&str] = &[
    "affinity",
    "args",
    "command",
    "env",
    "envFrom",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "tolerations",
    "topologySpreadConstraints",
    "volumeMounts",
    "volumes",
];

/// An order of rows.
pub(super) type RowOrder = fn(&Object, &Object) -> std::cmp::Ordering;

/// Encodes the objects of one request.
#[derive(Clone)]
pub(super) struct Renderer {
    view: VersionedView,
    representation: Representation,
    printer: Printer,
    include: IncludeObject,
    now: SystemTime,
    /// The user, for the memory of the response.
    holder: Holder,
}

/// The type of a response in upstream's code: a type of the group's package, or the generic one.
fn go_type(target: &Target, subject: Subject) -> String {
    let resource = &target.resource;
    let list = if subject == Subject::List { "List" } else { "" };
    if !resource.is_builtin() {
        return format!("*unstructured.Unstructured{list}");
    }
    let group = resource.default_storage_kind().map_or_else(|| resource.group.to_string(), |stored| stored.group);
    let package = match group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    format!("*{package}.{}{list}", target.kind().kind)
}

impl Renderer {
    /// Selects the representation of `subject` that the client requests.
    ///
    /// # Errors
    /// 406 for an unsupported one, 400 for an invalid `includeObject`.
    pub(super) fn negotiate(
        registry: &Registry,
        target: &Target,
        request: &ApiRequest,
        subject: Subject,
    ) -> Result<Self, ApiError> {
        let handler = target.subresource.as_ref().map(|below| below.handler);
        let is_created = request.info.verb == CREATE;
        let origin = match (target.resource.is_builtin(), handler) {
            (_, Some(SubresourceHandler::Binding | SubresourceHandler::Eviction | SubresourceHandler::Token)) => {
                Origin::Unstored
            }
            (true, _) if is_created && target.stored().is_none() => Origin::Unstored,
            (true, _) => Origin::Builtin,
            (false, Some(SubresourceHandler::Scale)) => Origin::BelowCustom,
            (false, _) => Origin::Custom,
        };
        let representation = negotiate_representation(&request.parts, subject, origin, || go_type(target, subject))?;
        let include = match representation.object_form {
            ObjectForm::Table(_) => {
                let stated = request.query.pairs().get("includeObject").unwrap_or_default();
                IncludeObject::parse(stated).map_err(ApiError::BadRequest)?
            }
            ObjectForm::Whole | ObjectForm::Metadata(_) => IncludeObject::default(),
        };
        Ok(Self {
            view: target.view(),
            representation,
            printer: target.version.printer().clone(),
            include,
            now: registry.now(),
            holder: Holder::of_user(request.caller.user()),
        })
    }

    /// The encoding.
    pub(super) fn media(&self) -> MediaType {
        self.representation.media
    }

    /// Returns true if objects are sent without `metadata.managedFields`.
    pub(super) fn drops_managed_fields(&self) -> bool {
        self.representation.drops_managed_fields
    }

    /// Returns true if whole objects are sent, in any encoding, and not rows or metadata.
    pub(super) fn shows_whole_objects(&self) -> bool {
        matches!(self.representation.object_form, ObjectForm::Whole)
    }

    /// The order of the rows of a page, for the few kinds whose tables have one.
    pub(super) fn row_order(&self) -> Option<RowOrder> {
        match self.representation.object_form {
            ObjectForm::Table(_) => self.printer.order(),
            ObjectForm::Whole | ObjectForm::Metadata(_) => None,
        }
    }

    /// The requested version.
    pub(super) fn view(&self) -> &VersionedView {
        &self.view
    }

    /// The decoded object, which must have the fields of the requested version.
    ///
    /// # Errors
    /// 500 otherwise.
    pub(super) fn decode(&self, object: &StoredObject, revision: Revision) -> Result<Object, ApiError> {
        self.view.decode(object, revision)
    }

    /// Appends the row of an object.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn write_row(
        &self,
        version: MetaVersion,
        object: &StoredObject,
        revision: Revision,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        let whole;
        let outline = if self.printer.reads_all() {
            whole = object.text();
            Outline::read(&whole)
        } else {
            // No column of a built-in kind needs managed fields.
            Outline::read_sparsely(object.skeleton_text(), PASSED_OVER)
        };
        let cells = self.printer.cells(&outline, self.now);
        let mut written = Ok(());
        let included = |out: &mut Vec<u8>| match self.include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => {
                let metadata = |out: &mut Vec<u8>| written = self.write_row_metadata(object, revision, out);
                write_partial(version, metadata, out);
            }
            IncludeObject::Object => written = self.view.write_object(object, revision, out),
        };
        Row { cells: &cells, conditions: self.printer.conditions(&outline) }.write(included, out);
        written
    }
}

impl Renderer {
    /// Appends the metadata in the row of an object.
    fn write_row_metadata(&self, object: &StoredObject, revision: Revision, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let unshown = self.printer.unshown_annotations();
        if !unshown.iter().any(|annotation| object.skeleton_text().contains(annotation)) {
            object.write_metadata(revision, out);
            return Ok(());
        }
        let mut shown = self.decode(object, revision)?.into_value();
        let Some(metadata) = shown.get_mut("metadata").and_then(Value::as_object_mut) else { return Ok(()) };
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|annotation, _| !unshown.contains(&annotation));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        json::write(&shown["metadata"], out);
        Ok(())
    }
}

/// Appends the metadata of an object alone.
fn write_metadata(version: MetaVersion, object: &StoredObject, revision: Revision, out: &mut Vec<u8>) {
    write_partial(version, |out| object.write_metadata(revision, out), out);
}
