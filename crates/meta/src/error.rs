//! Every way in which a request can fail. This is the only module that turns a failure into a [`Status`].
//!
//! Other code reports failures as [`ApiError`] and never builds a failure `Status`. Texts, reasons and codes are
//! upstream's, since clients match on them. Details for operators belong in the log, not here.

mod answer;

use std::fmt;
use std::time::Duration;

use crate::field_error::FieldError;
use crate::go_format::quote;
use crate::gvk::{GroupKind, GroupResource};
use crate::revision::Revision;
use crate::status::{Status, StatusCause};

/// If a request took at least this long, its error has no `Retry-After`, so that clients do not repeat it
/// automatically.
const LONG_WAIT: Duration = Duration::from_secs(8);

/// Media types that a message lists.
pub type MediaTypes = &'static [&'static str];

/// A request that failed.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiError {
    /// 400: a malformed request.
    BadRequest(String),
    /// 401: invalid credentials.
    Unauthorized,
    /// 401: credentials that can't be used for this request, with the reason.
    UnauthorizedBecause(String),
    /// 403: the user lacks a permission.
    Forbidden(Box<ForbiddenDetail>),
    /// 403: a rule of the server refuses the request. The user has the permission.
    Refused {
        /// The resource in the request.
        resource: GroupResource,
        /// The object's name, or empty.
        name: String,
        /// The reason.
        message: String,
        /// The rules that were violated, for programs.
        causes: Vec<StatusCause>,
    },
    /// 404: an unknown object.
    NotFound {
        /// The collection.
        resource: GroupResource,
        /// The requested name.
        name: String,
    },
    /// 404: an unknown resource or path.
    UnknownResource,
    /// 405: the resource does not support this verb.
    MethodNotAllowed,
    /// 405: a custom resource or its subresource does not support this verb.
    MethodNotSupported {
        /// The resource.
        resource: GroupResource,
        /// The verb.
        verb: String,
    },
    /// 406: the server supports none of the formats that the client accepts.
    NotAcceptable {
        /// The variant of the text, and the supported formats.
        accepted: NotAcceptableForm,
    },
    /// 409: the name is taken.
    AlreadyExists {
        /// The collection.
        resource: GroupResource,
        /// The name.
        name: String,
        /// True if the existing object is being deleted.
        is_going: bool,
    },
    /// 409: the object is not in the state that the request expects.
    Conflict {
        /// The collection.
        resource: GroupResource,
        /// The object's name.
        name: String,
        /// The difference from the expected state.
        message: Box<ConflictKind>,
    },
    /// 409: an apply would change fields that other managers own.
    ApplyConflict {
        /// The fields and their owners.
        message: String,
        /// A cause for each field.
        causes: Vec<StatusCause>,
    },
    /// 410: the history that the request needs was compacted.
    Expired {
        /// The kind of history.
        message: ExpiredKind,
        /// A token with which the list can continue at a newer revision.
        continue_token: Option<String>,
    },
    /// 413: the body is too large.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// 414: the URL is too long.
    UrlTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// 431: the header fields have too many bytes.
    HeadTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// 413: the object is larger than the store allows.
    ObjectTooLarge {
        /// The size of the object in the store, in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// 413: a JSON patch has too many operations.
    PatchTooManyOperations {
        /// The limit.
        limit: usize,
        /// The number of operations.
        actual: usize,
    },
    /// 415: the body has an unknown format.
    UnsupportedMediaType {
        /// The supported formats.
        accepted: MediaTypes,
    },
    /// 415: the patch has an unknown type.
    UnsupportedPatchType,
    /// 422: the object or the options are invalid.
    Invalid {
        /// The kind of the object.
        kind: GroupKind,
        /// The object's name.
        name: String,
        /// The violations, in the order of the checks.
        errors: Vec<FieldError>,
    },
    /// 422: a `test` of a JSON patch failed, or the patch cannot be applied.
    JsonPatchTestFailed,
    /// 504: the requested revision is newer than the server's.
    RevisionTooLarge {
        /// The requested revision.
        requested: Revision,
        /// The server's revision.
        current: Revision,
        /// True to suggest a retry after a short time.
        retry: bool,
    },
    /// 429: the server is overloaded or not ready yet.
    TooManyRequests {
        /// The time until a retry, in seconds.
        retry_after_seconds: u32,
    },
    /// 429: one user, or all users together, exceed the limit of a shared resource.
    ShareExceeded {
        /// The exhausted resource and its limit.
        message: String,
        /// The time until a retry, in seconds.
        retry_after_seconds: u32,
    },
    /// 429: a disruption budget currently prevents an eviction.
    EvictionRefused {
        /// The reason, with the name of the budget.
        cause: String,
        /// The time until a retry in seconds. 0 if it depends on the budget.
        retry_after_seconds: u32,
    },
    /// 500: a temporary failure. A retry may succeed.
    ServerTimeout {
        /// The collection.
        resource: GroupResource,
        /// The verb, such as `list`.
        operation: String,
        /// The time until a retry, in seconds.
        retry_after_seconds: u32,
    },
    /// 504: the request timed out. It may still take effect.
    Timeout(String),
    /// 503: this server, or a server that it needs, is temporarily unavailable.
    ServiceUnavailable {
        /// The reason.
        message: String,
        /// The time until a retry in seconds, if known.
        retry_after_seconds: Option<u32>,
    },
    /// 507: the store is full. There is no `Retry-After`, since an operator must free space.
    InsufficientStorage(String),
    /// 500 without a reason: an object in a create has a resourceVersion.
    RevisionOnCreate,
    /// 409: every name that the server generated is taken.
    GenerateNameExhausted {
        /// The collection.
        resource: GroupResource,
        /// The last generated name.
        name: String,
    },
    /// 500 without a reason: a failure that upstream returns unclassified.
    Unclassified(String),
    /// 500: objects of a list are unreadable.
    StoreRead {
        /// The collection.
        resource: GroupResource,
        /// The objects and the reasons.
        causes: Vec<StatusCause>,
    },
    /// A status that another party returned, such as a webhook.
    Answered(Box<Status>),
    /// 500: an internal error.
    Internal(String),
}

