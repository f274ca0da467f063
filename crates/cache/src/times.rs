//! The times of revisions. They resolve a time in the past to a revision.
//!
//! The cache records a revision when it receives it, with the time of this server's clock. So times before the start of
//! the server are unknown. At most two records are in one grain of time, and the last record is exact. When there are
//! too many records, the grain doubles, so memory is limited for any write rate and length of history.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use keelson_meta::Revision;
use parking_lot::Mutex;

/// The initial grain: a time with at most two records.
const GRAIN: Duration = Duration::from_millis(100);
/// The maximum number of records.
const MAX_NOTES: usize = 4096;

/// The recorded times of watermarks.
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
    /// Records a revision as the newest one from `now` on.
    pub(crate) fn note(&self, now: SystemTime, revision: Revision) {
        self.0.lock().note(now, revision);
    }

    /// The newest revision at a time. `None` before the oldest record.
    pub(crate) fn revision_at(&self, time: SystemTime) -> Option<Revision> {
        let notes = self.0.lock();
        let behind = notes.all.partition_point(|(noted, _)| *noted <= time);
        notes.all.get(behind.checked_sub(1)?).map(|(_, revision)| *revision)
    }

    /// Drops records before a time, except for the newest revision at that time.
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
        // If the clock is set back, the new record gets the time of the last one.
        let now = last.map_or(now, |(time, _)| now.max(time));
        let is_near =
            |(time, _): (SystemTime, Revision)| now.duration_since(time).is_ok_and(|apart| apart < self.grain);
        if before.is_some_and(is_near) {
            // The last record only served to have the newest revision. The record before it represents this grain.
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

    fn times_with(notes: &[(u64, u64)]) -> Times {
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
        let times = times_with(&[(1000, 5), (2000, 7), (5000, 9)]);
        check(&times, 999, None);
        check(&times, 1000, Some(5));
        check(&times, 1999, Some(5));
        check(&times, 2000, Some(7));
        check(&times, 90_000, Some(9));
        times.forget_before(at(2500));
        check(&times, 1500, None);
        check(&times, 2500, Some(7));
        // After the clock is set back, the times of records do not decrease.
        times.note(at(4000), Revision::new(10));
        check(&times, 4500, Some(7));
        check(&times, 5000, Some(10));
    }

    #[test]
    fn many_writes_are_distinguished_by_a_grain_and_the_last_one_exactly() {
        let times = times_with(&[(1000, 1), (1030, 2), (1060, 3), (1090, 4), (1120, 5), (9000, 6)]);
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
