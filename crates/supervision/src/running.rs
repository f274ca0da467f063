//! Marks of the task or request that each thread currently polls, for the watchdog.
//!
//! A poll writes the thread's own slot twice (relaxed stores). It reads no clock and takes no lock. The watchdog
//! detects a mark that is unchanged between two checks.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;

/// The names of all marks, each with its supervisor. Names are registered once, at the start of tasks.
static NAMES: Mutex<Vec<(u64, &'static str)>> = Mutex::new(Vec::new());
/// The slots of all threads that have polled marked work.
static PLACES: Mutex<Vec<Weak<Place>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: ThreadSlot = ThreadSlot::new();
}

/// A name under which a thread polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u32);

/// The slot of one thread, with the mark of its current poll.
#[derive(Debug)]
pub(crate) struct Place {
    /// 0 without a poll. Otherwise the number of the mark in the upper bits and of the poll in the lower ones.
    state: AtomicU64,
    thread: String,
    /// The file of the system that reports the thread's waiting time for a processor.
    schedule: Option<String>,
}

/// The slot of this thread.
struct ThreadSlot {
    place: Arc<Place>,
    polls: Cell<u32>,
}

/// Excludes this thread from the watchdog, because it may block. Must be called before its first poll.
pub fn unwatched_thread() {
    let _ended =
        OWN.try_with(|own| PLACES.lock().retain(|place| !std::ptr::eq(place.as_ptr(), Arc::as_ptr(&own.place))));
}

impl ThreadSlot {
    fn new() -> Self {
        let link = std::fs::read_link("/proc/thread-self").ok();
        let schedule = link.and_then(|link| Some(format!("/proc/{}/schedstat", link.to_str()?)));
        let thread = thread::current().name().unwrap_or("unnamed").to_owned();
        let place = Arc::new(Place { state: AtomicU64::new(0), thread, schedule });
        PLACES.lock().push(Arc::downgrade(&place));
        Self { place, polls: Cell::new(0) }
    }
}

impl Mark {
    /// The mark of a name for a supervisor.
    pub(crate) fn new(supervisor: u64, name: &'static str) -> Self {
        let mut names = NAMES.lock();
        let known = names.iter().position(|known| *known == (supervisor, name));
        let place = known.unwrap_or_else(|| {
            names.push((supervisor, name));
            names.len() - 1
        });
        // The number 0 means no mark.
        Self(u32::try_from(place + 1).unwrap_or(u32::MAX))
    }

    /// Polls under this mark.
    pub fn poll<T>(self, poll: impl FnOnce() -> T) -> T {
        let before = OWN
            .try_with(|own| {
                let number = own.polls.get().wrapping_add(1);
                own.polls.set(number);
                let before = own.place.state();
                own.place.state.store(u64::from(self.0) << 32 | u64::from(number), Ordering::Relaxed);
                before
            })
            .unwrap_or_default();
        let _marked = MarkGuard { before };
        poll()
    }
}

/// Restores the previous mark of a thread on drop, also after a panic.
struct MarkGuard {
    before: u64,
}

impl Drop for MarkGuard {
    fn drop(&mut self) {
        // A thread that is ending has no slot any more.
        let _ended = OWN.try_with(|own| own.place.state.store(self.before, Ordering::Relaxed));
    }
}

impl Place {
    /// The slots of all running threads.
    pub(crate) fn all() -> Vec<Arc<Self>> {
        let mut places = PLACES.lock();
        places.retain(|place| place.strong_count() > 0);
        places.iter().filter_map(Weak::upgrade).collect()
    }

    /// The state of the current poll. 0 without a poll.
    pub(crate) fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    /// The name of the thread.
    pub(crate) fn thread(&self) -> &str {
        &self.thread
    }

    /// The total time that the thread has waited for a processor, in nanoseconds. 0 if unknown.
    pub(crate) fn waited_nanos(&self) -> u64 {
        let text = self.schedule.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let waited = text.as_deref().and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok());
        waited.unwrap_or_default()
    }
}

/// Returns the supervisor and the name of a poll.
pub(crate) fn name_of(state: u64) -> Option<(u64, &'static str)> {
    let number = usize::try_from(state >> 32).ok()?;
    NAMES.lock().get(number.checked_sub(1)?).copied()
}
