//! A priority level in effect: its queues, requests and counts, behind one lock.
//!
//! A request that gets seats at once takes the lock once and allocates nothing. A waiting request receives its seats
//! through a channel. A request that is cancelled leaves the queue, and returns seats that were already sent to it.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use http::{Method, Uri};
use keelson_access::User;
use keelson_fairness::{
    Arrival, Coming, LevelDemand, LevelKind, LevelSeats, Limits, Place, PriorityLevel, Queues, Refusal, RetryAfter,
    Seat,
};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::numbers::{FlowNumbers, Rejection};
use super::utilization::Utilization;
use crate::shares::Holder;

/// One request takes at most one in this many of its level's seats.
const REQUEST_PART: usize = 4;

/// A level.
#[derive(Debug)]
pub(in crate::filters) struct Level {
    pub(super) name: String,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) queues: Queues<WaitingRequest>,
    pub(super) spec: PriorityLevel,
    pub(super) seats: LevelSeats,
    pub(super) demand: LevelDemand,
    pub(super) period: keelson_fairness::DemandPeriod,
    /// True for a level whose object was deleted, until its last request ends.
    pub(super) is_quiescing: bool,
    /// The requests with seats, by slot. Free slots are reused.
    executing: Vec<Option<ExecutingRequest>>,
    free: Vec<usize>,
    /// The flow schemas of the level, by slot. A flow schema keeps its slot while it has requests.
    flows: Vec<FlowSlot>,
    retry: RetryAfter,
    pub(super) utilization: Utilization,
}

#[derive(Debug)]
pub(super) struct FlowSlot {
    pub(super) name: String,
    /// True while the flow schema refers to this level.
    is_in_use: bool,
    /// The metrics, created by the first request.
    pub(super) numbers: Option<Box<FlowNumbers>>,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    grant: oneshot::Sender<Seats>,
    pub(super) asked: SeatRequest,
    pub(super) arrived: Duration,
}

/// A request with seats.
#[derive(Debug)]
pub(super) struct ExecutingRequest {
    pub(super) about: RequestSummary,
    /// The slot of its flow schema.
    pub(super) slot: usize,
    flow: u64,
    holder: Holder,
    pub(super) arrived: Duration,
    pub(super) seat: Seat,
}

/// A request as the debug tables show it. Cloning its fields allocates nothing.
#[derive(Clone, Debug)]
pub(in crate::filters) struct RequestSummary {
    pub(super) user: Arc<User>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) is_watch: bool,
}

/// The seats that a request needs from a level.
#[derive(Clone, Debug)]
pub(in crate::filters) struct SeatRequest {
    /// The slot of its flow schema.
    pub(super) slot: usize,
    /// The hash of its flow.
    pub(super) flow: u64,
    pub(super) seats: usize,
    pub(super) holder: Holder,
    pub(super) about: RequestSummary,
}

/// The seats of a request. Dropping this returns them.
#[derive(Debug)]
pub(crate) struct Seats {
    level: Arc<Level>,
    /// The slot among the level's requests with seats.
    place: usize,
    waited: Duration,
}

impl Seats {
    /// The time for which the request waited for them.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// The level, and the arguments to take the same seats again.
    pub(super) fn origin(&self) -> (Arc<Level>, SeatRequest) {
        let state = self.level.lock();
        let executing =
            state.executing[self.place].as_ref().expect("a request has its place until its seats are dropped");
        let ExecutingRequest { slot, flow, holder, .. } = *executing;
        let (seats, about) = (executing.seat.seats(), executing.about.clone());
        (self.level.clone(), SeatRequest { slot, flow, seats, holder, about })
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        {
            let mut state = self.level.lock();
            let now = state.now();
            let Some(ExecutingRequest { about, slot, seat, .. }) = state.executing[self.place].take() else { return };
            state.free.push(self.place);
            state.queues.finish(now, &seat);
            let numbers = state.numbers(slot);
            numbers.executing -= 1;
            numbers.executing_seats -= seat.seats() as u64;
            let times = if about.is_watch { &mut numbers.watches } else { &mut numbers.executions };
            times.note(now.saturating_sub(seat.begun()).as_secs_f64());
            if state.queues.totals().waiting == 0 {
                return;
            }
        }
        self.level.dispatch();
    }
}

