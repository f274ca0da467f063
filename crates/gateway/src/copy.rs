//! The durable copy of a source's mirrors in an embedded store. A restarted gateway continues its watches from there.
//!
//! The copy of a resource has its objects and a mark, the revision of their state. A batch of changes and its mark are
//! one transaction. A list deletes the mark first and sets it last. So objects with a mark are always the state at that
//! revision, and a copy without a mark counts as absent. After a failed write the copy takes no further writes, and
//! keeps its last state.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use keelson_meta::Revision;
use keelson_storage::{KeyValue, RangeRequest, Scan, Store, StoreError, StoreKey, TailBatch, Transaction, pages};
use keelson_storage_sql::{SqliteConfig, SqliteStore};
use keelson_supervision::{Supervisor, outcome, warn_repeated};
use tokio::sync::{mpsc, oneshot};

use crate::discovery::Served;
use crate::source::Source;

/// The most waiting commands of a resource. Then its list or watch waits.
const COMMANDS: usize = 64;
/// The most writes of a transaction.
const WRITES: usize = 256;
/// The number of keys in one read.
const PAGE: usize = 500;
/// The interval between compactions of the copy's own history, which has no reader.
const COMPACT_EVERY: Duration = Duration::from_mins(1);
/// The key of the cluster that the copy is of.
const CLUSTER: &str = "/cluster";
/// The key of the mark below the root of a resource.
const MARK: &str = "mark";
/// The prefix of objects below the root of a resource.
const OBJECTS: &str = "objects/";

/// The copy of all mirrors of a source.
#[derive(Clone)]
pub(crate) struct SourceCopy {
    store: Arc<dyn Store>,
    supervisor: Supervisor,
}

/// The copy of a resource.
pub(crate) struct ResourceCopy {
    store: Arc<dyn Store>,
    /// The prefix of its keys in the copy.
    root: String,
    /// The prefix of its keys in the mirror.
    prefix: String,
    /// The properties of the resource that determine the form of its objects. A mark of another form counts as absent.
    form: String,
    commands: mpsc::Sender<Command>,
}

/// A change of a copy.
enum Command {
    /// A list begins.
    Begin,
    /// Objects of the list.
    Page(Vec<KeyValue>),
    /// The list is complete at this revision.
    End(Revision),
    /// Changes of a watch.
    Batch(TailBatch),
    /// Nothing follows. The state is forgotten if it is not that of the source any more.
    Stop { forget: bool, done: oneshot::Sender<()> },
}

/// Applies the commands of a resource in order.
struct Writer {
    store: Arc<dyn Store>,
    root: String,
    prefix: String,
    form: String,
    /// The keys of the list so far.
    listed: HashSet<StoreKey>,
}

impl SourceCopy {
    /// Opens the copy in a directory.
    ///
    /// # Errors
    /// The store can't be opened.
    pub(crate) async fn open(directory: &Path, supervisor: &Supervisor) -> Result<Self, String> {
        std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut settings = SqliteConfig::directory(directory);
        settings.supervisor = supervisor.clone();
        let opening = tokio::task::spawn_blocking(move || SqliteStore::open(settings));
        let store = outcome(opening).await.map_err(|error| error.to_string())?;
        Ok(Self { store: Arc::new(store), supervisor: supervisor.clone() })
    }

    /// Deletes the copy if it is of another cluster. A cluster is known by the uid of its namespace `kube-system`.
    ///
    /// # Errors
    /// The source does not show the namespace, or the store fails.
    pub(crate) async fn check_cluster(&self, source: &Source) -> Result<(), String> {
        let path = "/api/v1/namespaces?fieldSelector=metadata.name%3Dkube-system";
        let list = source.document(path).await.map_err(|fault| fault.to_string())?;
        let uid = list["items"][0]["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        if uid.is_empty() {
            return Err("the namespace kube-system has no uid".to_owned());
        }
        let failed = |error: StoreError| error.to_string();
        let key = StoreKey::new(CLUSTER);
        let known = self.store.get(&key).await.map_err(failed)?;
        if known.is_some_and(|known| known.value == uid.as_bytes()) {
            return Ok(());
        }
        delete_below(&self.store, "/", |_| true).await.map_err(failed)?;
        let noted = self.store.commit(Transaction::default().put(key, uid.into_bytes())).await;
        noted.map(drop).map_err(|error| error.to_string())
    }

    /// The copy of a resource in its version, for objects of a form. `prefix` is that of its keys in the mirror.
    pub(crate) fn resource(&self, served: &Served, prefix: &str, form: String) -> ResourceCopy {
        let root = format!("/{}/{}/{}/", served.group, served.version, served.plural);
        let (commands, received) = mpsc::channel(COMMANDS);
        let (store, prefix) = (self.store.clone(), prefix.to_owned());
        let writer = Writer {
            store: store.clone(),
            root: root.clone(),
            prefix: prefix.clone(),
            form: form.clone(),
            listed: HashSet::new(),
        };
        // The task ends when the mirror is dropped.
        drop(self.supervisor.spawn_finite("mirror-copy", writer.run(received)));
        ResourceCopy { store, root, prefix, form, commands }
    }

