//! The connections of a listener, counted by user.
//!
//! A connection is unauthenticated until its client has a trusted certificate, or has sent a request with a valid
//! credential. Unauthenticated connections have a fixed part of all. When that part is full, a new one evicts the
//! oldest: a client with a credential has authenticated long before. Users share the other connections, and one user
//! has at most a part of them ([`crate::shares`]). When all are in use, the user with the most loses its oldest idle
//! one. A new connection is therefore always accepted, and no client can block health checks and administrators.
//!
//! A connection counts for the user of its certificate or first request, even if a proxy multiplexes later requests of
//! other users on it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::idle::Activity;
use crate::metrics::Edge;
use crate::shares::{Holder, Level};

/// The least time between two log lines about refused or evicted connections.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// One in this many of all connections may be unauthenticated.
const UNAUTHENTICATED_PART: usize = 4;
/// The search for an idle connection of a user checks at most this many of its oldest connections.
const LOOKED_AT: usize = 64;
/// The maximum number of evicted connections that have not ended yet. Each has a file descriptor until then.
const MOST_LEAVING: usize = 64;

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    state: Mutex<State>,
    most: usize,
    most_unauthenticated: usize,
    metrics: Arc<Edge>,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    /// The number of evicted connections that have not ended yet.
    leaving: usize,
    next: u64,
    /// The unauthenticated connections, oldest first.
    unauthenticated: BTreeMap<u64, Arc<Place>>,
    by_user: HashMap<u64, OfUser>,
    /// The number of authenticated connections, including those of administrators.
    known: usize,
    /// The users who lose connections when all are in use: all except administrators. The last entry loses first.
    by_count: BTreeSet<(Rank, u64)>,
    /// The time of the last log line.
    told: Option<Instant>,
    untold: u64,
}

/// The order of eviction: users with many connections before users with few, and the cluster's own components last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_workload: bool,
    count: usize,
}

/// The connections of one user, oldest first.
#[derive(Debug)]
struct OfUser {
    level: Level,
    connections: BTreeMap<u64, Arc<Place>>,
}

/// The state that a connection shares with the list of all connections.
#[derive(Debug, Default)]
struct Place {
    /// Cancelled to evict the connection.
    displaced: CancellationToken,
    /// The requests on it, set when the connection begins to be served.
    activity: OnceLock<Activity>,
}

/// The slot of one open connection, freed on drop.
#[derive(Debug)]
pub(super) struct Ticket {
    connections: Arc<Connections>,
    number: u64,
    place: Arc<Place>,
    /// The user that the connection counts for.
    holder: OnceLock<Holder>,
}

impl Connections {
    /// Allows `most` connections at once.
    pub(super) fn new(most: usize, metrics: Arc<Edge>) -> Self {
        let most_unauthenticated = (most / UNAUTHENTICATED_PART).max(1);
        Self { state: Mutex::default(), most, most_unauthenticated, metrics }
    }

    /// Counts an accepted connection. `None` if the limit is reached and no connection can be evicted.
    pub(super) fn register(self: &Arc<Self>) -> Option<Ticket> {
        let mut state = self.state.lock();
        if state.unauthenticated.len() >= self.most_unauthenticated {
            self.displace_unauthenticated(&mut state);
            state.tell(self.most);
        } else if state.open - state.leaving.min(MOST_LEAVING) >= self.most {
            state.tell(self.most);
            let has_room = self.displace_of_greatest(&mut state) || self.displace_unauthenticated(&mut state);
            if !has_room {
                self.metrics.count_refused();
                return None;
            }
        }
        state.open += 1;
        let (number, place) = (state.next, Arc::new(Place::default()));
        state.next += 1;
        state.unauthenticated.insert(number, place.clone());
        self.metrics.count_unauthenticated(1);
        Some(Ticket { connections: self.clone(), number, place, holder: OnceLock::new() })
    }

    /// Evicts the oldest unauthenticated connection. Returns false if there is none.
    fn displace_unauthenticated(&self, state: &mut State) -> bool {
        let Some((_, oldest)) = state.unauthenticated.pop_first() else { return false };
        state.leaving += 1;
        oldest.displaced.cancel();
        self.metrics.count_displaced();
        self.metrics.count_unauthenticated(-1);
        true
    }

