//! The seats and the queues of one priority level: fair queuing in virtual time (KEP-1040, "Fair Queuing for Server
//! Requests").
//!
//! A flow has a hand of queues, and its requests wait in the shortest of these. The next request comes from the queue
//! whose oldest request would end first in virtual time. A smaller request never overtakes it, since otherwise a
//! request for many seats would never get them. Requests of more than one seat hold at most three quarters of the seats
//! together, so that small requests never wait for large ones alone. Queues exist only while they have requests.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::dealer::deal;
use crate::demand::{Demand, DemandPeriod};

/// The assumed execution time of a request until it has ended.
const ESTIMATED: Duration = Duration::from_millis(3);
/// The maximum number of used queues of a level. Each dispatch checks all queues with waiting requests.
const MOST_QUEUES: u32 = 1024;
/// The maximum number of queues in a hand.
const MOST_HAND: u32 = 16;

/// The limits of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of seats. Absent for a level without a limit.
    pub seats: Option<usize>,
    /// The number of queues. 0 if requests without a seat are refused.
    pub queues: u32,
    /// The number of queues from which a flow can choose.
    pub hand_size: u32,
    /// The maximum number of waiting requests in a queue.
    pub queue_length: usize,
}

/// The result of an arrival.
#[derive(Debug)]
pub enum Arrival {
    /// The request has got its seats.
    Seated(Seat),
    /// The request must wait. [`Queues::wait`] puts it into its queue.
    Waits(Turn),
    /// The request is refused.
    Refused(Refusal),
}

/// The reason why a request is refused at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All seats are in use, and the level has no queues.
    NoSeat,
    /// The queue is full.
    QueueFull,
}

/// The way in which a request comes to its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coming {
    /// It has had no seats yet.
    New,
    /// The request had seats and lent them. It waits before all new requests of its queue, without regard to limits.
    Back,
}

/// The queue that a request must wait in, and its seats.
#[derive(Debug)]
#[must_use]
pub struct Turn {
    queue: u32,
    seats: usize,
    coming: Coming,
}

/// The seats of a request. [`Queues::finish`] returns them.
#[derive(Debug)]
#[must_use]
pub struct Seat {
    queue: u32,
    seats: usize,
    begun: Duration,
}

impl Seat {
    /// The number of seats.
    pub fn seats(&self) -> usize {
        self.seats
    }

    /// The time when the request got them.
    pub fn begun(&self) -> Duration {
        self.begun
    }

    /// The number of the queue.
    pub fn queue(&self) -> u32 {
        self.queue
    }
}

/// The place of a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    queue: u32,
    id: u64,
    coming: Coming,
}

/// A request that leaves its queue with its seats.
#[derive(Debug)]
pub struct Dispatch<T> {
    /// The request.
    pub item: T,
    /// Its seats.
    pub seat: Seat,
}

#[derive(Debug)]
struct Waiter<T> {
    id: u64,
    /// The virtual time of its arrival.
    arrived: i128,
    seats: usize,
    item: T,
}

#[derive(Debug)]
struct Queue<T> {
    /// Requests, oldest first, by ascending ids.
    waiting: VecDeque<Waiter<T>>,
    /// Requests that take seats again after they had lent them. They come before the others.
    returning: VecDeque<Waiter<T>>,
    waiting_seats: usize,
    executing: usize,
    seats_in_use: usize,
    /// The virtual time at which the next request starts, in nanoseconds of seats.
    next_start: i128,
}

/// The state of one queue, for operators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueState {
    /// Its number.
    pub queue: u32,
    /// The number of waiting requests.
    pub waiting: usize,
    /// The seats that these need.
    pub waiting_seats: usize,
    /// The number of requests with seats.
    pub executing: usize,
    /// The seats that these hold.
    pub seats_in_use: usize,
    /// The virtual start of the next request, in seconds of seats.
    pub next_start: f64,
}

/// The sums over all queues of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of requests with seats.
    pub executing: usize,
    /// The seats that these hold.
    pub seats_in_use: usize,
    /// The number of waiting requests.
    pub waiting: usize,
    /// The seats that these need.
    pub waiting_seats: usize,
}

