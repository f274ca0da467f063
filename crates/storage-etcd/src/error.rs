//! The failures of calls to etcd, classified by etcd's codes and texts.
//!
//! The most important question is whether a transaction may have taken effect. If a failure does not show it, `outcome`
//! finds out.

use keelson_storage::StoreError;
use tonic::{Code, Status};

/// The reason for which a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The revision is compacted.
    Compacted,
    /// The revision is in the future.
    Future,
    /// The lease of a write has expired.
    LeaseNotFound,
    /// A lease with this number exists.
    LeaseExists,
    /// A limit of etcd forbids the request.
    TooLarge(String),
    /// The login token has expired.
    TokenEnded,
    /// etcd refuses the login or the request.
    Refused(String),
    /// etcd is out of space: an alarm makes it refuse puts. Deletions pass.
    NoSpace(String),
    /// etcd is overloaded. Another member would fail in the same way.
    Exhausted(String),
    /// There was no answer. `sent` is false if the request was certainly not processed.
    Unavailable {
        /// The cause, for the operator.
        cause: String,
        /// True if etcd may have received the request.
        sent: bool,
    },
    /// etcd is at an older state than before, or has another store.
    SetBack,
    /// Another store, or none, has replaced the one that was opened. Holds the finding and the remedy.
    Exchanged(String),
    /// The answer is invalid.
    Nonsense(String),
}

impl Failure {
    /// The failure after a timeout.
    pub(crate) fn timed_out(what: &str) -> Self {
        Self::Unavailable { cause: format!("{what} did not respond in time"), sent: true }
    }

    /// Converts the failure to a store error. Revisions are unknown here, and the caller adds them.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Unavailable { cause, .. } | Self::Exhausted(cause) | Self::Exchanged(cause) => {
                StoreError::Unavailable(cause)
            }
            Self::NoSpace(cause) => StoreError::EtcdFull(cause),
            Self::Refused(cause) => StoreError::Unavailable(format!("etcd refuses: {cause}")),
            Self::TokenEnded => StoreError::Unavailable("etcd does not accept its own token".to_owned()),
            Self::LeaseNotFound => StoreError::Unavailable("the lease of a write has ended".to_owned()),
            Self::SetBack => StoreError::Unavailable("etcd was set back to an older state".to_owned()),
            Self::TooLarge(cause) => StoreError::TooLarge(cause),
            Self::Compacted | Self::Future | Self::LeaseExists => {
                StoreError::Corrupt(format!("etcd gave an answer that the request does not have: {self:?}"))
            }
            Self::Nonsense(cause) => StoreError::Corrupt(cause),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let text = status.message();
        match status.code() {
            Code::OutOfRange if text.contains("compacted") => Self::Compacted,
            Code::OutOfRange if text.contains("future revision") => Self::Future,
            Code::NotFound if text.contains("lease not found") => Self::LeaseNotFound,
            Code::FailedPrecondition if text.contains("lease already exists") => Self::LeaseExists,
            Code::InvalidArgument if text.contains("too many operations") => {
                Self::TooLarge("the transaction has more parts than etcd's --max-txn-ops allows".to_owned())
            }
            Code::InvalidArgument if text.contains("request is too large") => Self::TooLarge(too_many_bytes()),
            Code::ResourceExhausted if text.contains("larger than max") => Self::TooLarge(too_many_bytes()),
            Code::ResourceExhausted if text.contains("space exceeded") => Self::NoSpace(plain(text).to_owned()),
            // etcd returns this text before it processes a request. The code alone is not enough: a connection that
            // ends with ENHANCE_YOUR_CALM has the same code, and the outcome of its requests is unknown.
            Code::ResourceExhausted if text.contains("too many requests") => Self::Exhausted(plain(text).to_owned()),
            // etcd returns this text to requests that need a leader, before it processes them.
            Code::Unavailable if plain(text) == "no leader" => {
                Self::Unavailable { cause: "the member has no leader".to_owned(), sent: false }
            }
            Code::Unauthenticated => Self::TokenEnded,
            Code::InvalidArgument if text.contains("revision of auth store is old") => Self::TokenEnded,
            Code::InvalidArgument | Code::PermissionDenied | Code::FailedPrecondition | Code::Unimplemented => {
                Self::Refused(plain(text).to_owned())
            }
            _ => Self::Unavailable { cause: cause_of(&status), sent: !is_connect_error(&status) },
        }
    }
}

fn too_many_bytes() -> String {
    "the write is larger than etcd's --max-request-bytes allows (1.5 MiB unless it was raised)".to_owned()
}

/// etcd's text without its common prefix.
pub(crate) fn plain(text: &str) -> &str {
    text.strip_prefix("etcdserver: ").unwrap_or(text)
}

