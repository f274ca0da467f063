//! CPU time and memory of a process from the kernel. Linux only.
//!
//! The server is a child process, so its numbers do not include the client's.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The kernel reports CPU time in hundredths of a second on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// A process, by its entry in /proc.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    directory: PathBuf,
}

impl Process {
    pub(crate) fn new(pid: u32) -> Self {
        Self { directory: PathBuf::from(format!("/proc/{pid}")) }
    }

    /// User and system time of all its threads so far, in units of 10 ms.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let text = self.read("stat")?;
        // The second field is the name in parentheses, which may contain spaces.
        let after_name = text.rsplit_once(')').context("stat has no name")?.1;
        let mut fields = after_name.split_whitespace().skip(11);
        let mut ticks = || fields.next().and_then(|field| field.parse::<u32>().ok()).context("stat has no times");
        Ok(TICK * (ticks()? + ticks()?))
    }

    /// The memory in use, in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// The memory in use, in bytes, where memory that several processes share counts in parts (PSS).
    pub(crate) fn own_memory(&self) -> Result<u64> {
        kilobytes(&self.read("smaps_rollup")?, "Pss:")
    }

    /// The peak memory since the last [`forget_peak`](Self::forget_peak), in bytes.
    pub(crate) fn peak_memory(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    /// Resets the peak to the memory in use.
    pub(crate) fn forget_peak(&self) -> Result<()> {
        std::fs::write(self.directory.join("clear_refs"), "5").context("cannot reset the peak of memory")
    }

    fn status(&self, field: &str) -> Result<u64> {
        kilobytes(&self.read("status")?, field)
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = self.directory.join(file);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}; has the server ended?", path.display()))
    }
}

/// The number of bytes in a field of one of the kernel's files.
fn kilobytes(text: &str, field: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field}"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().with_context(|| format!("odd {field}"))?;
    Ok(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::Process;

    #[test]
    fn this_process_has_memory_and_a_peak_above_it() {
        let process = Process::new(std::process::id());
        process.cpu().unwrap();
        let peak = process.peak_memory().unwrap();
        assert!(peak > 0 && process.memory().unwrap() > 0);
        assert!((1..=peak).contains(&process.own_memory().unwrap()));
    }
}
