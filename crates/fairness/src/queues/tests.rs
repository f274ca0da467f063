//! Fair queues by examples of their rules.
//!
//! A property test compares them with a plain model: no seat is lost, whatever ends or is cancelled.

use hashbrown::HashMap as Map;
use proptest::prelude::*;

use super::*;

const QUEUED: Limits = Limits { seats: Some(2), queues: 16, hand_size: 2, queue_length: 10 };

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Flows whose hands have no common queues.
fn flows(limits: Limits, count: usize) -> Vec<u64> {
    let mut taken = Vec::new();
    let mut flows = Vec::new();
    for flow in 0.. {
        let hand = deal(flow, limits.queues, limits.hand_size);
        if hand.iter().all(|queue| !taken.contains(queue)) {
            taken.extend(hand);
            flows.push(flow);
            if flows.len() == count {
                break;
            }
        }
    }
    flows
}

/// The result of an arrival, with the place of a waiting request.
#[derive(Debug)]
enum Came {
    Seated(Seat),
    Waits(Place),
    Refused(Refusal),
}

fn come<T>(level: &mut Queues<T>, now: Duration, flow: u64, seats: usize, item: T) -> Came {
    came(level, now, (flow, seats), Coming::New, item)
}

fn come_back<T>(level: &mut Queues<T>, now: Duration, flow: u64, seats: usize, item: T) -> Came {
    came(level, now, (flow, seats), Coming::Back, item)
}

fn came<T>(level: &mut Queues<T>, now: Duration, (flow, seats): (u64, usize), coming: Coming, item: T) -> Came {
    match level.arrive(now, flow, seats, coming) {
        Arrival::Seated(seat) => Came::Seated(seat),
        Arrival::Waits(turn) => Came::Waits(level.wait(now, turn, item)),
        Arrival::Refused(refusal) => Came::Refused(refusal),
    }
}

