//! Probes the log at intervals for `/readyz` and the like.
//!
//! A health check must answer at once, so it reports when the log was last written.

use std::io::Write as _;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use keelson_http::health::CheckResult;
use parking_lot::Mutex;

/// The interval of probes.
const LOG_INTERVAL: Duration = Duration::from_secs(30);
/// The time that a probe may take.
const LOG_PATIENCE: Duration = Duration::from_secs(60);

/// The state of the log. Every log line waits for it, so a full pipe behind it stops the server.
#[derive(Clone, Default)]
pub(crate) struct LogProbe(Arc<OnceLock<Trying>>);

struct Trying {
    /// When the log was last written.
    written: Arc<Mutex<Instant>>,
    /// Never used: the thread ends when this is dropped.
    _end: Sender<()>,
}

impl LogProbe {
    /// Tries nothing before it is asked.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns an error unless the log was written lately.
    pub(crate) fn check(&self) -> CheckResult {
        let written = *self.0.get_or_init(Self::start).written.lock();
        let since = written.elapsed();
        if since < LOG_INTERVAL + LOG_PATIENCE { Ok(()) } else { Err(format!("logging blocked for {since:?}")) }
    }

    /// Starts probing, on a thread of its own since it may block, until the result is dropped.
    fn start() -> Trying {
        let written = Arc::new(Mutex::new(Instant::now()));
        let (told, (end, ended)) = (written.clone(), mpsc::channel::<()>());
        let thread = move || {
            loop {
                // A thread that writes to the log holds the lock that this takes.
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
            tracing::error!(%error, "nobody watches whether the log can be written");
        }
        Trying { written, _end: end }
    }
}
