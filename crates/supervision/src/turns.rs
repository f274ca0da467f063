//! Turns at threads: of the threads that a runtime has for some work, each owner of work uses no more than a part at a time.
//!
//! A future that takes turns is polled only while fewer than that many futures of its owner are being polled; the others of the owner wait
//! without a thread. So work of one owner, however much of it there is, leaves threads to the others. Tasks that the future starts with
//! [`spawn`] and [`blocking`] take turns with it. A turn is given back between two polls: work that waits, for a store or for its own
//! tasks, has none.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::task::AbortOnDropHandle;

use crate::outcome;

tokio::task_local! {
    /// The turns that the work of this task takes.
    static CURRENT: Turns;
}

/// The turns of all owners.
#[derive(Debug)]
pub struct TurnsByOwner {
    most: usize,
    owners: Mutex<HashMap<u64, Weak<Owner>>>,
}

/// The turns of one owner. A clone is the same.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Owner>);

struct Owner {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of turns that are taken.
    taken: usize,
    next: u64,
    /// The work that waits for a turn, in order.
    waiting: VecDeque<(u64, Waker)>,
}

/// A turn, until this is dropped.
struct Turn(Turns);

/// The place of some work in the queue for a turn.
struct Queued {
    turns: Turns,
    number: Option<u64>,
}

impl TurnsByOwner {
    /// Each owner has at most so many turns at a time, and at least one.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), owners: Mutex::default() }
    }

    /// The turns of an owner.
    pub fn of(&self, owner: u64) -> Turns {
        let mut owners = self.owners.lock();
        if let Some(known) = owners.get(&owner).and_then(Weak::upgrade) {
            return Turns(known);
        }
        owners.retain(|_, owner| owner.strong_count() > 0);
        let made = Arc::new(Owner { most: self.most, state: Mutex::default() });
        owners.insert(owner, Arc::downgrade(&made));
        Turns(made)
    }
}

impl Turns {
    /// Does work whose every poll takes a turn.
    pub async fn take<F: Future>(self, work: F) -> F::Output {
        let mut work = pin!(work);
        let mut queued = Queued { turns: self.clone(), number: None };
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

impl Queued {
    fn poll_turn(&mut self, context: &Context<'_>) -> Poll<Turn> {
        let owner = &self.turns.0;
        let mut state = owner.state.lock();
        let place = self.number.and_then(|number| state.waiting.iter().position(|(known, _)| *known == number));
        if state.taken < owner.most {
            if let Some(place) = place {
                state.waiting.remove(place);
            }
            state.taken += 1;
            self.number = None;
            drop(state);
            return Poll::Ready(Turn(self.turns.clone()));
        }
        match place {
            Some(place) => state.waiting[place].1.clone_from(context.waker()),
            None => {
                let number = state.next;
                state.next += 1;
                state.waiting.push_back((number, context.waker().clone()));
                self.number = Some(number);
            }
        }
        Poll::Pending
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.turns.0.state.lock();
        let before = state.waiting.len();
        state.waiting.retain(|(known, _)| *known != number);
        // It was woken for a turn that it does not take.
        let next = if state.waiting.len() == before { state.waiting.pop_front() } else { None };
        drop(state);
        next.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.0.0.state.lock();
        state.taken -= 1;
        let next = state.waiting.pop_front();
        drop(state);
        next.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("most", &self.most).finish_non_exhaustive()
    }
}

/// Spawns a task whose work takes turns with that of the task that spawns it, if that takes any.
pub fn spawn<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match CURRENT.try_with(Turns::clone) {
        Ok(turns) => tokio::spawn(turns.take(work)),
        Err(_) => tokio::spawn(work),
    }
}

/// Does work on a thread for work that blocks, which takes a turn if the task that asks for it takes any. It is not begun when the result
/// is no longer waited for.
///
/// # Panics
/// As the work does.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let Ok(turns) = CURRENT.try_with(Turns::clone) else { return outcome(spawn_blocking(work)).await };
    // A task of its own: the poll that asks has a turn itself, and could wait for a second one for ever.
    let begun = tokio::spawn(async move {
        let mut queued = Queued { turns, number: None };
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
    async fn work_of_one_owner_has_its_part_of_the_threads_and_all_of_it_is_done() {
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
                    // Tasks that it starts take turns with it, and no turn is held while it waits for them.
                    let more = (most.clone(), running.clone());
                    let inner = spawn(async move {
                        more.0.fetch_max(more.1.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        more.1.fetch_sub(1, Ordering::SeqCst);
                    });
                    inner.await.unwrap();
                };
                tokio::spawn(turns.of(7).take(piece))
            })
            .collect();
        for piece in work {
            piece.await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn an_owner_that_has_its_part_keeps_up_no_other() {
        let turns = TurnsByOwner::new(1);
        let (begun, begins) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let held = tokio::spawn(turns.of(1).take(async move {
            begun.send(()).unwrap();
            ends.recv().unwrap();
        }));
        begins.recv().unwrap();
        let waiting = tokio::spawn(turns.of(1).take(async { 1 }));
        let given_up = tokio::spawn(turns.of(1).take(async { 2 }));
        assert_eq!(turns.of(2).take(async { 3 }).await, 3);
        given_up.abort();
        assert!(given_up.await.is_err() && !waiting.is_finished());
        end.send(()).unwrap();
        held.await.unwrap();
        assert_eq!(waiting.await.unwrap(), 1);
    }

    #[tokio::test]
    async fn work_that_blocks_takes_a_turn() {
        let turns = TurnsByOwner::new(1).of(1);
        assert_eq!(turns.clone().take(blocking(|| 5)).await, 5);
        assert_eq!(turns.0.state.lock().taken, 0);
        assert_eq!(blocking(|| 6).await, 6);
    }
}
