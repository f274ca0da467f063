//! Builds the `Status` of each kind of error: text, reason, code and details.
//!
//! Only [`ApiError::status`](super::ApiError::status) calls these.

use std::borrow::Cow;

use super::{ApiError, ConflictKind, ExpiredKind, ForbiddenDetail, MediaTypes, NotAcceptableForm};
use crate::control_characters::visible;
use crate::field_error::{self, FieldError, TOLD_BYTES_MAX, TOLD_MAX};
use crate::go_format::quote;
use crate::gvk::{GroupKind, GroupResource};
use crate::revision::Revision;
use crate::status::{Status, StatusCause, StatusDetails};

/// `Retry-After` for a revision that the server has not reached yet, in seconds.
const RETRY_REVISION_SECONDS: u32 = 1;
/// `Retry-After` if all generated names were taken, in seconds.
const RETRY_GENERATE_NAME_SECONDS: u32 = 1;
/// The maximum size of a name or a reason in bytes: that of a URL, in which names arrive.
const NAME_BYTES_MAX: usize = 64 * 1024;

pub(super) fn failure(code: u16, reason: &str, message: String) -> Status {
    Status::failure(code, Some(reason), message)
}

/// A failure without a reason, as upstream returns for errors that it does not classify.
pub(super) fn unclassified(message: &str) -> Status {
    Status::failure(500, None, message.to_owned())
}

/// The URL or the header fields are over the limit. Upstream has no reason for this.
pub(super) fn long_head(error: &ApiError) -> Status {
    let (code, part, limit) = match error {
        ApiError::UrlTooLong { limit } => (414, "URL of a request has", limit),
        ApiError::HeadTooLarge { limit } => (431, "header fields of a request have", limit),
        _ => return unclassified("the error is about no head"),
    };
    Status::failure(code, None, format!("the {part} at most {limit} bytes"))
}

/// A temporary failure, with the time until a retry if known.
pub(super) fn unavailable(message: &str, retry_after_seconds: Option<u32>) -> Status {
    let status = failure(503, "ServiceUnavailable", message.to_owned());
    Status { details: retry_after_seconds.map(retry_after), ..status }
}

/// A failure with empty details, as in upstream's generic responses.
pub(super) fn bare(code: u16, reason: &str, message: &str) -> Status {
    failure(code, reason, message.to_owned()).with_details(StatusDetails::default())
}

pub(super) fn about(resource: &GroupResource, name: &str) -> StatusDetails {
    StatusDetails {
        name: name.to_owned(),
        group: resource.group.clone(),
        kind: resource.resource.clone(),
        ..StatusDetails::default()
    }
}

pub(super) fn retry_after(seconds: u32) -> StatusDetails {
    StatusDetails { retry_after_seconds: seconds, ..StatusDetails::default() }
}

pub(super) fn forbidden(detail: &ForbiddenDetail) -> Status {
    let ForbiddenDetail { user, verb, resource, name, namespace, path, subresource, reason } = detail;
    let user = quote(user);
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let Some(resource) = resource else {
        let path = quote(path.as_deref().unwrap_or_default());
        return bare(403, "Forbidden", &format!("forbidden: User {user} cannot {verb} path {path}{reason}"));
    };
    let target = match subresource {
        Some(subresource) => quote(&format!("{}/{subresource}", resource.resource)),
        None => quote(&resource.resource),
    };
    let place = match namespace {
        Some(namespace) => format!("in the namespace {}", quote(namespace)),
        None => "at the cluster scope".to_owned(),
    };
    let group = quote(&resource.group);
    let message = format!("User {user} cannot {verb} resource {target} in API group {group} {place}{reason}");
    refused(resource, name, &message)
}

pub(super) fn refused(resource: &GroupResource, name: &str, message: &str) -> Status {
    let subject = if name.is_empty() { resource.to_string() } else { format!("{resource} {}", quote(name)) };
    failure(403, "Forbidden", format!("{subject} is forbidden: {message}")).with_details(about(resource, name))
}