impl Level {
    /// A level without requests.
    pub(super) fn new(spec: PriorityLevel, seats: LevelSeats, started: Instant) -> Self {
        let now = started.elapsed();
        let queues = Queues::new(limits(&spec, seats.nominal), now);
        let name = spec.name.clone();
        let state = State {
            queues,
            spec,
            seats,
            demand: LevelDemand::default(),
            period: keelson_fairness::DemandPeriod::default(),
            is_quiescing: false,
            executing: Vec::new(),
            free: Vec::new(),
            flows: Vec::new(),
            retry: RetryAfter::default(),
            utilization: Utilization::new(now),
        };
        Self { name, started, state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let (totals, limits, nominal) = (state.queues.totals(), state.queues.limits(), state.seats.nominal);
        state.utilization.pass(self.now(), totals, limits, nominal);
        state
    }

    /// The time since the start of the server.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Changes the level's spec. [`slots`](Self::slots) must be called afterwards.
    pub(super) fn configure(self: &Arc<Self>, spec: PriorityLevel, seats: LevelSeats, is_quiescing: bool) {
        {
            let mut state = self.lock();
            let current = state.queues.limits().seats.unwrap_or(seats.nominal);
            let current = if state.seats == seats { current } else { seats.nominal.max(current.min(seats.upper)) };
            let limits = limits(&spec, current.clamp(seats.lower, seats.upper.max(seats.lower)));
            let now = state.now();
            state.queues.configure(limits, now);
            (state.spec, state.seats, state.is_quiescing) = (spec, seats, is_quiescing);
            state.flows.iter_mut().for_each(|flow| flow.is_in_use = false);
        }
        self.dispatch();
    }

    /// Sets the number of seats after lending or borrowing.
    pub(super) fn limit(self: &Arc<Self>, seats: usize) {
        {
            let mut state = self.lock();
            let limits = limits(&state.spec, seats);
            if limits.seats == state.queues.limits().seats {
                return;
            }
            let now = state.now();
            state.queues.configure(limits, now);
        }
        self.dispatch();
    }

    /// The slots of these flow schemas, in their order.
    pub(super) fn slots<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<usize> {
        let mut state = self.lock();
        let known = state.flows.iter().enumerate().map(|(slot, flow)| (flow.name.clone(), slot));
        let mut known: HashMap<String, usize> = known.collect();
        let named: Vec<_> = names.map(|name| (name, known.remove(name))).collect();
        let mut unused: Vec<usize> = known.into_values().filter(|slot| state.flows[*slot].is_unused()).collect();
        let mut slots = Vec::with_capacity(named.len());
        for (name, slot) in named {
            if let Some(slot) = slot {
                state.flows[slot].is_in_use = true;
                slots.push(slot);
                continue;
            }
            let flow = FlowSlot { name: name.to_owned(), is_in_use: true, numbers: None };
            slots.push(match unused.pop() {
                Some(slot) => {
                    state.flows[slot] = flow;
                    slot
                }
                None => {
                    state.flows.push(flow);
                    state.flows.len() - 1
                }
            });
        }
        slots
    }

    /// Takes seats for a request. Waits for them for at most `patience`.
    ///
    /// # Errors
    /// The seconds after which the client may try again.
    pub(in crate::filters) async fn take(
        self: &Arc<Self>,
        asked: SeatRequest,
        patience: Duration,
    ) -> Result<Seats, u32> {
        self.wait(asked, patience, Coming::New).await
    }

    /// Takes seats again for a response that had them before.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) async fn take_again(self: &Arc<Self>, asked: SeatRequest, patience: Duration) -> Result<Seats, u32> {
        self.wait(asked, patience, Coming::Back).await
    }

    async fn wait(self: &Arc<Self>, asked: SeatRequest, patience: Duration, coming: Coming) -> Result<Seats, u32> {
        let slot = asked.slot;
        let (place, mut granted) = {
            let mut state = self.lock();
            match self.arrive(&mut state, asked, coming) {
                ArrivedRequest::Seated(seats) => return Ok(seats),
                ArrivedRequest::Refused(seconds) => return Err(seconds),
                ArrivedRequest::Waits(place, granted) => (place, granted),
            }
        };
        let begun = self.now();
        let mut guard = WaitGuard { level: self, place, slot, begun, why: Rejection::Cancelled };
        // Seats that this request does not need may be enough for others.
        self.dispatch();
        let outcome = match timeout(patience, &mut granted).await {
            Ok(outcome) => outcome.ok(),
            Err(_) => {
                guard.why = Rejection::TimedOut;
                None
            }
        };
        drop(guard);
        // The seats may have been sent at the moment of the timeout.
        match outcome.or_else(|| granted.try_recv().ok()) {
            Some(mut seats) => {
                seats.waited = self.now().saturating_sub(begun);
                Ok(seats)
            }
            None => Err(self.lock().retry.refuse(self.now().as_secs())),
        }
    }

    fn arrive(self: &Arc<Self>, state: &mut State, mut asked: SeatRequest, coming: Coming) -> ArrivedRequest {
        let now = state.now();
        let most = match (state.spec.kind, coming) {
            (LevelKind::Exempt, _) | (_, Coming::Back) => usize::MAX,
            (LevelKind::Reject | LevelKind::Queue(_), Coming::New) => state.seats.nominal.div_ceil(REQUEST_PART).max(1),
        };
        asked.seats = asked.seats.clamp(1, most);
        let (slot, seats) = (asked.slot, asked.seats);
        match state.queues.arrive(now, asked.flow, seats, coming) {
            Arrival::Seated(seat) => ArrivedRequest::Seated(self.seated(state, asked, seat, now)),
            Arrival::Waits(turn) => {
                let (grant, granted) = oneshot::channel();
                let place = state.queues.wait(now, turn, WaitingRequest { grant, asked, arrived: now });
                let length = state.queues.length_at(place);
                let numbers = state.numbers(slot);
                numbers.waiting += 1;
                numbers.waiting_seats += seats as u64;
                numbers.queue_lengths.note(length as f64);
                ArrivedRequest::Waits(place, granted)
            }
            Arrival::Refused(refusal) => {
                let why = match refusal {
                    Refusal::NoSeat => Rejection::NoSeat,
                    Refusal::QueueFull => Rejection::QueueFull,
                };
                state.numbers(slot).reject(why, Duration::ZERO);
                ArrivedRequest::Refused(state.retry.refuse(now.as_secs()))
            }
        }
    }

