//! The failures of this crate: what was attempted, and why it failed.
//!
//! A failed request keeps the error of the client, so that a test can look at its status.

use std::time::Duration;

/// A failure of a test server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server did not start. The text ends with the last lines of its log where it is a process.
    #[error("the server did not start: {0}")]
    Start(String),
    /// The server has ended.
    #[error("the server has ended")]
    Ended,
    /// The server refused a request.
    #[error("{action} failed: {source}")]
    Request {
        /// The attempt, such as "creating the namespace a".
        action: String,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// The server did not reach a state in time.
    #[error("{state} within {limit:?}")]
    Late {
        /// The missing state, such as "the definition widgets.example.com is not established".
        state: String,
        /// The time limit.
        limit: Duration,
    },
    /// Only a server in the process of the test can do this.
    #[error("{0} needs a server in this process (feature `embedded`, and no KEELSON_BIN)")]
    NeedsEmbedded(&'static str),
    /// An argument can't be used.
    #[error("{0}")]
    Argument(String),
    /// A file or a socket failed.
    #[error("{action} failed: {source}")]
    Io {
        /// The attempt, such as "writing the kubeconfig".
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

    /// The status that the API server sent, if that was the failure.
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
