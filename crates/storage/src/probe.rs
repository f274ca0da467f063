//! Probes the store at intervals, for `/readyz` and other health checks.
//!
//! A health check must answer at once and must not load the store, so it returns the result of the last probe.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::Store;

/// The interval between probes.
const INTERVAL: Duration = Duration::from_secs(2);
/// The time limit of a probe.
const PATIENCE: Duration = Duration::from_secs(2);

/// The result of the last probe: success, or the fault.
#[derive(Clone, Debug)]
pub struct StoreProbe(Arc<Mutex<Result<(), String>>>);

impl StoreProbe {
    /// Creates a probe, and the future that runs it. The first result is success, since the store has just been opened.
    pub fn start(store: Arc<dyn Store>) -> (Self, impl Future<Output = ()>) {
        let probe = Self(Arc::new(Mutex::new(Ok(()))));
        let result = probe.0.clone();
        let run = async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let answer = match tokio::time::timeout(PATIENCE, store.check()).await {
                    Ok(answer) => answer.map_err(|error| error.to_string()),
                    Err(_) => Err(format!("no answer in {PATIENCE:?}")),
                };
                *result.lock() = answer;
            }
        };
        (probe, run)
    }

    /// The last result.
    ///
    /// # Errors
    /// The store did not answer within two seconds, or reported a fault.
    pub fn check(&self) -> Result<(), String> {
        self.0.lock().clone()
    }
}
