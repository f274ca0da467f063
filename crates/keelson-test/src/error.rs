//! The errors of this crate: the attempted action and the reason of the failure.
//!
//! The error of a failed request includes the client's error, so a test can examine its status.

use std::time::Duration;

/// A failure of a test server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server did not start. For a child process the text ends with the last lines of its log.
    #[error("the server did not start: {0}")]
    Start(String),
    /// The server has ended.
    #[error("the server has ended")]
    Ended,
    /// The server rejected a request.
    #[error("{action} failed: {source}")]
    Request {
        /// The attempted action, such as "creating the namespace a".
        action: String,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// The server did not reach a state before the timeout.
    #[error("{state} within {limit:?}")]
    Late {
        /// The missing state, such as "the definition widgets.example.com is not established".
        state: String,
        /// The time limit.
        limit: Duration,
    },
    /// Only a server in the process of the test supports this.
    #[error("{0} needs a server in this process (feature `embedded`, and no KEELSON_BIN)")]
    NeedsEmbedded(&'static str),
    /// A certificate could not be made or was not signed.
    #[error("{0}")]
    Certificate(String),
    /// There are as many faults as possible.
    #[error("there are {0} faults already")]
    TooManyFaults(usize),
    /// The store of the server failed.
    #[error("{action} failed: {reason}")]
    Store {
        /// The attempted action.
        action: &'static str,
        /// The error of the store.
        reason: String,
    },
    /// An argument is invalid.
    #[error("{0}")]
    Argument(String),
    /// An operation on a file or a socket failed.
    #[error("{action} failed: {source}")]
    Io {
        /// The attempted action, such as "writing the kubeconfig".
        action: String,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    pub(crate) fn request(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let action = action.into();
        move |source| Self::Request { action, source: Box::new(source) }
    }

    /// The status of the API server's response, if the server rejected the request.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Request { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn is_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }
}
