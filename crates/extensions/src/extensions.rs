//! The custom resources of one server: the known definitions, and the tasks that follow them.
//!
//! One task follows the definitions and changes the surface. It then adds each changed definition to the queues of the
//! tasks that write to the store. ORDER: the status of a definition is handled after its resource is served, so that a
//! client that reads it as established can use it here.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_controllers::{Backoff, Client, Queue, SERVER_MANAGER};
use keelson_meta::options::{ListOptions, ResourceVersionMatch};
use keelson_meta::{ApiError, Object, Revision};
use keelson_outbound::Outbound;
use keelson_registry::{RegistrationError, Registry, ResourceRegistration, ServedApis, Target, WatchOutput};
use keelson_schema::{NonStructural, ProgramCache, ProgramStats};
use keelson_supervision::{Pace, warn_repeated};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::by_group::{ByGroup, group_of};
use crate::definition::Definition;
use crate::names::NameIndex;
use crate::regenerations::Regenerations;
use crate::serving::Serving;

/// The number of concurrent writes to definitions, enough to share commits.
const WRITES_AT_ONCE: usize = 32;
/// The number of definitions emptied concurrently. Each deletes many objects at once.
const EMPTIED_AT_ONCE: usize = 4;
/// The backoff of a status write that failed.
const STATUS_BACKOFF: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(30) };
/// The backoff of checking whether all objects of a definition are deleted.
const EMPTYING_BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
/// The wait after a failure before the definitions are followed again, or a change of the surface is retried.
const AGAIN: Duration = Duration::from_secs(1);
/// The backoff before a failed or ended watch of the definitions is restarted.
const FOLLOW_AGAIN: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(10) };

/// Returns the reason why the schemas of a definition are not structural, or `None` if they are.
pub type SchemaCheck = fn(&Object) -> Option<NonStructural>;

/// Follows the definitions and serves their resources.
pub struct Extensions {
    pub(crate) registry: Arc<Registry>,
    /// Calls the conversion webhooks of definitions.
    outbound: Arc<Outbound>,
    pub(crate) client: Client,
    /// The collection of the definitions.
    pub(crate) definitions: Target,
    known: Mutex<DefinitionIndex>,
    pub(crate) serving: Serving,
    pub(crate) schema_check: SchemaCheck,
    /// The revision up to which definitions are served.
    pub(crate) served_up_to: watch::Sender<Revision>,
    statuses: Queue<String>,
    /// The definitions to be emptied, while this server does it.
    emptying: Mutex<Option<Arc<Queue<String>>>>,
}

/// All definitions, and the owners of names.
#[derive(Default)]
struct DefinitionIndex {
    definitions: ByGroup<KnownDefinition>,
    names: NameIndex,
}

/// The definitions of one server and what it made of them, for the start of a fork.
pub struct InheritedDefinitions {
    known: Vec<KnownDefinition>,
    /// The definitions whose resources are in `apis`.
    served: Vec<Arc<Definition>>,
    /// The resources that the server serves.
    apis: Arc<ServedApis>,
    /// The compiled expressions of schemas.
    programs: Arc<ProgramCache>,
}

impl InheritedDefinitions {
    /// The resources that the server serves, with those of the definitions.
    pub const fn apis(&self) -> &Arc<ServedApis> {
        &self.apis
    }
}

/// The latest known state of a definition.
#[derive(Clone)]
pub(crate) struct KnownDefinition {
    pub(crate) entry: Arc<Entry>,
    pub(crate) read: Arc<Definition>,
}

