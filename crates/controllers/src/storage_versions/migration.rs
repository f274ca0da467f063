//! Migrations of stored objects to the version that all servers agree on (KEP-2339, KEP-4192).
//!
//! Clients may create migration objects. The controller creates one itself if objects are stored in another version
//! than the agreed one. The cache counts such stale objects, so a resource without any costs no search.
//!
//! A migration succeeds only if the agreement has not changed since before the cache showed no stale objects. The write
//! of the success requires that in its transaction. So no server can have written another version in between.

mod agreed;
mod definitions;
mod known;
pub(super) mod objects;
mod rewriter;
mod subject;
mod walk;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::{Value, json};
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, GroupResource, Object};
use keelson_registry::{Registry, Target};
use keelson_resources::Verb;
use keelson_storage::Compare;
use keelson_supervision::{info_repeated, warn_repeated};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::entry::{name_of, resource_of};
use super::states::StorageStates;
use super::target;
use crate::client::{CONTROLLER_MANAGER, Client, RevisedObject};
use crate::conflicts::retry_conflicts;
use crate::follow::follow;
use crate::identity::{IDENTITY_LABEL, IDENTITY_VALUE};
use crate::leases;
use crate::queue::{Backoff, Outcome, Queue};
use agreed::Agreement;
use known::KnownMigrations;
pub use known::superseded;
use objects::{
    AUTOMATIC_LABEL, End, has_ended, is_running, say_ended, say_revision, say_running, stated_total, subject,
};
pub use rewriter::{Failures, Rewriter};
pub use subject::Subject;
use walk::WalkOutcome;

/// The service account, as in kube-controller-manager.
const ACCOUNT: &str = "storage-version-migrator-controller";
/// The field manager for definitions.
const DEFINITION_MANAGER: &str = "migration-runner-controller";
/// The number of resources processed concurrently. Their objects are rewritten in turns.
const AT_ONCE: usize = 4;
/// The backoff of a resource after a failed write.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(60) };
/// The longest wait for servers to agree, which takes a moment after a change, and the interval between checks.
const AGREEMENT_PATIENCE: Duration = Duration::from_secs(5);
const AGREEMENT_INTERVAL: Duration = Duration::from_millis(100);
/// The most immediate attempts to write an object after conflicts.
const ATTEMPTS: usize = 8;
/// The number of ended automatic migrations that are kept for each resource.
const KEPT: usize = 3;

/// The controller.
pub struct StorageVersionMigrator {
    registry: Arc<Registry>,
    client: Client,
    /// The client that writes definitions.
    definer: Client,
    versions: Target,
    leases: Target,
    definitions: Target,
    migrations: Target,
    services: Target,
    states: StorageStates,
    /// The names of the servers with a lease.
    servers: Mutex<HashSet<String>>,
    /// The known migrations.
    known: Mutex<KnownMigrations>,
    queue: Queue<GroupResource>,
    rewriter: Rewriter,
}

/// A running migration.
struct Request {
    name: String,
    uid: String,
    /// The number of stale objects when the migration started.
    total: usize,
}

/// The reason why a resource can't be migrated here.
enum NoSubject {
    /// The resource is not served yet, but a definition exists.
    Pending,
    /// The resource is not served here, but maybe by an aggregated server.
    NotServed,
    Never(String),
}

impl StorageVersionMigrator {
    /// Creates a controller over a registry.
    ///
    /// # Errors
    /// 500 when one of the resources that it needs is not served.
    pub fn new(registry: Arc<Registry>) -> Result<Self, ApiError> {
        let client = Client::of_controller(registry.clone(), ACCOUNT, CONTROLLER_MANAGER);
        Ok(Self {
            versions: target(&client)?,
            leases: leases::collection(&client)?,
            definitions: client.collection("apiextensions.k8s.io", "v1", "customresourcedefinitions", None)?,
            migrations: client.collection("storagemigration.k8s.io", "v1beta1", "storageversionmigrations", None)?,
            services: client.collection("apiregistration.k8s.io", "v1", "apiservices", None)?,
            states: StorageStates::new(registry.clone(), client.clone()),
            definer: Client::of_controller(registry.clone(), ACCOUNT, DEFINITION_MANAGER),
            servers: Mutex::default(),
            known: Mutex::default(),
            queue: Queue::new("storage_version_migrator", BACKOFF),
            rewriter: Rewriter::new(registry.clone(), client.caller().clone()),
            registry,
            client,
        })
    }

