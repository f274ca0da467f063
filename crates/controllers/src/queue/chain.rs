//! Chains of turns: how many turns led to one since something outside of the queues did.
//!
//! A turn is polled under its number, which a key that is added meanwhile gets one more of. So no controller can forget to say that it
//! is its own work that calls for more.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;

/// The links of a chain whose turns follow each other at once, as when an owner has its dependents looked at, and these theirs.
pub(super) const FREE_LINKS: u32 = 4;

thread_local! {
    static LINK: Cell<u32> = const { Cell::new(0) };
}

/// The link of what is added now: 0 outside of all turns.
pub(super) fn current_link() -> u32 {
    LINK.get()
}

/// The work of a turn, by which keys are added with this link.
pub(super) async fn as_link<W: Future>(link: u32, work: W) -> W::Output {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _set = Link::set(link);
        work.as_mut().poll(context)
    })
    .await
}

/// Does something within a turn that is none of its work, such as taking in events: keys that this adds begin chains of their own.
pub(crate) fn unchained<T>(act: impl FnOnce() -> T) -> T {
    let _set = Link::set(0);
    act()
}

/// A link, until this is dropped.
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
