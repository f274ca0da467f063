//! The times of revisions: since when each was the newest, by which a time in the past is resolved.
//!
//! Noted is when the cache heard of revisions, by the clock of this server: of before its start nothing is known. There are no more
//! than two notes in a grain of time, the last of which is exact, and the grain grows when they are as many as there may be, so that they
//! take little room whatever is written and however long history is kept.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use keelson_meta::Revision;
use parking_lot::Mutex;

/// In how much time there are no more than two notes.
const GRAIN: Duration = Duration::from_millis(100);
/// How many there may be.
const MAX_NOTES: usize = 4096;

/// When the cache was where.
#[derive(Default)]
pub(crate) struct Times(Mutex<Notes>);

struct Notes {
    /// Times and revisions, both ascending.
    all: VecDeque<(SystemTime, Revision)>,
    grain: Duration,
}

impl Default for Notes {
    fn default() -> Self {
        Self { all: VecDeque::new(), grain: GRAIN }
    }
}

impl Times {
    /// A revision is the newest one from now on.
    pub(crate) fn note(&self, now: SystemTime, revision: Revision) {
        self.0.lock().note(now, revision);
    }

    /// The newest revision at a time; `None` where nothing is known of it, because it is too long ago.
    pub(crate) fn revision_at(&self, time: SystemTime) -> Option<Revision> {
        let notes = self.0.lock();
        let behind = notes.all.partition_point(|(noted, _)| *noted <= time);
        notes.all.get(behind.checked_sub(1)?).map(|(_, revision)| *revision)
    }

    /// Forgets what was before a time, but for what was the newest then.
    pub(crate) fn forget_before(&self, time: SystemTime) {
        let all = &mut self.0.lock().all;
        while all.get(1).is_some_and(|(next, _)| *next <= time) {
            all.pop_front();
        }
    }
}

impl Notes {
    fn note(&mut self, now: SystemTime, revision: Revision) {
        let mut newest = self.all.iter().rev();
        let (last, before) = (newest.next().copied(), newest.next().copied());
        if last.is_some_and(|(_, known)| known >= revision) {
            return;
        }
        // A clock that is set back notes nothing of the past.
        let now = last.map_or(now, |(time, _)| now.max(time));
        let is_near =
            |(time, _): (SystemTime, Revision)| now.duration_since(time).is_ok_and(|apart| apart < self.grain);
        if before.is_some_and(is_near) {
            // The last one was only the newest: that of this grain is the one before.
            self.all.pop_back();
        }
        self.all.push_back((now, revision));
        if self.all.len() > MAX_NOTES {
            self.grain *= 2;
            let newest = self.all.len() - 1;
            let mut place = 0usize;
            self.all.retain(|_| {
                place += 1;
                (place - 1).is_multiple_of(2) || place - 1 == newest
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    fn noted(notes: &[(u64, u64)]) -> Times {
        let times = Times::default();
        notes.iter().for_each(|(time, revision)| times.note(at(*time), Revision::new(*revision)));
        times
    }

    #[track_caller]
    fn check(times: &Times, time: u64, expect: Option<u64>) {
        assert_eq!(times.revision_at(at(time)), expect.map(Revision::new), "at {time}");
    }

    #[test]
    fn a_time_is_that_of_the_newest_revision_then() {
        let times = noted(&[(1000, 5), (2000, 7), (5000, 9)]);
        check(&times, 999, None);
        check(&times, 1000, Some(5));
        check(&times, 1999, Some(5));
        check(&times, 2000, Some(7));
        check(&times, 90_000, Some(9));
        times.forget_before(at(2500));
        check(&times, 1500, None);
        check(&times, 2500, Some(7));
        // Set back: what is noted then is of no time before.
        times.note(at(4000), Revision::new(10));
        check(&times, 4500, Some(7));
        check(&times, 5000, Some(10));
    }

    #[test]
    fn many_writes_are_told_apart_by_a_grain_and_the_last_one_exactly() {
        let times = noted(&[(1000, 1), (1030, 2), (1060, 3), (1090, 4), (1120, 5), (9000, 6)]);
        check(&times, 1089, Some(1));
        check(&times, 1119, Some(4));
        check(&times, 1120, Some(5));
        check(&times, 8999, Some(5));
        check(&times, 9000, Some(6));
    }

    #[test]
    fn there_are_never_more_notes_than_there_may_be_and_none_is_of_the_future() {
        let times = Times::default();
        for second in 0..40_000 {
            times.note(at(second * 1000), Revision::new(second + 1));
            assert!(times.0.lock().all.len() <= MAX_NOTES);
        }
        for second in [0, 17_000, 39_999] {
            let known = times.revision_at(at(second * 1000)).unwrap().get();
            assert!(known <= second + 1 && known + 32 > second, "{second}: {known}");
        }
        check(&times, u64::from(u32::MAX), Some(40_000));
    }
}
