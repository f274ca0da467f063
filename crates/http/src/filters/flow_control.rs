//! Flow control: priority and fairness of requests, by the stored flow schemas and priority levels.
//!
//! A request is classified after authentication. It takes seats of its level by its cost (`cost.rs`), and returns them
//! as soon as its response needs no memory of the server. That is at once for a small complete response, and at the end
//! of a streamed one. While a streamed response waits for its client, its seats are lent (`lent_seats.rs`).
//!
//! A request without a seat waits in a fair queue (`keelson-fairness`) for a part of its time limit, and then gets 429.
//! A watch has seats until it has sent its initial events. Requests for aggregated servers have separate seats. Without
//! priority and fairness, two numbers limit all requests except those of administrators.

mod cost;
mod dumps;
mod generation;
mod lent_seats;
mod level;
mod metrics;
mod numbers;
mod utilization;

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use http::Response;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use keelson_access::User;
use keelson_access::user::MASTERS;
use keelson_fairness::{Distinguisher, FlowSchema, LevelKind, LevelSeats, PriorityLevel, Queuing};
use keelson_resources::Verb;
use parking_lot::Mutex;
use tokio::time::Instant;

pub(super) use self::cost::{Cost, RequestBodySize, request_cost};
pub(crate) use self::cost::{has_long_query, is_copied};
pub(super) use self::dumps::answer as dump;
pub(super) use self::generation::Flow;
use self::generation::{Configured, Generation};
pub(crate) use self::lent_seats::LentSeats;
pub(super) use self::lent_seats::SeatedBody;
pub(super) use self::level::Seats;
use self::level::{Level, RequestSummary, SeatRequest};
pub(super) use self::metrics::{histograms, samples};
use crate::body::ResponseBody;
use crate::request_info::{RequestInfo, RequestVerb};
use crate::shares::Holder;

/// A request may wait for a seat for one in this many parts of its time, as upstream.
const WAIT_PART: u32 = 4;
/// The number of concurrent requests to one aggregated server, without watches and sessions. Each holds the buffers of
/// two connections.
const SEATS_ELSEWHERE: usize = 500;
/// The queues of requests that wait for one of these seats.
const QUEUES_ELSEWHERE: Queuing = Queuing { queues: 64, hand_size: 4, queue_length: 50 };

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// The limits of concurrent requests.
#[derive(Clone, Copy, Debug)]
pub struct FlowLimits {
    /// True if requests are scheduled by priority and fairness.
    pub is_fair: bool,
    /// The number of read-only requests. With priority and fairness the sum of both numbers is the number of the
    /// server's seats.
    pub requests: usize,
    /// The number of mutating requests.
    pub mutating: usize,
    /// The number of watches at once. One takes about 20 KB, and one user may have a share of them.
    pub watches: usize,
}

impl Default for FlowLimits {
    fn default() -> Self {
        Self { is_fair: true, requests: 400, mutating: 200, watches: 100_000 }
    }
}

/// The seats of a watch for its initial events, in the extensions of its request. Dropping this returns the seats, as
/// soon as the initial events are sent.
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

/// The flow control of a server. Clones share one state.
#[derive(Clone, Debug)]
pub struct FlowControl(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    generation: ArcSwap<Generation>,
    configured: Mutex<Configured>,
    /// The seats without priority and fairness: for read-only requests, and for mutating ones.
    plain: Option<[Arc<Level>; 2]>,
    /// The seats of aggregated servers, by server. An entry lives while a request holds or awaits a seat.
    elsewhere: Mutex<HashMap<String, Weak<Level>>>,
    started: Instant,
}

/// A request that needs seats.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) user: &'a Arc<User>,
    pub(super) holder: Holder,
    pub(super) info: &'a RequestInfo,
    pub(super) parts: &'a Parts,
    /// The time limit of the request. It may wait for a part of that time.
    pub(super) time: Duration,
}

impl Request<'_> {
    fn asked(&self, slot: usize, flow: u64, seats: usize) -> SeatRequest {
        let about = RequestSummary {
            user: self.user.clone(),
            method: self.parts.method.clone(),
            uri: self.parts.uri.clone(),
            is_watch: self.info.verb == RequestVerb::Resource(Verb::Watch),
        };
        SeatRequest { slot, flow, seats, holder: self.holder, about }
    }
}

impl FlowControl {
    /// Flow control with the suggested flow schemas and priority levels, until [`FlowControl::configure`] replaces
    /// them.
    pub(super) fn new(limits: FlowLimits) -> Self {
        let started = Instant::now();
        let server = limits.requests.saturating_add(limits.mutating);
        let (configured, generation) = Configured::suggested(server, started);
        let plain = (!limits.is_fair).then(|| {
            [("readOnly", limits.requests), ("mutating", limits.mutating)].map(|(name, seats)| {
                // The number 0 means no limit.
                let kind = if seats == 0 { LevelKind::Exempt } else { LevelKind::Reject };
                fixed_level(name, kind, seats, started)
            })
        });
        Self(Arc::new(Inner {
            generation: ArcSwap::from_pointee(generation),
            configured: Mutex::new(configured),
            plain,
            elsewhere: Mutex::default(),
            started,
        }))
    }

