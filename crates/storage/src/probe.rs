//! Asks the store at intervals whether it answers, for `/readyz` and the like.
//!
//! A health check must answer at once and must not load the store by being asked often, so it tells the last answer.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::Store;

/// How often the store is asked.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The store's last answer: nothing, or what is wrong.
#[derive(Clone, Debug)]
pub struct StoreProbe(Arc<Mutex<Result<(), String>>>);

impl StoreProbe {
    /// Begins asking, for as long as the future runs. The store has just been opened, so it is taken to be well.
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

    /// What the store last said.
    ///
    /// # Errors
    /// When it did not answer in two seconds, or says that something is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        self.0.lock().clone()
    }
}
