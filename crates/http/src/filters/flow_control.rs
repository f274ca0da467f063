//! Flow control: who is served when there is more to do than the server has room for, and the mark that tells clients so.
//!
//! A request takes seats by what it will cost (`cost.rs`), and gives them back as soon as its answer needs no memory of the server: at once
//! when the answer is small and whole, at its end when it is made while it is sent. While such an answer waits for its client, its seats
//! are lent (`lent.rs`). Requests have the priority levels that upstream's defaults give them. Within a level users take turns, and each
//! has a share (`gate.rs`). A request that finds no seat waits in a bounded queue for a part of its time, and then gets 429. A watch has
//! the seats of a list until it has sent the objects that it begins with. Requests for health have none, and those for aggregated servers
//! have others. Clients that look for the mark (`X-Kubernetes-PF-FlowSchema-UID`) do not throttle themselves then. Flow schemas and
//! priority levels that are stored have no effect yet.

mod cost;
mod gate;
mod lent;
mod metrics;

use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use http::Response;
use http::header::{HeaderName, HeaderValue};
use keelson_resources::Verb;
use parking_lot::Mutex;

pub(super) use self::cost::{Cost, Sent, of};
pub(crate) use self::cost::{has_long_query, is_copied};
use self::gate::Gate;
pub(super) use self::gate::Seats;
pub(crate) use self::lent::LentSeats;
pub(super) use self::lent::SeatedBody;
pub(super) use self::metrics::{histograms, samples};
use crate::body::ResponseBody;
use crate::request_info::{RequestInfo, RequestVerb};
use crate::shares::{Holder, Level};

/// Which part of its time a request may wait for a seat, as upstream has it: one in so many.
const WAIT_PART: u32 = 4;
/// How many requests one aggregated server answers at once, but for watches and sessions. Each holds the buffers of two connections.
const SEATS_ELSEWHERE: usize = 500;
/// How many wait for that.
const QUEUE_ELSEWHERE: usize = 500;
/// Leases, by which components say that they are there and which of them leads.
const LEASES: (&str, &str) = ("coordination.k8s.io", "leases");
/// The objects of nodes.
const NODES: (&str, &str) = ("", "nodes");

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// Stored flow schemas and levels have no effect, so the ids never change.
const FLOW_SCHEMA_UID: HeaderValue = HeaderValue::from_static("6b65656c-736f-4e00-8000-00666c6f7700");
const PRIORITY_LEVEL_UID: HeaderValue = HeaderValue::from_static("6b65656c-736f-4e00-8000-006c6576656c");

/// How much the requests of a level may take.
#[derive(Clone, Copy, Debug)]
pub struct LevelLimits {
    /// Seats for requests that change nothing. Small ones take one each.
    pub reads: usize,
    /// Seats for requests that change something. Each may hold a body of 3 MiB.
    pub writes: usize,
    /// How many requests of each of the two may wait.
    pub queue: usize,
}

/// How much requests may take, by the level of their user.
#[derive(Clone, Copy, Debug)]
pub struct FlowLimits {
    /// Members of `system:masters`, whom nobody else keeps out.
    pub exempt: LevelLimits,
    /// The leases and Node objects of nodes, which keep them ready.
    pub node_high: LevelLimits,
    /// Everything else of nodes.
    pub nodes: LevelLimits,
    /// The leases of the cluster's own controllers.
    pub leader_election: LevelLimits,
    /// Everything else of the cluster's own controllers: `system:kube-*`, and service accounts of `kube-system`.
    pub system: LevelLimits,
    /// Other service accounts.
    pub accounts: LevelLimits,
    /// Other users with credentials.
    pub users: LevelLimits,
    /// Clients without credentials.
    pub anonymous: LevelLimits,
    /// The number of watches at once. One takes about 20 KB, and one user may have a share of them.
    pub watches: usize,
}

impl Default for FlowLimits {
    fn default() -> Self {
        let usual = LevelLimits { reads: 1000, writes: 250, queue: 1000 };
        // Small objects alone.
        let small = LevelLimits { reads: 250, writes: 250, queue: 1000 };
        Self {
            exempt: LevelLimits { reads: 2000, writes: 500, queue: 2000 },
            node_high: small,
            nodes: usual,
            leader_election: small,
            system: usual,
            accounts: usual,
            users: usual,
            anonymous: LevelLimits { reads: 20, writes: 5, queue: 20 },
            watches: 100_000,
        }
    }
}

/// The seats of a watch for the objects that it begins with, in the extensions of its request. They are given back when this is dropped:
/// when these objects are sent.
#[derive(Clone, Debug)]
pub(crate) struct InitialSeats {
    _seats: Arc<EndsSeats>,
}

#[derive(Debug)]
struct EndsSeats(LentSeats);

impl InitialSeats {
    pub(super) fn new(seats: LentSeats) -> Self {
        Self { _seats: Arc::new(EndsSeats(seats)) }
    }
}

