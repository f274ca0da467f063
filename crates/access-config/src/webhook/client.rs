//! Sends reviews to a webhook and reads the answers.
//!
//! Temporary failures, such as a broken connection or a busy server, are retried as upstream: five attempts with
//! growing waits. The caller limits the total time.

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

/// How long is waited before the second time, where settings do not say.
pub const RETRY_WAIT: Duration = Duration::from_millis(500);
/// How many bytes an answer may have.
const MOST_BYTES: usize = 1024 * 1024;

/// A version of review objects that a webhook understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`.
    V1,
    /// `v1beta1`, which has another name for groups.
    V1Beta1,
}

impl ReviewVersion {
    /// The version of a name.
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

/// A webhook that is sent reviews.
pub struct ReviewClient {
    file: PathBuf,
    connection: WebhookConnection,
    /// How long is waited before the second time.
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
    /// The webhook of a kubeconfig. One try may take so long.
    ///
    /// # Errors
    /// When the file can't be used.
    pub fn of_file(
        file: &Path,
        time: Duration,
        outbound: &Arc<Outbound>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ConfigurationError> {
        let connection = WebhookConnection::of_file(file, time, outbound)?;
        Ok(Self { file: file.to_owned(), connection, wait: RETRY_WAIT, random, failures: RepeatLog::new() })
    }

    /// The same, which waits so long before the second try.
    #[must_use]
    pub fn waiting(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Keeps up with the files that say where the webhook is. Never ends.
    pub async fn follow(&self) {
        self.connection.follow().await;
    }

    /// The answer to a review. A webhook that fails is logged, and when it answers again.
    ///
    /// # Errors
    /// The webhook can't be called, or does not answer as one does; the text is that of Kubernetes' own client.
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

    /// Sends one attempt. A failure that a retry may cure comes with the shortest wait.
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
        if read.is_object() { Ok(read) } else { Err(("the answer is no object".to_owned(), None)) }
    }
}
