//! The failures of calls to etcd, told apart by etcd's own codes and texts.
//!
//! What matters is whether a transaction may have happened; a call that can't say so is looked for by `outcome`.

use keelson_storage::StoreError;
use tonic::{Code, Status};

/// Why a call to etcd has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The revision is compacted.
    Compacted,
    /// The revision has not happened.
    Future,
    /// The lease of a write has ended.
    LeaseNotFound,
    /// A lease with this number was granted before.
    LeaseExists,
    /// A limit of etcd's forbids the request.
    TooLarge(String),
    /// The token that shows who we are has ended.
    TokenEnded,
    /// etcd refuses who we are, or what we ask.
    Refused(String),
    /// etcd has no room: an alarm has it refuse what puts anything. Deletions pass.
    NoSpace(String),
    /// etcd has too much to do. Another member would say the same.
    Exhausted(String),
    /// No answer. `sent` is false when the request has certainly not been taken up.
    Unavailable {
        /// For the operator.
        cause: String,
        /// Whether etcd may have seen the request.
        sent: bool,
    },
    /// etcd is at an older state than it was, or holds another store.
    SetBack,
    /// Another store, or none, is in the place of the one that was opened: the finding, with the way out.
    Exchanged(String),
    /// An answer that etcd does not give.
    Nonsense(String),
}

impl Failure {
    /// No answer within the time for it.
    pub(crate) fn timed_out(what: &str) -> Self {
        Self::Unavailable { cause: format!("{what} has not answered in time"), sent: true }
    }

    /// What the store's users are told. Revisions are the caller's to add: here they are unknown.
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
            // Said before a request is looked at. The code alone is also that of a connection that ends with ENHANCE_YOUR_CALM, which
            // leaves open what became of the requests on it.
            Code::ResourceExhausted if text.contains("too many requests") => Self::Exhausted(plain(text).to_owned()),
            // Said to requests that need a leader, before they are looked at.
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

/// etcd's text without the name that stands before all of them.
pub(crate) fn plain(text: &str) -> &str {
    text.strip_prefix("etcdserver: ").unwrap_or(text)
}

/// The innermost reason, which is the one an operator can act on.
fn cause_of(status: &Status) -> String {
    let mut cause = plain(status.message()).to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(inner) = source {
        cause = inner.to_string();
        source = inner.source();
    }
    if cause.is_empty() { status.code().description().to_owned() } else { cause }
}

/// Whether the connection could not even be made.
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

/// Why a store could not be opened. The text is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file of the configuration can't be used.
    #[error("{what} {path} can't be used: {cause}")]
    File {
        /// What the file should be.
        what: &'static str,
        /// Where it is.
        path: String,
        /// Why not.
        cause: String,
    },
    /// No endpoint answers.
    #[error("no etcd answers at {endpoints}: {cause}")]
    Unreachable {
        /// All that were tried.
        endpoints: String,
        /// What the last one said.
        cause: String,
    },
    /// etcd answers and refuses us.
    #[error("the etcd at {endpoints} refuses {user}: {cause}")]
    Refused {
        /// All that are configured.
        endpoints: String,
        /// As whom we came.
        user: String,
        /// etcd's words.
        cause: String,
    },
    /// An etcd that lacks what keelson needs.
    #[error("the etcd at {endpoints} has version {version}, and keelson needs {needed} or newer")]
    TooOld {
        /// All that are configured.
        endpoints: String,
        /// What it says it is.
        version: String,
        /// The oldest usable one.
        needed: String,
    },
    /// The keys were written by a newer keelson, in a form that this one does not know.
    #[error(
        "what is below {prefix} in the etcd at {endpoints} has storage format {found}, and this keelson knows formats up \
         to {known}: start the newer keelson that wrote it"
    )]
    NewerFormat {
        /// All that are configured.
        endpoints: String,
        /// Where the store is in it.
        prefix: String,
        /// What the store says it is.
        found: String,
        /// The newest format that this code knows.
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
    fn etcds_answers_are_told_apart() {
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
        // What ends a connection, or comes from something between, leaves open whether a write was taken up.
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
