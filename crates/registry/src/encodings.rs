//! The version in which this server may write each collection: the version that it has published (KEP-2339).
//!
//! A write passes the gate of its collection, and counts until it is done. Before a server publishes another version,
//! it closes the gate and waits for all writes, so that none is stored in an unpublished version. A controller
//! publishes. Without it, all gates are open.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind};
use keelson_resources::Text;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::registry::Registry;
use crate::target::Target;

/// The time that a write waits until its version is published. Publishing takes one or two writes for a custom
/// resource, or for a built-in one that was written before. Otherwise the server has just started, and it returns 503
/// at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// The `Retry-After` of a refused write, in seconds.
const RETRY_AFTER: u32 = 1;

/// The gates of all collections, by their prefix in the store. They outlive the collections: a recreated definition
/// gets the same gate.
#[derive(Default)]
pub(crate) struct EncodingGates {
    gates: Mutex<HashMap<Text, Arc<EncodingGate>>>,
    /// True if a controller publishes versions, so that gates begin closed.
    are_published: bool,
    closings: watch::Sender<Closings>,
}

/// Counts of the closings of all gates, and the end of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closings {
    /// The number of times that closing has begun.
    pub begun: u64,
    /// The number of calls that wait for writes to end.
    pub under_way: usize,
    /// The end of the last closing.
    pub ended: Option<Instant>,
}

/// The gate to the writes of one collection.
pub struct EncodingGate {
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    standing: GateState,
    /// True if a write ever entered. Then the gate is closed only briefly.
    was_open: bool,
    /// The number of writes under way.
    writes: usize,
    /// The number of times that the gate was closed.
    closings: u64,
}

/// The right to open a gate, which ends when another call closes the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The number of times that the gate had been closed.
    closings: u64,
}

/// The state of a gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum GateState {
    /// Open for all versions: no controller publishes.
    #[default]
    Unpublished,
    /// Open for writes in this version.
    Published(GroupVersion),
    /// Closed, with the reason why publishing failed, if it did.
    Closed(Option<String>),
}

/// A write that is under way.
pub struct WriteGuard(Arc<EncodingGate>);

impl Registry {
    /// Begins a write to a target's collection in its storage version. `None` if no version has to be published first.
    ///
    /// # Errors
    /// 503 when that version is not published.
    pub async fn enter(&self, target: &Target) -> Result<Option<WriteGuard>, ApiError> {
        match target.resource.stored() {
            Some(stored) if !target.strategy().write.precedes_publication(target) => stored.gate.enter(target).await,
            Some(_) | None => Ok(None),
        }
    }

    /// Refuses a write before its request is read, if the storage version is not published and will not be published
    /// soon.
    ///
    /// # Errors
    /// 503 when that version is not published.
    pub fn check_published(&self, target: &Target) -> Result<(), ApiError> {
        let (Some(stored), Some(kind)) = (target.resource.stored(), target.resource.storage_kind()) else {
            return Ok(());
        };
        if stored.gate.is_open_for(kind)
            || stored.gate.is_closed_for_a_moment(target)
            || target.strategy().write.precedes_publication(target)
        {
            return Ok(());
        }
        Err(stored.gate.refusal(target))
    }

    /// Closes all gates until their versions are published again, and waits for the writes under way. A server calls it
    /// when its publications no longer count.
    pub async fn close_encodings(&self) {
        self.surfaces().gates().close_all().await;
    }

    /// Returns a receiver that is notified when all gates have been closed.
    pub fn encodings_closed(&self) -> watch::Receiver<Closings> {
        self.surfaces().gates().closings.subscribe()
    }
}

impl EncodingGates {
    /// Gates that are closed until a version is published.
    pub(crate) fn published() -> Self {
        Self { are_published: true, ..Self::default() }
    }

    /// The gate of the collection under a prefix.
    pub(crate) fn gate(&self, prefix: &Text) -> Arc<EncodingGate> {
        let standing = if self.are_published { GateState::Closed(None) } else { GateState::Unpublished };
        let new = || Arc::new(EncodingGate { state: watch::Sender::new(State { standing, ..State::default() }) });
        self.gates.lock().entry(prefix.clone()).or_insert_with(new).clone()
    }

    /// Closes all gates, and waits for all writes.
    pub(crate) async fn close_all(&self) {
        // ORDER: the closing is counted before the first gate closes, so that a publisher that began earlier notices
        // it. Receivers are notified after the last gate has closed, so that no publisher opens a gate that closes only
        // then.
        let _closing = Closing::begin(&self.closings);
        let all: Vec<_> = self.gates.lock().values().cloned().collect();
        for gate in &all {
            gate.close();
        }
        for gate in all {
            gate.emptied().await;
        }
    }
}

/// A closing of all gates that is under way.
struct Closing<'a>(&'a watch::Sender<Closings>);

impl<'a> Closing<'a> {
    fn begin(closings: &'a watch::Sender<Closings>) -> Self {
        closings.send_if_modified(|closings| {
            closings.begun += 1;
            closings.under_way += 1;
            false
        });
        Self(closings)
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|closings| {
            closings.under_way -= 1;
            closings.ended = Some(Instant::now());
        });
    }
}

impl EncodingGate {
    /// Closes the gate until it is opened.
    pub fn close(&self) {
        self.state.send_if_modified(|state| {
            state.closings += 1;
            let is_open = matches!(state.standing, GateState::Published(_));
            if is_open {
                state.standing = GateState::Closed(None);
            }
            is_open
        });
    }

    async fn emptied(&self) {
        // The sender is in `self`, so this wait cannot end with an error.
        let _ = self.state.subscribe().wait_for(|state| state.writes == 0).await;
    }

