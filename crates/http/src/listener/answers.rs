//! The answers that are being sent, and what becomes of those that wait for their clients.
//!
//! An answer that waits for its client lends its seats of flow control to other requests, and takes them again to go on. Its memory is
//! bounded here: all answers are looked at from time to time. An answer is cut when its client takes too little of it, when its user has
//! too many that wait, or when its snapshot keeps too much. A list shares with the live collection all that has not changed since it began.
//! Therefore all lists together keep at most the bytes that were replaced since the oldest of their snapshots.

use std::collections::{BTreeMap, HashMap};
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

/// The time between two looks at all answers.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The part of the longest time for which a client may take nothing after which an answer lends its seats: one in so many.
const LENDING_PART: u32 = 60;
/// The number of answers that may wait for their clients with their seats lent. Each keeps up to 192 KiB.
const MOST_WAITING: usize = 2048;
/// The bytes that snapshots of moving lists may keep, as a multiple of those of lists that wait.
const MOVING_FACTOR: u64 = 2;

/// Counts the bytes of objects that were replaced so far.
pub type ReplacedBytes = Arc<dyn Fn() -> u64 + Send + Sync>;

/// All answers that are being sent and may take long.
pub(super) struct Answers {
    sent: Mutex<Sent>,
    /// The longest time for which a client may take nothing.
    patience: Duration,
    /// The bytes a second that a client has to take of an answer.
    least_bytes_per_second: u64,
    /// The bytes that the snapshots of lists may keep.
    pinned_bytes: u64,
    replaced: ReplacedBytes,
    metrics: Arc<Edge>,
}

#[derive(Default)]
struct Sent {
    next: u64,
    /// By the order in which they began.
    answers: BTreeMap<u64, Answer>,
}

struct Answer {
    sending: Sending,
    seats: Option<LentSeats>,
    /// The bytes that had been replaced when it began, if it is made from a snapshot.
    replaced: Option<u64>,
}

/// One answer that is being sent, until this is dropped.
pub(super) struct AnswerGuard {
    answers: Arc<Answers>,
    number: u64,
}

/// The reason for which an answer is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Its client takes too little of it.
    Slow,
    /// Its user, or all users, have too many that wait.
    TooMany,
    /// Its snapshot keeps too much.
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

    /// The bytes a second that a client has to take of an answer.
    pub(super) const fn least_bytes_per_second(&self) -> u64 {
        self.least_bytes_per_second
    }

    /// Counts an answer for as long as the result lives.
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

    /// Lends the seats of answers that wait for their clients, and cuts those that may not go on.
    pub(super) fn enforce(&self) {
        let mut sent = self.sent.lock();
        if sent.answers.is_empty() {
            return;
        }
        // A watch that has sent the objects that it begins with holds nothing more.
        let is_over =
            |answer: &Answer| answer.replaced.is_none() && answer.seats.as_ref().is_some_and(LentSeats::has_ended);
        sent.answers.retain(|_, answer| !is_over(answer));
        let mut cut = self.look(&sent);
        self.find_pinned(&sent, &mut cut);
        // ORDER: the lock is held while they are cut. Otherwise an answer might end and its connection be cut with the next one on it.
        for (number, why) in cut {
            let Some(answer) = sent.answers.remove(&number) else { continue };
            if why == Cut::Pinned {
                warn_repeated!(""; "a list was cut: its client is slow, and its snapshot keeps memory that others need");
                self.metrics.count_cut_list();
            } else {
                tracing::debug!(?why, "an answer was cut");
                self.metrics.count_slow();
            }
            answer.sending.cut();
        }
    }

    fn look(&self, sent: &Sent) -> BTreeMap<u64, Cut> {
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
                cut.insert(*number, Cut::Slow);
            } else {
                waiting.add(seats.holder(), *number);
            }
        }
        cut.extend(waiting.too_many().into_iter().map(|number| (number, Cut::TooMany)));
        cut
    }

    /// The time for which an answer waits for its client, if that is so long that others get its seats.
    fn waits_long(&self, answer: &Answer, now: Instant) -> Option<Waits> {
        answer.sending.waits_at(now).filter(|waits| waits.now >= self.patience / LENDING_PART)
    }

    /// Finds the lists whose snapshots keep too much: those that wait for their clients first, since the others end by themselves.
    fn find_pinned(&self, sent: &Sent, cut: &mut BTreeMap<u64, Cut>) {
        let (now, replaced) = (Instant::now(), (self.replaced)());
        for (number, answer) in &sent.answers {
            let Some(begun) = answer.replaced else { continue };
            let kept = replaced.saturating_sub(begun);
            if kept <= self.pinned_bytes {
                // All that follow are younger.
                return;
            }
            let waits = self.waits_long(answer, now).is_some();
            if waits || kept > self.pinned_bytes.saturating_mul(MOVING_FACTOR) {
                cut.insert(*number, Cut::Pinned);
            }
        }
    }
}

