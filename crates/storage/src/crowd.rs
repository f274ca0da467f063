//! Counts the bytes of history, and finds the revision to compact to when they exceed a limit.
//!
//! A version becomes history at the revision that supersedes it, and compaction to that revision frees its bytes. A
//! mark records the sum of superseded bytes at a revision. The current sum minus the sum of a mark is the size of the
//! history after a compaction to the revision of the mark.

use std::collections::VecDeque;

use keelson_meta::Revision;
use tokio::sync::watch;

/// The number of marks within the limit. More marks let compaction meet the target size more closely.
const MARKS: u64 = 256;
/// The fewest bytes between two marks.
const SHORTEST_MARK: u64 = 64 * 1024;
/// The quarters of the limit that remain after a compaction. Fewer quarters mean fewer and larger compactions.
const KEPT_QUARTERS: u64 = 3;

/// The bytes of superseded versions.
#[derive(Debug)]
pub struct SupersededBytes {
    /// The maximum number of bytes.
    pub limit: u64,
    /// The sum of all bytes ever superseded.
    total: u64,
    /// The sum of superseded bytes at the oldest readable revision.
    forgotten: u64,
    /// The sum of superseded bytes at some revisions, in ascending order.
    marks: VecDeque<(Revision, u64)>,
}

impl Default for SupersededBytes {
    /// Returns a count without a limit.
    fn default() -> Self {
        Self::within(u64::MAX)
    }
}

impl SupersededBytes {
    /// Creates an empty count with this limit.
    pub const fn within(limit: u64) -> Self {
        Self { limit, total: 0, forgotten: 0, marks: VecDeque::new() }
    }

    /// Counts a version of this many bytes that the write at `revision` superseded.
    pub fn add(&mut self, revision: Revision, bytes: u64) {
        self.total += bytes;
        let noted = self.marks.back().map_or(self.forgotten, |(_, total)| *total);
        if self.total - noted >= (self.limit / MARKS).max(SHORTEST_MARK) {
            self.marks.push_back((revision, self.total));
        }
        // After an increase of the limit, the marks are closer together than necessary.
        if self.marks.len() as u64 > 2 * MARKS {
            let mut keep = false;
            self.marks.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// The current bytes of history.
    pub const fn bytes(&self) -> u64 {
        self.total - self.forgotten
    }

    /// Returns the revision to compact to, if the bytes exceed the limit.
    pub fn excess(&self) -> Option<Revision> {
        if self.bytes() <= self.limit {
            return None;
        }
        let kept = self.limit / 4 * KEPT_QUARTERS;
        let enough = |(_, total): &&(Revision, u64)| self.total - total <= kept;
        self.marks.iter().find(enough).or_else(|| self.marks.back()).map(|(revision, _)| *revision)
    }

    /// Records a compaction to `oldest`.
    pub fn compacted(&mut self, oldest: Revision) {
        while let Some((revision, total)) = self.marks.front().copied()
            && revision <= oldest
        {
            self.forgotten = total;
            self.marks.pop_front();
        }
    }
}

/// Raises the revision of an early compaction.
pub fn raise(crowded: &watch::Sender<Revision>, oldest: Revision) {
    crowded.send_if_modified(|told| {
        let is_news = oldest > *told;
        *told = oldest.max(*told);
        is_news
    });
}

/// Waits until the revision of an early compaction is beyond the oldest readable one, and returns it.
pub async fn beyond(crowded: &watch::Sender<Revision>, oldest: impl Fn() -> Revision) -> Revision {
    let mut told = crowded.subscribe();
    let wanted = told.wait_for(|wanted| *wanted > oldest()).await.map(|wanted| *wanted);
    match wanted {
        Ok(wanted) => wanted,
        // The sender outlives the call that borrows it.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    #[test]
    fn compaction_frees_the_excess_and_at_most_a_third_of_the_history() {
        let mut history = SupersededBytes::within(100 * 64 * KIB);
        for revision in 1..=100 {
            history.add(Revision::new(revision), 64 * KIB);
            assert_eq!(history.excess(), None);
        }
        history.add(Revision::new(101), 64 * KIB);
        let oldest = history.excess().unwrap();
        assert_eq!(oldest, Revision::new(26));
        history.compacted(oldest);
        assert_eq!(history.bytes(), 75 * 64 * KIB);
        assert_eq!(history.excess(), None);
    }

    #[test]
    fn a_limit_of_nothing_gives_up_all_history_that_is_marked() {
        let mut history = SupersededBytes::within(0);
        history.add(Revision::new(5), 10);
        assert_eq!(history.excess(), None, "it is too little to be marked");
        history.add(Revision::new(6), 64 * KIB);
        assert_eq!(history.excess(), Some(Revision::new(6)));
    }

    #[test]
    fn marks_stay_few_when_the_limit_is_raised() {
        let mut history = SupersededBytes::within(1);
        for revision in 1..=10_000 {
            history.add(Revision::new(revision), 64 * KIB);
        }
        assert!(history.marks.len() as u64 <= 2 * MARKS);
    }

    #[tokio::test]
    async fn compacted_revisions_request_no_further_compaction() {
        let crowded = watch::Sender::new(Revision::ZERO);
        raise(&crowded, Revision::new(5));
        raise(&crowded, Revision::new(3));
        assert_eq!(beyond(&crowded, || Revision::new(4)).await, Revision::new(5));
        let waiting = beyond(&crowded, || Revision::new(5));
        assert!(futures::FutureExt::now_or_never(waiting).is_none());
    }
}