/// An action that the user has no permission for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForbiddenDetail {
    /// The user's name.
    pub user: String,
    /// The verb.
    pub verb: String,
    /// The resource. `None` for a non-resource path.
    pub resource: Option<GroupResource>,
    /// The object's name. Empty for a collection.
    pub name: String,
    /// The namespace. `None` for the cluster scope.
    pub namespace: Option<String>,
    /// The path of a non-resource request.
    pub path: Option<String>,
    /// The subresource. `None` for the object itself.
    pub subresource: Option<String>,
    /// The authorizer's reason, or empty.
    pub reason: String,
}

/// The variants of the text of a 406.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAcceptableForm {
    /// Resource endpoints: the code and the supported representations.
    Router(MediaTypes),
    /// Discovery endpoints: the supported media types.
    MediaTypes(MediaTypes),
    /// The client requested the metadata of one object, but the response is a list. The text is its type in upstream's
    /// code.
    MetadataOfList(String),
    /// The client requested the metadata of a list, but the response is one object. The text is its type in upstream's
    /// code.
    MetadataListOfObject(String),
}

/// The difference between an object and the state that the request expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// The resourceVersion of the stored object differs from the sent one.
    Modified,
    /// The UID of the object differs from the precondition.
    UidPrecondition {
        /// The kind, which replaces the resource in this text.
        kind: String,
        /// The UID in the precondition.
        wanted: String,
        /// The object's UID.
        actual: String,
    },
    /// Its resourceVersion differs from the precondition.
    RevisionPrecondition {
        /// The kind, which replaces the resource in this text.
        kind: String,
        /// The resourceVersion in the precondition.
        wanted: String,
        /// The object's resourceVersion.
        actual: String,
    },
    /// Something else.
    Other(String),
}