impl Extensions {
    /// Serves the stored definitions, and the `supplied` resources whose name and kind no definition requests. The
    /// registry of a fork serves the resources of `inherited` definitions already.
    ///
    /// # Errors
    /// 500 if definitions are not served, or their objects can't be loaded.
    pub async fn start(
        registry: Arc<Registry>,
        outbound: Arc<Outbound>,
        supplied: Vec<ResourceRegistration>,
        schema_check: SchemaCheck,
        inherited: Option<&InheritedDefinitions>,
    ) -> Result<Arc<Self>, ApiError> {
        let internal = |error: RegistrationError| ApiError::Internal(error.to_string());
        let serving = match inherited {
            Some(inherited) => Serving::inheriting(supplied, &inherited.served, inherited.programs.clone(), &registry),
            None => {
                registry.surfaces().put(supplied.clone()).await.map_err(internal)?;
                Serving::new(supplied)
            }
        };
        let client = Client::of_server(registry.clone(), SERVER_MANAGER);
        let definitions = client.collection("apiextensions.k8s.io", "v1", "customresourcedefinitions", None)?;
        let extensions = Self {
            registry,
            outbound,
            client,
            definitions,
            known: Mutex::default(),
            serving,
            schema_check,
            served_up_to: watch::Sender::new(Revision::ZERO),
            statuses: Queue::new("crd_naming_condition_controller", STATUS_BACKOFF),
            emptying: Mutex::default(),
        };
        let stored = extensions.definitions.resource.stored();
        let stored = stored.ok_or_else(|| ApiError::Internal("definitions are not stored".to_owned()))?.clone();
        let snapshot = stored.cached.snapshot();
        // A definition that the origin has deleted meanwhile must not stay served.
        let served = inherited.into_iter().flat_map(|inherited| &inherited.served);
        let mut found: BTreeSet<String> = served.map(|definition| definition.name.clone()).collect();
        let known = inherited.into_iter().flat_map(|inherited| &inherited.known);
        let known: HashMap<&str, &KnownDefinition> = known.map(|known| (known.entry.name(), known)).collect();
        for entry in snapshot.range("", None) {
            match known.get(entry.name()).filter(|known| Arc::ptr_eq(&known.entry, entry)) {
                Some(known) => extensions.keep((*known).clone(), &mut found),
                None => extensions.note(entry, &mut found),
            }
        }
        extensions.serve(&found).await.map_err(internal)?;
        extensions.served_up_to.send_replace(snapshot.revision);
        extensions.look_at(&found);
        Ok(Arc::new(extensions))
    }

    /// The definitions for the start of a fork, with the resources that this server serves at this moment.
    pub async fn inheritable(&self) -> InheritedDefinitions {
        let (served, apis) = self.serving.state(&self.registry).await;
        let known = self.known.lock().definitions.values().cloned().collect();
        InheritedDefinitions { known, served, apis, programs: self.serving.programs.clone() }
    }

