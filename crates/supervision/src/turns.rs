//! Fair use of a runtime's threads: each owner of work uses at most a part of them at a time.
//!
//! An owner has a limited number of turns, and each poll of a future needs a turn. A future without a turn waits and
//! uses no thread. So the work of one owner leaves threads to others, whatever its amount. Tasks started with [`spawn`]
//! and [`blocking`] have the same owner as their caller. A turn is released after each poll, so work that waits for a
//! store or for its own tasks holds none.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use crate::{outcome, spawn_blocking};

tokio::task_local! {
    /// The owner of this task's work.
    static CURRENT: Turns;
}

/// The turns of all owners.
#[derive(Clone, Debug)]
pub struct TurnsByOwner(Arc<Pool>);

/// The turns of one owner. Clones share them.
#[derive(Clone, Debug)]
pub struct Turns {
    pool: Arc<Pool>,
    owner: u64,
}

struct Pool {
    /// The maximum number of turns of one owner.
    most: usize,
    /// The turns of all owners together. `None` without such a limit.
    all: Option<usize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of turns in use by all owners.
    taken: usize,
    /// The number that the next work in the queue gets.
    next: u64,
    owners: HashMap<u64, Owner>,
}

/// An owner with turns or waiting work.
#[derive(Default)]
struct Owner {
    taken: usize,
    /// The waiting work, in order.
    waiting: BTreeMap<u64, Waker>,
}

/// A turn, released on drop.
struct Turn(Turns);

/// The position of work in the queue.
struct QueuePosition {
    turns: Turns,
    /// The number stays with work that was woken without getting a turn, so that later work does not overtake it.
    number: Option<u64>,
}

impl TurnsByOwner {
    /// Gives each owner at most `most` turns at a time, and at least one, independently of other owners.
    pub fn new(most: usize) -> Self {
        Self::of_pool(most, None)
    }

    /// Gives all owners together `all` turns, and each owner at most `most` of them. An owner with turns gets another
    /// one only while more turns are free than it has, so that later owners find some. A released turn passes to the
    /// waiting owner with the fewest turns.
    ///
    /// The caller must poll work whenever it is woken, as a separate task does. Work that is woken and not polled
    /// delays other work.
    pub fn shared(all: usize, most: usize) -> Self {
        Self::of_pool(most, Some(all.max(1)))
    }

    fn of_pool(most: usize, all: Option<usize>) -> Self {
        Self(Arc::new(Pool { most: most.max(1), all, state: Mutex::default() }))
    }

    /// The turns of an owner.
    pub fn turns(&self, owner: u64) -> Turns {
        Turns { pool: self.0.clone(), owner }
    }
}

impl Turns {
    /// Runs work, with a turn for each poll.
    pub async fn take<F: Future>(self, work: F) -> F::Output {
        let mut work = pin!(work);
        let mut queued = QueuePosition { turns: self.clone(), number: None };
        poll_fn(|context| {
            let Poll::Ready(turn) = queued.poll_turn(context) else { return Poll::Pending };
            let outcome = self.clone().sync_scope(|| work.as_mut().poll(context));
            drop(turn);
            outcome
        })
        .await
    }

    fn sync_scope<T>(self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, work)
    }
}

impl Pool {
    /// Returns true if an owner with `has` turns may take another one.
    fn may_take(&self, state: &State, has: usize) -> bool {
        let free = self.all.map_or(usize::MAX, |all| all - state.taken);
        has < self.most && free > 0 && (has == 0 || has < free)
    }

    /// Removes the work that gets a free turn from the queue. That is the oldest work of the owner with the fewest
    /// turns. Without a limit for all owners, the turn stays with its owner.
    fn next(&self, state: &mut State, owner: u64) -> Option<Waker> {
        let waits = |(id, known): &(&u64, &Owner)| {
            let is_for = self.all.is_some() || **id == owner;
            is_for && !known.waiting.is_empty() && self.may_take(state, known.taken)
        };
        let rank = |(_, known): &(&u64, &Owner)| (known.taken, known.waiting.keys().next().copied());
        let chosen = *state.owners.iter().filter(waits).min_by_key(rank)?.0;
        state.owners.get_mut(&chosen)?.waiting.pop_first().map(|(_, waker)| waker)
    }
}

impl State {
    /// Removes an owner that has no turns and no waiting work.
    fn tidy(&mut self, owner: u64) {
        if self.owners.get(&owner).is_some_and(|known| known.taken == 0 && known.waiting.is_empty()) {
            self.owners.remove(&owner);
        }
    }
}

