//! The responses in flight, and the limits of those that wait for slow clients.
//!
//! A response that waits for its client lends its seats of flow control to other requests, and takes them back before
//! it continues. A periodic check of all responses limits their memory. It aborts a response when its client reads too
//! slowly, or when its snapshot keeps too much memory. It also aborts responses of a user who has too many of them waiting,
//! or whose frames take too much memory.
//!
//! A list's snapshot shares all objects with the live collection that have not changed since the list began. All lists
//! together therefore keep at most the bytes that were replaced since the oldest of their snapshots.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keelson_supervision::warn_repeated;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Limits;
use super::sending::{Sending, Waits};
use crate::filters::LentSeats;
use crate::metrics::Edge;
use crate::shares::Holder;

/// The interval of the check of all responses.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A response lends its seats after its client has read nothing for one in this many parts of [`Answers::patience`].
const LENDING_PART: u32 = 60;
/// The maximum number of responses that wait for their clients with their seats lent. Each keeps up to 192 KiB.
const MOST_WAITING: usize = 2048;
/// The maximum size of the last frames of these responses together, in bytes. A frame of a list has at least one item, so
/// it may have the size of an object, or several times that in YAML.
const MOST_WAITING_BYTES: usize = 512 << 20;
/// The bytes that snapshots of lists that clients are reading may keep, as a multiple of the limit for waiting lists.
const MOVING_FACTOR: u64 = 2;

/// Returns the number of bytes of objects that were replaced so far.
pub type ReplacedBytes = Arc<dyn Fn() -> u64 + Send + Sync>;

/// All responses in flight that may take long.
pub(super) struct Answers {
    sent: Mutex<SendState>,
    /// The longest time that a client may read nothing.
    patience: Duration,
    /// The least read rate of a client in bytes per second.
    least_bytes_per_second: u64,
    /// The maximum number of replaced bytes that the snapshots of lists may keep.
    pinned_bytes: u64,
    replaced: ReplacedBytes,
    metrics: Arc<Edge>,
}

#[derive(Default)]
struct SendState {
    next: u64,
    /// The responses, in the order in which they began.
    answers: BTreeMap<u64, Answer>,
}

struct Answer {
    sending: Sending,
    seats: Option<LentSeats>,
    /// The number of replaced bytes when the response began. `None` unless it reads a snapshot.
    replaced: Option<u64>,
}

/// Registers one response in flight until this is dropped.
pub(super) struct AnswerGuard {
    answers: Arc<Answers>,
    number: u64,
}

/// The reason why a response is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AbortReason {
    /// Its client reads too slowly.
    Slow,
    /// The waiting responses of its user, or of all users together, are too many or too large.
    TooMany,
    /// Its snapshot keeps too much memory.
    Pinned,
}

impl Answers {
    pub(super) fn new(limits: &Limits, metrics: Arc<Edge>) -> Self {
        Self {
            sent: Mutex::default(),
            patience: limits.unread,
            least_bytes_per_second: limits.least_bytes_per_second.max(1),
            pinned_bytes: limits.pinned_bytes,
            replaced: limits.replaced_bytes.clone(),
            metrics,
        }
    }

    /// The least read rate of a client in bytes per second.
    pub(super) const fn least_bytes_per_second(&self) -> u64 {
        self.least_bytes_per_second
    }

    /// Registers a response until the returned guard is dropped.
    pub(super) fn begin(
        self: &Arc<Self>,
        sending: Sending,
        seats: Option<LentSeats>,
        is_from_snapshot: bool,
    ) -> AnswerGuard {
        let replaced = is_from_snapshot.then(|| (self.replaced)());
        let mut sent = self.sent.lock();
        let number = sent.next;
        sent.next += 1;
        sent.answers.insert(number, Answer { sending, seats, replaced });
        AnswerGuard { answers: self.clone(), number }
    }

    /// Lends the seats of responses that wait for their clients, and aborts those that exceed a limit.
    pub(super) fn enforce(&self) {
        let mut sent = self.sent.lock();
        if sent.answers.is_empty() {
            return;
        }
        // A watch that has sent its initial events holds nothing more.
        let is_over =
            |answer: &Answer| answer.replaced.is_none() && answer.seats.as_ref().is_some_and(LentSeats::has_ended);
        sent.answers.retain(|_, answer| !is_over(answer));
        let mut cut = self.look(&sent);
        self.find_pinned(&sent, &mut cut);
        // ORDER: the lock is held meanwhile. Otherwise a response might end, and its connection be closed during the
        // next one.
        for (number, why) in cut {
            let Some(answer) = sent.answers.remove(&number) else { continue };
            if why == AbortReason::Pinned {
                warn_repeated!(""; "a list was cut: its client is slow, and its snapshot keeps memory that others need");
                self.metrics.count_cut_list();
            } else {
                tracing::debug!(?why, "an answer was cut");
                self.metrics.count_slow();
            }
            answer.sending.cut();
        }
    }