fn seated<T: std::fmt::Debug>(came: Came, _: &Queues<T>) -> Seat {
    match came {
        Came::Seated(seat) => seat,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_level_without_queues_refuses_and_a_lone_request_passes() {
    let mut level = Queues::new(Limits { seats: Some(0), queues: 0, hand_size: 1, queue_length: 0 }, at(0));
    let first = come(&mut level, at(0), 1, 5, ());
    let first = seated(first, &level);
    assert!(matches!(come(&mut level, at(0), 2, 1, ()), Came::Refused(Refusal::NoSeat)));
    level.finish(at(1), &first);
    assert!(level.is_idle());
}

#[test]
fn an_exempt_level_has_no_limit() {
    let mut level = Queues::new(Limits { seats: None, queues: 0, hand_size: 1, queue_length: 0 }, at(0));
    for _ in 0..1_000 {
        let _seat = seated(come(&mut level, at(0), 1, 100, ()), &level);
    }
    assert_eq!(level.end_period(at(0)).high, 100_000.0);
}

#[test]
fn virtual_starts_are_shown() {
    // With hands of one queue, all requests of a flow are in one queue.
    let limits = Limits { seats: Some(1), hand_size: 1, ..QUEUED };
    let mut level = Queues::new(limits, at(0));
    assert_eq!((level.last_dispatch(), level.start_bounds(false)), ((0.0, 0.0), None));
    let [busy, other] = flows(limits, 2)[..] else { panic!("there are two flows") };
    let first = seated(come(&mut level, at(0), busy, 1, "first"), &level);
    assert!(matches!(come(&mut level, at(10), busy, 1, "second"), Came::Waits(_)));
    assert!(matches!(come(&mut level, at(10), other, 1, "third"), Came::Waits(_)));
    // One queue had the only seat for 10 ms. Its first request is assumed to take 3 ms.
    let (plain, discounted) = (level.start_bounds(false).unwrap(), level.start_bounds(true).unwrap());
    assert!(plain.0 <= plain.1 && plain.1 == 0.01, "{plain:?}");
    assert!(discounted.0 < plain.0, "{discounted:?} {plain:?}");
    level.finish(at(20), &first);
    let second = level.next(at(20)).map(|dispatch| dispatch.item);
    assert!(second.is_some());
    let (progress, start) = level.last_dispatch();
    assert!(progress >= start && progress >= 0.01, "{progress} {start}");
}

#[test]
fn a_flow_with_many_requests_does_not_keep_another_waiting() {
    let mut level = Queues::new(QUEUED, at(0));
    let flows = flows(QUEUED, 2);
    let mut held: Vec<_> = (0..2).map(|_| seated(come(&mut level, at(0), flows[0], 1, ""), &level)).collect();
    for _ in 0..10 {
        assert!(matches!(come(&mut level, at(0), flows[0], 1, "many"), Came::Waits(_)));
    }
    assert!(matches!(come(&mut level, at(1), flows[1], 1, "few"), Came::Waits(_)));
    level.finish(at(30), &held.pop().unwrap());
    assert_eq!(level.next(at(30)).unwrap().item, "few");
    assert!(level.next(at(30)).is_none(), "there is no further seat");
}

#[test]
fn a_full_queue_refuses() {
    let limits = Limits { seats: Some(1), queues: 1, hand_size: 1, queue_length: 2 };
    let mut level = Queues::new(limits, at(0));
    let _held = seated(come(&mut level, at(0), 1, 1, 0), &level);
    let arrivals: Vec<_> = (1..=3).map(|number| come(&mut level, at(0), number, 1, number)).collect();
    assert!(matches!(arrivals[..], [Came::Waits(_), Came::Waits(_), Came::Refused(Refusal::QueueFull)]));
    let again = come_back(&mut level, at(0), 9, 1, 9);
    assert!(matches!(again, Came::Waits(_)), "an answer that goes on always finds a place");
}

#[test]
fn requests_that_regain_seats_precede_their_queue() {
    let limits = Limits { seats: Some(1), queues: 1, hand_size: 1, queue_length: 2 };
    let mut level = Queues::new(limits, at(0));
    let held = seated(come(&mut level, at(0), 1, 1, ""), &level);
    let _ = come(&mut level, at(0), 2, 1, "request");
    let _ = come_back(&mut level, at(0), 2, 1, "answer");
    level.finish(at(1), &held);
    assert_eq!(level.next(at(1)).unwrap().item, "answer");
}

#[test]
fn large_requests_leave_seats_to_small_ones() {
    let limits = Limits { seats: Some(8), queues: 16, hand_size: 2, queue_length: 10 };
    let mut level = Queues::new(limits, at(0));
    let flows = flows(limits, 2);
    let large: Vec<_> = (0..2).map(|_| seated(come(&mut level, at(0), flows[0], 3, "large"), &level)).collect();
    assert!(matches!(come(&mut level, at(0), flows[0], 2, "large"), Came::Waits(_)), "six of eight are taken");
    let small = come(&mut level, at(0), flows[1], 1, "small");
    assert!(matches!(small, Came::Waits(_)));
    assert_eq!(level.next(at(0)).unwrap().item, "small", "it passes what may not go on");
    assert!(level.next(at(0)).is_none());
    level.finish(at(9), &large[0]);
    assert_eq!(level.next(at(9)).unwrap().item, "large");
}

#[test]
fn a_request_for_many_seats_is_not_overtaken_for_ever() {
    let limits = Limits { seats: Some(4), queues: 16, hand_size: 1, queue_length: 10 };
    let mut level = Queues::new(limits, at(0));
    let flows = flows(limits, 2);
    let mut small: Vec<_> = (0..4).map(|_| seated(come(&mut level, at(0), flows[0], 1, "small"), &level)).collect();
    let _ = come(&mut level, at(0), flows[1], 3, "large");
    let _ = come(&mut level, at(5), flows[0], 1, "small");
    for time in [10, 11] {
        level.finish(at(time), &small.pop().unwrap());
        assert!(level.next(at(time)).is_none(), "the seats are kept for it");
    }
    level.finish(at(12), &small.pop().unwrap());
    assert_eq!(level.next(at(12)).unwrap().item, "large");
}

#[test]
fn seats_are_shared_equally_between_flows() {
    let limits = Limits { seats: Some(4), queues: 64, hand_size: 2, queue_length: 1_000 };
    let mut level = Queues::new(limits, at(0));
    let flows = flows(limits, 3);
    let mut served: Map<usize, u64> = Map::new();
    let mut running: Vec<(u64, usize, Seat)> = Vec::new();
    // The first flow has ten times the requests of the others, and each of its requests takes twice as long.
    let wanted = [60, 6, 6];
    let times = [20, 10, 10];
    let mut waiting = [0_usize; 3];
    for now in 0..20_000_u64 {
        let (ended, still): (Vec<_>, Vec<_>) = running.into_iter().partition(|(end, ..)| *end <= now);
        running = still;
        for (_, flow, seat) in ended {
            level.finish(at(now), &seat);
            *served.entry(flow).or_default() += times[flow];
        }
        for flow in 0..3 {
            while waiting[flow] < wanted[flow] {
                match come(&mut level, at(now), flows[flow], 1, flow) {
                    Came::Seated(seat) => running.push((now + times[flow], flow, seat)),
                    Came::Waits(_) => waiting[flow] += 1,
                    Came::Refused(_) => unreachable!("there is a place"),
                }
            }
        }
        while let Some(Dispatch { item: flow, seat }) = level.next(at(now)) {
            waiting[flow] -= 1;
            running.push((now + times[flow], flow, seat));
        }
    }
    let all: u64 = served.values().sum();
    // A flow has requests in one or two queues, so its part is between one and two shares.
    for (flow, served) in &served {
        let part = *served as f64 / all as f64;
        assert!((0.2..0.55).contains(&part), "flow {flow} has {part}: of {all}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u64, usize),
    Return(u64, usize),
    Finish(usize),
    Cancel(usize),
    Configure(Option<usize>, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u64..12, 1_usize..5).prop_map(|(flow, seats)| Step::Arrive(flow, seats)),
        1 => (0_u64..12, 1_usize..5).prop_map(|(flow, seats)| Step::Return(flow, seats)),
        4 => any::<usize>().prop_map(Step::Finish),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => (prop::option::weighted(0.9, 0_usize..10), 0_u32..6).prop_map(|(seats, queues)| Step::Configure(seats, queues)),
    ]
}

/// The requests by their numbers, as the test expects them.
#[derive(Default)]
struct Model {
    seats: Vec<(usize, Seat)>,
    places: Vec<(usize, Place)>,
    /// The numbers of requests in each queue, in the order of arrival.
    came: Map<(u32, bool), Vec<usize>>,
}

impl Model {
    fn dispatched(&mut self, number: usize, seat: Seat) {
        let at = self.places.iter().position(|(known, _)| *known == number).expect("it waited");
        let (_, place) = self.places.remove(at);
        let came = self.came.get_mut(&(place.queue, place.coming == Coming::Back)).expect("its queue is known");
        assert_eq!(came.remove(0), number, "first in, first out");
        self.seats.push((number, seat));
    }

    fn check(&self, level: &Queues<usize>) {
        let totals = level.totals();
        let in_use: usize = self.seats.iter().map(|(_, seat)| seat.seats()).sum();
        assert_eq!((totals.executing, totals.seats_in_use), (self.seats.len(), in_use));
        assert_eq!(totals.waiting, self.places.len());
        assert_eq!(level.waiting().count(), self.places.len());
        let wide = self.seats.iter().filter(|(_, seat)| seat.seats() > 1).map(|(_, seat)| seat.seats());
        assert_eq!(level.wide, (wide.clone().count(), wide.sum()));
        let queues = level.queues();
        assert_eq!(queues.iter().map(|queue| queue.seats_in_use).sum::<usize>(), in_use);
        assert!(queues.iter().all(|queue| queue.executing + queue.waiting > 0), "unused queues are gone");
    }
}

proptest! {
    #[test]
    fn no_seat_is_lost_and_none_is_given_twice(
        steps in prop::collection::vec(step(), 1..200),
        seats in 0_usize..10,
        queues in 0_u32..6,
    ) {
        let limits = |seats, queues| Limits { seats, queues, hand_size: 2, queue_length: 4 };
        let mut level = Queues::new(limits(Some(seats), queues), at(0));
        let mut model = Model::default();
        for (number, step) in steps.into_iter().enumerate() {
            let now = at(number as u64 * 2);
            let before = level.totals();
            match step {
                Step::Arrive(flow, seats) | Step::Return(flow, seats) => {
                    let returns = matches!(step, Step::Return(..));
                    let arrival = match returns {
                        true => come_back(&mut level, now, flow, seats, number),
                        false => come(&mut level, now, flow, seats, number),
                    };
                    match arrival {
                        Came::Seated(seat) => {
                            let limit = level.limits().seats.unwrap_or(usize::MAX);
                            prop_assert!(before.executing == 0 || level.totals().seats_in_use <= limit);
                            model.seats.push((number, seat));
                        }
                        Came::Waits(place) => {
                            model.places.push((number, place));
                            model.came.entry((place.queue, place.coming == Coming::Back)).or_default().push(number);
                        }
                        Came::Refused(_) => prop_assert!(!returns),
                    }
                }
                Step::Finish(which) if !model.seats.is_empty() => {
                    let (_, seat) = model.seats.remove(which % model.seats.len());
                    level.finish(now, &seat);
                }
                Step::Cancel(which) if !model.places.is_empty() => {
                    let (number, place) = model.places.remove(which % model.places.len());
                    prop_assert_eq!(level.cancel(now, place), Some(number));
                    prop_assert_eq!(level.cancel(now, place), None);
                    model.came.get_mut(&(place.queue, place.coming == Coming::Back)).unwrap().retain(|known| *known != number);
                }
                Step::Configure(seats, queues) => level.configure(limits(seats, queues), now),
                Step::Finish(_) | Step::Cancel(_) => {}
            }
            while let Some(Dispatch { item, seat }) = level.next(now) {
                let limit = level.limits().seats.unwrap_or(usize::MAX);
                let totals = level.totals();
                prop_assert!(totals.executing == 1 || totals.seats_in_use <= limit);
                model.dispatched(item, seat);
            }
            model.check(&level);
        }
        // In the end all are served.
        level.configure(limits(Some(8), 4), at(1_000));
        while !level.is_idle() {
            while let Some(Dispatch { item, seat }) = level.next(at(1_000)) {
                model.dispatched(item, seat);
            }
            prop_assert!(!model.seats.is_empty(), "nothing goes on");
            for (_, seat) in std::mem::take(&mut model.seats) {
                level.finish(at(1_000), &seat);
            }
        }
        model.check(&level);
        prop_assert!(level.queues.is_empty());
    }
}