/// The history that was compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredKind {
    /// The revision of a continue token. The response has a token with which the list can continue at a newer revision.
    ContinueToken,
    /// The revision of a continue token. The list can't continue.
    ContinueTokenNoRest,
    /// The revision of a list at a resourceVersion.
    ListRevision,
    /// The revision of a watch, compacted in storage.
    WatchRevision,
    /// The revision of a watch, no longer in the cache.
    WatchTooOld {
        /// The requested revision.
        requested: Revision,
        /// The oldest revision at which a watch can start.
        oldest: Revision,
    },
}

impl ApiError {
    /// The error for a missing permission.
    pub fn forbidden(detail: ForbiddenDetail) -> Self {
        Self::Forbidden(Box::new(detail))
    }

    /// The error for a difference from the request's expectation.
    pub fn conflict(resource: GroupResource, name: impl Into<String>, message: ConflictKind) -> Self {
        Self::Conflict { resource, name: name.into(), message: Box::new(message) }
    }

    /// Converts the error to the body for clients. Control characters are made visible, and long texts are truncated.
    pub fn status(&self) -> Status {
        let mut status = self.whole_status();
        answer::make_visible(&mut status);
        answer::bound(&mut status, matches!(self, Self::Invalid { .. }));
        status
    }

    fn whole_status(&self) -> Status {
        // SIZE: one arm for each kind of error.
        match self {
            Self::BadRequest(message) => answer::failure(400, "BadRequest", message.clone()),
            Self::Unauthorized => answer::failure(401, "Unauthorized", "Unauthorized".to_owned()),
            Self::UnauthorizedBecause(why) => answer::failure(401, "Unauthorized", format!("Unauthorized: {why}")),
            Self::Forbidden(detail) => answer::forbidden(detail),
            Self::Refused { resource, name, message, causes } => {
                let mut status = answer::refused(resource, name, message);
                if let Some(details) = &mut status.details {
                    details.causes.clone_from(causes);
                }
                status
            }
            Self::NotFound { resource, name } => {
                answer::failure(404, "NotFound", format!("{resource} {} not found", quote(name)))
                    .with_details(answer::about(resource, name))
            }
            Self::UnknownResource => answer::bare(404, "NotFound", "the server could not find the requested resource"),
            Self::MethodNotAllowed => {
                answer::bare(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            }
            Self::MethodNotSupported { resource, verb } => answer::method_not_supported(resource, verb),
            Self::NotAcceptable { accepted } => answer::not_acceptable(accepted),
            Self::AlreadyExists { resource, name, is_going } => {
                let going = if *is_going { "object is being deleted: " } else { "" };
                answer::failure(409, "AlreadyExists", format!("{going}{resource} {} already exists", quote(name)))
                    .with_details(answer::about(resource, name))
            }
            Self::Conflict { resource, name, message } => answer::conflict(resource, name, message),
            Self::ApplyConflict { message, causes } => answer::apply_conflict(message, causes),
            Self::Expired { message, continue_token } => answer::expired(*message, continue_token.as_ref()),
            Self::TooLarge { limit } => answer::too_large(&format!("limit is {limit}")),
            Self::UrlTooLong { .. } | Self::HeadTooLarge { .. } => answer::long_head(self),
            Self::ObjectTooLarge { bytes, limit } => answer::object_too_large(*bytes, *limit),
            Self::PatchTooManyOperations { limit, actual } => {
                answer::too_large(&format!("The allowed maximum operations in a JSON patch is {limit}, got {actual}"))
            }
            Self::UnsupportedMediaType { accepted } => answer::unsupported_media_type(accepted),
            Self::UnsupportedPatchType => answer::bare(415, "UnsupportedMediaType", "415: Unsupported Media Type"),
            Self::Invalid { kind, name, errors } => answer::invalid(kind, name, errors),
            Self::JsonPatchTestFailed => {
                answer::bare(422, "Invalid", "the server rejected our request due to an error in our request")
            }
            Self::RevisionTooLarge { requested, current, retry } => {
                answer::revision_too_large(*requested, *current, *retry)
            }
            Self::TooManyRequests { retry_after_seconds } => {
                answer::too_many("Too many requests, please try again later.", *retry_after_seconds)
            }
            Self::ShareExceeded { message, retry_after_seconds } => answer::too_many(message, *retry_after_seconds),
            Self::EvictionRefused { cause, retry_after_seconds } => {
                answer::eviction_refused(cause, *retry_after_seconds)
            }
            Self::ServerTimeout { resource, operation, retry_after_seconds } => {
                answer::server_timeout(resource, operation, *retry_after_seconds)
            }
            Self::Timeout(message) => answer::bare(504, "Timeout", &format!("Timeout: {message}")),
            Self::ServiceUnavailable { message, retry_after_seconds } => {
                answer::unavailable(message, *retry_after_seconds)
            }
            Self::InsufficientStorage(message) => answer::failure(507, "InsufficientStorage", message.clone()),
            Self::RevisionOnCreate => {
                answer::unclassified("resourceVersion should not be set on objects to be created")
            }
            Self::GenerateNameExhausted { resource, name } => answer::generate_name_exhausted(resource, name),
            Self::Unclassified(message) => answer::unclassified(message),
            Self::StoreRead { resource, causes } => answer::store_read(resource, causes),
            Self::Answered(status) => (**status).clone(),
            Self::Internal(message) => answer::internal(message),
        }
    }

    /// Returns the error as the response to a request that took this long. A 503 after a long wait gets no
    /// `Retry-After`: Kubernetes clients would repeat the request ten times, and a wait of ten seconds would become one
    /// of minutes.
    #[must_use]
    pub fn after_waiting(self, waited: Duration) -> Self {
        match self {
            Self::ServiceUnavailable { message, .. } if waited >= LONG_WAIT => {
                Self::ServiceUnavailable { message, retry_after_seconds: None }
            }
            error => error,
        }
    }

    /// The HTTP code.
    pub fn code(&self) -> u16 {
        self.status().http_code()
    }

    /// Returns true if a retry of the same request may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TooManyRequests { .. }
            | Self::ShareExceeded { .. }
            | Self::EvictionRefused { .. }
            | Self::ServerTimeout { .. }
            | Self::Timeout(_)
            | Self::ServiceUnavailable { .. }
            | Self::GenerateNameExhausted { .. }
            | Self::RevisionTooLarge { .. } => true,
            Self::BadRequest(_)
            | Self::Unauthorized
            | Self::UnauthorizedBecause(_)
            | Self::Forbidden(_)
            | Self::Refused { .. }
            | Self::NotFound { .. }
            | Self::UnknownResource
            | Self::MethodNotAllowed
            | Self::MethodNotSupported { .. }
            | Self::NotAcceptable { .. }
            | Self::AlreadyExists { .. }
            | Self::Conflict { .. }
            | Self::ApplyConflict { .. }
            | Self::Expired { .. }
            | Self::TooLarge { .. }
            | Self::UrlTooLong { .. }
            | Self::HeadTooLarge { .. }
            | Self::ObjectTooLarge { .. }
            | Self::InsufficientStorage(_)
            | Self::PatchTooManyOperations { .. }
            | Self::UnsupportedMediaType { .. }
            | Self::UnsupportedPatchType
            | Self::Invalid { .. }
            | Self::JsonPatchTestFailed
            | Self::RevisionOnCreate
            | Self::Unclassified(_)
            | Self::StoreRead { .. }
            | Self::Answered(_)
            | Self::Internal(_) => false,
        }
    }

    /// The value of the `Retry-After` header in seconds, if any.
    pub fn retry_after(&self) -> Option<u32> {
        self.status().details.map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.status().message)
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests;