    fn look(&self, sent: &SendState) -> BTreeMap<u64, AbortReason> {
        let now = Instant::now();
        let mut cut = BTreeMap::new();
        let mut waiting = Waiting::default();
        for (number, answer) in &sent.answers {
            let Some(waits) = self.waits_long(answer, now) else { continue };
            let Some(seats) = answer.seats.as_ref().filter(|seats| !seats.has_ended()) else { continue };
            if seats.lend() {
                self.metrics.count_seats_lent();
            }
            let allowed = Duration::from_secs(waits.bytes / self.least_bytes_per_second);
            if waits.in_all > self.patience + allowed {
                cut.insert(*number, AbortReason::Slow);
            } else {
                waiting.add(seats.holder(), *number, waits.frame);
            }
        }
        cut.extend(waiting.too_many().into_iter().map(|number| (number, AbortReason::TooMany)));
        cut
    }

    /// The waiting times of a response, if it has waited long enough to lend its seats.
    fn waits_long(&self, answer: &Answer, now: Instant) -> Option<Waits> {
        answer.sending.waits_at(now).filter(|waits| waits.now >= self.patience / LENDING_PART)
    }

    /// Finds the lists whose snapshots keep too much. A list that its client is reading has a higher limit, since it
    /// ends by itself.
    fn find_pinned(&self, sent: &SendState, cut: &mut BTreeMap<u64, AbortReason>) {
        let (now, replaced) = (Instant::now(), (self.replaced)());
        for (number, answer) in &sent.answers {
            let Some(begun) = answer.replaced else { continue };
            let kept = replaced.saturating_sub(begun);
            if kept <= self.pinned_bytes {
                // All following responses began later and keep less.
                return;
            }
            let waits = self.waits_long(answer, now).is_some();
            if waits || kept > self.pinned_bytes.saturating_mul(MOVING_FACTOR) {
                cut.insert(*number, AbortReason::Pinned);
            }
        }
    }
}

/// The answers that wait for their clients, by user.
#[derive(Default)]
struct Waiting {
    by_user: HashMap<u64, WaitingOfUser>,
    count: usize,
    bytes: usize,
}

struct WaitingOfUser {
    holder: Holder,
    /// The numbers of the responses, the oldest first, and the size of the last frame of each.
    answers: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl WaitingOfUser {
    /// Returns true if the user has more than its share. A single response is never too large.
    fn is_over(&self) -> bool {
        let level = self.holder.level;
        self.answers.len() > level.most_of(MOST_WAITING)
            || self.answers.len() > 1 && self.bytes > level.most_of(MOST_WAITING_BYTES)
    }

    fn pop_oldest(&mut self) -> Option<(u64, usize)> {
        let (number, bytes) = self.answers.pop_front()?;
        self.bytes -= bytes;
        Some((number, bytes))
    }
}

impl Waiting {
    fn add(&mut self, holder: Holder, number: u64, bytes: usize) {
        let new = || WaitingOfUser { holder, answers: VecDeque::new(), bytes: 0 };
        let user = self.by_user.entry(holder.flow).or_insert_with(new);
        user.answers.push_back((number, bytes));
        user.bytes += bytes;
        self.count += 1;
        self.bytes += bytes;
    }

    fn is_over(&self) -> bool {
        self.count > MOST_WAITING || self.bytes > MOST_WAITING_BYTES
    }