    /// Evicts a connection of the user with the most connections: the oldest idle one, or else the oldest. Users with
    /// one connection each lose it only if it is idle, and only the first [`LOOKED_AT`] users are checked.
    fn displace_of_greatest(&self, state: &mut State) -> bool {
        let candidates = state.by_count.iter().rev().take(LOOKED_AT);
        let found = candidates.map(|(rank, flow)| (*rank, *flow)).find_map(|(rank, flow)| {
            let connections = &state.by_user.get(&flow)?.connections;
            let oldest = || connections.keys().next().copied().filter(|_| rank.count > 1);
            Some((flow, idle_one(connections).or_else(oldest)?))
        });
        found.is_some_and(|(flow, number)| self.displace(state, flow, number))
    }

    /// Returns true if a user may have one more connection, after an eviction if necessary. Only administrators may use
    /// the part of unauthenticated connections, which health checks need.
    fn has_room(&self, state: &mut State, holder: Holder) -> bool {
        let most = self.most - self.most_unauthenticated;
        holder.level == Level::Exempt || state.known < most || self.displace_of_greatest(state)
    }

    fn displace(&self, state: &mut State, flow: u64, number: u64) -> bool {
        let Some(place) = state.remove(flow, number) else { return false };
        state.leaving += 1;
        place.displaced.cancel();
        self.metrics.count_displaced();
        self.metrics.count_known(-1);
        true
    }
}

/// The oldest connection without a request, among the oldest [`LOOKED_AT`].
fn idle_one(connections: &BTreeMap<u64, Arc<Place>>) -> Option<u64> {
    let is_idle = |place: &Place| place.activity.get().is_none_or(Activity::is_idle);
    connections.iter().take(LOOKED_AT).find(|(_, place)| is_idle(place)).map(|(number, _)| *number)
}

impl State {
    /// Logs evictions, at most once in [`TELL_EVERY`].
    fn tell(&mut self, most: usize) {
        self.untold += 1;
        let now = Instant::now();
        if self.told.is_none_or(|told| now >= told + TELL_EVERY) {
            let (open, times) = (self.open, self.untold);
            tracing::warn!(
                open,
                most,
                times,
                "more connections come than there may be: unauthenticated ones, or those of the user with most, give way"
            );
            (self.told, self.untold) = (Some(now), 0);
        }
    }

    fn insert(&mut self, holder: Holder, number: u64, place: Arc<Place>) {
        let Holder { flow, level } = holder;
        let user = self.by_user.entry(flow).or_insert_with(|| OfUser { level, connections: BTreeMap::new() });
        let before = user.rank();
        user.connections.insert(number, place);
        self.known += 1;
        if user.level != Level::Exempt {
            self.by_count.remove(&(before, flow));
            self.by_count.insert((user.rank(), flow));
        }
    }

    fn remove(&mut self, flow: u64, number: u64) -> Option<Arc<Place>> {
        let user = self.by_user.get_mut(&flow)?;
        let before = user.rank();
        let place = user.connections.remove(&number)?;
        self.known -= 1;
        if self.by_count.remove(&(before, flow)) && before.count > 1 {
            self.by_count.insert((user.rank(), flow));
        }
        if before.count == 1 {
            self.by_user.remove(&flow);
        }
        Some(place)
    }
}

impl OfUser {
    fn rank(&self) -> Rank {
        Rank { is_workload: !self.level.is_of_cluster(), count: self.connections.len() }
    }
}

impl Ticket {
    /// Sets the counter of the requests on the connection.
    pub(super) fn has_requests(&self, activity: &Activity) {
        // The counter is set once, when the server begins to serve the connection.
        let _ = self.place.activity.set(activity.clone());
    }

    /// Counts the connection for a user. Returns true if it counts for a user afterwards.
    ///
    /// A user that has used its share loses its oldest idle connection. If none is idle, this connection stays
    /// unauthenticated.
    pub(super) fn is_of(&self, holder: Holder) -> bool {
        let connections = &self.connections;
        let mut state = connections.state.lock();
        if !state.unauthenticated.contains_key(&self.number) {
            // The connection already counts for a user, or was evicted and is about to end.
            return true;
        }
        let own = state.by_user.get(&holder.flow).map(|user| &user.connections);
        if let Some(own) = own.filter(|own| own.len() >= holder.level.most_of(connections.most)) {
            let Some(idle) = idle_one(own) else {
                connections.metrics.count_over_share();
                return false;
            };
            connections.displace(&mut state, holder.flow, idle);
        } else if !connections.has_room(&mut state, holder) {
            connections.metrics.count_over_share();
            return false;
        }
        state.unauthenticated.remove(&self.number);
        state.insert(holder, self.number, self.place.clone());
        drop(state);
        // No other code sets it: the connection was unauthenticated until now.
        let _ = self.holder.set(holder);
        connections.metrics.count_unauthenticated(-1);
        connections.metrics.count_known(1);
        true
    }