impl QueuePosition {
    fn poll_turn(&mut self, context: &Context<'_>) -> Poll<Turn> {
        let Turns { pool, owner } = &self.turns;
        let mut state = pool.state.lock();
        let has = state.owners.get(owner).map_or(0, |known| known.taken);
        let may_take = pool.may_take(&state, has);
        if !may_take && self.number.is_none() {
            self.number = Some(state.next);
            state.next += 1;
        }
        let known = state.owners.entry(*owner).or_default();
        if may_take {
            if let Some(number) = self.number.take() {
                known.waiting.remove(&number);
            }
            known.taken += 1;
            state.taken += 1;
            return Poll::Ready(Turn(self.turns.clone()));
        }
        let was_woken =
            self.number.is_some_and(|number| known.waiting.insert(number, context.waker().clone()).is_none());
        // The turn that caused the wakeup may now be free for another owner.
        let next = if was_woken { pool.next(&mut state, *owner) } else { None };
        drop(state);
        next.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let Turns { pool, owner } = &self.turns;
        let mut state = pool.state.lock();
        let waited = state.owners.get_mut(owner).is_some_and(|known| known.waiting.remove(&number).is_some());
        // The work was woken for a turn that it does not use.
        let next = if waited { None } else { pool.next(&mut state, *owner) };
        state.tidy(*owner);
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Turns { pool, owner } = &self.0;
        let mut state = pool.state.lock();
        state.taken -= 1;
        if let Some(known) = state.owners.get_mut(owner) {
            known.taken -= 1;
        }
        let next = pool.next(&mut state, *owner);
        state.tidy(*owner);
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("most", &self.most).field("all", &self.all).finish_non_exhaustive()
    }
}

/// Spawns a task that shares the owner of the current task, if any.
pub fn spawn<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match CURRENT.try_with(Turns::clone) {
        Ok(turns) => tokio::spawn(turns.take(work)),
        Err(_) => tokio::spawn(work),
    }
}

/// Runs work on a blocking thread, with a turn if the current task has an owner. The work does not start if the caller
/// has dropped the future by then.
///
/// # Panics
/// If the work panics.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let Ok(turns) = CURRENT.try_with(Turns::clone) else { return outcome(spawn_blocking(work)).await };
    // This is a separate task, because the current poll has a turn and could wait for a second one forever.
    let begun = tokio::spawn(async move {
        let mut queued = QueuePosition { turns, number: None };
        let turn = poll_fn(|context| queued.poll_turn(context)).await;
        let turning = move || {
            let done = work();
            drop(turn);
            done
        };
        outcome(spawn_blocking(turning)).await
    });
    outcome(AbortOnDropHandle::new(begun)).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_owner_gets_its_share_of_threads_and_finishes() {
        let turns = TurnsByOwner::new(2);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work: Vec<_> = (0..40)
            .map(|_| {
                let (running, most) = (running.clone(), most.clone());
                let piece = async move {
                    for _ in 0..3 {
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(1));
                        running.fetch_sub(1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                    }
                    // The inner task has the same owner. The outer one holds no turn while it waits for it.
                    let more = (most.clone(), running.clone());
                    let inner = spawn(async move {
                        more.0.fetch_max(more.1.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        more.1.fetch_sub(1, Ordering::SeqCst);
                    });
                    inner.await.unwrap();
                };
                tokio::spawn(turns.turns(7).take(piece))
            })
            .collect();
        for piece in work {
            piece.await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn an_owner_at_its_share_delays_no_other() {
        let turns = TurnsByOwner::new(1);
        let (begun, begins) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let held = tokio::spawn(turns.turns(1).take(async move {
            begun.send(()).unwrap();
            ends.recv().unwrap();
        }));
        begins.recv().unwrap();
        let waiting = tokio::spawn(turns.turns(1).take(async { 1 }));
        let given_up = tokio::spawn(turns.turns(1).take(async { 2 }));
        assert_eq!(turns.turns(2).take(async { 3 }).await, 3);
        given_up.abort();
        assert!(given_up.await.is_err() && !waiting.is_finished());
        end.send(()).unwrap();
        held.await.unwrap();
        assert_eq!(waiting.await.unwrap(), 1);
    }

    #[tokio::test]
    async fn work_that_blocks_takes_a_turn() {
        let turns = TurnsByOwner::new(1).turns(1);
        assert_eq!(turns.clone().take(blocking(|| 5)).await, 5);
        assert!(turns.pool.state.lock().owners.is_empty());
        assert_eq!(blocking(|| 6).await, 6);
    }

    #[test]
    fn freed_turns_go_to_the_owner_with_the_fewest() {
        let all = TurnsByOwner::shared(4, 2);
        let context = &mut Context::from_waker(Waker::noop());
        let take = |owner: u64| {
            let mut queued = QueuePosition { turns: all.turns(owner), number: None };
            match queued.poll_turn(context) {
                Poll::Ready(turn) => Ok(turn),
                Poll::Pending => Err(queued),
            }
        };
        let first = [take(1).ok().unwrap(), take(1).ok().unwrap()];
        let third_of_first = take(1).err().unwrap();
        let second = take(2).ok().unwrap();
        let more_of_second = take(2).err().unwrap();
        let last = take(3).ok().unwrap();
        let new = take(4).err().unwrap();
        let waits = |owner: u64| all.0.state.lock().owners.get(&owner).map_or(0, |known| known.waiting.len());
        drop(first);
        // One task was woken for each turn: that of the owner without any, and then the first, which has none now.
        assert_eq!((waits(4), waits(1), waits(2)), (0, 0, 1));
        drop((new, third_of_first));
        assert_eq!(waits(2), 0, "a dropped turn goes to the next waiter");
        drop((second, more_of_second, last));
        assert!(all.0.state.lock().owners.is_empty());
    }
}
