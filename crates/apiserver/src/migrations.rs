//! Migrations of this server's stored objects: one of its processes rewrites objects stored in another version than the
//! published one. StorageVersionMigration objects at the main server show the progress.
//!
//! Only this server can count stale objects, since it has the store. ORDER: the processes' agreement is read at the
//! main server first. After that, the cache catches up with the store and must show no stale objects. A reported
//! success was therefore true at that time. A process that later writes another version has published it before, and
//! its objects count as stale.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keelson_controllers::migrations::{
    AUTOMATIC_LABEL, End, Failures, Rewriter, Subject, has_ended, is_running, say_ended, say_progress, say_running,
    stated_total, subject, superseded,
};
use keelson_controllers::{Outcome, RevisedObject, StorageVersionEntry, retry_conflicts};
use keelson_meta::json::json;
use keelson_meta::{ApiError, GroupResource, Object, Revision};
use keelson_registry::Registry;
use keelson_supervision::{info_repeated, warn_repeated};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::main_server::{MainServer, object};
use crate::membership::OtherServers;
use crate::storage_versions;

/// The path of migrations.
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
/// The account that rewrites objects, as for the main server's controller.
const ACCOUNT: &str = "storage-version-migrator-controller";
/// The interval between checks for stale objects and requested migrations.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// The interval between progress reports of a walk, with a check of the migration.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The delay before a resource with a failed write is processed again.
const AGAIN: Duration = Duration::from_secs(10);
/// The most immediate attempts to write an object after conflicts.
const ATTEMPTS: usize = 8;
/// The number of ended automatic migrations kept for each resource.
const KEPT: usize = 3;

/// The migrator of this server.
pub(crate) struct Migrations {
    main_server: MainServer,
    registry: Arc<Registry>,
    server_id: String,
    /// The other servers of the store. Entries of earlier processes expire with their leases.
    neighbours: OtherServers,
    rewriter: Rewriter,
}

/// A running migration.
struct Request {
    path: String,
    uid: String,
    /// The number of stale objects at its start.
    total: usize,
}

/// The outcome of one pass over the stored objects.
enum WalkOutcome {
    Through(Failures),
    Disagreed(String),
    /// The migration was deleted or ended, or the served resources changed.
    CutOff,
}

impl Migrations {
    /// The migrator of the server of this name, with its neighbours on the store.
    pub(crate) fn new(
        main_server: MainServer,
        registry: Arc<Registry>,
        server_id: &str,
        neighbours: OtherServers,
    ) -> Self {
        let rewriter = Rewriter::new(registry.clone(), registry.controller(ACCOUNT));
        Self { main_server, registry, server_id: server_id.to_owned(), neighbours, rewriter }
    }

