//! Sends reviews to a webhook and parses its responses.
//!
//! Like upstream, temporary failures such as a broken connection or a busy server are retried: five attempts with
//! growing delays. The caller limits the total time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keelson_codec::json;
use keelson_meta::Random;
use keelson_meta::json::Value;
use keelson_outbound::{CallError, Outbound, RetryWaits, failure_text};
use keelson_supervision::RepeatLog;
use tokio::time::sleep;

use super::connection::WebhookConnection;
use crate::document::ConfigurationError;

/// The default delay before the second attempt.
pub const RETRY_WAIT: Duration = Duration::from_millis(500);
/// The largest response in bytes.
const MOST_BYTES: usize = 1024 * 1024;

/// A version of review objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`.
    V1,
    /// `v1beta1`, in which the field for groups has another name.
    V1Beta1,
}

impl ReviewVersion {
    /// Parses the name of a version.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// The client of a webhook for reviews.
pub struct ReviewClient {
    file: PathBuf,
    connection: WebhookConnection,
    /// The delay before the second attempt.
    wait: Duration,
    random: Arc<dyn Random>,
    failures: RepeatLog,
}

impl std::fmt::Debug for ReviewClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReviewClient").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl ReviewClient {
    /// Creates a client from a kubeconfig. `time` is the timeout of one attempt.
    ///
    /// # Errors
    /// The file is invalid.
    pub fn of_file(
        file: &Path,
        time: Duration,
        outbound: &Arc<Outbound>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ConfigurationError> {
        let connection = WebhookConnection::of_file(file, time, outbound)?;
        Ok(Self { file: file.to_owned(), connection, wait: RETRY_WAIT, random, failures: RepeatLog::new() })
    }

    /// Sets the delay before the second attempt.
    #[must_use]
    pub fn waiting(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Reloads the files with the webhook's address after changes. Never returns.
    pub async fn follow(&self) {
        self.connection.follow().await;
    }

    /// Sends a review and returns the response. The first failure of the webhook is logged, and its recovery.
    ///
    /// # Errors
    /// The webhook cannot be called, or its response is invalid. The text is that of Kubernetes' own client.
    pub async fn ask(&self, review: &Value) -> Result<Value, String> {
        let answer = self.ask_repeatedly(review).await;
        let file = self.file.display();
        match &answer {
            Ok(_) => {
                if let Some(due) = self.failures.worked("") {
                    tracing::info!(%file, repeats = due.repeats, "a webhook that failed answers again");
                }
            }
            Err(why) => {
                if let Some(due) = self.failures.failed("") {
                    tracing::error!(%file, why, repeats = due.repeats, "a webhook can't be called");
                }
            }
        }
        answer
    }

    async fn ask_repeatedly(&self, review: &Value) -> Result<Value, String> {
        let body = Bytes::from(json::to_vec(review));
        let mut waits = RetryWaits::new(self.wait, self.random.clone());
        loop {
            let (why, again) = match self.send(body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let (Some(asked_for), Some(wait)) = (again, waits.next()) else { return Err(why) };
            sleep(asked_for.max(wait)).await;
        }
    }

    /// Makes one attempt. If a retry may help, the error has the shortest delay before it.
    async fn send(&self, body: Bytes) -> Result<Value, (String, Option<Duration>)> {
        let answer = self.connection.post(body, MOST_BYTES).await.map_err(|error| {
            let broke =
                matches!(&error, CallError::Failed(why) if why.ends_with("EOF") || why.contains("connection reset"));
            (error.to_string(), broke.then_some(Duration::ZERO))
        })?;
        if let Some(why) = failure_text(&answer) {
            let again = match answer.status {
                429 | 500 | 504 => Some(answer.retry_after.unwrap_or_default()),
                503 => answer.retry_after,
                _ => None,
            };
            return Err((why, again));
        }
        let read = json::parse(&answer.body).map_err(|error| (error.to_string(), None))?.value;
        if read.is_object() { Ok(read) } else { Err(("the answer is not an object".to_owned(), None)) }
    }
}
