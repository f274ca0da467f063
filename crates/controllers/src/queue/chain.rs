//! Chains of turns. The length of a chain is the number of turns between an external event and this turn.
//!
//! While the work of a turn is polled, its chain length is known here, and keys added meanwhile get the next length. So
//! no controller has to declare which work it causes itself.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;

/// The longest chain without a wait. An owner that enqueues its dependents, which enqueue theirs, stays below it.
pub(super) const FREE_LINKS: u32 = 4;

thread_local! {
    static LINK: Cell<u32> = const { Cell::new(0) };
}

/// The chain length for keys that are added now: 0 outside of turns.
pub(super) fn current_link() -> u32 {
    LINK.get()
}

/// Polls the work of a turn with this chain length.
pub(super) async fn as_link<W: Future>(link: u32, work: W) -> W::Output {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _set = Link::set(link);
        work.as_mut().poll(context)
    })
    .await
}

/// Runs `act` outside of the current chain, for example to process events. Keys that it adds start chains of their own.
pub(crate) fn unchained<T>(act: impl FnOnce() -> T) -> T {
    let _set = Link::set(0);
    act()
}

/// Sets the chain length until it is dropped.
struct Link {
    before: u32,
}

impl Link {
    fn set(link: u32) -> Self {
        Self { before: LINK.replace(link) }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        LINK.set(self.before);
    }
}
