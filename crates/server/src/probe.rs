//! Asks the store at intervals whether it answers, for `/readyz`.
//!
//! A health check must answer at once and must not load the store by being asked often, so it tells the last answer.

use std::sync::Arc;
use std::time::Duration;

use keelson_http::health::CheckResult;
use keelson_storage::Store;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// How often the store is asked.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The store's last answer.
#[derive(Clone)]
pub(crate) struct StoreProbe(Arc<Mutex<CheckResult>>);

impl StoreProbe {
    /// Begins asking, until the server stops. The store has just been opened, so it is taken to be well.
    pub(crate) fn start(store: Arc<dyn Store>, stopping: CancellationToken) -> (Self, impl Future<Output = ()>) {
        let probe = Self(Arc::new(Mutex::new(Ok(()))));
        let result = probe.0.clone();
        let run = async move {
            loop {
                tokio::select! {
                    () = stopping.cancelled() => return,
                    () = tokio::time::sleep(INTERVAL) => {}
                }
                let answer = match tokio::time::timeout(PATIENCE, store.check()).await {
                    Ok(answer) => answer.map_err(|error| error.to_string()),
                    Err(_) => Err(format!("no answer in {PATIENCE:?}")),
                };
                *result.lock() = answer;
            }
        };
        (probe, run)
    }

    /// What the store last said.
    pub(crate) fn check(&self) -> CheckResult {
        self.0.lock().clone()
    }
}
