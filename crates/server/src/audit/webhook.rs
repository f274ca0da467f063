//! The audit webhook: posts batches of events to the server of a kubeconfig, and retries failures.
//!
//! As upstream, a batch is sent at most five times, with increasing delays, whatever the failure is. A shutdown waits
//! for no retry: events that cannot be sent at once are lost, and counted.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use keelson_access::audit::{AuditEvent, Sink};
use keelson_access_config::WebhookConnection;
use keelson_meta::Random;
use keelson_outbound::{Outbound, RetryWaits, failure_text};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::config::AuditWebhookConfig;

/// The timeout of one attempt, as upstream.
const TIME: Duration = Duration::from_secs(30);
/// The number of bytes read of a response, whose content is ignored.
const ANSWER_BYTES: usize = 64 << 10;

/// The webhook that receives the events.
pub(super) struct AuditWebhook {
    /// The kubeconfig with the webhook's address.
    file: PathBuf,
    connection: OnceLock<Result<WebhookConnection, String>>,
    initial_backoff: Duration,
    random: Arc<dyn Random>,
    /// Cancelled when the server has answered all requests.
    answered: CancellationToken,
}

impl AuditWebhook {
    /// The webhook of a kubeconfig. It sends nothing before [`connect`](Self::connect).
    pub(super) fn new(
        file: PathBuf,
        config: &AuditWebhookConfig,
        random: Arc<dyn Random>,
        answered: CancellationToken,
    ) -> Self {
        Self { file, connection: OnceLock::new(), initial_backoff: config.initial_backoff, random, answered }
    }

    /// Sets the outgoing connections. Opens none yet.
    pub(super) fn connect(&self, outbound: &Arc<Outbound>) {
        let connect = || WebhookConnection::of_file(&self.file, TIME, outbound).map_err(|error| error.to_string());
        self.connection.get_or_init(connect);
    }

    /// Follows changes of the kubeconfig and its files. Ends if the webhook cannot be called.
    pub(super) async fn follow(&self) {
        if let Some(Ok(connection)) = self.connection.get() {
            connection.follow().await;
        }
    }

    async fn attempt(&self, body: Bytes) -> Result<(), String> {
        let connection = self.connection.get().ok_or("the server does not run yet")?.as_ref().map_err(Clone::clone)?;
        let answer = connection.post(body, ANSWER_BYTES).await.map_err(|error| error.to_string())?;
        failure_text(&answer).map_or(Ok(()), Err)
    }
}

impl Sink for AuditWebhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn frame(&self) -> [&'static [u8]; 3] {
        [br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#, b",", b"]}\n"]
    }

    fn write(&self, event: &AuditEvent<'_>, out: &mut Vec<u8>) {
        event.write_json(false, out);
    }

    fn send(&self, batch: Vec<u8>) -> BoxFuture<'_, Result<(), String>> {
        let batch = Bytes::from(batch);
        Box::pin(async move {
            let mut waits = RetryWaits::new(self.initial_backoff, self.random.clone());
            loop {
                let Err(why) = self.attempt(batch.clone()).await else { return Ok(()) };
                let Some(wait) = waits.next().filter(|_| !self.answered.is_cancelled()) else { return Err(why) };
                tracing::debug!(why, "the audit webhook failed; retrying");
                let _: Option<()> = self.answered.run_until_cancelled(sleep(wait)).await;
            }
        })
    }
}