    fn seated(self: &Arc<Self>, state: &mut State, asked: SeatRequest, seat: Seat, arrived: Duration) -> Seats {
        let SeatRequest { slot, flow, holder, about, .. } = asked;
        let numbers = state.numbers(slot);
        numbers.executing += 1;
        numbers.executing_seats += seat.seats() as u64;
        numbers.dispatched += 1;
        numbers.costs.note(seat.seats() as f64);
        numbers.waits.note(seat.begun().saturating_sub(arrived).as_secs_f64());
        let executing = ExecutingRequest { about, slot, flow, holder, arrived, seat };
        let place = match state.free.pop() {
            Some(place) => {
                state.executing[place] = Some(executing);
                place
            }
            None => {
                state.executing.push(Some(executing));
                state.executing.len() - 1
            }
        };
        Seats { level: self.clone(), place, waited: Duration::ZERO }
    }

    /// Gives seats to waiting requests while there are enough.
    fn dispatch(self: &Arc<Self>) {
        let mut grants = SmallVec::<[(oneshot::Sender<Seats>, Seats); 4]>::new();
        {
            let mut state = self.lock();
            let now = state.now();
            while let Some(dispatch) = state.queues.next(now) {
                let WaitingRequest { grant, asked, arrived } = dispatch.item;
                let numbers = state.numbers(asked.slot);
                numbers.waiting -= 1;
                numbers.waiting_seats -= dispatch.seat.seats() as u64;
                grants.push((grant, self.seated(&mut state, asked, dispatch.seat, arrived)));
            }
            if let Some(slot) = state.queues.blocked().map(|waiting| waiting.asked.slot) {
                state.numbers(slot).blocked += 1;
            }
        }
        for (grant, seats) in grants {
            // ORDER: sent without the lock: if the request was cancelled, dropping its seats takes the lock.
            drop(grant.send(seats));
        }
    }
}

enum ArrivedRequest {
    Seated(Seats),
    Waits(Place, oneshot::Receiver<Seats>),
    Refused(u32),
}

impl State {
    /// The time of the lock, which read the clock.
    fn now(&self) -> Duration {
        self.utilization.until()
    }

    /// The numbers of a flow schema.
    fn numbers(&mut self, slot: usize) -> &mut FlowNumbers {
        self.flows[slot].numbers.get_or_insert_with(|| Box::new(FlowNumbers::new()))
    }

    /// The flow schemas of the level that had requests.
    pub(super) fn flows(&self) -> impl Iterator<Item = (&str, &FlowNumbers)> {
        self.flows.iter().filter_map(|flow| Some((flow.name.as_str(), flow.numbers.as_deref()?)))
    }

    /// The name of a flow schema.
    pub(super) fn flow_name(&self, slot: usize) -> &str {
        self.flows.get(slot).map_or("", |flow| flow.name.as_str())
    }

    /// The requests with seats.
    pub(super) fn executing(&self) -> impl Iterator<Item = &ExecutingRequest> {
        self.executing.iter().flatten()
    }
}

impl FlowSlot {
    fn is_unused(&self) -> bool {
        !self.is_in_use && self.numbers.as_ref().is_none_or(|numbers| numbers.is_unused())
    }
}

/// The queue limits of a level with this many seats.
fn limits(spec: &PriorityLevel, seats: usize) -> Limits {
    let none = Limits { seats: Some(seats), queues: 0, hand_size: 1, queue_length: 0 };
    match spec.kind {
        LevelKind::Exempt => Limits { seats: None, ..none },
        LevelKind::Reject => none,
        LevelKind::Queue(queuing) => Limits {
            queues: queuing.queues,
            hand_size: queuing.hand_size,
            queue_length: queuing.queue_length as usize,
            ..none
        },
    }
}

/// Removes a request from the queue if its future is dropped while it waits.
struct WaitGuard<'a> {
    level: &'a Arc<Level>,
    place: Place,
    slot: usize,
    begun: Duration,
    why: Rejection,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.level.lock();
            let now = state.now();
            let Some(WaitingRequest { asked, .. }) = state.queues.cancel(now, self.place) else { return };
            let numbers = state.numbers(self.slot);
            numbers.waiting -= 1;
            numbers.waiting_seats -= asked.seats as u64;
            numbers.reject(self.why, now.saturating_sub(self.begun));
        }
        // The cancelled request may have blocked others behind it.
        self.level.dispatch();
    }
}

#[cfg(test)]
mod tests;
