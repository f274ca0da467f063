//! The queries. Each also returns the state of the history, so that the caller can check that the result is valid.
//!
//! One statement sees one snapshot, which has both the row of the state and the history up to its revision.

use keelson_meta::Revision;
use keelson_storage::StoreKey;

/// The queries. Their numbers are the indexes in [`Query::ALL`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Query {
    /// Returns incarnation, revision and oldest revision: the state.
    State,
    /// Returns the state, and the revision and value of a path, or nulls.
    Get,
    /// Returns the state, and the path, revision and value of each entry, or nulls.
    Range,
    /// Returns the state, and the revision of the newest row of each path of some ranges at a revision, or null. The
    /// row may be a delete.
    Newest,
    /// Returns the state, and the revision, path and value of each entry that was written at some revisions, or nulls.
    Rows,
    /// Returns the state and a count.
    Count,
    /// Returns the state, and the revision, path and value of each change after one revision up to another, or nulls.
    Changes,
    /// Returns the state, and the revision, path and SHA-256 of the value of each of some changes, or nulls.
    Witnesses,
    /// Applies a group of transactions.
    Commit,
    /// Raises the oldest revision.
    Compact,
    /// Deletes some of the compacted rows.
    Sweep,
    /// Returns the paths and revisions of expired versions, and true if the version is the newest of its path.
    Ended,
    /// Deletes expiries.
    ForgetEnded,
}

impl Query {
    pub(crate) const ALL: [Self; 13] = [
        Self::State,
        Self::Get,
        Self::Range,
        Self::Newest,
        Self::Rows,
        Self::Count,
        Self::Changes,
        Self::Witnesses,
        Self::Commit,
        Self::Compact,
        Self::Sweep,
        Self::Ended,
        Self::ForgetEnded,
    ];

    pub(crate) const fn sql(self) -> &'static str {
        match self {
            Self::State => "SELECT s.incarnation, s.revision, s.oldest FROM keelson_state s",
            Self::Get => {
                "SELECT s.incarnation, s.revision, s.oldest, n.revision, n.value FROM keelson_state s \
                 LEFT JOIN LATERAL (SELECT h.revision, h.value FROM keelson_history h WHERE h.path = $1 \
                 ORDER BY h.revision DESC LIMIT 1) n ON n.value IS NOT NULL"
            }
            // DISTINCT ON walks the index and stops at the limit, so it reads only the versions of the chunk's paths.
            Self::Range => {
                "SELECT s.incarnation, s.revision, s.oldest, r.path, r.revision, r.value FROM keelson_state s \
                 LEFT JOIN LATERAL (SELECT n.path, n.revision, n.value FROM \
                 (SELECT DISTINCT ON (h.path) h.path, h.revision, h.deleted, h.value FROM keelson_history h \
                 WHERE h.path >= $1 AND h.path < $2 AND h.revision <= coalesce($3, s.revision) \
                 ORDER BY h.path, h.revision DESC) n WHERE NOT n.deleted LIMIT $4) r ON true"
            }
            // The index alone answers this for pages that were vacuumed since their last change.
            Self::Newest => {
                "SELECT s.incarnation, s.revision, s.oldest, n.revision FROM keelson_state s LEFT JOIN LATERAL \
                 (SELECT p.revision FROM unnest($1::text[], $2::text[]) AS w (first, behind) CROSS JOIN LATERAL \
                 (SELECT max(h.revision) AS revision FROM keelson_history h WHERE h.path >= w.first AND h.path < w.behind \
                 AND h.revision <= $3 GROUP BY h.path) p) n ON true"
            }
            Self::Rows => {
                "SELECT s.incarnation, s.revision, s.oldest, h.revision, h.path, h.value FROM keelson_state s \
                 LEFT JOIN keelson_history h ON h.revision = ANY ($1::bigint[]) AND NOT h.deleted"
            }
            Self::Count => {
                "SELECT s.incarnation, s.revision, s.oldest, (SELECT count(*) FROM (SELECT 1 FROM \
                 (SELECT DISTINCT ON (h.path) h.deleted FROM keelson_history h \
                 WHERE h.path >= $1 AND h.path < $2 AND h.revision <= coalesce($3, s.revision) \
                 ORDER BY h.path, h.revision DESC) n WHERE NOT n.deleted LIMIT $4) c) FROM keelson_state s"
            }
            // The sum adds sizes, which are known without reading the values.
            Self::Changes => {
                "SELECT s.incarnation, s.revision, s.oldest, c.revision, c.path, c.value FROM keelson_state s \
                 LEFT JOIN LATERAL (SELECT b.* FROM (SELECT h.revision, h.path, h.value, \
                 sum(coalesce(octet_length(h.value), 0)) OVER (ORDER BY h.revision ROWS UNBOUNDED PRECEDING) \
                 - coalesce(octet_length(h.value), 0) AS before FROM (SELECT * FROM keelson_history h \
                 WHERE h.revision > $1 AND h.revision <= coalesce($2, s.revision) ORDER BY h.revision LIMIT $3) h) b \
                 WHERE b.before < $4) c ON true"
            }
            Self::Witnesses => {
                "SELECT s.incarnation, s.revision, s.oldest, h.revision, h.path, sha256(h.value) FROM keelson_state s \
                 LEFT JOIN keelson_history h ON h.revision = ANY ($1::bigint[])"
            }
            Self::Commit => "SELECT * FROM keelson_commit_3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
            Self::Compact => {
                "UPDATE keelson_state SET oldest = $2 WHERE incarnation = $1 AND oldest < $2 AND revision >= $2"
            }
            Self::Sweep => "SELECT keelson_sweep_1($1)",
            Self::Ended => {
                "SELECT e.ends, e.path, e.revision, NOT EXISTS (SELECT 1 FROM keelson_history h \
                 WHERE h.path = e.path AND h.revision > e.revision) FROM keelson_expiry e \
                 WHERE e.ends <= $1 ORDER BY e.ends, e.path, e.revision LIMIT $2"
            }
            Self::ForgetEnded => {
                "DELETE FROM keelson_expiry e USING unnest($1::bigint[], $2::text[], $3::bigint[]) AS g (ends, path, revision) \
                 WHERE e.ends = g.ends AND e.path = g.path AND e.revision = g.revision"
            }
        }
    }
}

/// A revision as an integer of the database.
///
/// A revision above 2^63 can't be reached by counting writes. One from a forged token becomes the largest integer,
/// which is in the far future.
pub(crate) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}

/// A revision from a column. The tables have no negative ones.
pub(crate) fn revision(number: i64) -> Revision {
    Revision::new(number.unsigned_abs())
}

/// A limit of a range as a text of the database, which can't contain a zero byte. Stored paths contain none either, so
/// the first text after the part before the zero byte separates the same paths.
pub(crate) fn bound(key: &StoreKey) -> String {
    match key.as_str().split_once('\0') {
        None => key.as_str().to_owned(),
        Some((before, _)) => format!("{before}\u{1}"),
    }
}

/// Returns true if the database can store a path.
pub(crate) fn is_storable(key: &StoreKey) -> bool {
    !key.as_str().contains('\0')
}
