//! Settings of the room that stores of this server's own may take.
//!
//! A database or etcd has limits of its own.

use clap::Args as ClapArgs;
use keelson_server::StoreLimits;

/// The smallest quota: what every cluster has, and some room.
const SMALLEST_QUOTA: u64 = 16 * 1024 * 1024;

/// Settings of the room of the embedded store and of the one in memory.
#[derive(ClapArgs)]
pub(crate) struct StoreArgs {
    /// The largest size of the embedded store (such as 8Gi, 500Mi, or bytes), without free pages of its file, log and
    /// reserve. A store of that size refuses writes that add data, and accepts deletions. Without the flag the disk is
    /// the limit.
    #[arg(long, env = "KEELSON_STORE_QUOTA", value_parser = quota)]
    pub(crate) store_quota: Option<u64>,
    /// The largest size of replaced and deleted versions in the embedded store or in memory (such as 2Gi), and at most
    /// a quarter of the available space. If they need more, the history is shorter than --history.
    #[arg(long, env = "KEELSON_STORE_HISTORY_BYTES", default_value = "2Gi", value_parser = bytes)]
    pub(crate) store_history_bytes: u64,
    /// The disk space that the embedded store reserves for deletions on a full disk (such as 64Mi); 0 for none. A
    /// sixteenth of the disk, between 4Mi and 64Mi, by default.
    #[arg(long, env = "KEELSON_STORE_RESERVE", value_parser = bytes)]
    pub(crate) store_reserve: Option<u64>,
}

impl StoreArgs {
    pub(crate) fn into_room(self, unsafe_no_fsync: bool) -> StoreLimits {
        StoreLimits {
            unsafe_no_fsync,
            quota: self.store_quota,
            history_bytes: self.store_history_bytes,
            reserve: self.store_reserve,
            ..StoreLimits::default()
        }
    }
}

fn quota(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        quota if quota < SMALLEST_QUOTA => Err(format!("{text:?} is less than 16Mi")),
        quota => Ok(quota),
    }
}

/// Reads `8Gi`, `500M`, `1048576`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a number of bytes; write it like 8Gi, 500Mi or 1048576");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| bad())?;
    let scale = match &text[digits..] {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return Err(bad()),
    };
    number.checked_mul(scale).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_quantities_do() {
        assert_eq!(bytes("8Gi"), Ok(8 << 30));
        assert_eq!(bytes("500M"), Ok(500_000_000));
        assert_eq!(bytes("1048576"), Ok(1 << 20));
        for bad in ["", "Gi", "1.5Gi", "8 Gi", "-1", "8gb", "99999999999Ti"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert!(quota("15Mi").is_err());
        assert_eq!(quota("16Mi"), Ok(16 << 20));
    }
}