    /// Migrates all stored resources, once they are published. If the main server does not serve migrations, stale
    /// objects are rewritten only by later changes.
    pub(crate) async fn run(self, mut published: watch::Receiver<bool>) {
        // The publication outlives this task.
        let _ = published.wait_for(|published| *published).await;
        loop {
            let wait = match self.look().await {
                Ok(Outcome::Done) => LOOK_INTERVAL,
                Ok(Outcome::Again) => AGAIN,
                Err(error) => {
                    warn_repeated!(""; %error, "migrating stored objects failed; retrying");
                    AGAIN
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// The stored resources with their entries.
    fn subjects(&self) -> impl Iterator<Item = (Subject, StorageVersionEntry)> {
        let surface = self.registry.surface();
        let all: Vec<_> = surface.resources().cloned().collect();
        all.into_iter().filter_map(move |served| {
            Some((Subject::new(&surface, &served)?, StorageVersionEntry::new(&self.server_id, &served)?))
        })
    }

    async fn look(&self) -> Result<Outcome, ApiError> {
        let mut outcome = Outcome::Done;
        let Some(all) = self.all().await? else { return Ok(Outcome::Done) };
        for (subject, entry) in self.subjects() {
            if self.look_at(&subject, &entry, &all).await? == Outcome::Again {
                outcome = Outcome::Again;
            }
        }
        Ok(outcome)
    }

    async fn look_at(
        &self,
        stored: &Subject,
        entry: &StorageVersionEntry,
        all: &[Object],
    ) -> Result<Outcome, ApiError> {
        let of_resource: Vec<&Object> = all.iter().filter(|it| subject(it) == *stored.resource()).collect();
        let mut open: Vec<&Object> = of_resource.iter().filter(|it| !has_ended(it)).copied().collect();
        if !stored.has_stale() && open.is_empty() {
            return Ok(Outcome::Done);
        }
        let Some(published) = self.published(entry).await? else { return Ok(Outcome::Done) };
        // If two processes both count as the first, both rewrite stale objects, and each checks for itself if any is
        // left.
        if !entry.is_first(&published, |server| self.neighbours.live(server)) {
            return Ok(Outcome::Done);
        }
        let disagreement = entry.disagreement(&published);
        open.sort_by_key(|it| {
            let made = it.creation_timestamp().unwrap_or_default().to_owned();
            (!is_running(it), made, it.name().to_owned())
        });
        let first = match (open.first(), disagreement) {
            (Some(first), Some(why)) => {
                self.end(&Request::from_object(first), &End::Failed(why)).await?;
                return Ok(Outcome::Again);
            }
            // The migration is processed again until all servers agree.
            (None, Some(_)) => return Ok(Outcome::Done),
            (Some(first), None) => (*first).clone(),
            (None, None) => self.begin(stored.resource(), &of_resource).await?,
        };
        for other in open.iter().skip(1) {
            let why = format!("the migration {} of the same resource is under way", first.name());
            self.end(&Request::from_object(other), &End::Failed(why)).await?;
        }
        self.migrate(&first, stored, entry).await
    }

    /// Creates a migration, and deletes old automatic ones.
    async fn begin(&self, of: &GroupResource, known: &[&Object]) -> Result<Object, ApiError> {
        let stored = |object: &&Object| {
            let revision = object.resource_version().parse().map(Revision::new).unwrap_or_default();
            RevisedObject { object: (*object).clone(), revision }
        };
        for over in superseded(known.iter().map(stored).collect(), KEPT - 1) {
            let path = format!("{MIGRATIONS}/{}", over.object.name());
            match self.main_server.ask(Method::DELETE, &path, None).await {
                Ok(_) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let GroupResource { group, resource } = of;
        let new = json!({
            "apiVersion": "storagemigration.k8s.io/v1beta1",
            "kind": "StorageVersionMigration",
            "metadata": { "generateName": format!("{resource}.{group}-"), "labels": { AUTOMATIC_LABEL: "true" } },
            "spec": { "resource": { "group": group, "resource": resource } },
        });
        object(self.main_server.ask(Method::POST, MIGRATIONS, Some(&new)).await?, MIGRATIONS)
    }

    async fn migrate(
        &self,
        migration: &Object,
        stored: &Subject,
        entry: &StorageVersionEntry,
    ) -> Result<Outcome, ApiError> {
        self.registry.catch_up_with_store().await?;
        let mut request = Request::from_object(migration);
        request.total = stated_total(migration).unwrap_or_else(|| stored.stale());
        if !is_running(migration) {
            let (resource, version, objects) = (stored.resource(), stored.version(), request.total);
            info_repeated!(&resource; migration = migration.name(), %resource, version, objects, "a migration begins");
            self.say_running(&request, None).await?;
        }
        let failures = match self.walk(&request, stored, entry).await? {
            WalkOutcome::Through(failures) => failures,
            WalkOutcome::Disagreed(why) => {
                self.end(&request, &End::Failed(why)).await?;
                return Ok(Outcome::Again);
            }
            WalkOutcome::CutOff => return Ok(Outcome::Again),
        };
        if let Some(hindrance) = failures.hindrance(stored.unreadable()) {
            warn_repeated!(migration.name(); migration = migration.name(), hindrance, "a migration can't end yet");
            self.say_running(&request, Some(&hindrance)).await?;
            return Ok(Outcome::Again);
        }
        // ORDER: the agreement is read before the cache catches up with the store.
        let published = self.published(entry).await?;
        if published.is_none_or(|published| entry.disagreement(&published).is_some()) {
            return Ok(Outcome::Again);
        }
        self.registry.catch_up_with_store().await?;
        if stored.has_stale() {
            return Ok(Outcome::Again);
        }
        self.end(&request, &End::Succeeded).await?;
        info_repeated!(stored.resource(); migration = migration.name(), resource = %stored.resource(), "a migration succeeded");
        Ok(Outcome::Done)
    }

    /// Rewrites stale objects in one pass through the collection.
    async fn walk(
        &self,
        request: &Request,
        stored: &Subject,
        entry: &StorageVersionEntry,
    ) -> Result<WalkOutcome, ApiError> {
        let (mut failures, mut told) = (Failures::default(), Instant::now());
        self.say_progress(request, stored).await?;
        let mut from = Some(String::new());
        while let Some(start) = from {
            if stored.is_removed() {
                return Ok(WalkOutcome::CutOff);
            }
            if told.elapsed() >= PROGRESS_INTERVAL {
                told = Instant::now();
                if !self.say_progress(request, stored).await? {
                    return Ok(WalkOutcome::CutOff);
                }
                let published = self.published(entry).await?;
                let why = published.map_or(Some("no server publishes it any more".to_owned()), |published| {
                    entry.disagreement(&published)
                });
                if let Some(why) = why {
                    return Ok(WalkOutcome::Disagreed(why));
                }
            }
            from = self.rewriter.step(stored, &start, &mut failures).await;
        }
        self.say_progress(request, stored).await?;
        Ok(WalkOutcome::Through(failures))
    }

    /// The published storage version of a resource.
    async fn published(&self, entry: &StorageVersionEntry) -> Result<Option<Object>, ApiError> {
        let path = storage_versions::path(entry);
        match self.main_server.ask(Method::GET, &path, None).await {
            Ok(found) => object(found, &path).map(Some),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All migrations of the main server; `None` where it does not serve them.
    async fn all(&self) -> Result<Option<Vec<Object>>, ApiError> {
        let list = match self.main_server.ask(Method::GET, MIGRATIONS, None).await {
            Err(ApiError::NotFound { .. }) => return Ok(None),
            list => list?,
        };
        let items = list["items"].as_array().into_iter().flatten();
        Ok(Some(items.filter_map(|item| Object::from_value(item.clone())).collect()))
    }

    async fn say_running(&self, request: &Request, hindrance: Option<&str>) -> Result<(), ApiError> {
        let now = self.registry.now();
        let say = |migration: &mut Object| !has_ended(migration) && say_running(migration, hindrance, now);
        self.edit(request, "/status", say).await.map(drop)
    }

    /// Reports the progress. Returns false if the migration is no longer wanted.
    async fn say_progress(&self, request: &Request, stored: &Subject) -> Result<bool, ApiError> {
        let done = request.total - stored.stale().min(request.total);
        let say = |migration: &mut Object| request.total > 0 && say_progress(migration, done, request.total);
        Ok(self.edit(request, "", say).await?.is_some_and(|migration| !has_ended(&migration)))
    }

    async fn end(&self, request: &Request, end: &End) -> Result<(), ApiError> {
        let now = self.registry.now();
        let say = |migration: &mut Object| {
            let is_open = !has_ended(migration);
            if is_open {
                say_ended(migration, end, now);
            }
            is_open
        };
        self.edit(request, "/status", say).await.map(drop)
    }

    /// Changes a migration where needed. Returns the result, if it still exists.
    async fn edit(
        &self,
        request: &Request,
        below: &str,
        change: impl Fn(&mut Object) -> bool,
    ) -> Result<Option<Object>, ApiError> {
        let edit = async || {
            let found = match self.main_server.ask(Method::GET, &request.path, None).await {
                Err(ApiError::NotFound { .. }) => return Ok(None),
                found => found?,
            };
            let mut found = object(found, &request.path)?;
            if found.uid() != request.uid {
                return Ok(None);
            }
            if change(&mut found) {
                let (path, next) = (format!("{}{below}", request.path), found.clone().into_value());
                self.main_server.ask(Method::PUT, &path, Some(&next)).await?;
            }
            Ok(Some(found))
        };
        retry_conflicts(ATTEMPTS, edit).await
    }
}

impl Request {
    fn from_object(migration: &Object) -> Self {
        Self { path: format!("{MIGRATIONS}/{}", migration.name()), uid: migration.uid().to_owned(), total: 0 }
    }
}
