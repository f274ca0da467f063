//! The configuration while a server runs: key services are called, and the file is read again when it changes.
//!
//! New providers take the place of the old ones only when all of their key services are well. A file that can't be used leaves the old
//! ones, and is tried again. Nothing of the file is kept but its hash.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keelson_supervision::{info_repeated, warn_repeated};
use tokio::sync::watch;

use crate::config::ConfigurationFile;
use crate::store::{EncryptedStore, Sealing};
use crate::transformers::{Environment, Transformers};

/// The interval between checks of the file. Upstream's is a minute.
const LOOK: Duration = Duration::from_secs(5);
/// The least time that new providers have to show that they are well.
const LEAST_GRACE: Duration = Duration::from_secs(10);
/// The pause between checks of new providers.
const CHECK: Duration = Duration::from_millis(100);

/// A check of health.
pub type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Follows the configuration of a store.
pub struct Reloader {
    sealing: Arc<Sealing>,
    environment: Environment,
    /// The file, where it is read again.
    file: Option<PathBuf>,
    /// The hash of the file that the store was made of.
    hash: String,
    look: Duration,
    /// Counts the times that more values may have become readable.
    recoveries: watch::Sender<u64>,
}

impl Reloader {
    /// Reloads the configuration of a store that was created from `loaded`, if there is a `file` and it changes.
    pub fn new(
        store: &EncryptedStore,
        environment: Environment,
        loaded: &ConfigurationFile,
        file: Option<PathBuf>,
    ) -> Self {
        environment.metrics.note_hash(&loaded.hash);
        Self {
            sealing: store.sealing(),
            environment,
            file,
            hash: loaded.hash.clone(),
            look: LOOK,
            recoveries: watch::Sender::new(0),
        }
    }

    /// Sets the interval between two checks of the file, for tests.
    #[must_use]
    pub fn looking(self, every: Duration) -> Self {
        Self { look: every, ..self }
    }

    /// The number of events after which more values may be readable: reloads, and recoveries of key services.
    pub fn recoveries(&self) -> watch::Receiver<u64> {
        self.recoveries.subscribe()
    }

    /// The checks of health, by name. With reloads, or with key services of KMS v2 alone, there is one for all.
    pub fn checks(self: &Arc<Self>) -> Vec<(String, Check)> {
        let (count, has_first) = self.sealing.transformers().services();
        if self.file.is_some() || count > 0 && !has_first {
            let reloader = self.clone();
            let check = move || reloader.sealing.transformers().health();
            return vec![("kms-providers".to_owned(), Box::new(check))];
        }
        let one = |place: usize| {
            let reloader = self.clone();
            let check: Check = Box::new(move || reloader.sealing.transformers().health_of(place));
            (format!("kms-provider-{place}"), check)
        };
        (0..count).map(one).collect()
    }

    /// Runs for ever.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(self.follow_services(), self.follow_file());
    }

    /// Calls the key services of the providers of now, and of those in their place.
    async fn follow_services(&self) {
        loop {
            let transformers = self.sealing.transformers();
            transformers.follow(|| self.recovered()).await;
        }
    }

    fn recovered(&self) {
        self.recoveries.send_modify(|count| *count += 1);
    }

    async fn follow_file(&self) {
        let Some(file) = &self.file else { return std::future::pending().await };
        let mut hash = self.hash.clone();
        loop {
            tokio::time::sleep(self.look).await;
            let now = |succeeded| self.environment.metrics.note_reload(succeeded, self.environment.clock.now());
            let shown = file.display();
            match self.look(file.clone(), hash.clone()).await {
                Ok(None) => {}
                Ok(Some(used)) => {
                    now(true);
                    hash = used;
                    info_repeated!(""; file = %shown, hash, "the encryption configuration was read again");
                    self.recovered();
                }
                Err(error) => {
                    now(false);
                    warn_repeated!(""; file = %shown, %error, "the encryption configuration is invalid; the previous one stays in use");
                }
            }
        }
    }

    /// Uses the providers of the file if its hash is another than the known one. Returns the new hash then.
    async fn look(&self, file: PathBuf, known: String) -> Result<Option<String>, String> {
        let read = keelson_supervision::spawn_blocking(move || ConfigurationFile::read_changed(&file, &known)).await;
        let read = read.map_err(|error| error.to_string())?;
        let Some(loaded) = read.map_err(|error| error.to_string())? else { return Ok(None) };
        let made = Transformers::new(&loaded.configuration, self.environment.clone());
        let made = Arc::new(made.map_err(|error| error.to_string())?);
        await_health(&made).await?;
        let old = self.sealing.replace(made);
        self.environment.metrics.note_hash(&loaded.hash);
        // ORDER: the old ones are closed after the new ones are in use, so that tasks of the old ones find the new ones.
        old.close();
        Ok(Some(loaded.hash))
    }
}

/// Waits until new providers are well.
async fn await_health(transformers: &Transformers) -> Result<(), String> {
    let grace = transformers.grace().max(LEAST_GRACE);
    let mut last = "no check was finished".to_owned();
    let well = async {
        while let Err(fault) = transformers.check().await {
            last = fault;
            tokio::time::sleep(CHECK).await;
        }
    };
    match tokio::time::timeout(grace, well).await {
        Ok(()) => Ok(()),
        Err(_) => Err(format!(
            "health check for new transformers failed, polling error timed out waiting for the condition: {last}"
        )),
    }
}
