//! Moves the write-ahead log into the database file, concurrently with writes.
//!
//! The log can start over only after all of it was moved, but the writer appends meanwhile. Once the log is long
//! enough, a thread moves its current content. Then the writer moves the small rest that was appended, between two
//! groups. Its next group starts the log over.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use keelson_supervision::{Supervisor, warn_repeated};
use rusqlite::Connection;
use tokio_util::sync::CancellationToken;

/// The size of a row in the log in addition to its value, in bytes: about a page of the index.
const ROW_OVERHEAD: usize = 4096;

/// The maximum length of the log, in halves of the length at which a checkpoint begins. At this length, the writer
/// waits for the checkpoint, since a full disk must have space for the pages that the log adds to the database.
const MOST_HALVES: usize = 3;

/// In a full store, a checkpoint runs after this fraction of that length was appended.
const PART_WHEN_FULL: usize = 4;

/// The part of the checkpoints that the writer calls.
pub(crate) struct Checkpoints {
    /// A checkpoint begins when about this many bytes have been appended to the log.
    begin_at: usize,
    /// The maximum of `begin_at`, whatever the size of the reserve.
    most: usize,
    appended: usize,
    running: bool,
    begin: Option<SyncSender<()>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
    /// Cancelled when the thread must end.
    closing: CancellationToken,
}

impl Checkpoints {
    /// Starts the thread, which has its own connection.
    pub(crate) fn start(connection: Connection, begin_at: usize, supervisor: &Supervisor) -> std::io::Result<Self> {
        let (begin, begun) = sync_channel::<()>(1);
        let (finished, done) = sync_channel::<()>(1);
        let closing = CancellationToken::new();
        let thread = supervisor.spawn_thread("store-checkpoint", &closing, move || {
            while begun.recv().is_ok() {
                move_log(&connection);
                if finished.send(()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            begin_at,
            most: begin_at,
            appended: 0,
            running: false,
            begin: Some(begin),
            done,
            thread: Some(thread),
            closing,
        })
    }

    /// Limits the log to the size for which the reserve has space, since a checkpoint adds its pages to the database.
    /// `reserve` is in bytes.
    pub(crate) fn bound(&mut self, reserve: u64) {
        self.begin_at = match usize::try_from(reserve / 2) {
            Ok(part) if part > 0 => part.min(self.most),
            Ok(_) | Err(_) => self.most,
        };
    }

    /// Records the amount that a group has written. Starts or finishes a checkpoint when necessary. The writer calls
    /// this between groups, with its connection.
    pub(crate) fn after_group(&mut self, connection: &Connection, rows: usize, bytes: usize, full: bool) {
        self.appended += bytes + rows * ROW_OVERHEAD;
        let is_long = self.running && self.appended >= self.begin_at / 2 * MOST_HALVES;
        if is_long || full && self.appended >= self.begin_at / PART_WHEN_FULL {
            self.now(connection);
        } else if self.running {
            match self.done.try_recv() {
                Ok(()) => {
                    move_log(connection);
                    (self.appended, self.running) = (0, false);
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
        } else if self.appended >= self.begin_at {
            self.running = self.begin.as_ref().is_some_and(|begin| begin.try_send(()).is_ok());
        }
    }

    /// Moves all of the log now, after a checkpoint that may be running.
    pub(crate) fn now(&mut self, connection: &Connection) {
        if self.running {
            // An error means that the thread has ended, which the supervisor knows.
            let _ = self.done.recv();
        }
        move_log(connection);
        (self.appended, self.running) = (0, false);
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.closing.cancel();
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends after its current checkpoint. The supervisor has recorded a panic.
            let _ = thread.join();
        }
    }
}

/// Moves as much of the log as readers and the writer allow. After a failure the log is longer, and the next checkpoint
/// tries again.
fn move_log(connection: &Connection) {
    let moved = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(0));
    if let Err(error) = moved {
        warn_repeated!(""; %error, "the store's log could not be moved into its file; it grows until that works");
    }
}
