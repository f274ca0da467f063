//! Follows the objects of each kind on other servers: a list, then a watch, repeated.
//!
//! Each kind has its own task, so a server that hangs or misbehaves affects only its own kinds.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{AbortHandle, Abortable};
use futures::stream::{FuturesUnordered, StreamExt as _};
use keelson_meta::ApiError;
use keelson_supervision::warn_repeated;

use super::{Objects, RemoteAccess, RemoteEvent, RemoteKind, RemoteKindNumber, RemoteKnowledge};
use crate::queue::Backoff;

/// The interval between checks for new and removed kinds.
const LOOK: Duration = Duration::from_millis(500);
/// The backoff after a failure to follow a kind, and the pause between two watches.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };
/// The most kinds of other servers that are followed.
const MOST_KINDS: usize = 1000;

/// The number of objects in a list that is being read. It is part of the total of all such lists.
struct Listing<'a> {
    all: &'a AtomicUsize,
    own: usize,
}

impl Listing<'_> {
    /// Adds to the count and returns the total of all lists.
    fn grow(&mut self, more: usize) -> usize {
        self.own += more;
        self.all.fetch_add(more, Ordering::Relaxed) + more
    }
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

impl RemoteKnowledge {
    /// Follows the objects of other servers until dropped.
    pub(in super::super) async fn follow(&self) -> Infallible {
        let Some(servers) = self.servers.as_deref() else { return std::future::pending().await };
        let mut following = FuturesUnordered::new();
        let mut handles: HashMap<RemoteKindNumber, AbortHandle> = HashMap::new();
        let mut seen = None;
        loop {
            let generation = servers.generation();
            if seen.replace(generation) != Some(generation) {
                let (new, gone) = self.compare(servers);
                gone.iter().filter_map(|number| handles.remove(number)).for_each(|handle| handle.abort());
                for (number, resource) in new {
                    let (handle, registration) = AbortHandle::new_pair();
                    handles.insert(number, handle);
                    following.push(Abortable::new(self.follow_kind(servers, number, resource), registration));
                }
            }
            tokio::select! {
                Some(ended) = following.next() => match ended {
                    Ok(never) => match never {},
                    Err(_aborted) => {}
                },
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Returns new kinds and removed kinds. Kinds of a server that does not answer are kept.
    fn compare(&self, servers: &dyn RemoteAccess) -> (Vec<(RemoteKindNumber, Arc<RemoteKind>)>, Vec<RemoteKindNumber>) {
        let mut wanted = servers.resources();
        let mut known = self.known.lock();
        // A server may report any number of kinds.
        let all: HashSet<&RemoteKind> = wanted.iter().collect();
        let is_gone = |resource: &RemoteKind| {
            let is_silent = servers.is_silent(&resource.group, &resource.version);
            !is_silent && !all.contains(resource)
        };
        let gone: Vec<RemoteKindNumber> =
            known.collections.iter().filter(|(_, it)| is_gone(&it.resource)).map(|(number, _)| *number).collect();
        gone.iter().for_each(|number| known.forget(*number));
        let followed: HashSet<Arc<RemoteKind>> = known.collections.values().map(|it| it.resource.clone()).collect();
        wanted.retain(|wanted| !followed.contains(wanted));
        let room = MOST_KINDS.saturating_sub(known.collections.len());
        if wanted.len() > room {
            warn_repeated!(""; left_out = wanted.len() - room,
                "garbage collection does not follow all kinds of aggregated servers"
            );
            wanted.truncate(room);
        }
        let new = wanted.into_iter().map(|resource| {
            let number = known.add(resource);
            (number, known.collections[&number].resource.clone())
        });
        let new = new.collect();
        drop(known);
        self.look_again();
        (new, gone)
    }

    async fn follow_kind(
        &self,
        servers: &dyn RemoteAccess,
        number: RemoteKindNumber,
        resource: Arc<RemoteKind>,
    ) -> Infallible {
        let mut failures = 0;
        loop {
            match self.follow_once(servers, number, &resource, &mut failures).await {
                // The store has compacted the watch's start revision. A new list returns the current state.
                Err(ApiError::Expired { .. }) => {}
                // The condition of the server's APIService reports that it is unavailable.
                Err(error @ ApiError::ServiceUnavailable { .. }) => {
                    tracing::debug!(resource = %resource.name(), %error, "watching a resource of another server failed");
                }
                Err(error) => {
                    warn_repeated!(resource.name(); resource = %resource.name(), %error, "watching a resource of an aggregated server failed");
                }
                Ok(never) => match never {},
            }
            tokio::time::sleep(BACKOFF.after(failures)).await;
            failures = failures.saturating_add(1);
        }
    }

    /// Lists a kind and watches it until that fails.
    async fn follow_once(
        &self,
        servers: &dyn RemoteAccess,
        number: RemoteKindNumber,
        resource: &RemoteKind,
        failures: &mut u32,
    ) -> Result<Infallible, ApiError> {
        let (objects, mut resource_version) = self.list(servers, resource).await?;
        self.known.lock().replace(number, objects);
        self.look_again();
        loop {
            let mut events = servers.watch(resource, &resource_version).await?;
            while let Some(event) = events.next().await {
                match event? {
                    RemoteEvent::Is(object) => {
                        resource_version.clone_from(&object.resource_version);
                        self.known.lock().update(number, object)?;
                    }
                    RemoteEvent::Gone(object) => {
                        resource_version.clone_from(&object.resource_version);
                        self.known.lock().remove(number, &object);
                    }
                    RemoteEvent::UpTo(version) => resource_version = version,
                }
                *failures = 0;
                self.look_again();
            }
            // A server may end watches at any time. The pause keeps that from causing a busy loop here.
            tokio::time::sleep(BACKOFF.first).await;
        }
    }

    async fn list(&self, servers: &dyn RemoteAccess, resource: &RemoteKind) -> Result<(Objects, String), ApiError> {
        let mut objects = Objects::new();
        let mut listing = Listing { all: &self.listing, own: 0 };
        let mut token = String::new();
        loop {
            let page = servers.list(resource, &token).await?;
            let before = objects.len();
            objects.extend(page.objects.into_iter().map(|object| (object.key.clone(), Arc::new(object))));
            let listed = listing.grow(objects.len() - before);
            self.known.lock().check_room(listed)?;
            if page.token.is_empty() {
                return Ok((objects, page.resource_version));
            }
            if objects.len() == before {
                return Err(ApiError::Internal(format!("the list of {} continues without objects", resource.name())));
            }
            token = page.token;
        }
    }
}
