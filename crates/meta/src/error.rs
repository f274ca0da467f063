//! Every way a request can fail, and the one place that makes a [`Status`] out of it.
//!
//! The rest of the server reports failures as [`ApiError`] and never builds a failure `Status` itself. Texts, reasons and
//! codes are upstream's, since clients match on them. What an operator should know beyond them belongs in the log.

mod answer;

use std::fmt;
use std::time::Duration;

use crate::field_error::FieldError;
use crate::go_format::quote;
use crate::gvk::{GroupKind, GroupResource};
use crate::revision::Revision;
use crate::status::{Status, StatusCause};

/// From this time on a request has waited for so long that its client is not asked to repeat it by itself.
const LONG_WAIT: Duration = Duration::from_secs(8);

/// Media types as a message lists them.
pub type MediaTypes = &'static [&'static str];

/// A request that failed.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiError {
    /// 400: the request cannot be understood.
    BadRequest(String),
    /// 401: the credentials are not accepted.
    Unauthorized,
    /// 403: the user may not do this.
    Forbidden(Box<ForbiddenDetail>),
    /// 403: a rule of the server, rather than a missing permission, stands against it.
    Refused {
        /// What the request is about.
        resource: GroupResource,
        /// The object's name, empty for none.
        name: String,
        /// Why not.
        message: String,
        /// The rules that stand against it, for programs to read.
        causes: Vec<StatusCause>,
    },
    /// 404: no such object.
    NotFound {
        /// The collection looked in.
        resource: GroupResource,
        /// The name looked for.
        name: String,
    },
    /// 404: no such resource or path.
    UnknownResource,
    /// 405: the resource exists but does not have this verb.
    MethodNotAllowed,
    /// 405: a custom resource, or what is below its objects, does not have this verb.
    MethodNotSupported {
        /// The resource.
        resource: GroupResource,
        /// The verb.
        verb: String,
    },
    /// 406: none of the formats the client accepts can be produced.
    NotAcceptable {
        /// Which of the two texts, and the formats there are.
        accepted: NotAcceptableForm,
    },
    /// 409: the name is taken.
    AlreadyExists {
        /// The collection.
        resource: GroupResource,
        /// The name that is taken.
        name: String,
        /// Whether the object that has it is being deleted.
        is_going: bool,
    },
    /// 409: the object is not as the request expects it.
    Conflict {
        /// The collection.
        resource: GroupResource,
        /// The object's name.
        name: String,
        /// In which way.
        message: Box<ConflictKind>,
    },
    /// 409: others own fields that the client applies with other values.
    ApplyConflict {
        /// Which fields, and whose.
        message: String,
        /// A cause for each field.
        causes: Vec<StatusCause>,
    },
    /// 410: the history that the request needs is gone.
    Expired {
        /// Which history.
        message: ExpiredKind,
        /// A token with which a list can go on inconsistently.
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
    /// 413: the object is larger than the store takes.
    ObjectTooLarge {
        /// Its size in the store, in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// 413: a JSON patch has too many operations.
    PatchTooManyOperations {
        /// The limit.
        limit: usize,
        /// How many it has.
        actual: usize,
    },
    /// 415: the body is in no known format.
    UnsupportedMediaType {
        /// The formats there are.
        accepted: MediaTypes,
    },
    /// 415: the patch is of no known type.
    UnsupportedPatchType,
    /// 422: the object or the options break rules.
    Invalid {
        /// The kind of the object.
        kind: GroupKind,
        /// The object's name.
        name: String,
        /// Which rules, in the order they were checked.
        errors: Vec<FieldError>,
    },
    /// 422: a JSON patch has a `test` that failed, or it cannot be applied.
    JsonPatchTestFailed,
    /// 504: the revision asked for lies in the future.
    RevisionTooLarge {
        /// What was asked for.
        requested: Revision,
        /// Where the server is.
        current: Revision,
        /// Whether the client is told to try again soon.
        retry: bool,
    },
    /// 429: the server is overloaded or not ready yet.
    TooManyRequests {
        /// When to try again.
        retry_after_seconds: u32,
    },
    /// 429: one user, or all users together, have as much as they may have of something that all share.
    ShareExceeded {
        /// The resource that is used up, and its limit.
        message: String,
        /// When to try again.
        retry_after_seconds: u32,
    },
    /// 429: a disruption budget does not let a pod be evicted now.
    EvictionRefused {
        /// Why not, by the name of the budget.
        cause: String,
        /// When to try again; 0 for when the budget has room.
        retry_after_seconds: u32,
    },
    /// 500: a passing failure; the operation may be tried again.
    ServerTimeout {
        /// The collection.
        resource: GroupResource,
        /// The verb, such as `list`.
        operation: String,
        /// When to try again.
        retry_after_seconds: u32,
    },
    /// 504: the time for the request ran out; it may still take effect.
    Timeout(String),
    /// 503: the server or one it needs cannot answer now.
    ServiceUnavailable {
        /// What is wrong.
        message: String,
        /// When to try again, if that is known.
        retry_after_seconds: Option<u32>,
    },
    /// 507: the store has no room for the write. No time to try again is named: the operator has to make room.
    InsufficientStorage(String),
    /// 500 without a reason: an object to be created has a resourceVersion.
    RevisionOnCreate,
    /// 409: every generated name tried was taken.
    GenerateNameExhausted {
        /// The collection.
        resource: GroupResource,
        /// The last name tried.
        name: String,
    },
    /// 500 without a reason: a failure that upstream passes on without saying what kind it is.
    Unclassified(String),
    /// 500: objects of a list can't be read.
    StoreRead {
        /// The collection.
        resource: GroupResource,
        /// Which, and why not.
        causes: Vec<StatusCause>,
    },
    /// What somebody answered who was asked about the request, such as a webhook.
    Answered(Box<Status>),
    /// 500: something broke inside.
    Internal(String),
}

/// Who may not do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForbiddenDetail {
    /// The user's name.
    pub user: String,
    /// The verb.
    pub verb: String,
    /// The resource, absent when the request is for a path that is no resource.
    pub resource: Option<GroupResource>,
    /// The object's name, empty for a whole collection.
    pub name: String,
    /// The namespace, absent for the cluster scope.
    pub namespace: Option<String>,
    /// The path of a request that is for no resource.
    pub path: Option<String>,
    /// The subresource, absent for the object itself.
    pub subresource: Option<String>,
    /// What the authorizer gave as its reason, empty for none.
    pub reason: String,
}