    /// Waits until the connection is evicted.
    pub(super) async fn displaced(&self) {
        self.place.displaced.cancelled().await;
    }

    /// Ends the connection.
    pub(super) fn cut(&self) {
        self.place.displaced.cancel();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        state.open -= 1;
        if state.unauthenticated.remove(&self.number).is_some() {
            self.connections.metrics.count_unauthenticated(-1);
        } else if self.holder.get().is_some_and(|holder| state.remove(holder.flow, self.number).is_some()) {
            self.connections.metrics.count_known(-1);
        } else {
            state.leaving -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(most: usize) -> Arc<Connections> {
        Arc::new(Connections::new(most, Arc::new(Edge::default())))
    }

    fn holder(flow: u64, level: Level) -> Holder {
        Holder { flow, level }
    }

    fn has_ended(ticket: &Ticket) -> bool {
        ticket.place.displaced.is_cancelled()
    }

    /// Opens one more connection of a user. `None` if the user has used its share.
    fn open(connections: &Arc<Connections>, holder: Holder) -> Option<Ticket> {
        connections.register().filter(|ticket| ticket.is_of(holder))
    }

    /// Begins a request on a connection.
    fn busy(ticket: &Ticket) -> super::super::idle::Busy {
        ticket.place.activity.get_or_init(Activity::new).begin()
    }

    #[test]
    fn newer_connections_evict_unauthenticated_ones_only() {
        let connections = connections(8);
        let first = connections.register().unwrap();
        let known = open(&connections, holder(1, Level::Exempt)).unwrap();
        let second = connections.register().unwrap();
        assert!(!has_ended(&first));
        let third = connections.register().unwrap();
        assert!(has_ended(&first) && !has_ended(&second) && !has_ended(&known));
        drop((first, second, third, known));
        let state = connections.state.lock();
        assert_eq!((state.open, state.leaving, state.unauthenticated.len()), (0, 0, 0));
        assert!(state.by_user.is_empty() && state.by_count.is_empty());
    }

    #[test]
    fn a_full_share_evicts_the_oldest_idle_connection_or_refuses() {
        let connections = connections(16);
        let ann = holder(1, Level::Users);
        let held: Vec<_> = (0..2).map(|_| open(&connections, ann).unwrap()).collect();
        let _request = busy(&held[0]);
        let third = open(&connections, ann).unwrap();
        assert!(!has_ended(&held[0]) && has_ended(&held[1]));
        let _other = busy(&third);
        let over = connections.register().unwrap();
        assert!(!over.is_of(ann) && !has_ended(&third));
        assert!(open(&connections, holder(2, Level::Users)).is_some(), "others have their own");
    }

    #[test]
    fn a_full_server_evicts_the_largest_user_but_no_administrator() {
        let connections = connections(32);
        let admins: Vec<_> = (0..2).map(|_| open(&connections, holder(1, Level::Exempt)).unwrap()).collect();
        let controller: Vec<_> = (0..12).map(|_| open(&connections, holder(2, Level::System)).unwrap()).collect();
        let many: Vec<_> = (0..8).map(|_| open(&connections, holder(3, Level::Accounts)).unwrap()).collect();
        let few: Vec<_> = (0..2).map(|_| open(&connections, holder(4, Level::Accounts)).unwrap()).collect();
        let newcomer = open(&connections, holder(5, Level::Users)).unwrap();
        assert!(has_ended(&many[0]) && !has_ended(&many[1]));
        let probes: Vec<_> = (0..8).map(|_| connections.register().unwrap()).collect();
        let administrator = open(&connections, holder(6, Level::Exempt)).unwrap();
        let others = [&newcomer, &administrator].into_iter().chain(&few).chain(&admins).chain(&controller);
        assert!(!others.chain(&probes[1..]).any(has_ended));
    }

    /// Many accounts with a connection each must not use up all connections.
    #[test]
    fn many_single_connections_leave_reserved_ones_free() {
        let connections = connections(16);
        let users: Vec<_> = (0..12).map(|flow| open(&connections, holder(flow, Level::Accounts)).unwrap()).collect();
        let _busy: Vec<_> = users[1..].iter().map(busy).collect();
        let late = open(&connections, holder(20, Level::Accounts)).unwrap();
        assert!(has_ended(&users[0]), "an idle one gives way");
        let _request = busy(&late);
        assert!(open(&connections, holder(21, Level::Accounts)).is_none(), "no idle one is left");
        let _probe = connections.register().unwrap();
        assert!(open(&connections, holder(30, Level::Exempt)).is_some());
        assert!(!users[1..].iter().any(has_ended));
    }
}