    /// Compacts the history of the store. Never returns.
    pub(crate) async fn compact(self) {
        loop {
            tokio::time::sleep(COMPACT_EVERY).await;
            let compacted = async { self.store.compact(self.store.current_revision().await?).await };
            if let Err(error) = compacted.await {
                warn_repeated!(""; %error, "the history of the mirrors' copy can't be compacted");
            }
        }
    }
}

impl ResourceCopy {
    /// The revision of the copied state; `None` without a complete copy.
    pub(crate) async fn mark(&self) -> Option<Revision> {
        let mark = self.store.get(&StoreKey::new(format!("{}{MARK}", self.root))).await.ok()??;
        let is_of_form = mark.value.get(REVISION_BYTES..) == Some(self.form.as_bytes());
        revision(&mark.value).filter(|_| is_of_form)
    }

    /// All copied objects.
    pub(crate) async fn objects(&self) -> Result<Scan, StoreError> {
        let root = format!("{}{OBJECTS}", self.root);
        let request = RangeRequest {
            from: StoreKey::new(&*root),
            to: StoreKey::prefix_end(&root),
            revision: Some(self.store.current_revision().await?),
            limit: Some(PAGE),
        };
        let prefix = self.prefix.clone();
        let mirrored = move |stored: KeyValue| {
            let name = stored.key.as_str().strip_prefix(&*root)?;
            let key = StoreKey::new(format!("{prefix}{name}"));
            Some(KeyValue::new(key, stored.value.slice(REVISION_BYTES..), revision(&stored.value)?))
        };
        let pages = pages(self.store.clone(), request);
        Ok(pages.map_ok(move |page| page.into_iter().filter_map(&mirrored).collect()).boxed())
    }

    pub(crate) async fn begin_list(&self) {
        self.send(Command::Begin).await;
    }

    pub(crate) async fn list(&self, objects: Vec<KeyValue>) {
        self.send(Command::Page(objects)).await;
    }

    pub(crate) async fn end_list(&self, revision: Revision) {
        self.send(Command::End(revision)).await;
    }

    pub(crate) async fn apply(&self, batch: TailBatch) {
        self.send(Command::Batch(batch)).await;
    }

    /// Ends the writes, so that another copy of the resource may begin. With `forget`, the state is dropped.
    pub(crate) async fn stop(&self, forget: bool) {
        let (done, stopped) = oneshot::channel();
        self.send(Command::Stop { forget, done }).await;
        // A writer that has failed drops the command.
        let _ended = stopped.await;
    }

    async fn send(&self, command: Command) {
        // A writer that has failed takes no more commands.
        let _ended = self.commands.send(command).await;
    }
}

impl Writer {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(command) = commands.recv().await {
            if let Command::Stop { forget, done } = command {
                // ORDER: no command follows, even if its sender still exists.
                commands.close();
                if forget && let Err(error) = self.apply(Command::Begin).await {
                    tracing::warn!(%error, copy = self.root, "the copy of a mirror can't be dropped");
                }
                let _gone = done.send(());
                return;
            }
            if let Err(error) = self.apply(command).await {
                tracing::warn!(%error, copy = self.root, "writing the copy of a mirror failed; the next start lists the resource again");
                return;
            }
        }
    }

    async fn apply(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Begin => {
                self.listed.clear();
                self.commit(Transaction::default().delete(self.mark())).await
            }
            Command::Page(objects) => {
                for part in objects.chunks(WRITES) {
                    let mut transaction = Transaction::default();
                    for object in part {
                        let key = self.key(&object.key);
                        self.listed.insert(key.clone());
                        transaction = transaction.put(key, marked(object.revision, &object.value));
                    }
                    self.commit(transaction).await?;
                }
                Ok(())
            }
            Command::End(revision) => {
                let listed = std::mem::take(&mut self.listed);
                let root = format!("{}{OBJECTS}", self.root);
                let is_gone = |key: &StoreKey| !listed.contains(key);
                delete_below(&self.store, &root, is_gone).await.map_err(|error| error.to_string())?;
                self.commit(self.noting(Transaction::default(), revision)).await
            }
            Command::Batch(batch) => self.change(batch).await,
            Command::Stop { .. } => Ok(()),
        }
    }

    /// Applies the changes of a watch. The last change of a key counts, since a transaction writes a key once.
    async fn change(&self, batch: TailBatch) -> Result<(), String> {
        let mut seen = HashSet::new();
        let mut changes: Vec<_> = batch.events.iter().rev().filter(|event| seen.insert(event.key.clone())).collect();
        changes.reverse();
        let mut transaction = Transaction::default();
        for change in changes {
            let key = self.key(&change.key);
            transaction = match &change.value {
                Some(value) => transaction.put(key, marked(change.revision, value)),
                None => transaction.delete(key),
            };
        }
        self.commit(self.noting(transaction, batch.watermark)).await
    }

    fn noting(&self, transaction: Transaction, revision: Revision) -> Transaction {
        transaction.put(self.mark(), marked(revision, self.form.as_bytes()))
    }

    async fn commit(&self, transaction: Transaction) -> Result<(), String> {
        if transaction.writes.is_empty() {
            return Ok(());
        }
        self.store.commit(transaction).await.map(drop).map_err(|error| error.to_string())
    }

    fn mark(&self) -> StoreKey {
        StoreKey::new(format!("{}{MARK}", self.root))
    }

    fn key(&self, mirrored: &StoreKey) -> StoreKey {
        let name = mirrored.as_str().strip_prefix(&*self.prefix).unwrap_or_default();
        StoreKey::new(format!("{}{OBJECTS}{name}", self.root))
    }
}