/// The texts of a 406.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAcceptableForm {
    /// Resource endpoints: the code and the representations available.
    Router(MediaTypes),
    /// Discovery endpoints: the media types accepted.
    MediaTypes(MediaTypes),
    /// The metadata of one object were asked for, and the answer is a list, of this type in upstream's code.
    MetadataOfList(String),
    /// The metadata of a list were asked for, and the answer is one object, of this type in upstream's code.
    MetadataListOfObject(String),
}

/// Why an object is not as a request expects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// Its resourceVersion is another than the one in the object sent.
    Modified,
    /// Its UID is another than the precondition says.
    UidPrecondition {
        /// The kind, which stands in for the resource in this text.
        kind: String,
        /// The UID in the precondition.
        wanted: String,
        /// The UID it has.
        actual: String,
    },
    /// Its resourceVersion is another than the precondition says.
    RevisionPrecondition {
        /// The kind, which stands in for the resource in this text.
        kind: String,
        /// The resourceVersion in the precondition.
        wanted: String,
        /// The resourceVersion it has.
        actual: String,
    },
    /// Something else.
    Other(String),
}

/// Which history is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredKind {
    /// That of a continue token; the list can go on inconsistently with the token in the answer.
    ContinueToken,
    /// That of a continue token; the list cannot go on.
    ContinueTokenNoRest,
    /// That of a list at a resourceVersion.
    ListRevision,
    /// That of a watch, compacted in storage.
    WatchRevision,
    /// That of a watch, no longer kept in memory.
    WatchTooOld {
        /// Where the client wants to begin.
        requested: Revision,
        /// The first revision from which a watch could begin.
        oldest: Revision,
    },
}

impl ApiError {
    /// The answer to a user who lacks a permission.
    pub fn forbidden(detail: ForbiddenDetail) -> Self {
        Self::Forbidden(Box::new(detail))
    }

    /// The answer to a request that expects the object to be another than it is.
    pub fn conflict(resource: GroupResource, name: impl Into<String>, message: ConflictKind) -> Self {
        Self::Conflict { resource, name: name.into(), message: Box::new(message) }
    }

    /// The error as clients see it. Of what an attacker can make long it has the beginning; faults of an object, which are bounded
    /// one by one, are told as they are.
    pub fn status(&self) -> Status {
        let mut status = self.whole_status();
        if !matches!(self, Self::Invalid { .. }) {
            answer::bound(&mut status);
        }
        answer::make_visible(&mut status);
        status
    }

    fn whole_status(&self) -> Status {
        match self {
            Self::BadRequest(message) => answer::failure(400, "BadRequest", message.clone()),
            Self::Unauthorized => answer::failure(401, "Unauthorized", "Unauthorized".to_owned()),
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

    /// The error as the answer to a request that was served for this time. A 503 after a long wait names no time to try again. Clients of
    /// Kubernetes would repeat it ten times by themselves, so that a wait of ten seconds became one of minutes.
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

    /// Whether the same request may succeed when it is sent again.
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

    /// The value of the `Retry-After` header, in seconds, if the answer should have one.
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