/// The requests of a level. `T` is the caller's value for a waiting request.
#[derive(Debug)]
pub struct Queues<T> {
    limits: Limits,
    queues: HashMap<u32, Queue<T>>,
    totals: Totals,
    /// The number of executing requests with more than one seat, and their seats.
    wide: (usize, usize),
    /// The virtual time: the work that each queue with requests could have received, in nanoseconds of seats.
    progress: i128,
    last: Duration,
    demand: Demand,
    arrivals: u64,
    /// The virtual time and the virtual start of the last dispatch.
    dispatched: (i128, i128),
}

impl<T> Queue<T> {
    fn new(progress: i128) -> Self {
        Self {
            waiting: VecDeque::new(),
            returning: VecDeque::new(),
            waiting_seats: 0,
            executing: 0,
            seats_in_use: 0,
            next_start: progress,
        }
    }

    fn line(&mut self, coming: Coming) -> &mut VecDeque<Waiter<T>> {
        match coming {
            Coming::New => &mut self.waiting,
            Coming::Back => &mut self.returning,
        }
    }

    fn head(&self) -> Option<&Waiter<T>> {
        self.returning.front().or_else(|| self.waiting.front())
    }

    fn pop(&mut self) -> Option<Waiter<T>> {
        self.returning.pop_front().or_else(|| self.waiting.pop_front())
    }

    /// No request starts before its arrival in virtual time: a queue that did not use its part earlier gets no more
    /// later.
    fn bound(&mut self) {
        if let Some(head) = self.head() {
            self.next_start = self.next_start.max(head.arrived);
        }
    }

    fn length(&self) -> usize {
        self.waiting.len() + self.returning.len()
    }

    fn is_unused(&self) -> bool {
        self.executing == 0 && self.waiting.is_empty() && self.returning.is_empty()
    }
}

impl Limits {
    fn bounded(self) -> Self {
        let queues = self.queues.min(MOST_QUEUES);
        Self { queues, hand_size: self.hand_size.clamp(1, MOST_HAND.min(queues.max(1))), ..self }
    }
}

impl<T> Queues<T> {
    /// A level without requests.
    pub fn new(limits: Limits, now: Duration) -> Self {
        Self {
            limits: limits.bounded(),
            queues: HashMap::new(),
            totals: Totals::default(),
            wide: (0, 0),
            progress: 0,
            last: now,
            demand: Demand::new(now),
            arrivals: 0,
            dispatched: (0, 0),
        }
    }

