//! Flow control: priority and fairness of requests, by the stored flow schemas and priority levels.
//!
//! A request is classified after authentication. It takes seats of its level by its cost (`cost.rs`), and returns them as soon as
//! its response needs no memory of the server: at once for a small complete response, at the end of a streamed one. While a
//! streamed response waits for its client, its seats are lent (`lent.rs`). A request without a seat waits in a fair queue
//! (`keelson-fairness`) for a part of its deadline, and then gets 429. A watch has seats until it has sent its initial objects.
//! Requests for aggregated servers have seats of their own. Without priority and fairness two numbers limit all requests except
//! those of administrators.

mod cost;
mod dumps;
mod generation;
mod lent;
mod level;
mod metrics;
mod numbers;

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

pub(super) use self::cost::{Cost, Sent, of};
pub(crate) use self::cost::{has_long_query, is_copied};
pub(super) use self::dumps::answer as dump;
pub(super) use self::generation::Flow;
use self::generation::{Configured, Generation};
pub(crate) use self::lent::LentSeats;
pub(super) use self::lent::SeatedBody;
pub(super) use self::level::Seats;
use self::level::{About, Asked, Level};
pub(super) use self::metrics::{histograms, samples};
use crate::body::ResponseBody;
use crate::request_info::{RequestInfo, RequestVerb};
use crate::shares::Holder;

/// Which part of its time a request may wait for a seat, as upstream has it: one in so many.
const WAIT_PART: u32 = 4;
/// The number of concurrent requests to one aggregated server, without watches and sessions. Each holds the buffers of two
/// connections.
const SEATS_ELSEWHERE: usize = 500;
/// The queues of those that wait for that.
const QUEUES_ELSEWHERE: Queuing = Queuing { queues: 64, hand_size: 4, queue_length: 50 };

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// The limits of requests at once.
#[derive(Clone, Copy, Debug)]
pub struct FlowLimits {
    /// True if requests are scheduled by priority and fairness.
    pub is_fair: bool,
    /// The number of requests that change nothing. With priority and fairness both numbers together are the seats of the server.
    pub requests: usize,
    /// The number of requests that change something.
    pub mutating: usize,
    /// The number of watches at once. One takes about 20 KB, and one user may have a share of them.
    pub watches: usize,
}

impl Default for FlowLimits {
    fn default() -> Self {
        Self { is_fair: true, requests: 400, mutating: 200, watches: 100_000 }
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

/// The flow control of a server. A clone is the same.
#[derive(Clone, Debug)]
pub struct FlowControl(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    generation: ArcSwap<Generation>,
    configured: Mutex<Configured>,
    /// The seats without priority and fairness: for requests that change nothing, and for the others.
    plain: Option<[Arc<Level>; 2]>,
    /// The seats of aggregated servers, by where they are, as long as a request has or waits for one.
    elsewhere: Mutex<HashMap<String, Weak<Level>>>,
    started: Instant,
}

/// A request that asks for seats.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) user: &'a Arc<User>,
    pub(super) holder: Holder,
    pub(super) info: &'a RequestInfo,
    pub(super) parts: &'a Parts,
    /// The time of the request, a part of which it may wait.
    pub(super) time: Duration,
}

impl Request<'_> {
    fn asked(&self, slot: usize, flow: u64, seats: usize) -> Asked {
        let about = About {
            user: self.user.clone(),
            method: self.parts.method.clone(),
            uri: self.parts.uri.clone(),
            is_watch: self.info.verb == RequestVerb::Resource(Verb::Watch),
        };
        Asked { slot, flow, seats, holder: self.holder, about }
    }
}

impl FlowControl {
    /// Flow control by the suggested flow schemas and priority levels, until others are given.
    pub(super) fn new(limits: FlowLimits) -> Self {
        let started = Instant::now();
        let server = limits.requests.saturating_add(limits.mutating);
        let (configured, generation) = Configured::suggested(server, started);
        let plain = (!limits.is_fair).then(|| {
            [("readOnly", limits.requests), ("mutating", limits.mutating)].map(|(name, seats)| {
                // No number is no limit.
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

    /// Changes to these flow schemas and priority levels. Requests keep their seats and their places.
    ///
    /// The mandatory ones are in effect even if they are not among them. A flow schema without its level has no effect.
    pub fn configure(&self, schemas: Vec<FlowSchema>, levels: Vec<PriorityLevel>) {
        let mut configured = self.0.configured.lock();
        self.0.generation.store(Arc::new(configured.change(schemas, levels)));
    }

    /// Has levels lend seats to each other by their demand since the last call, and forgets levels that are gone.
    pub fn adjust(&self) {
        let mut configured = self.0.configured.lock();
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

    /// Seats for the request, for which it waits for a part of its time; `None` for what needs none.
    ///
    /// # Errors
    /// After how many seconds the client may try again.
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

    /// A seat among the requests that one aggregated server answers. They take none of their level's, so that a server which hangs
    /// keeps only its own clients waiting.
    ///
    /// # Errors
    /// After how many seconds the client may try again.
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

    /// The levels, by their names; none without priority and fairness.
    fn levels(&self) -> Vec<Arc<Level>> {
        if self.0.plain.is_some() { Vec::new() } else { self.0.generation.load().levels.clone() }
    }

    /// True if requests are scheduled by priority and fairness.
    fn is_fair(&self) -> bool {
        self.0.plain.is_none()
    }

    /// The time since the start, which all levels measure by.
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

/// A level that follows no object.
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

/// The answer with the headers of its flow schema and its priority level, if it has a flow.
pub(super) fn marked(mut response: Response<ResponseBody>, flow: Option<&Arc<Flow>>) -> Response<ResponseBody> {
    let Some(flow) = flow else { return response };
    // Those of an aggregated server stay.
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