pub(super) fn not_acceptable(accepted: &NotAcceptableForm) -> Status {
    let refused = |message: String| failure(406, "NotAcceptable", message);
    match accepted {
        NotAcceptableForm::Router(types) => bare(
            406,
            "NotAcceptable",
            &format!("406: Not Acceptable\n\nAvailable representations: {}", types.join(", ")),
        ),
        NotAcceptableForm::MediaTypes(types) => {
            refused(format!("only the following media types are accepted: {}", types.join(", ")))
        }
        NotAcceptableForm::MetadataOfList(list) => {
            refused(format!("you requested PartialObjectMetadata, but the requested object is a list ({list})"))
        }
        NotAcceptableForm::MetadataListOfObject(object) => refused(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({object})"
        )),
    }
}

pub(super) fn conflict(resource: &GroupResource, name: &str, kind: &ConflictKind) -> Status {
    let (subject, message) = match kind {
        ConflictKind::Modified => (
            None,
            "the object has been modified; please apply your changes to the latest version and try again".to_owned(),
        ),
        ConflictKind::UidPrecondition { kind, wanted, actual } => (
            Some(kind),
            format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({actual}). \
                 The object might have been deleted and then recreated"
            ),
        ),
        ConflictKind::RevisionPrecondition { kind, wanted, actual } => (
            Some(kind),
            format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({actual}). The object might have been modified"
            ),
        ),
        ConflictKind::Other(message) => (None, message.clone()),
    };
    let subject = match subject {
        Some(kind) => GroupResource { group: resource.group.clone(), resource: kind.clone() },
        None => resource.clone(),
    };
    failure(409, "Conflict", format!("Operation cannot be fulfilled on {subject} {}: {message}", quote(name)))
        .with_details(about(&subject, name))
}

/// Truncates texts over the limit. A webhook chooses all texts of its refusal. The value of a fault is in Go's notation
/// with visible control characters, which is up to nine times as long as in the client's object.
pub(super) fn bound(status: &mut Status, has_faults: bool) {
    // The faults have this limit already, and the text around them contains the name.
    cut(&mut status.message, TOLD_BYTES_MAX + if has_faults { NAME_BYTES_MAX } else { 0 });
    status.reason.iter_mut().for_each(|reason| cut(reason, NAME_BYTES_MAX));
    let Some(details) = &mut status.details else { return };
    for name in [&mut details.name, &mut details.group, &mut details.kind, &mut details.uid] {
        cut(name, NAME_BYTES_MAX);
    }
    details.causes.truncate(TOLD_MAX);
    let mut left = TOLD_BYTES_MAX;
    for cause in &mut details.causes {
        for text in [&mut cause.reason, &mut cause.field, &mut cause.message] {
            cut(text, left);
            left = left.saturating_sub(text.len());
        }
    }
}

/// Truncates a text to this many bytes, and appends the number of the others. Nothing is left of a text without room.
fn cut(text: &mut String, most: usize) {
    if text.len() <= most {
        return;
    }
    let end = text.floor_char_boundary(most);
    let more = text.len() - end;
    text.truncate(end);
    if end > 0 {
        text.push_str(&format!("..., and {more} bytes more"));
    }
}

/// Makes control characters visible in the texts of a status. Such texts may come from webhooks, converters, policies
/// and stored objects, and clients print them to terminals.
pub(super) fn make_visible(status: &mut Status) {
    show(&mut status.message);
    status.reason.iter_mut().for_each(show);
    let Some(details) = &mut status.details else { return };
    [&mut details.name, &mut details.group, &mut details.kind, &mut details.uid].into_iter().for_each(show);
    for cause in &mut details.causes {
        [&mut cause.reason, &mut cause.message, &mut cause.field].into_iter().for_each(show);
    }
}

fn show(text: &mut String) {
    if let Cow::Owned(shown) = visible(text) {
        *text = shown;
    }
}

pub(super) fn apply_conflict(message: &str, causes: &[StatusCause]) -> Status {
    failure(409, "Conflict", message.to_owned())
        .with_details(StatusDetails { causes: causes.to_vec(), ..StatusDetails::default() })
}