    /// Replaces the flow schemas and priority levels. Requests keep their seats and their places in queues.
    ///
    /// Mandatory flow schemas and levels are in effect even if they are missing here. A flow schema without its level
    /// has no effect.
    pub fn configure(&self, schemas: Vec<FlowSchema>, levels: Vec<PriorityLevel>) {
        let mut configured = self.0.configured.lock();
        self.0.generation.store(Arc::new(configured.change(schemas, levels)));
    }

    /// Moves lendable seats between levels by their demand since the last call, and removes deleted levels without
    /// requests.
    pub fn adjust(&self) {
        // A change of the configuration may take a second, and the next call is soon.
        let Some(mut configured) = self.0.configured.try_lock() else { return };
        if let Some(changed) = configured.adjust(&self.0.generation.load()) {
            self.0.generation.store(Arc::new(changed));
        }
    }

    /// The flow of a request.
    pub(super) fn classify(&self, user: &User, info: &RequestInfo) -> Option<Arc<Flow>> {
        if self.0.plain.is_some() || !info.waits_its_turn() {
            return None;
        }
        Some(self.0.generation.load().classify(user, info))
    }

    /// Waits for the seats of the request, for a part of its time. `None` for a request that needs none.
    ///
    /// # Errors
    /// The seconds after which the client may try again.
    pub(super) async fn acquire(
        &self,
        flow: Option<&Arc<Flow>>,
        request: Request<'_>,
        seats: usize,
    ) -> Result<Option<Seats>, u32> {
        let patience = request.time / WAIT_PART;
        if let Some(flow) = flow {
            let asked = request.asked(flow.slot, flow.hash(request.user, request.info), seats);
            return flow.level.take(asked, patience).await.map(Some);
        }
        let Some([reads, writes]) = &self.0.plain else { return Ok(None) };
        if request.info.has_no_end() || request.user.is_in(MASTERS) {
            return Ok(None);
        }
        let level = if request.info.verb.is_read() { reads } else { writes };
        level.take(request.asked(0, 0, 1), patience).await.map(Some)
    }

    /// Waits for a seat among the requests that one aggregated server answers. These seats are separate from the
    /// level's, so that a server that hangs delays only its own clients.
    ///
    /// # Errors
    /// The seconds after which the client may try again.
    pub(super) async fn acquire_elsewhere(&self, server: &str, request: Request<'_>) -> Result<Option<Seats>, u32> {
        if request.info.is_long_running() {
            return Ok(None);
        }
        let level = self.level_elsewhere(server);
        level.take(request.asked(0, request.holder.flow, 1), request.time / WAIT_PART).await.map(Some)
    }

    fn level_elsewhere(&self, server: &str) -> Arc<Level> {
        let mut levels = self.0.elsewhere.lock();
        if let Some(level) = levels.get(server).and_then(Weak::upgrade) {
            return level;
        }
        levels.retain(|_, level| level.strong_count() > 0);
        let level = fixed_level(server, LevelKind::Queue(QUEUES_ELSEWHERE), SEATS_ELSEWHERE, self.0.started);
        levels.insert(server.to_owned(), Arc::downgrade(&level));
        level
    }

    /// The levels, sorted by name. Empty without priority and fairness.
    fn levels(&self) -> Vec<Arc<Level>> {
        if self.0.plain.is_some() { Vec::new() } else { self.0.generation.load().levels.clone() }
    }

    /// True if requests are scheduled by priority and fairness.
    fn is_fair(&self) -> bool {
        self.0.plain.is_none()
    }

    /// The time since the start of flow control, the clock of all levels.
    fn now(&self) -> Duration {
        self.0.started.elapsed()
    }

    /// The distinguishers of flow schemas, by their level and their slot in it.
    fn distinguishers(&self) -> HashMap<(String, usize), Option<Distinguisher>> {
        let generation = self.0.generation.load();
        generation.flows().map(|flow| ((flow.level.name.clone(), flow.slot), flow.distinguisher)).collect()
    }

    /// The fair fraction of the last adjustment.
    fn fair_fraction(&self) -> f64 {
        self.0.configured.lock().fair_fraction
    }
}

/// A level that no PriorityLevelConfiguration object configures.
fn fixed_level(name: &str, kind: LevelKind, seats: usize, started: Instant) -> Arc<Level> {
    let spec = PriorityLevel {
        name: name.to_owned(),
        uid: String::new(),
        shares: 0,
        lendable_percent: 0,
        borrowing_percent: None,
        kind,
    };
    let level = Level::new(spec, LevelSeats { nominal: seats, lower: seats, upper: seats }, started);
    level.slots([""].into_iter());
    Arc::new(level)
}

/// Adds the header fields with the uids of flow schema and priority level to the response of a request with a flow.
pub(super) fn marked(mut response: Response<ResponseBody>, flow: Option<&Arc<Flow>>) -> Response<ResponseBody> {
    let Some(flow) = flow else { return response };
    // The fields of an aggregated server's response stay.
    let headers = response.headers_mut();
    let mut add = |name: HeaderName, value: &HeaderValue| {
        headers.entry(name).or_insert_with(|| value.clone());
    };
    add(FLOW_SCHEMA, &flow.uid);
    add(PRIORITY_LEVEL, &flow.level_uid);
    response
}

#[cfg(test)]
mod tests;
