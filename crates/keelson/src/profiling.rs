//! Profiles of this process: sampled stacks of running threads, and memory in use.
//!
//! A timer of the process interrupts running threads for a CPU profile. Between profiles there is no timer and no cost.
//! jemalloc samples allocations only in a process that was started with `MALLOC_CONF=prof:true`.

mod profile;

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use futures::future::BoxFuture;
use keelson_server::Profiler;
use pprof::{ProfilerGuardBuilder, Report};
use tokio::sync::Semaphore;

use self::profile::Profile;

/// The samples of each running thread in a second, as in Go.
const FREQUENCY: i32 = 100;
/// Libraries in which an interrupted thread may hold a lock that unwinding needs.
const NOT_UNWOUND: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];
/// The error without a heap profile.
const NO_HEAP: &str = "heap profiling is off: start the server with MALLOC_CONF=prof:true in its environment";

/// The permit for the only CPU profile. The sampling thread holds it until the timer is off, which may be after the
/// request has ended.
static SAMPLING: Semaphore = Semaphore::const_new(1);

/// The profiles of this process.
pub(crate) struct ProcessProfiler;

impl Profiler for ProcessProfiler {
    fn cpu<'p>(&'p self, until: BoxFuture<'p, ()>) -> BoxFuture<'p, Result<Vec<u8>, String>> {
        Box::pin(async move {
            let Ok(only) = SAMPLING.try_acquire() else {
                return Err("Could not enable CPU profiling: cpu profiling already in use".to_owned());
            };
            let (end, ended) = channel::<()>();
            let sampling = tokio::task::spawn_blocking(move || {
                let sampled = sample(&ended);
                drop(only);
                sampled
            });
            until.await;
            drop(end);
            sampling.await.map_err(|error| error.to_string())?
        })
    }

    fn heap(&self) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        Box::pin(async {
            let Some(control) = jemalloc_pprof::PROF_CTL.as_ref() else { return Err(NO_HEAP.to_owned()) };
            let mut control = control.clone().lock_owned().await;
            let dumped = tokio::task::spawn_blocking(move || {
                if control.activated() {
                    control.dump_pprof().map_err(|error| error.to_string())
                } else {
                    Err(NO_HEAP.to_owned())
                }
            });
            dumped.await.map_err(|error| error.to_string())?
        })
    }
}

/// Samples until the sender is dropped.
fn sample(ended: &Receiver<()>) -> Result<Vec<u8>, String> {
    let failed = |error: pprof::Error| format!("Could not enable CPU profiling: {error}");
    let (begun, started) = (Instant::now(), SystemTime::now());
    let guard = ProfilerGuardBuilder::default().frequency(FREQUENCY).blocklist(&NOT_UNWOUND).build().map_err(failed)?;
    // Nothing is sent: the error is the end.
    let _ended = ended.recv();
    let took = begun.elapsed();
    let report = guard.report().build().map_err(failed)?;
    drop(guard);
    encoded(&report, started, took)
}

fn encoded(report: &Report, started: SystemTime, took: Duration) -> Result<Vec<u8>, String> {
    let mut profile = Profile::new(started, took, Duration::from_secs(1) / FREQUENCY.unsigned_abs());
    for (frames, count) in &report.data {
        let stack = frames.frames.iter().flatten().map(|symbol| (symbol.name(), symbol.filename(), symbol.lineno()));
        profile.add(&frames.thread_name, stack, i64::try_from(*count).unwrap_or_default());
    }
    profile.compressed()
}