    /// Runs until cancelled. Another server then continues the migrations.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let (caller, all) = (self.client.caller(), FieldSelector::default);
        let versions =
            follow(&self.registry, caller, &self.versions, all(), |version| self.add_version(version.name()));
        let migrations = follow(&self.registry, caller, &self.migrations, all(), |migration| {
            self.note_migration(migration.name());
        });
        let definitions = follow(&self.registry, caller, &self.definitions, all(), |definition| {
            if let Some((resource, group)) = definition.name().split_once('.') {
                self.queue.add(GroupResource { group: group.to_owned(), resource: resource.to_owned() });
            }
        });
        let leases = follow(&self.registry, caller, &self.leases, all(), |lease| self.note_server(lease.name()));
        let work = self.queue.run(AT_ONCE, |resource| self.turn(resource));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = versions => match never {},
            never = migrations => match never {},
            never = definitions => match never {},
            never = leases => match never {},
            never = work => match never {},
        }
    }

    fn add_version(&self, name: &str) {
        if let Some(resource) = resource_of(name) {
            self.queue.add(resource);
        }
    }

    /// Records the current state of a migration and enqueues its resource.
    fn note_migration(&self, name: &str) {
        let Ok(migrations) = self.migrations.collection() else { return };
        let Some(entry) = migrations.get(&self.migrations.relative_key(name)) else {
            let resource = self.known.lock().forget(name);
            // The definition of the resource may still name the migration, or the resource may need another one.
            return resource.into_iter().for_each(|resource| self.queue.add(resource));
        };
        let migration = entry.object().decode(entry.revision);
        let resource = self.published(subject(&migration));
        self.known.lock().note(&migration, resource.clone());
        // The resource is enqueued even if the migration has ended, since a client may have written that end.
        self.queue.add(resource);
    }

    /// Enqueues all resources when a server appears or disappears. Renewals of leases, which are far more frequent,
    /// enqueue nothing.
    fn note_server(&self, name: &str) {
        let Ok(leases) = self.leases.collection() else { return };
        let is_there = |lease: &Arc<keelson_cache::Entry>| lease.labels.get(IDENTITY_LABEL) == Some(IDENTITY_VALUE);
        let is_there = leases.get(&self.leases.relative_key(name)).as_ref().is_some_and(is_there);
        let mut servers = self.servers.lock();
        let changed = if is_there { servers.insert(name.to_owned()) } else { servers.remove(name) };
        drop(servers);
        if changed && let Ok(versions) = self.versions.collection() {
            versions.snapshot().range("", None).for_each(|version| self.add_version(version.name()));
        }
    }

    async fn turn(&self, resource: GroupResource) -> Outcome {
        match self.look(&resource).await {
            Ok(outcome) => outcome,
            Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(&resource; %resource, %error, "a migration failed; retrying");
                Outcome::Again
            }
        }
    }

    async fn look(&self, resource: &GroupResource) -> Result<Outcome, ApiError> {
        let found = self.find(resource);
        if let Ok(Subject { resource, stored, kind, .. }) = &found
            && stored.count_stale(kind) > 0
            && self.states.is_settled(resource, kind)
        {
            self.states.doubt(resource, kind).await?;
        }
        let is_asked = self.is_asked(resource)?;
        let is_needed = found.as_ref().is_ok_and(|subject| self.is_needed(subject));
        if !is_asked && !is_needed {
            return self.look_at_rest(resource, found.ok()).await;
        }
        let mut open = self.open(resource).await?.into_iter();
        let subject = match found {
            Ok(subject) => subject,
            Err(NoSubject::Pending) => return Ok(Outcome::Again),
            Err(NoSubject::NotServed) if self.is_aggregated(&resource.group) => {
                return self.leave_to_others(resource, open.collect()).await;
            }
            Err(NoSubject::NotServed) => {
                return self.fail_all(open, "resource does not exist in discovery".to_owned()).await;
            }
            Err(NoSubject::Never(why)) => return self.fail_all(open, why).await,
        };
        let first = match open.next() {
            Some(first) => first,
            None if is_needed => match self.agreement(&subject).await? {
                Ok(_) => self.begin(&subject).await?,
                // A new agreement enqueues it again.
                Err(_) => return self.forget_lost_migration(&subject).await.map(|()| Outcome::Done),
            },
            None => return Ok(Outcome::Done),
        };
        for other in open {
            let why = format!("the migration {} of the same resource is under way", first.object.name());
            self.end(&Request::from_object(&other), &End::Failed(why), None).await?;
        }
        self.migrate(&first, &subject).await
    }

    async fn fail_all(
        &self,
        open: impl Iterator<Item = RevisedObject> + Send,
        why: String,
    ) -> Result<Outcome, ApiError> {
        for migration in open {
            self.end(&Request::from_object(&migration), &End::Failed(why.clone()), None).await?;
        }
        Ok(Outcome::Done)
    }

    /// Leaves the migrations to the aggregated server that publishes the resource and has its store. A migration that
    /// no server can run fails.
    async fn leave_to_others(&self, resource: &GroupResource, open: Vec<RevisedObject>) -> Result<Outcome, ApiError> {
        let is_published = self.client.get(&self.versions, &name_of(resource)).await?.is_some();
        // A running migration waits for its server, which may only be absent for a moment.
        for migration in open.iter().filter(|it| !is_published && !is_running(&it.object)) {
            let why = format!("no server has published in which version it stores {resource}");
            self.end(&Request::from_object(migration), &End::Failed(why), None).await?;
        }
        Ok(Outcome::Done)
    }

    /// Returns true if an APIService forwards the group to an aggregated server.
    fn is_aggregated(&self, group: &str) -> bool {
        let Ok(services) = self.services.collection() else { return false };
        let leads = |entry: &keelson_cache::Entry| {
            let service = entry.object().decode(entry.revision);
            service.get(&["spec", "group"]).and_then(Value::as_str) == Some(group)
                && service.get(&["spec", "service"]).is_some_and(Value::is_object)
        };
        // The name of an APIService ends with its group.
        let is_of = |entry: &keelson_cache::Entry| entry.name().split_once('.').is_some_and(|(_, of)| of == group);
        services.snapshot().range("", None).any(|entry| is_of(entry) && leads(entry))
    }

    /// Updates the definition and the storage state of a resource without a migration.
    async fn look_at_rest(&self, resource: &GroupResource, subject: Option<Subject>) -> Result<Outcome, ApiError> {
        let Some(subject) = subject else {
            if self.versions.collection()?.get(&name_of(resource)).is_none() {
                self.states.forget(resource).await?;
            }
            return Ok(Outcome::Done);
        };
        self.forget_lost_migration(&subject).await?;
        if self.states.is_settled(&subject.resource, &subject.kind) {
            return Ok(Outcome::Done);
        }
        self.states.begin(&subject.resource, &subject.kind).await?;
        // Without an agreement, the resource waits for the next one.
        let Ok(agreement) = self.agreement(&subject).await? else { return Ok(Outcome::Done) };
        self.registry.catch_up_with_store().await?;
        if !subject.has_stale() {
            self.states.settle(&subject.resource, &subject.kind, agreement.stands).await?;
        }
        Ok(Outcome::Done)
    }

    /// Looks up the served resource.
    fn find(&self, resource: &GroupResource) -> Result<Subject, NoSubject> {
        let surface = self.registry.surface();
        let Some(served) = surface.resource(&resource.group, &resource.resource) else {
            let name = format!("{}.{}", resource.resource, resource.group);
            let is_defined = self.definitions.collection().is_ok_and(|definitions| definitions.get(&name).is_some());
            return Err(if is_defined { NoSubject::Pending } else { NoSubject::NotServed });
        };
        let version = served.versions().first();
        let can = |verb| version.is_some_and(|version| version.verbs.contains(&verb));
        let (true, Some(stored), Some(kind)) =
            ([Verb::Update, Verb::Patch, Verb::List].into_iter().all(can), served.stored(), served.storage_kind())
        else {
            let version = version.map_or("", |version| &*version.name);
            let GroupResource { group, resource } = resource;
            return Err(NoSubject::Never(format!(
                "resource \"{group}/{version}, Resource={resource}\" does not support discovery operations: [update patch list]"
            )));
        };
        let Some(target) = surface.stored_target(stored) else { return Err(NoSubject::Pending) };
        let resource = GroupResource { group: kind.group.clone(), resource: resource.resource.clone() };
        Ok(Subject { resource, stored: stored.clone(), kind: kind.clone(), target })
    }

    /// The resource whose storage version covers this one: itself, or the resource whose stored form it shares.
    fn published(&self, resource: GroupResource) -> GroupResource {
        self.find(&resource).map_or(resource, |subject| subject.resource)
    }

    /// Returns true if, by this server's knowledge, all servers agree on a version and objects may be stored in another
    /// one.
    fn is_needed(&self, subject: &Subject) -> bool {
        (subject.stale() > 0 || self.lists_other_versions(subject)) && self.known_disagreement(subject).is_none()
    }

    /// Returns true if the resource has a known open migration.
    fn is_asked(&self, resource: &GroupResource) -> Result<bool, ApiError> {
        let migrations = self.migrations.collection()?;
        let mut known = self.known.lock();
        let names = known.open(resource);
        let (there, gone): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| migrations.get(&self.migrations.relative_key(name)).is_some());
        gone.iter().for_each(|name| drop(known.forget(name)));
        Ok(!there.is_empty())
    }

    /// The open migrations of a resource: the running one first, then the oldest.
    async fn open(&self, resource: &GroupResource) -> Result<Vec<RevisedObject>, ApiError> {
        let mut open = Vec::new();
        let names = self.known.lock().open(resource);
        for name in names {
            open.extend(self.client.get(&self.migrations, &name).await?.filter(|it| !has_ended(&it.object)));
        }
        open.sort_by_cached_key(|it| {
            let made = it.object.creation_timestamp().unwrap_or_default().to_owned();
            (!is_running(&it.object), made, it.object.name().to_owned())
        });
        Ok(open)
    }

    /// Creates a migration where none is open, and deletes old automatic ones.
    async fn begin(&self, subject: &Subject) -> Result<RevisedObject, ApiError> {
        let GroupResource { group, resource } = &subject.resource;
        // The cache may not have a migration of another server yet, so all are listed once before one is created.
        let of_resource = self.all_of(&subject.resource).await?;
        if let Some(open) = self.open(&subject.resource).await?.into_iter().next() {
            return Ok(open);
        }
        for over in superseded(of_resource, KEPT - 1) {
            self.client.delete(&self.migrations, &over).await?;
        }
        let base = if group.is_empty() { format!("{resource}-") } else { format!("{resource}.{group}-") };
        let new = json!({
            "apiVersion": "storagemigration.k8s.io/v1beta1",
            "kind": "StorageVersionMigration",
            "metadata": { "generateName": base, "labels": { AUTOMATIC_LABEL: "true" } },
            "spec": { "resource": { "group": group, "resource": resource } },
        });
        let made = self.client.create(&self.migrations, new).await?.read();
        // Recorded before its event arrives, so that the next turn does not create another one.
        self.known.lock().note(&made.object, subject.resource.clone());
        Ok(made)
    }

    /// Lists all migrations of a resource from the store, including those that the cache does not have yet.
    async fn all_of(&self, resource: &GroupResource) -> Result<Vec<RevisedObject>, ApiError> {
        let mut of_resource = Vec::new();
        for there in self.client.list(&self.migrations, LabelSelector::everything()).await? {
            let of = self.published(objects::subject(&there.object));
            self.known.lock().note(&there.object, of.clone());
            if of == *resource {
                of_resource.push(there);
            }
        }
        Ok(of_resource)
    }

    /// Removes the condition of a migration that no longer exists from the resource's definition.
    async fn forget_lost_migration(&self, subject: &Subject) -> Result<(), ApiError> {
        if !self.says_migrating(subject)
            || self.all_of(&subject.resource).await?.iter().any(|it| !has_ended(&it.object))
        {
            return Ok(());
        }
        self.forget_migration(subject).await
    }

    async fn migrate(&self, migration: &RevisedObject, subject: &Subject) -> Result<Outcome, ApiError> {
        let mut request = Request::from_object(migration);
        match self.await_agreement(subject).await? {
            Ok(_) => {}
            Err(why) => return self.fail(&request, subject, why).await,
        }
        self.registry.catch_up_with_store().await?;
        request.total = stated_total(&migration.object)
            .unwrap_or_else(|| self.registry.count_rewritable(&subject.stored, &subject.kind));
        if !self.start(&request, migration, subject).await? {
            self.forget_migration(subject).await?;
            return Ok(Outcome::Done);
        }
        match self.walk(&request, subject).await? {
            WalkOutcome::Through(failures) => match failures.hindrance(subject.unreadable()) {
                None => self.succeed(&request, subject).await,
                Some(hindrance) => {
                    warn_repeated!(&request.name; migration = request.name, hindrance, "a migration can't end yet");
                    let now = self.client.now();
                    let say =
                        |migration: &mut Object| !has_ended(migration) && say_running(migration, Some(&hindrance), now);
                    self.edit(&self.status(&request), &request, say, Vec::new()).await?;
                    Ok(Outcome::Again)
                }
            },
            WalkOutcome::Disagreed(why) => self.fail(&request, subject, why).await,
            WalkOutcome::Replaced => Ok(Outcome::Again),
            WalkOutcome::Unwanted => {
                self.forget_migration(subject).await?;
                // There may be another migration, or the need for one, so the resource gets another turn.
                Ok(Outcome::Again)
            }
        }
    }

    async fn await_agreement(&self, subject: &Subject) -> Result<Result<Agreement, String>, ApiError> {
        let until = tokio::time::Instant::now() + AGREEMENT_PATIENCE;
        loop {
            match self.agreement(subject).await? {
                Err(_) if tokio::time::Instant::now() < until => tokio::time::sleep(AGREEMENT_INTERVAL).await,
                answer => return Ok(answer),
            }
        }
    }

    /// Marks a migration as running. Returns true if it still exists.
    async fn start(&self, request: &Request, migration: &RevisedObject, subject: &Subject) -> Result<bool, ApiError> {
        self.say_migrating(subject, &request.name).await?;
        let now = self.client.now();
        if !is_running(&migration.object) {
            let (resource, objects) = (&subject.resource, request.total);
            info_repeated!(&resource; migration = request.name, %resource, objects, version = subject.version(), "a migration begins");
            let say = |migration: &mut Object| !has_ended(migration) && say_running(migration, None, now);
            if !self.edit(&self.status(request), request, say, Vec::new()).await? {
                return Ok(false);
            }
        }
        let revision = subject.stored.cached.snapshot().revision;
        let say = |migration: &mut _| say_revision(migration, revision);
        if !self.edit(&self.status(request), request, say, Vec::new()).await? {
            return Ok(false);
        }
        self.tell_progress(request, subject).await
    }

    /// Ends a migration after its last rewrite, unless objects have become stale again.
    async fn succeed(&self, request: &Request, subject: &Subject) -> Result<Outcome, ApiError> {
        // ORDER: the agreement is read before the cache catches up with the store. The write of the end requires that
        // it is unchanged.
        let stands = match self.await_agreement(subject).await? {
            Ok(agreement) => agreement.stands,
            Err(why) => return self.fail(request, subject, why).await,
        };
        self.registry.catch_up_with_store().await?;
        // Another server may have written objects under an older key of encryption behind the walk.
        if subject.has_stale() || self.registry.count_rewritable(&subject.stored, &subject.kind) > 0 {
            return Ok(Outcome::Again);
        }
        self.settle_definition(subject, &End::Succeeded, Some(stands.clone())).await?;
        self.states.settle(&subject.resource, &subject.kind, stands.clone()).await?;
        self.end(request, &End::Succeeded, Some(stands)).await?;
        info_repeated!(&subject.resource; migration = request.name, resource = %subject.resource, "a migration succeeded");
        Ok(Outcome::Done)
    }

    async fn fail(&self, request: &Request, subject: &Subject, why: String) -> Result<Outcome, ApiError> {
        warn_repeated!(&subject.resource; migration = request.name, resource = %subject.resource, why, "a migration failed");
        let end = End::Failed(why);
        self.settle_definition(subject, &end, None).await?;
        self.end(request, &end, None).await?;
        // Other migrations may have been requested, and the servers may agree by now.
        Ok(Outcome::Again)
    }

    async fn end(&self, request: &Request, end: &End, stands: Option<Compare>) -> Result<(), ApiError> {
        let now = self.client.now();
        let say = |migration: &mut Object| {
            say_ended(migration, end, now);
            true
        };
        self.edit(&self.status(request), request, say, stands.into_iter().collect()).await.map(drop)
    }

    fn status(&self, request: &Request) -> Target {
        self.migrations.clone().below("status").named(&request.name)
    }

    /// Changes a migration where needed. Returns true if it still exists.
    async fn edit(
        &self,
        target: &Target,
        request: &Request,
        change: impl Fn(&mut Object) -> bool + Send + Sync,
        conditions: Vec<Compare>,
    ) -> Result<bool, ApiError> {
        let (change, conditions) = (&change, &conditions);
        let edit = async || {
            let found = self.client.get(&self.migrations, &request.name).await?;
            let Some(mut found) = found.filter(|found| found.object.uid() == request.uid) else { return Ok(false) };
            if change(&mut found.object) {
                self.client.update_while(target, found.object, conditions.clone()).await?;
            }
            Ok(true)
        };
        retry_conflicts(ATTEMPTS, edit).await
    }
}

impl Request {
    fn from_object(migration: &RevisedObject) -> Self {
        Self { name: migration.object.name().to_owned(), uid: migration.object.uid().to_owned(), total: 0 }
    }
}