    /// Returns true if writes in this kind's version may pass.
    pub fn is_open_for(&self, kind: &GroupVersionKind) -> bool {
        self.state.borrow().allows(kind)
    }

    /// Waits for the end of all writes in another version, and admits none before [`open`](Self::open).
    pub async fn prepare(&self, kind: &GroupVersionKind) -> Opening {
        if !self.is_open_for(kind) {
            self.close();
        }
        let opening = Opening { closings: self.state.borrow().closings };
        if !self.is_open_for(kind) {
            self.emptied().await;
        }
        opening
    }

    /// Opens the gate for writes in this kind's version, which is published now. Does nothing if the gate was closed
    /// after `opening` was made.
    pub fn open(&self, kind: &GroupVersionKind, opening: Opening) {
        self.state.send_if_modified(|state| {
            let is_allowed = state.closings == opening.closings;
            if is_allowed {
                state.standing = GateState::Published(kind.group_version());
                state.was_open = true;
            }
            is_allowed
        });
    }

    /// Records the reason why publishing the version of a closed gate failed.
    pub fn note_failure(&self, error: &ApiError) {
        self.state.send_modify(|state| {
            if let GateState::Closed(last) = &mut state.standing {
                *last = Some(error.to_string());
            }
        });
    }

    fn try_enter(self: &Arc<Self>, kind: &GroupVersionKind) -> Option<WriteGuard> {
        let mut entered = false;
        self.state.send_if_modified(|state| {
            entered = state.allows(kind);
            state.writes += usize::from(entered);
            // No task waits for the number of writes to grow.
            false
        });
        entered.then(|| WriteGuard(self.clone()))
    }

    /// Begins the write of an object of `target`; `None` if its resource is not stored.
    ///
    /// # Errors
    /// 503 if its storage version is not published.
    pub(crate) async fn enter(self: &Arc<Self>, target: &Target) -> Result<Option<WriteGuard>, ApiError> {
        let Some(kind) = target.resource.storage_kind() else { return Ok(None) };
        if let Some(entered) = self.try_enter(kind) {
            return Ok(Some(entered));
        }
        if self.is_closed_for_a_moment(target) {
            let mut state = self.state.subscribe();
            let open = state.wait_for(|state| state.allows(kind));
            let _ = tokio::time::timeout(PATIENCE, open).await;
        }
        self.try_enter(kind).map(Some).ok_or_else(|| self.refusal(target))
    }

    fn is_closed_for_a_moment(&self, target: &Target) -> bool {
        !target.resource.is_builtin() || self.state.borrow().was_open
    }

    fn refusal(&self, target: &Target) -> ApiError {
        let error = match &self.state.borrow().standing {
            GateState::Closed(Some(error)) => error.clone(),
            GateState::Closed(None) | GateState::Unpublished | GateState::Published(_) => "<nil>".to_owned(),
        };
        let resource = target.group_resource();
        ApiError::ServiceUnavailable {
            message: format!(
                "wait for storage version registration to complete for resource: {resource}, last seen error: {error}"
            ),
            retry_after_seconds: Some(RETRY_AFTER),
        }
    }
}

impl State {
    fn allows(&self, kind: &GroupVersionKind) -> bool {
        match &self.standing {
            GateState::Unpublished => true,
            GateState::Published(published) => (&published.group, &published.version) == (&kind.group, &kind.version),
            GateState::Closed(_) => false,
        }
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        self.0.state.send_if_modified(|state| {
            state.writes -= 1;
            state.writes == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(version: &str) -> GroupVersionKind {
        GroupVersionKind { group: "apps".into(), version: version.into(), kind: "Deployment".into() }
    }

    fn gates() -> (EncodingGates, Arc<EncodingGate>) {
        let gates = EncodingGates::published();
        let gate = gates.gate(&Text::from("/registry/deployments/"));
        (gates, gate)
    }

    #[tokio::test]
    async fn a_gate_closed_with_all_others_ignores_earlier_preparations() {
        let (gates, gate) = gates();
        let opening = gate.prepare(&kind("v1")).await;
        gates.close_all().await;
        gate.open(&kind("v1"), opening);
        assert!(gate.try_enter(&kind("v1")).is_none(), "it was published by who is no longer a server");

        let opening = gate.prepare(&kind("v1")).await;
        gate.open(&kind("v1"), opening);
        assert!(gate.try_enter(&kind("v1")).is_some(), "it is published anew");
    }

    #[tokio::test]
    async fn repeated_publications_do_not_reopen_a_closed_gate() {
        let (gates, gate) = gates();
        let opening = gate.prepare(&kind("v1")).await;
        gate.open(&kind("v1"), opening);

        let again = gate.prepare(&kind("v1")).await;
        assert!(gate.is_open_for(&kind("v1")), "nobody waits for what is published already");
        gates.close_all().await;
        gate.open(&kind("v1"), again);
        assert!(!gate.is_open_for(&kind("v1")));
    }

    #[tokio::test]
    async fn another_version_waits_for_running_writes() {
        let (_gates, gate) = gates();
        let opening = gate.prepare(&kind("v1")).await;
        gate.open(&kind("v1"), opening);
        let inside = gate.try_enter(&kind("v1"));

        let preparing = tokio::spawn({
            let gate = gate.clone();
            async move { gate.prepare(&kind("v2")).await }
        });
        while gate.is_open_for(&kind("v1")) {
            tokio::task::yield_now().await;
        }
        assert!(!preparing.is_finished());
        drop(inside);
        let opening = preparing.await.expect("it waits and no more");
        gate.open(&kind("v2"), opening);
        assert!(gate.is_open_for(&kind("v2")) && !gate.is_open_for(&kind("v1")));
    }
}
