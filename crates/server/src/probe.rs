//! Probes the log at intervals for `/readyz` and the other health endpoints.
//!
//! A health check must answer at once, so it reports the time of the last successful probe.

use std::io::Write as _;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use keelson_http::health::CheckResult;
use keelson_supervision::is_one_thread;
use parking_lot::Mutex;

/// The interval of probes.
const LOG_INTERVAL: Duration = Duration::from_secs(30);
/// The longest time of a probe.
const LOG_PATIENCE: Duration = Duration::from_secs(60);

/// The state of the log. Every log line waits for its write, so a full pipe blocks the server.
#[derive(Clone, Default)]
pub(crate) struct LogProbe(Arc<OnceLock<ProbeLog>>);

struct ProbeLog {
    /// The time of the last successful probe.
    written: Arc<Mutex<Instant>>,
    /// Ends the thread when dropped.
    _end: Sender<()>,
}

impl LogProbe {
    /// Starts no probe before the first check.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns an error unless a probe succeeded recently. A process of one thread has no probes.
    pub(crate) fn check(&self) -> CheckResult {
        if is_one_thread() {
            return Ok(());
        }
        let written = *self.0.get_or_init(Self::start).written.lock();
        let since = written.elapsed();
        if since < LOG_INTERVAL + LOG_PATIENCE { Ok(()) } else { Err(format!("logging blocked for {since:?}")) }
    }

    /// Starts the probes, on a thread of its own since a probe may block. Dropping the result ends the thread.
    fn start() -> ProbeLog {
        let written = Arc::new(Mutex::new(Instant::now()));
        let (told, (end, ended)) = (written.clone(), mpsc::channel::<()>());
        let thread = move || {
            loop {
                // A thread that writes to the log holds this lock.
                let flushed = std::io::stderr().lock().flush();
                if flushed.is_ok() {
                    *told.lock() = Instant::now();
                }
                if ended.recv_timeout(LOG_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("keelson-log".to_owned()).spawn(thread) {
            tracing::error!(%error, "the probe of the log is not running");
        }
        ProbeLog { written, _end: end }
    }
}
