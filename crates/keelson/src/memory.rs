//! The memory that the process may use, the number of watches that fit into it, and the part for uncompressed objects.
//!
//! Clients open thousands of watches and keep them open, so their limit is computed from the memory of the machine or
//! the container.

/// The file with the memory of the machine, in KiB.
const MACHINE: &str = "/proc/meminfo";
/// The file with the memory that a container may use, in bytes.
const CONTAINER: &str = "/sys/fs/cgroup/memory.max";
/// The part of the memory that watches may use: one in so many.
const WATCHES_PART: u64 = 4;
/// The memory of a watch with its stream on a shared connection, in bytes.
const WATCH_BYTES: u64 = 20 * 1024;
/// The number of watches that is allowed on every machine.
const LEAST_WATCHES: u64 = 10_000;

/// The part of the memory that uncompressed objects of large collections may use: one in so many.
const PLAIN_PART: u64 = 32;
/// The memory in bytes that these objects may use on every machine.
const LEAST_PLAIN: u64 = 64 << 20;

/// The memory in bytes for uncompressed objects; `None` if neither file can be read.
pub(crate) fn plain_objects() -> Option<u64> {
    available().map(plain_within)
}

fn plain_within(bytes: u64) -> u64 {
    (bytes / PLAIN_PART).max(LEAST_PLAIN)
}

/// The number of watches that fit into memory; `None` if neither file can be read.
pub(crate) fn watches() -> Option<usize> {
    let watches = watches_within(available()?);
    tracing::debug!(watches, "the limit of watches");
    usize::try_from(watches).ok()
}

fn watches_within(bytes: u64) -> u64 {
    (bytes / WATCHES_PART / WATCH_BYTES).max(LEAST_WATCHES)
}

fn available() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    limit(&read(MACHINE), &read(CONTAINER))
}

/// The memory of the process in bytes, from the text of the two files.
fn limit(machine: &str, container: &str) -> Option<u64> {
    let total = machine.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let total = total.and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib.saturating_mul(1024));
    // The file contains `max` if there is no limit.
    let container = container.trim().parse().ok();
    total.into_iter().chain(container).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_machine_and_container_counts() {
        let machine = "MemTotal:        8000000 kB\nMemFree:          100 kB\n";
        assert_eq!(limit(machine, "max\n"), Some(8_192_000_000));
        assert_eq!(limit(machine, "1073741824\n"), Some(1 << 30));
        assert_eq!(limit("", ""), None);
        assert_eq!((watches_within(8_192_000_000), watches_within(1 << 20)), (100_000, LEAST_WATCHES));
        assert_eq!((plain_within(32 << 30), plain_within(1 << 20)), (1 << 30, LEAST_PLAIN));
    }
}
