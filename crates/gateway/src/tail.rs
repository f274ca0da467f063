//! The tail of a mirrored resource: one watch at the source, which is reopened at its revision when it ends.
//!
//! A source sends bookmarks about once a minute, so a resource at rest does not show that it has reached a revision. If
//! a read waits for one, the tail replaces its watch by a short one, before whose end the source sends a bookmark.
//! There is one watch at any time, and each begins where the last one ended, so that no event is lost or repeated.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::unfold;
use keelson_meta::Revision;
use keelson_storage::{StoreError, Tail, TailBatch};
use keelson_supervision::{Backoff, Jitter};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::copy::ResourceCopy;
use crate::lines::{Event, Lines};
use crate::objects::MirroredKind;
use crate::progress::Progress;
use crate::source::{Fault, Source};

/// The requested duration of a watch.
const WATCH_SECONDS: u64 = 10 * 60;
/// The duration of a short watch. API servers send a bookmark two seconds before the end of a watch, and kube-apiserver
/// only if the watch is longer than that.
const SHORT_SECONDS: u64 = 3;
/// The duration of a short watch at keelson, which sends the bookmark at once if the watch is no longer than two seconds.
const SHORT_SECONDS_AT_KEELSON: u64 = 2;
/// The longest time without a line from a watch. Sources send bookmarks every minute.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// The number of short watches in a row that bring nothing, after which the tail waits for another read.
const SHORT_TRIES: u32 = 4;
/// The interval between writes of a resource at rest to its copy.
const MARK_EVERY: Duration = Duration::from_secs(10);
/// The wait before a further short watch, multiplied by the number of those before.
const RETRY_WAIT: Duration = Duration::from_millis(20);
/// A watch that ends earlier than this is reopened after a wait.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// The waits after such ends.
const EARLY_ENDS: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) };
/// The largest part of this wait, an eighth, separates the tails of a source that was away.
const RETURN_WAIT: Duration = Duration::from_millis(800);

/// A running tail.
struct Running {
    source: Arc<Source>,
    kind: Arc<MirroredKind>,
    progress: Arc<Progress>,
    copy: Arc<ResourceCopy>,
    /// The time of the last write to the copy.
    copied_at: Instant,
    wanted: watch::Receiver<Revision>,
    lines: Lines,
    /// Everything up to this revision was delivered.
    reached: Revision,
    /// True for a short watch that has sent no bookmark yet.
    is_short: bool,
    /// The number of short watches since the last read came.
    tries: u32,
    opened: Instant,
    /// The number of watches in a row that ended early.
    early_ends: u32,
    jitter: Jitter,
    _open: OpenWatch,
}

/// Marks the watch as open until it is dropped.
struct OpenWatch(Arc<Progress>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.set_watching(false);
    }
}