    /// Changes the limits. Waiting requests keep their places. [`next`](Self::next) may dispatch some under the new
    /// limits.
    pub fn configure(&mut self, limits: Limits, now: Duration) {
        self.pass(now);
        self.limits = limits.bounded();
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The sums.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Ends the period of demand, and returns it.
    pub fn end_period(&mut self, now: Duration) -> DemandPeriod {
        self.demand.end_period(now)
    }

    /// The virtual time, in seconds of seats.
    pub fn progress(&self) -> f64 {
        self.progress as f64 / 1e9
    }

    /// The virtual time at the last dispatch, and the virtual start of its request, in seconds of seats.
    pub fn last_dispatch(&self) -> (f64, f64) {
        let (progress, start) = self.dispatched;
        (progress as f64 / 1e9, start as f64 / 1e9)
    }

    /// The smallest and the largest virtual start of a queue with waiting requests, in seconds of seats. `None` if no
    /// request waits. `discounted` starts are less by the assumed work of executing requests.
    pub fn start_bounds(&self, discounted: bool) -> Option<(f64, f64)> {
        let waiting = self.queues.values().filter(|queue| queue.length() > 0);
        let starts = waiting.map(|queue| queue.next_start - if discounted { work(queue.seats_in_use) } else { 0 });
        let bounds = starts.fold(None, |bounds: Option<(i128, i128)>, start| {
            Some(bounds.map_or((start, start), |(least, most)| (least.min(start), most.max(start))))
        });
        bounds.map(|(least, most)| (least as f64 / 1e9, most as f64 / 1e9))
    }

    /// Returns true if no request executes or waits.
    pub fn is_idle(&self) -> bool {
        self.totals.executing == 0 && self.totals.waiting == 0
    }

    /// The state of each queue with requests, sorted by number.
    pub fn queues(&self) -> Vec<QueueState> {
        let of = |(number, queue): (&u32, &Queue<T>)| QueueState {
            queue: *number,
            waiting: queue.length(),
            waiting_seats: queue.waiting_seats,
            executing: queue.executing,
            seats_in_use: queue.seats_in_use,
            next_start: queue.next_start as f64 / 1e9,
        };
        let mut states: Vec<_> = self.queues.iter().map(of).collect();
        states.sort_unstable_by_key(|state| state.queue);
        states
    }

    /// The waiting requests, each with its queue, its place in it, and its seats.
    pub fn waiting(&self) -> impl Iterator<Item = (u32, usize, usize, &T)> {
        self.queues.iter().flat_map(|(number, queue)| {
            let all = queue.returning.iter().chain(&queue.waiting).enumerate();
            all.map(|(place, waiter)| (*number, place, waiter.seats, &waiter.item))
        })
    }

    /// The number of waiting requests in the queue of a place.
    pub fn length_at(&self, place: Place) -> usize {
        self.queues.get(&place.queue).map_or(0, Queue::length)
    }

    /// Takes seats for a request of a flow. If there are none, the request must wait, or is refused.
    pub fn arrive(&mut self, now: Duration, flow: u64, seats: usize, coming: Coming) -> Arrival {
        self.pass(now);
        let queue = self.queue_for(flow);
        if self.totals.waiting == 0 && self.fits(seats) {
            return Arrival::Seated(self.seat(now, queue, seats));
        }
        if coming == Coming::New {
            if self.limits.queues == 0 {
                return Arrival::Refused(Refusal::NoSeat);
            }
            let length = self.queues.get(&queue).map_or(0, |queue| queue.waiting.len());
            if length >= self.limits.queue_length {
                return Arrival::Refused(Refusal::QueueFull);
            }
        }
        Arrival::Waits(Turn { queue, seats, coming })
    }

    /// Puts a request that has just arrived into its queue. [`next`](Self::next) may dispatch it or others.
    #[expect(clippy::needless_pass_by_value, reason = "a turn is used once")]
    pub fn wait(&mut self, now: Duration, turn: Turn, item: T) -> Place {
        let Turn { queue: number, seats, coming } = turn;
        let (id, progress) = (self.arrivals, self.progress);
        let queue = self.queues.entry(number).or_insert_with(|| Queue::new(progress));
        queue.line(coming).push_back(Waiter { id, arrived: progress, seats, item });
        queue.waiting_seats += seats;
        queue.bound();
        self.totals.waiting += 1;
        self.totals.waiting_seats += seats;
        self.note_demand(now);
        Place { queue: number, id, coming }
    }

    /// Dispatches the next request, if there are enough seats for it.
    pub fn next(&mut self, now: Duration) -> Option<Dispatch<T>> {
        if self.totals.waiting == 0 {
            return None;
        }
        self.pass(now);
        let (number, head) = self.first()?;
        if !self.fits(head.seats) {
            return None;
        }
        let queue = self.queues.get_mut(&number)?;
        let Waiter { seats, item, .. } = queue.pop()?;
        queue.waiting_seats -= seats;
        self.totals.waiting -= 1;
        self.totals.waiting_seats -= seats;
        Some(Dispatch { item, seat: self.seat(now, number, seats) })
    }

    /// The request that waits although the level has free seats, since it needs more.
    pub fn blocked(&self) -> Option<&T> {
        if self.totals.waiting == 0 || self.limits.seats.is_none_or(|limit| self.totals.seats_in_use >= limit) {
            return None;
        }
        self.first().filter(|(_, head)| !self.fits(head.seats)).map(|(_, head)| &head.item)
    }

    /// The waiting request with the least virtual end, and its queue.
    fn first(&self) -> Option<(u32, &Waiter<T>)> {
        let heads = self.queues.iter().filter_map(|(number, queue)| Some((*number, queue, queue.head()?)));
        let may_be_next = heads.filter(|(_, _, head)| !self.is_wide_full(head.seats));
        let first = may_be_next.min_by_key(|(_, queue, head)| (queue.next_start + work(head.seats), head.id));
        first.map(|(number, _, head)| (number, head))
    }

    /// Returns the seats of a request that ended. [`next`](Self::next) may dispatch others.
    pub fn finish(&mut self, now: Duration, seat: &Seat) {
        self.pass(now);
        let Seat { queue: number, seats, begun } = *seat;
        self.totals.executing -= 1;
        self.totals.seats_in_use -= seats;
        if seats > 1 {
            self.wide = (self.wide.0 - 1, self.wide.1 - seats);
        }
        self.note_demand(now);
        let Entry::Occupied(mut entry) = self.queues.entry(number) else { return };
        let queue = entry.get_mut();
        queue.executing -= 1;
        queue.seats_in_use -= seats;
        if queue.is_unused() {
            entry.remove();
            return;
        }
        // The assumed time was added at the start.
        let taken = nanoseconds(now.saturating_sub(begun)) - nanoseconds(ESTIMATED);
        queue.next_start = queue.next_start.saturating_add(taken.saturating_mul(seats as i128));
        queue.bound();
    }

    /// Removes a request from its queue, unless it was dispatched.
    pub fn cancel(&mut self, now: Duration, place: Place) -> Option<T> {
        self.pass(now);
        let Entry::Occupied(mut entry) = self.queues.entry(place.queue) else { return None };
        let queue = entry.get_mut();
        let waiting = queue.line(place.coming);
        let index = waiting.binary_search_by_key(&place.id, |waiter| waiter.id).ok()?;
        let Waiter { seats, item, .. } = waiting.remove(index)?;
        queue.waiting_seats -= seats;
        queue.bound();
        if queue.is_unused() {
            entry.remove();
        }
        self.totals.waiting -= 1;
        self.totals.waiting_seats -= seats;
        self.note_demand(now);
        Some(item)
    }

    /// The queue of the flow's hand with the fewest waiting seats. Queues with equal numbers take turns.
    fn queue_for(&mut self, flow: u64) -> u32 {
        self.arrivals = self.arrivals.wrapping_add(1);
        let Limits { queues, hand_size, .. } = self.limits;
        if queues <= 1 {
            return 0;
        }
        let hand = deal(flow, queues, hand_size);
        let first = (self.arrivals % hand.len() as u64) as usize;
        if self.totals.waiting == 0 {
            return hand[first];
        }
        let waiting = |number: &u32| self.queues.get(number).map_or(0, |queue| queue.waiting_seats);
        let turns = hand[first..].iter().chain(&hand[..first]);
        turns.copied().min_by_key(|number| waiting(number)).unwrap_or_default()
    }

    fn fits(&self, seats: usize) -> bool {
        let Some(limit) = self.limits.seats else { return true };
        // A request gets its seats if no other executes, even if the level has fewer.
        if self.totals.executing == 0 {
            return true;
        }
        self.totals.seats_in_use + seats <= limit && !self.is_wide_full(seats)
    }

    fn is_wide_full(&self, seats: usize) -> bool {
        let (requests, in_use) = self.wide;
        self.limits.seats.is_some_and(|limit| seats > 1 && requests > 0 && in_use + seats > limit * 3 / 4)
    }

    fn seat(&mut self, now: Duration, number: u32, seats: usize) -> Seat {
        let progress = self.progress;
        let queue = self.queues.entry(number).or_insert_with(|| Queue::new(progress));
        queue.executing += 1;
        queue.seats_in_use += seats;
        self.dispatched = (progress, queue.next_start);
        queue.next_start += work(seats);
        queue.bound();
        self.totals.executing += 1;
        self.totals.seats_in_use += seats;
        if seats > 1 {
            self.wide = (self.wide.0 + 1, self.wide.1 + seats);
        }
        self.note_demand(now);
        Seat { queue: number, seats, begun: now }
    }

    fn note_demand(&mut self, now: Duration) {
        self.demand.set(now, (self.totals.seats_in_use + self.totals.waiting_seats) as f64);
    }

    /// Advances the virtual time at the rate of the seats that each queue with requests could have.
    fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        let Some(limit) = self.limits.seats else { return };
        if passed.is_zero() || self.queues.is_empty() {
            return;
        }
        let seats = limit.min(self.totals.seats_in_use + self.totals.waiting_seats);
        let rate = seats as f64 / self.queues.len() as f64;
        self.progress += (passed.as_nanos() as f64 * rate) as i128;
    }
}

fn work(seats: usize) -> i128 {
    nanoseconds(ESTIMATED) * seats as i128
}

fn nanoseconds(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests;