impl Drop for EndsSeats {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The levels of a server.
#[derive(Debug)]
pub(crate) struct FlowControl {
    exempt: SeatLevel,
    node_high: SeatLevel,
    nodes: SeatLevel,
    leader_election: SeatLevel,
    system: SeatLevel,
    accounts: SeatLevel,
    users: SeatLevel,
    anonymous: SeatLevel,
    /// The seats of aggregated servers, by where they are, as long as a request has or waits for one.
    elsewhere: Mutex<HashMap<String, Weak<Gate>>>,
}

/// The seats of a level, under the names of upstream's priority level and flow schema.
#[derive(Debug)]
pub(super) struct SeatLevel {
    name: &'static str,
    schema: &'static str,
    reads: Arc<Gate>,
    writes: Arc<Gate>,
}

impl SeatLevel {
    fn new((name, schema): (&'static str, &'static str), limits: LevelLimits) -> Self {
        let gate = |seats| Arc::new(Gate::new(seats, limits.queue));
        Self { name, schema, reads: gate(limits.reads), writes: gate(limits.writes) }
    }
}

impl FlowControl {
    pub(super) fn new(limits: FlowLimits) -> Self {
        Self {
            exempt: SeatLevel::new(("exempt", "exempt"), limits.exempt),
            node_high: SeatLevel::new(("node-high", "system-node-high"), limits.node_high),
            nodes: SeatLevel::new(("system", "system-nodes"), limits.nodes),
            leader_election: SeatLevel::new(("leader-election", "system-leader-election"), limits.leader_election),
            system: SeatLevel::new(("workload-high", "kube-system-service-accounts"), limits.system),
            accounts: SeatLevel::new(("workload-low", "service-accounts"), limits.accounts),
            users: SeatLevel::new(("global-default", "global-default"), limits.users),
            anonymous: SeatLevel::new(("catch-all", "catch-all"), limits.anonymous),
            elsewhere: Mutex::default(),
        }
    }

    /// Seats for the request, for which it waits for a part of its `time`; `None` for what needs none.
    ///
    /// # Errors
    /// After how many seconds the client may try again.
    pub(super) async fn acquire(
        &self,
        holder: Holder,
        info: &RequestInfo,
        cost: Cost,
        time: Duration,
    ) -> Result<Option<Seats>, u32> {
        if cost.seats == 0
            || info.is_session
            || (!info.is_resource_request && crate::health::is_health_path(&info.path))
        {
            return Ok(None);
        }
        let level = self.level(holder.level, info);
        let gate = if info.verb.is_read() { &level.reads } else { &level.writes };
        gate.take(holder, cost.seats, time / WAIT_PART).await.map(Some)
    }

    /// A seat among the requests that one aggregated server answers. They take none of their level's, so that a server which hangs
    /// keeps up nobody but who asks for it.
    ///
    /// # Errors
    /// After how many seconds the client may try again.
    pub(super) async fn acquire_elsewhere(
        &self,
        server: &str,
        holder: Holder,
        info: &RequestInfo,
        time: Duration,
    ) -> Result<Option<Seats>, u32> {
        if info.is_long_running() {
            return Ok(None);
        }
        let gate = self.gate_elsewhere(server);
        gate.take(holder, 1, time / WAIT_PART).await.map(Some)
    }

    fn gate_elsewhere(&self, server: &str) -> Arc<Gate> {
        let mut gates = self.elsewhere.lock();
        if let Some(gate) = gates.get(server).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0);
        let gate = Arc::new(Gate::new(SEATS_ELSEWHERE, QUEUE_ELSEWHERE));
        gates.insert(server.to_owned(), Arc::downgrade(&gate));
        gate
    }

    /// The level of a request, as upstream's default flow schemas have it.
    fn level(&self, of_user: Level, info: &RequestInfo) -> &SeatLevel {
        let resource = (info.group.as_str(), info.resource.as_str());
        match of_user {
            Level::Exempt => &self.exempt,
            Level::Nodes if resource == LEASES || resource == NODES => &self.node_high,
            Level::Nodes => &self.nodes,
            Level::System if resource == LEASES && is_of_leaders(&info.verb) => &self.leader_election,
            Level::System => &self.system,
            Level::Accounts => &self.accounts,
            Level::Users => &self.users,
            Level::Anonymous => &self.anonymous,
        }
    }

    /// The levels in upstream's order.
    pub(super) fn levels(&self) -> [&SeatLevel; 8] {
        [
            &self.exempt,
            &self.node_high,
            &self.nodes,
            &self.leader_election,
            &self.system,
            &self.accounts,
            &self.users,
            &self.anonymous,
        ]
    }
}

/// True for the verbs by which leaders are elected.
fn is_of_leaders(verb: &RequestVerb) -> bool {
    matches!(verb, RequestVerb::Resource(Verb::Get | Verb::Create | Verb::Update))
}