pub(super) fn expired(kind: ExpiredKind, continue_token: Option<&String>) -> Status {
    let message = match kind {
        ExpiredKind::ContinueToken => "The provided continue parameter is too old to display a consistent list result. \
            You can start a new list without the continue parameter, or use the continue token in this response to \
            retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - \
            objects that were created, modified, or deleted between the time the first chunk was returned and now may \
            show up in the list."
            .to_owned(),
        ExpiredKind::ContinueTokenNoRest => "The provided continue parameter is too old to display a consistent list \
            result. You must start a new list without the continue parameter."
            .to_owned(),
        ExpiredKind::ListRevision => "The resourceVersion for the provided list is too old.".to_owned(),
        ExpiredKind::WatchRevision => "The resourceVersion for the provided watch is too old.".to_owned(),
        ExpiredKind::WatchTooOld { requested, oldest } => format!("too old resource version: {requested} ({oldest})"),
    };
    let mut status = failure(410, "Expired", message);
    status.metadata.continue_token = continue_token.cloned();
    status
}

pub(super) fn too_large(why: &str) -> Status {
    failure(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
}

pub(super) fn object_too_large(bytes: usize, limit: usize) -> Status {
    too_large(&format!(
        "the object takes {bytes} bytes in the store, and --max-object-bytes of the server allows {limit}"
    ))
}

pub(super) fn method_not_supported(resource: &GroupResource, verb: &str) -> Status {
    let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
    failure(405, "MethodNotAllowed", message).with_details(about(resource, ""))
}

pub(super) fn unsupported_media_type(accepted: MediaTypes) -> Status {
    let accepted = accepted.join(", ");
    failure(
        415,
        "UnsupportedMediaType",
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
    )
}

pub(super) fn store_read(resource: &GroupResource, causes: &[StatusCause]) -> Status {
    let message = format!("failed to read one or more {resource} from the storage");
    failure(500, "StoreReadError", message)
        .with_details(StatusDetails { causes: causes.to_vec(), ..about(resource, "list") })
}

pub(super) fn invalid(kind: &GroupKind, name: &str, errors: &[FieldError]) -> Status {
    let mut message = format!("{kind} {} is invalid", quote(name));
    let (causes, faults) = field_error::told(errors);
    if !faults.is_empty() {
        message.push_str(": ");
        message.push_str(&faults);
    }
    failure(422, "Invalid", message).with_details(StatusDetails {
        name: name.to_owned(),
        group: kind.group.clone(),
        kind: kind.kind.clone(),
        causes,
        ..StatusDetails::default()
    })
}

pub(super) fn revision_too_large(requested: Revision, current: Revision, retry: bool) -> Status {
    let cause = StatusCause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    };
    let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
    failure(504, "Timeout", message).with_details(StatusDetails {
        causes: vec![cause],
        retry_after_seconds: if retry { RETRY_REVISION_SECONDS } else { 0 },
        ..StatusDetails::default()
    })
}

pub(super) fn too_many(message: &str, seconds: u32) -> Status {
    failure(429, "TooManyRequests", message.to_owned()).with_details(retry_after(seconds))
}

/// By the reason of the cause, clients distinguish a disruption budget (KEP-85) from an overloaded server.
pub(super) fn eviction_refused(cause: &str, seconds: u32) -> Status {
    let cause = StatusCause { reason: "DisruptionBudget".to_owned(), message: cause.to_owned(), field: String::new() };
    let message = "Cannot evict pod as it would violate the pod's disruption budget.".to_owned();
    failure(429, "TooManyRequests", message).with_details(StatusDetails { causes: vec![cause], ..retry_after(seconds) })
}

pub(super) fn server_timeout(resource: &GroupResource, operation: &str, seconds: u32) -> Status {
    let message =
        format!("The {operation} operation against {resource} could not be completed at this time, please try again.");
    failure(500, "ServerTimeout", message)
        .with_details(StatusDetails { retry_after_seconds: seconds, ..about(resource, operation) })
}

pub(super) fn generate_name_exhausted(resource: &GroupResource, name: &str) -> Status {
    let message = format!(
        "{resource} {} already exists, the server was not able to generate a unique name for the object",
        quote(name)
    );
    failure(409, "AlreadyExists", message)
        .with_details(StatusDetails { retry_after_seconds: RETRY_GENERATE_NAME_SECONDS, ..about(resource, name) })
}

pub(super) fn internal(message: &str) -> Status {
    let cause = StatusCause { message: message.to_owned(), ..StatusCause::default() };
    failure(500, "InternalError", format!("Internal error occurred: {message}"))
        .with_details(StatusDetails { causes: vec![cause], ..StatusDetails::default() })
}