/// Opens the tail after a revision.
///
/// # Errors
/// [`StoreError::Compacted`] if the source no longer has the events, [`StoreError::Unavailable`] for other failures.
pub(crate) async fn open(
    (source, kind, progress): (Arc<Source>, Arc<MirroredKind>, Arc<Progress>),
    copy: Arc<ResourceCopy>,
    after: Revision,
) -> Result<Tail, StoreError> {
    let mut jitter = Jitter::default();
    if progress.is_away() {
        sleep(jitter.spread(RETURN_WAIT) - RETURN_WAIT).await;
    }
    let wanted = progress.wanted();
    let lines =
        watch_at(&source, &kind, after, WATCH_SECONDS).await.map_err(|fault| error(&progress, after, &fault))?;
    progress.set_watching(true);
    progress.reach(after);
    let open = OpenWatch(progress.clone());
    let running = Running {
        source,
        kind,
        progress,
        copy,
        copied_at: Instant::now(),
        wanted,
        lines,
        reached: after,
        is_short: false,
        tries: 0,
        opened: Instant::now(),
        early_ends: 0,
        jitter,
        _open: open,
    };
    let batches = unfold(Some(running), |running| async {
        let mut running = running?;
        match running.next().await {
            Ok(batch) => Some((Ok(batch), Some(running))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(batches.boxed())
}

async fn watch_at(source: &Source, kind: &MirroredKind, after: Revision, seconds: u64) -> Result<Lines, Fault> {
    let path = &kind.path;
    let target = format!("{path}?watch=1&resourceVersion={after}&allowWatchBookmarks=true&timeoutSeconds={seconds}");
    source.stream(&target, IDLE_TIME).await.map(Lines::new)
}

/// The error of a store for a fault of the source.
pub(crate) fn error(progress: &Progress, at: Revision, fault: &Fault) -> StoreError {
    match fault {
        Fault::Refused { code: 410, .. } => StoreError::Compacted { requested: at, oldest: at.next() },
        Fault::Unreachable(_) | Fault::Refused { .. } | Fault::Invalid(_) => {
            progress.lost();
            StoreError::Unavailable(fault.to_string())
        }
    }
}

impl Running {
    /// The next batch. Reopens the watch when it ends in order.
    async fn next(&mut self) -> Result<TailBatch, StoreError> {
        loop {
            let is_wanted = *self.wanted.borrow() > self.reached;
            if is_wanted && !self.is_short && self.tries < SHORT_TRIES {
                sleep(RETRY_WAIT * self.tries).await;
                self.tries += 1;
                let seconds = if self.source.is_keelson() { SHORT_SECONDS_AT_KEELSON } else { SHORT_SECONDS };
                self.reopen(seconds, true).await?;
            }
            tokio::select! {
                lines = self.lines.next() => match lines {
                    Ok(Some(lines)) => {
                        let batch = self.batch(&lines)?;
                        if let Some(batch) = &batch {
                            self.keep(batch).await;
                        }
                        // ORDER: readers wait for the revision here, and only for a moment in the cache.
                        self.progress.reach(self.reached);
                        if let Some(batch) = batch {
                            return Ok(batch);
                        }
                    }
                    Ok(None) => self.ended().await?,
                    // A silent watch may be that of a dead connection, or of a source without bookmarks.
                    Err(Fault::Unreachable(_)) if !self.is_short => self.reopen(WATCH_SECONDS, false).await?,
                    Err(fault) => return Err(self.error(&fault)),
                },
                changed = self.wanted.changed() => {
                    if changed.is_err() {
                        return Err(StoreError::Unavailable("the mirror has ended".to_owned()));
                    }
                    self.tries = 0;
                }
            }
        }
    }

    /// Continues after the end of a watch.
    async fn ended(&mut self) -> Result<(), StoreError> {
        if self.opened.elapsed() < SHORTEST_WATCH {
            sleep(self.jitter.spread(EARLY_ENDS.after(self.early_ends))).await;
            self.early_ends += 1;
        } else {
            self.early_ends = 0;
        }
        self.reopen(WATCH_SECONDS, false).await
    }

    async fn reopen(&mut self, seconds: u64, is_short: bool) -> Result<(), StoreError> {
        let lines = watch_at(&self.source, &self.kind, self.reached, seconds).await;
        self.lines = lines.map_err(|fault| self.error(&fault))?;
        (self.is_short, self.opened) = (is_short, Instant::now());
        Ok(())
    }

    /// Writes a batch to the copy. Bookmarks alone are written from time to time.
    async fn keep(&mut self, batch: &TailBatch) {
        if batch.events.is_empty() && self.copied_at.elapsed() < MARK_EVERY {
            return;
        }
        self.copied_at = Instant::now();
        self.copy.apply(batch.clone()).await;
    }

    /// The changes in some lines. `None` if they bring nothing new.
    fn batch(&mut self, lines: &[bytes::Bytes]) -> Result<Option<TailBatch>, StoreError> {
        let mut events = Vec::with_capacity(lines.len());
        let mut watermark = self.reached;
        for line in lines {
            match self.kind.event(line).map_err(|fault| self.error(&fault))? {
                Event::Change(change) if change.revision > watermark => {
                    watermark = change.revision;
                    events.push(change);
                }
                // Events come in the order of revisions, so this one was delivered before.
                Event::Change(_) => {}
                Event::Bookmark(revision) | Event::InitialEnd(revision) => {
                    watermark = watermark.max(revision);
                    self.is_short = false;
                }
                Event::Expired => {
                    self.progress.set_expired(self.reached);
                    return Err(StoreError::Compacted { requested: self.reached, oldest: self.reached.next() });
                }
                Event::Failed(why) => return Err(self.error(&Fault::Invalid(why))),
            }
        }
        if watermark == self.reached {
            return Ok(None);
        }
        self.reached = watermark;
        Ok(Some(TailBatch { events, watermark }))
    }

    fn error(&self, fault: &Fault) -> StoreError {
        error(&self.progress, self.reached, fault)
    }
}