    /// Follows the definitions until the server stops.
    pub fn run(self: Arc<Self>, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self: Arc<Self>, stopping: CancellationToken) {
        let telling = self.statuses.run(WRITES_AT_ONCE, |name| self.tell(name));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = self.follow() => match never {},
            never = telling => match never {},
        }
    }

    /// Deletes the objects of terminating definitions until stopped. Only one server on a store does it, since further
    /// ones would list every object without effect.
    pub fn empty_definitions(self: Arc<Self>, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.empty_definitions_until(stopping))
    }

    async fn empty_definitions_until(self: Arc<Self>, stopping: CancellationToken) {
        let queue = Arc::new(Queue::new("crd_finalizer", EMPTYING_BACKOFF));
        // ORDER: the queue is set before the known definitions are read, so that none is missed.
        *self.emptying.lock() = Some(queue.clone());
        let known: Vec<String> = self.known.lock().definitions.names().cloned().collect();
        self.look_at(&known.into_iter().collect());
        tokio::select! {
            () = stopping.cancelled() => {}
            never = queue.run(EMPTIED_AT_ONCE, |name| self.empty(name)) => match never {},
        }
        *self.emptying.lock() = None;
    }

    /// The counts of changes of the OpenAPI documents.
    pub fn regenerations(&self) -> &Regenerations {
        &self.serving.regenerations
    }

    /// Statistics of the compiled expressions of schemas.
    pub fn program_stats(&self) -> ProgramStats {
        self.serving.programs.stats()
    }

    /// The latest known state of a definition. `None` if it was deleted.
    pub(crate) fn known(&self, name: &str) -> Option<KnownDefinition> {
        self.known.lock().definitions.get(name).cloned()
    }

    /// Returns true while the names of a definition of a group are undecided: of the one with this plural name, or of
    /// any.
    pub(crate) fn awaits_names(&self, group: &str, plural: Option<&str>) -> bool {
        let awaits = |known: &KnownDefinition| !known.read.terminating && !known.read.names_decided;
        let is_asked = |known: &&KnownDefinition| plural.is_none_or(|plural| known.read.requested.plural == plural);
        self.known.lock().definitions.in_group(group).filter(is_asked).any(awaits)
    }

    /// Calls `act` with the index of names. Definitions that may get freed names are queued again.
    pub(crate) fn with_names<T>(&self, act: impl FnOnce(&mut NameIndex) -> (T, Vec<String>)) -> T {
        let (result, freed) = act(&mut self.known.lock().names);
        freed.into_iter().for_each(|waiting| self.statuses.add(waiting));
        result
    }

    async fn follow(&self) -> Infallible {
        let mut pace = Pace::new(FOLLOW_AGAIN);
        loop {
            pace.turn().await;
            if let Err(error) = self.watch().await {
                warn_repeated!(""; %error, "the watch of custom resource definitions failed; restarting it");
            }
        }
    }

    /// Applies each change of a definition until the watch ends. The watch begins with all definitions.
    async fn watch(&self) -> Result<(), ApiError> {
        let options = ListOptions {
            watch: true,
            send_initial_events: true,
            resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
            allow_bookmarks: true,
            ..ListOptions::default()
        };
        let mut watch = self.registry.watch(&self.definitions, self.client.caller(), &options).await?;
        let mut initial = HashSet::new();
        while let Some(outputs) = watch.next().await {
            let mut changed = BTreeSet::new();
            let mut up_to = Revision::ZERO;
            for output in outputs {
                up_to = up_to.max(revision_of(&output));
                match output {
                    WatchOutput::Initial(entry) => {
                        initial.insert(entry.name().to_owned());
                        self.note(&entry, &mut changed);
                    }
                    WatchOutput::Event(_, event) => match (&event.current, &event.previous) {
                        (Some(entry), _) => self.note(entry, &mut changed),
                        (None, Some(last)) => self.forget(last.name(), &mut changed),
                        (None, None) => {}
                    },
                    WatchOutput::Bookmark { initial_events_end: true, .. } => {
                        let gone: Vec<String> = self
                            .known
                            .lock()
                            .definitions
                            .names()
                            .filter(|name| !initial.contains(*name))
                            .cloned()
                            .collect();
                        gone.iter().for_each(|name| self.forget(name, &mut changed));
                        initial.clear();
                    }
                    WatchOutput::Bookmark { .. } => {}
                    WatchOutput::Error(error) => return Err(error),
                }
            }
            while let Err(error) = self.serve(&changed).await {
                warn_repeated!(""; %error, "changed definitions of custom resources can't be served; retrying");
                tokio::time::sleep(AGAIN).await;
            }
            self.served_up_to.send_if_modified(|before| std::mem::replace(before, up_to.max(*before)) < up_to);
            self.look_at(&changed);
        }
        Ok(())
    }

    /// Records a definition, and adds it to `changed` if its state is new.
    fn note(&self, entry: &Arc<Entry>, changed: &mut BTreeSet<String>) {
        let name = entry.name();
        if self.known(name).is_some_and(|known| known.entry.revision >= entry.revision) {
            return;
        }
        let read = Arc::new(Definition::read(&entry.object().decode(entry.revision)));
        self.keep(KnownDefinition { entry: entry.clone(), read }, changed);
    }

    fn keep(&self, definition: KnownDefinition, changed: &mut BTreeSet<String>) {
        let name = definition.entry.name().to_owned();
        let mut known = self.known.lock();
        changed.extend(known.names.note(&definition.read, definition.entry.revision));
        known.definitions.insert(&name, definition);
        changed.insert(name);
    }

    /// Removes a deleted definition.
    fn forget(&self, name: &str, changed: &mut BTreeSet<String>) {
        let mut known = self.known.lock();
        if known.definitions.remove(name).is_some() {
            changed.extend(known.names.forget(name));
            changed.insert(name.to_owned());
        }
    }

    /// Updates the surface for these definitions.
    async fn serve(&self, changed: &BTreeSet<String>) -> Result<(), RegistrationError> {
        if changed.is_empty() {
            return Ok(());
        }
        // A definition hidden by another of the same kind is served when that one is removed.
        let groups: HashSet<&str> = changed.iter().map(|name| group_of(name)).collect();
        let known_now = || {
            let known = self.known.lock();
            groups.iter().flat_map(|group| known.definitions.in_group(group).cloned()).collect()
        };
        let definitions = self.definitions.collection().map_err(|error| RegistrationError::Cache(error.to_string()))?;
        self.serving.adjust(&self.registry, definitions, &self.outbound, &groups, known_now).await
    }

    /// Queues these definitions for the tasks that write to them.
    fn look_at(&self, changed: &BTreeSet<String>) {
        for name in changed {
            match self.known(name).map(|known| known.read) {
                Some(definition) if !definition.terminating => self.statuses.add(name.clone()),
                Some(definition) if definition.holds_objects => {
                    if let Some(queue) = &*self.emptying.lock() {
                        queue.add(name.clone());
                    }
                }
                Some(_) | None => {}
            }
        }
    }
}

/// The revision of a watch's output, if known. All earlier changes have been delivered.
fn revision_of(output: &WatchOutput) -> Revision {
    match output {
        WatchOutput::Event(_, event) => event.revision,
        WatchOutput::Bookmark { revision, .. } => *revision,
        WatchOutput::Initial(_) | WatchOutput::Error(_) => Revision::ZERO,
    }
}