/// The size of the revision before each value.
const REVISION_BYTES: usize = 8;

/// A value with its revision.
fn marked(revision: Revision, value: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(REVISION_BYTES + value.len());
    bytes.extend_from_slice(&revision.get().to_be_bytes());
    bytes.extend_from_slice(value);
    bytes.into()
}

fn revision(marked: &[u8]) -> Option<Revision> {
    marked.first_chunk::<REVISION_BYTES>().map(|bytes| Revision::new(u64::from_be_bytes(*bytes)))
}

/// Deletes keys below a prefix.
async fn delete_below(
    store: &Arc<dyn Store>,
    prefix: &str,
    is_gone: impl Fn(&StoreKey) -> bool,
) -> Result<(), StoreError> {
    let request = RangeRequest {
        from: StoreKey::new(prefix),
        to: StoreKey::prefix_end(prefix),
        revision: Some(store.current_revision().await?),
        limit: Some(PAGE),
    };
    let mut found = std::pin::pin!(pages(store.clone(), request));
    while let Some(page) = found.try_next().await? {
        let mut gone = Transaction::default();
        for stored in page.into_iter().filter(|stored| is_gone(&stored.key)) {
            gone = gone.delete(stored.key);
        }
        if !gone.writes.is_empty()
            && let Err(error) = store.commit(gone).await
        {
            return Err(StoreError::Unavailable(error.to_string()));
        }
    }
    Ok(())
}

impl std::fmt::Debug for SourceCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceCopy").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use keelson_storage::StoreEvent;
    use keelson_storage::memory::MemoryStore;

    use super::*;

    fn copy(store: &Arc<dyn Store>) -> ResourceCopy {
        copy_of_form(store, "one")
    }

    fn copy_of_form(store: &Arc<dyn Store>, form: &str) -> ResourceCopy {
        let served = Served {
            group: String::new(),
            version: "v1".to_owned(),
            plural: "pods".to_owned(),
            kind: "Pod".to_owned(),
            namespaced: true,
        };
        let source = SourceCopy { store: store.clone(), supervisor: Supervisor::default() };
        source.resource(&served, "/registry/pods/", form.to_owned())
    }

    fn object(name: &str, revision: u64) -> KeyValue {
        let key = StoreKey::new(format!("/registry/pods/n/{name}"));
        KeyValue::new(key, Bytes::from(format!("{name}{revision}")), Revision::new(revision))
    }

    async fn until_marked(copy: &ResourceCopy, revision: u64) {
        while copy.mark().await != Some(Revision::new(revision)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn objects(copy: &ResourceCopy) -> Vec<KeyValue> {
        copy.objects().await.unwrap().try_concat().await.unwrap()
    }

    #[tokio::test]
    async fn a_mirror_equals_the_source_at_its_revision() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let first = copy(&store);
        assert_eq!(first.mark().await, None);
        first.begin_list().await;
        first.list(vec![object("a", 3), object("b", 4)]).await;
        first.end_list(Revision::new(7)).await;
        until_marked(&first, 7).await;
        assert_eq!(objects(&first).await, [object("a", 3), object("b", 4)]);
        let changed = object("b", 9);
        let events = vec![
            StoreEvent::new(changed.key.clone(), Revision::new(8), Some("old".into())),
            StoreEvent::new(changed.key.clone(), Revision::new(9), Some(changed.value.clone())),
            StoreEvent::new(object("a", 0).key, Revision::new(10), None),
        ];
        first.apply(TailBatch { events, watermark: Revision::new(11) }).await;
        until_marked(&first, 11).await;
        assert_eq!(objects(&copy(&store)).await, [changed]);
        assert_eq!(copy_of_form(&store, "other").mark().await, None);
        // A further list leaves nothing of the one before.
        first.begin_list().await;
        first.list(vec![object("c", 12)]).await;
        first.end_list(Revision::new(13)).await;
        until_marked(&first, 13).await;
        assert_eq!(objects(&first).await, [object("c", 12)]);
        // A list that did not end is no state.
        first.begin_list().await;
        first.list(vec![object("d", 14)]).await;
        while first.mark().await.is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