/// The answers that wait for their clients, by user.
#[derive(Default)]
struct Waiting {
    by_user: HashMap<u64, (Holder, Vec<u64>)>,
    count: usize,
}

impl Waiting {
    fn add(&mut self, holder: Holder, number: u64) {
        self.by_user.entry(holder.flow).or_insert_with(|| (holder, Vec::new())).1.push(number);
        self.count += 1;
    }

    /// The answers to cut: the oldest ones of a user that has more than its share, and of the user with most if there are too many of all
    /// users.
    fn too_many(mut self) -> Vec<u64> {
        let mut cut = Vec::new();
        for (holder, numbers) in self.by_user.values_mut() {
            let over = numbers.len().saturating_sub(holder.level.most_of(MOST_WAITING));
            cut.extend(numbers.drain(..over));
        }
        let mut over = (self.count - cut.len()).saturating_sub(MOST_WAITING);
        while over > 0 {
            let Some((_, numbers)) = self.by_user.values_mut().max_by_key(|(_, numbers)| numbers.len()) else { break };
            // Half of them at a time, so that few rounds are needed and none loses all.
            let some = (numbers.len() / 2).clamp(1, over);
            cut.extend(numbers.drain(..some));
            over -= some;
        }
        cut
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        // Dropped without the lock: its seats may wake others.
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
    async fn lists_that_wait_give_way_when_much_was_replaced_and_lists_that_move_later() {
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
    async fn an_answer_that_waits_lends_its_seats_and_one_that_is_taken_too_slowly_is_cut() {
        const FRAME: usize = 64 << 10;
        let (answers, _) = answers(u64::MAX);
        let (sending, seats) = (Sending::default(), LentSeats::one(Holder { flow: 1, level: Level::Users }).await);
        let _guard = answers.begin(sending.clone(), Some(seats.clone()), false);
        sending.waits(FRAME);
        answers.enforce();
        assert!(seats.lend(), "it was held until now");
        // Each frame is taken in time, and allows for 8 seconds.
        for _ in 0..2 {
            tokio::time::advance(Duration::from_secs(35)).await;
            answers.enforce();
            assert_eq!(numbers(&answers), [0]);
            assert!(sending.goes_on());
            sending.waits(FRAME);
        }
        tokio::time::advance(Duration::from_secs(15)).await;
        answers.enforce();
        assert!(numbers(&answers).is_empty() && !sending.goes_on());
    }

    #[test]
    fn of_the_answers_that_wait_the_oldest_of_the_user_with_most_are_cut() {
        let of = |flow, level| Holder { flow, level };
        let mut waiting = Waiting::default();
        let most = Level::Users.most_of(MOST_WAITING) as u64;
        (0..most + 3).for_each(|number| waiting.add(of(1, Level::Users), number));
        (0..most).for_each(|number| waiting.add(of(2, Level::Users), 10_000 + number));
        let mut cut = waiting.too_many();
        cut.sort_unstable();
        assert_eq!(cut, [0, 1, 2]);

        let mut waiting = Waiting::default();
        for user in 0..10 {
            (0..most).for_each(|number| waiting.add(of(user, Level::Users), user * 10_000 + number));
        }
        waiting.add(of(99, Level::Users), 990_000);
        let cut = waiting.too_many();
        assert_eq!(cut.len() as u64, 10 * most + 1 - MOST_WAITING as u64);
        assert!(!cut.contains(&990_000));
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