    /// The responses to abort: the oldest ones of each user above its share. If all users together have too many, also
    /// the oldest ones of the user with the most.
    fn too_many(mut self) -> Vec<u64> {
        let mut cut = Vec::new();
        for user in self.by_user.values_mut() {
            while user.is_over()
                && let Some((number, bytes)) = user.pop_oldest()
            {
                (self.count, self.bytes) = (self.count - 1, self.bytes - bytes);
                cut.push(number);
            }
        }
        while self.is_over() {
            let is_many = self.count > MOST_WAITING;
            let size = |user: &WaitingOfUser| if is_many { user.answers.len() } else { user.bytes };
            let Some(flow) = self.by_user.iter().max_by_key(|(_, user)| size(user)).map(|(flow, _)| *flow) else {
                break;
            };
            // Up to half of the user's responses at a time, so that few rounds are needed and no user loses all.
            let some = self.by_user.get(&flow).map_or(0, |user| user.answers.len().div_ceil(2));
            for _ in 0..some {
                let oldest = self.by_user.get_mut(&flow).and_then(WaitingOfUser::pop_oldest);
                let Some((number, bytes)) = oldest.filter(|_| self.is_over()) else { break };
                (self.count, self.bytes) = (self.count - 1, self.bytes - bytes);
                cut.push(number);
            }
        }
        cut
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        // Dropped without the lock, since returning its seats may wake other requests.
        let _answer = self.answers.sent.lock().answers.remove(&self.number);
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("pinned_bytes", &self.pinned_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::shares::Level;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn answers(limit: u64) -> (Arc<Answers>, Arc<AtomicU64>) {
        let replaced = Arc::new(AtomicU64::new(0));
        let counter = replaced.clone();
        let count: ReplacedBytes = Arc::new(move || counter.load(Ordering::Relaxed));
        let limits = Limits { unread: PATIENCE, pinned_bytes: limit, replaced_bytes: count, ..Limits::default() };
        (Arc::new(Answers::new(&limits, Arc::new(Edge::default()))), replaced)
    }

    fn numbers(answers: &Answers) -> Vec<u64> {
        answers.sent.lock().answers.keys().copied().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_lists_are_aborted_before_moving_ones_after_many_writes() {
        let (answers, replaced) = answers(100);
        let moving = answers.begin(Sending::default(), None, true);
        let shut = Sending::default();
        let _waiting = answers.begin(shut.clone(), None, true);
        shut.waits(1);
        tokio::time::advance(PATIENCE / LENDING_PART).await;
        replaced.store(60, Ordering::Relaxed);
        let _young = answers.begin(Sending::default(), None, true);
        let _whole = answers.begin(Sending::default(), None, false);
        replaced.store(100, Ordering::Relaxed);
        answers.enforce();
        assert_eq!(numbers(&answers), [0, 1, 2, 3]);
        replaced.store(101, Ordering::Relaxed);
        answers.enforce();
        assert_eq!(numbers(&answers), [0, 2, 3]);
        replaced.store(201, Ordering::Relaxed);
        answers.enforce();
        assert_eq!(numbers(&answers), [2, 3]);
        drop(moving);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_responses_lend_their_seats_and_slow_ones_are_aborted() {
        const FRAME: usize = 64 << 10;
        let (answers, _) = answers(u64::MAX);
        let (sending, seats) = (Sending::default(), LentSeats::one(Holder { flow: 1, level: Level::Users }).await);
        let _guard = answers.begin(sending.clone(), Some(seats.clone()), false);
        sending.waits(FRAME);
        answers.enforce();
        assert!(seats.lend(), "it was held until now");
        // The client reads each frame in time, and each frame allows 8 seconds.
        for _ in 0..2 {
            tokio::time::advance(Duration::from_secs(35)).await;
            answers.enforce();
            assert_eq!(numbers(&answers), [0]);
            assert!(sending.makes_progress());
            sending.waits(FRAME);
        }
        tokio::time::advance(Duration::from_secs(15)).await;
        answers.enforce();
        assert!(numbers(&answers).is_empty() && !sending.makes_progress());
    }

    #[test]
    fn the_oldest_waiting_responses_above_a_user_limit_are_aborted() {
        let of = |flow, level| Holder { flow, level };
        let mut waiting = Waiting::default();
        let most = Level::Users.most_of(MOST_WAITING) as u64;
        (0..most + 3).for_each(|number| waiting.add(of(1, Level::Users), number, 0));
        (0..most).for_each(|number| waiting.add(of(2, Level::Users), 10_000 + number, 0));
        let mut cut = waiting.too_many();
        cut.sort_unstable();
        assert_eq!(cut, [0, 1, 2]);

        let mut waiting = Waiting::default();
        for user in 0..10 {
            (0..most).for_each(|number| waiting.add(of(user, Level::Users), user * 10_000 + number, 0));
        }
        waiting.add(of(99, Level::Users), 990_000, 0);
        let cut = waiting.too_many();
        assert_eq!(cut.len() as u64, 10 * most + 1 - MOST_WAITING as u64);
        assert!(!cut.contains(&990_000));
    }

    #[test]
    fn waiting_frames_above_the_memory_of_a_user_are_aborted() {
        const LARGE: usize = 3 << 20;
        let of = |flow| Holder { flow, level: Level::Users };
        let share = Level::Users.most_of(MOST_WAITING_BYTES);
        let mut waiting = Waiting::default();
        (0..200).for_each(|number| waiting.add(of(1), number, LARGE));
        (1000..1003).for_each(|number| waiting.add(of(2), number, LARGE));
        waiting.add(of(3), 2000, 2 * share);
        let cut = waiting.too_many();
        assert_eq!(cut.len(), 200 - share / LARGE);
        assert!(cut.iter().all(|number| *number < 200), "the oldest of the first user: {cut:?}");

        let mut waiting = Waiting::default();
        for user in 0..20 {
            (0..20).for_each(|number| waiting.add(of(user), user * 100 + number, LARGE));
        }
        assert_eq!(waiting.too_many().len(), 400 - MOST_WAITING_BYTES / LARGE);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_lists_of_one_user_cut_none_of_another() {
        let (answers, replaced) = answers(100);
        let begin = || {
            let shut = Sending::default();
            shut.waits(1);
            answers.begin(shut, None, true)
        };
        let _of_ann: Vec<_> = (0..50).map(|_| begin()).collect();
        replaced.store(60, Ordering::Relaxed);
        let _of_bob = begin();
        tokio::time::advance(PATIENCE / LENDING_PART).await;
        replaced.store(101, Ordering::Relaxed);
        answers.enforce();
        assert_eq!(numbers(&answers), [50]);
    }
}