/// The answer with the mark of flow control.
pub(super) fn marked(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    // Those of an aggregated server stay.
    response.headers_mut().entry(FLOW_SCHEMA).or_insert(FLOW_SCHEMA_UID);
    response.headers_mut().entry(PRIORITY_LEVEL).or_insert(PRIORITY_LEVEL_UID);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Request};
    use keelson_access::User;
    use keelson_registry::Estimate;

    const ONE: LevelLimits = LevelLimits { reads: 1, writes: 1, queue: 0 };

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(ToString::to_string).collect();
        User { name: name.to_owned(), groups, ..User::default() }
    }

    async fn acquire(control: &FlowControl, user: &User, method: &Method, target: &str) -> Result<Option<Seats>, u32> {
        acquire_for(control, user, method, target, &Estimate::default()).await
    }

    async fn acquire_for(
        control: &FlowControl,
        user: &User,
        method: &Method,
        target: &str,
        about: &Estimate,
    ) -> Result<Option<Seats>, u32> {
        let parts = Request::builder().method(method).uri(target).body(()).unwrap().into_parts().0;
        let info = RequestInfo::parse(method, &parts.uri);
        let cost = of(&info, &parts, about, Sent::default());
        control.acquire(Holder::of(user), &info, cost, Duration::from_secs(60)).await
    }

    #[tokio::test]
    async fn a_watch_takes_seats_for_what_it_begins_with() {
        let reads = LevelLimits { reads: 40, ..ONE };
        let control = FlowControl::new(FlowLimits { users: reads, ..FlowLimits::default() });
        let alice = user("alice", &["system:authenticated"]);
        let (get, watch) = (&Method::GET, "/api/v1/pods?watch=1&sendInitialEvents=true");
        assert!(acquire(&control, &alice, get, watch).await.unwrap().is_none(), "there is nothing to begin with");
        let many = Estimate { bytes: 12 << 20, looked_at: 5_000, ..Estimate::default() };
        let held = acquire_for(&control, &alice, get, watch, &many).await.unwrap();
        assert_eq!(control.users.reads.counts().taken, 5);
        drop(InitialSeats::new(LentSeats::new(held.unwrap())));
        assert_eq!(control.users.reads.counts().taken, 0);
    }

    #[tokio::test]
    async fn reads_and_writes_and_levels_have_places_of_their_own() {
        let control = FlowControl::new(FlowLimits {
            exempt: ONE,
            node_high: ONE,
            nodes: ONE,
            leader_election: ONE,
            system: ONE,
            accounts: ONE,
            users: ONE,
            anonymous: ONE,
            ..FlowLimits::default()
        });
        let (get, post) = (&Method::GET, &Method::POST);
        let alice = user("alice", &["system:authenticated"]);
        let first = acquire(&control, &alice, get, "/api/v1/pods").await.unwrap();
        assert!(first.is_some());
        assert_eq!(acquire(&control, &alice, get, "/api/v1/pods").await.err(), Some(1));
        assert!(acquire(&control, &alice, get, "/metrics").await.is_err());
        assert!(acquire(&control, &alice, post, "/api/v1/namespaces/a/pods").await.unwrap().is_some());
        assert!(acquire(&control, &alice, get, "/api/v1/pods?watch=1").await.unwrap().is_none());
        assert!(acquire(&control, &alice, get, "/livez").await.unwrap().is_none());
        let others = [
            user("root", &["system:masters"]),
            user("system:node:a", &["system:nodes"]),
            user("system:kube-scheduler", &[]),
            user("system:serviceaccount:a:b", &[]),
            User::anonymous(),
        ];
        for other in others {
            assert!(acquire(&control, &other, get, "/api/v1/pods").await.is_ok(), "{}", other.name);
        }
        drop(first);
        assert!(acquire(&control, &alice, get, "/api/v1/pods").await.is_ok());
    }

    #[test]
    fn requests_have_the_levels_of_upstreams_defaults() {
        let control = FlowControl::new(FlowLimits::default());
        let check = |level: Level, method: Method, target: &str, expect: &str| {
            let parts = Request::builder().method(&method).uri(target).body(()).unwrap().into_parts().0;
            let found = control.level(level, &RequestInfo::parse(&method, &parts.uri)).name;
            assert_eq!(found, expect, "{level:?} {method} {target}");
        };
        let (pods, lease) = ("/api/v1/pods", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x");
        for (level, expect) in [
            (Level::Exempt, "exempt"),
            (Level::Nodes, "system"),
            (Level::System, "workload-high"),
            (Level::Accounts, "workload-low"),
            (Level::Users, "global-default"),
            (Level::Anonymous, "catch-all"),
        ] {
            check(level, Method::GET, pods, expect);
        }
        check(Level::Nodes, Method::PUT, lease, "node-high");
        check(Level::Nodes, Method::PATCH, "/api/v1/nodes/n1/status", "node-high");
        check(Level::System, Method::PUT, lease, "leader-election");
        check(Level::System, Method::GET, lease.trim_end_matches("/x"), "workload-high");
        check(Level::Accounts, Method::PUT, lease, "workload-low");
    }
}