/// The innermost cause, on which an operator can act.
fn cause_of(status: &Status) -> String {
    let mut cause = plain(status.message()).to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(inner) = source {
        cause = inner.to_string();
        source = inner.source();
    }
    if cause.is_empty() { status.code().description().to_owned() } else { cause }
}

/// Returns true if no connection could be opened.
fn is_connect_error(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(inner) = source {
        if inner.is::<tonic::ConnectError>() {
            return true;
        }
        source = inner.source();
    }
    false
}

/// The reason for which a store could not be opened. The text is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file of the configuration can't be used.
    #[error("{what} {path} can't be used: {cause}")]
    File {
        /// The purpose of the file.
        what: &'static str,
        /// The path.
        path: String,
        /// The cause.
        cause: String,
    },
    /// No endpoint answers.
    #[error("no etcd answers at {endpoints}: {cause}")]
    Unreachable {
        /// All tried endpoints.
        endpoints: String,
        /// The last failure.
        cause: String,
    },
    /// etcd refuses the login or a request.
    #[error("the etcd at {endpoints} refuses {user}: {cause}")]
    Refused {
        /// All configured endpoints.
        endpoints: String,
        /// The user.
        user: String,
        /// etcd's text.
        cause: String,
    },
    /// An etcd without features that keelson needs.
    #[error("the etcd at {endpoints} has version {version}, and keelson needs {needed} or newer")]
    TooOld {
        /// All configured endpoints.
        endpoints: String,
        /// Its version.
        version: String,
        /// The oldest usable one.
        needed: String,
    },
    /// A newer keelson wrote the keys in an unknown format.
    #[error(
        "the data below {prefix} in the etcd at {endpoints} has storage format {found}, and this keelson knows formats up \
         to {known}: start the newer keelson that wrote it"
    )]
    NewerFormat {
        /// All configured endpoints.
        endpoints: String,
        /// The prefix of the store.
        prefix: String,
        /// The store's format.
        found: String,
        /// The newest known format.
        known: u32,
    },
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NewerFormat { .. } => Self::Corrupt(error.to_string()),
            OpenError::File { .. }
            | OpenError::Unreachable { .. }
            | OpenError::Refused { .. }
            | OpenError::TooOld { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcds_answers_are_distinguished() {
        let cases = [
            (Status::out_of_range("etcdserver: mvcc: required revision has been compacted"), Failure::Compacted),
            (Status::out_of_range("etcdserver: mvcc: required revision is a future revision"), Failure::Future),
            (Status::not_found("etcdserver: requested lease not found"), Failure::LeaseNotFound),
            (Status::failed_precondition("etcdserver: lease already exists"), Failure::LeaseExists),
            (Status::unauthenticated("etcdserver: invalid auth token"), Failure::TokenEnded),
            (Status::invalid_argument("etcdserver: revision of auth store is old"), Failure::TokenEnded),
            (
                Status::permission_denied("etcdserver: permission denied"),
                Failure::Refused("permission denied".to_owned()),
            ),
            (
                Status::unavailable("etcdserver: leader changed"),
                Failure::Unavailable { cause: "leader changed".to_owned(), sent: true },
            ),
            (
                Status::resource_exhausted("etcdserver: mvcc: database space exceeded"),
                Failure::NoSpace("mvcc: database space exceeded".to_owned()),
            ),
            (
                Status::resource_exhausted("etcdserver: too many requests"),
                Failure::Exhausted("too many requests".to_owned()),
            ),
            (
                Status::unavailable("etcdserver: no leader"),
                Failure::Unavailable { cause: "the member has no leader".to_owned(), sent: false },
            ),
        ];
        for (status, expected) in cases {
            assert_eq!(Failure::from(status), expected);
        }
        // A failure of the connection, or of a proxy, does not show whether etcd processed a write.
        for open in [
            Status::resource_exhausted("h2 protocol error: http2 error"),
            Status::resource_exhausted("grpc: trying to send message larger than its limit"),
            Status::cancelled("operation was canceled"),
            Status::internal("h2 protocol error"),
            Status::unknown("transport error"),
            Status::deadline_exceeded("context deadline exceeded"),
            Status::unavailable("etcdserver: request timed out"),
            Status::unavailable("etcdserver: request timed out, possibly due to connection lost"),
            Status::aborted("x"),
            Status::data_loss("x"),
            Status::out_of_range("Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes"),
        ] {
            let text = open.to_string();
            assert!(matches!(Failure::from(open), Failure::Unavailable { sent: true, .. }), "{text}");
        }
        for too_large in [
            Status::invalid_argument("etcdserver: request is too large"),
            Status::invalid_argument("etcdserver: too many operations in txn request"),
            Status::resource_exhausted("grpc: received message larger than max (4 vs. 2)"),
        ] {
            assert!(matches!(Failure::from(too_large), Failure::TooLarge(_)));
        }
    }
}
