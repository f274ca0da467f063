//! Metrics of the process itself, from `/proc` (proc(5)). Absent on systems without it.
//!
//! The names are those of Prometheus client libraries. Files are read at each scrape only.

use std::fs;

use super::source::{MetricKind, MetricSource, Sample};

/// The clock ticks of `/proc/<pid>/stat` in a second. Linux fixes the number at 100 for all programs.
const TICKS_PER_SECOND: f64 = 100.0;
const BYTES_PER_KIB: f64 = 1024.0;

/// Reads `/proc/self`.
pub(super) struct ProcessSource {
    started: Option<f64>,
}

impl ProcessSource {
    pub(super) fn new() -> Self {
        Self { started: start_time() }
    }
}

impl MetricSource for ProcessSource {
    fn samples(&self) -> Vec<Sample> {
        let gauge = MetricKind::Gauge;
        let all = [
            ("process_cpu_seconds_total", "CPU time spent, in seconds", MetricKind::Counter, cpu_seconds()),
            ("process_resident_memory_bytes", "Resident memory, in bytes", gauge, status_bytes("VmRSS:")),
            ("process_virtual_memory_bytes", "Virtual memory, in bytes", gauge, status_bytes("VmSize:")),
            ("process_resident_memory_peak_bytes", "Peak resident memory, in bytes", gauge, status_bytes("VmHWM:")),
            ("process_open_fds", "Open file descriptors", gauge, open_descriptors()),
            ("process_max_fds", "The most file descriptors that may be open", gauge, most_descriptors()),
            ("process_start_time_seconds", "Start of the process, in seconds since 1970", gauge, self.started),
        ];
        let sample = |(name, help, kind, value): (_, _, _, Option<f64>)| {
            Some(Sample { name, help, kind, labels: Vec::new(), value: value? })
        };
        all.into_iter().filter_map(sample).collect()
    }
}

/// Field `number` (counted from 1) of `/proc/self/stat`. The second field, the name, may contain blanks, so it is
/// skipped first.
fn stat_field(number: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    const USER: usize = 14;
    const SYSTEM: usize = 15;
    Some((stat_field(USER)? + stat_field(SYSTEM)?) / TICKS_PER_SECOND)
}

fn start_time() -> Option<f64> {
    const START: usize = 22;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + stat_field(START)? / TICKS_PER_SECOND)
}

fn open_descriptors() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

/// The soft limit of open files: the first number of the line.
fn most_descriptors() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn status_bytes(field: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: f64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * BYTES_PER_KIB)
}
