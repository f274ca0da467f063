//! The checksum of a row, and the error of a row that does not match it.
//!
//! SQLite often accepts a page that the disk has returned damaged, with rows missing or changed. So each row has a
//! checksum of all of its content, including its number, and the numbers have no gap except by compaction. Damage is an
//! error. It is never skipped, since a client that misses a change would treat an old state as the current one.

use keelson_meta::Revision;

use crate::sqlite::schema::number;

/// The remedy for damage, for operators.
pub(crate) const ADVICE: &str =
    "run `keelson storage check` to see what is damaged, and restore a backup with `keelson storage restore`";

/// A row that is damaged or missing. It is wrapped into SQLite's error for failed conversions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; {ADVICE}")]
pub(crate) struct Damage(pub(crate) String);

impl From<Damage> for rusqlite::Error {
    fn from(damage: Damage) -> Self {
        Self::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, Box::new(damage))
    }
}

impl Damage {
    /// Returns the damage in an error of SQLite, if it has one.
    pub(crate) fn from_error(error: &rusqlite::Error) -> Option<&Self> {
        match error {
            rusqlite::Error::FromSqlConversionFailure(_, _, source) => source.downcast_ref(),
            _ => None,
        }
    }
}

/// The CRC-32 of a row.
pub(crate) fn of_row(revision: Revision, path: &str, value: Option<&[u8]>) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number(revision).to_le_bytes());
    hasher.update(path.as_bytes());
    // No path contains a zero byte, so two different rows never have the same bytes here.
    hasher.update(if value.is_some() { b"\0+" } else { b"\0-" });
    hasher.update(value.unwrap_or_default());
    i64::from(hasher.finalize())
}

/// Compares a row with its checksum.
pub(crate) fn check(revision: Revision, path: &str, value: Option<&[u8]>, sum: Option<i64>) -> Result<(), Damage> {
    if sum == Some(of_row(revision, path, value)) {
        return Ok(());
    }
    Err(Damage(format!("the row of revision {revision}, {path:?}, is damaged: its checksum is wrong")))
}

/// The error of a row that must exist and is missing.
pub(crate) fn missing(revision: Revision) -> Damage {
    Damage(format!("the row of revision {revision} is missing, but was not deleted"))
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
