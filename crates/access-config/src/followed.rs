//! A configuration that is rebuilt when its file changes, and whose remote parts are kept up to date.
//!
//! If a file is invalid, the previous version stays in force, and the failure is counted. Each configuration implements
//! `FollowedFile`.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use futures::future::pending;
use keelson_access::FileChanges;

use crate::document::ConfigurationError;
use crate::reloads::Reloads;

/// A configuration whose file may change.
pub(crate) trait FollowedFile: Send + Sync + 'static {
    /// The name of the configuration in messages, before the word "configuration".
    const NAME: &'static str;
    /// The value built from the file.
    type Current: Send + Sync;

    /// The file; `None` if the configuration comes from flags.
    fn file(&self) -> Option<&Path>;

    /// The value in force.
    fn current(&self) -> &ArcSwap<Self::Current>;

    /// The numbers of reloads.
    fn reloads(&self) -> &Reloads;

    /// The current time.
    fn now(&self) -> SystemTime;

    /// Reads the file and builds the value. Returns `None` if the content is unchanged. May block the thread.
    ///
    /// # Errors
    /// The file is invalid.
    fn read(&self) -> Result<Option<Self::Current>, ConfigurationError>;

    /// Keeps remote parts up to date: keys of issuers, files of webhooks. May return if there are none.
    fn keep_up(current: &Self::Current) -> impl Future<Output = ()> + Send;
}

/// Reloads the file of a configuration after changes, and keeps its remote parts up to date. Never returns.
pub(crate) async fn follow<F: FollowedFile>(configuration: Arc<F>) {
    let mut changes = match configuration.file() {
        Some(file) => Some(FileChanges::new(file).await),
        None => None,
    };
    // The file may have changed since it was first read.
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

async fn read_again<F: FollowedFile>(configuration: &Arc<F>) {
    if configuration.file().is_none() {
        return;
    }
    let (name, this) = (F::NAME, configuration.clone());
    // Compiling expressions takes long, so it runs on another thread.
    let read = keelson_supervision::spawn_blocking(move || this.read()).await;
    let now = configuration.now();
    match read {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(current))) => {
            tracing::info!("the {name} configuration was read again");
            configuration.current().store(Arc::new(current));
            configuration.reloads().note(true, now);
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "the {name} configuration is invalid; the previous one stays in use");
            configuration.reloads().note(false, now);
        }
        Err(error) => {
            tracing::error!(%error, "reading the {name} configuration failed; the previous one stays in use");
            configuration.reloads().note(false, now);
        }
    }
}
