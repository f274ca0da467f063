//! A configuration that follows its file: what the file says is made anew when it changes, and what it names is kept up meanwhile.
//!
//! A file that can't be used leaves what was made of the one before, and that is counted. What is made of a file is the part of each
//! configuration.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use futures::future::pending;
use keelson_access::FileChanges;

use crate::document::ConfigurationError;
use crate::reloads::Reloads;

/// A configuration whose file may change.
pub(crate) trait Followed: Send + Sync + 'static {
    /// What it is called where its operator is told of it, before the word "configuration".
    const NAME: &'static str;
    /// What was made of the file.
    type Current: Send + Sync;

    /// The file; `None` where all was said in flags.
    fn file(&self) -> Option<&Path>;

    /// What is in use.
    fn current(&self) -> &ArcSwap<Self::Current>;

    /// How often the file was read again.
    fn reloads(&self) -> &Reloads;

    /// The time.
    fn now(&self) -> SystemTime;

    /// Reads the file and makes of it what can be used; `None` where it says what it said before. Takes a while, and is called where
    /// that is allowed.
    ///
    /// # Errors
    /// When the file can't be used.
    fn read(&self) -> Result<Option<Self::Current>, ConfigurationError>;

    /// Keeps up what is outside the file: keys of issuers, files of webhooks. May end when there is nothing to keep up.
    fn keep_up(current: &Self::Current) -> impl Future<Output = ()> + Send;
}

/// Keeps up with the file of a configuration, and with what it names. Never ends.
pub(crate) async fn follow<F: Followed>(configuration: Arc<F>) {
    let mut changes = match configuration.file() {
        Some(file) => Some(FileChanges::new(file).await),
        None => None,
    };
    // It may have changed since it was read first.
    read_again(&configuration).await;
    loop {
        let current = configuration.current().load_full();
        let keeping = async {
            F::keep_up(&current).await;
            pending::<()>().await;
        };
        let changed = async {
            match &mut changes {
                Some(changes) => changes.changed().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = keeping => {}
            () = changed => read_again(&configuration).await,
        }
    }
}

async fn read_again<F: Followed>(configuration: &Arc<F>) {
    if configuration.file().is_none() {
        return;
    }
    let (name, this) = (F::NAME, configuration.clone());
    // Expressions take a while to compile.
    let read = tokio::task::spawn_blocking(move || this.read()).await;
    let now = configuration.now();
    match read {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(current))) => {
            tracing::info!("the {name} configuration was read again");
            configuration.current().store(Arc::new(current));
            configuration.reloads().note(true, now);
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "the {name} configuration of before is kept");
            configuration.reloads().note(false, now);
        }
        Err(error) => {
            tracing::error!(%error, "reading the {name} configuration failed; the one of before is kept");
            configuration.reloads().note(false, now);
        }
    }
}
