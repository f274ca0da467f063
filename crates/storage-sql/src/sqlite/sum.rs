//! The checksum of a row, and the error of a row that does not match it.
//!
//! A page that the disk returns damaged is often still a page to SQLite, with rows missing or changed. Each row therefore has a
//! checksum over all of its content, its number included, and the numbers have no gap except by compaction. Damage is an error and
//! never skipped, since a client that misses a change takes old state for new.

use keelson_meta::Revision;

use crate::sqlite::schema::number;

/// The way out of damage, for operators.
pub(crate) const ADVICE: &str =
    "run `keelson storage check` to see what is damaged, and restore a backup with `keelson storage restore`";

/// A row that is damaged or gone. Travels as a failed conversion through SQLite's own errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; {ADVICE}")]
pub(crate) struct Damage(pub(crate) String);

impl From<Damage> for rusqlite::Error {
    fn from(damage: Damage) -> Self {
        Self::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, Box::new(damage))
    }
}

impl Damage {
    /// The damage in an error of SQLite, if it is one of ours.
    pub(crate) fn of(error: &rusqlite::Error) -> Option<&Self> {
        match error {
            rusqlite::Error::FromSqlConversionFailure(_, _, source) => source.downcast_ref(),
            _ => None,
        }
    }
}

/// CRC-32 of a row.
pub(crate) fn of_row(revision: Revision, path: &str, value: Option<&[u8]>) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number(revision).to_le_bytes());
    hasher.update(path.as_bytes());
    // No path has a zero byte in it, so no two rows are the same bytes.
    hasher.update(if value.is_some() { b"\0+" } else { b"\0-" });
    hasher.update(value.unwrap_or_default());
    i64::from(hasher.finalize())
}

/// Compares a row with its checksum.
pub(crate) fn check(revision: Revision, path: &str, value: Option<&[u8]>, sum: Option<i64>) -> Result<(), Damage> {
    if sum == Some(of_row(revision, path, value)) {
        return Ok(());
    }
    Err(Damage(format!("the row of revision {revision}, {path:?}, is damaged: it does not fit its checksum")))
}

/// A row that must be there and is not.
pub(crate) fn missing(revision: Revision) -> Damage {
    Damage(format!("the row of revision {revision} is gone, and nothing has deleted it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_fits_its_own_checksum_and_no_other_row_does() {
        let at = Revision::new(7);
        let sum = Some(of_row(at, "/a", Some(b"v")));
        check(at, "/a", Some(b"v"), sum).unwrap();
        for (revision, path, value) in [
            (8, "/a", Some(&b"v"[..])),
            (7, "/b", Some(b"v")),
            (7, "/a", Some(b"w")),
            (7, "/a", None),
            (7, "/av", None),
        ] {
            let damage = check(Revision::new(revision), path, value, sum).unwrap_err();
            assert!(damage.to_string().contains(path) && damage.to_string().contains("storage check"), "{damage}");
        }
        assert!(check(at, "/a", Some(b"v"), None).is_err());
        assert_ne!(of_row(at, "/a", None), of_row(at, "/a", Some(b"")));
    }
}
