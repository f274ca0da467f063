//! Checks the write-ahead log before SQLite reads it: damage is allowed only at its end.
//!
//! SQLite reads the log up to the first frame that does not fit the chain of checksums, and ignores the rest. After a
//! power loss this is correct, since unsynced frames may be incomplete. But each commit is synced before the next one
//! begins, so at most the end of one commit follows the first invalid frame. If more valid frames follow, acknowledged
//! commits are damaged, and SQLite would lose them silently.
//!
//! Only SQLite writes the log; its format is described in <https://www.sqlite.org/fileformat2.html#walformat>.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The size of the log's header and of the header of each frame, in bytes.
const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// The first bytes of a log. The last bit determines the byte order of checksums.
const MAGIC: u32 = 0x377f_0682;
/// The valid sizes of a page, in bytes.
const PAGES: std::ops::RangeInclusive<usize> = 512..=65536;
/// The number of commits that may follow the first invalid frame: the commit that was being written.
const COMMITS_BEHIND: usize = 1;
/// The size of a read, in bytes.
const BUFFER: usize = 1 << 20;

/// The damage of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogDamage {
    /// The number of the invalid frame, from 0. None for the header of the log.
    pub(crate) frame: Option<u64>,
    /// The number of complete commits after it.
    pub(crate) commits: usize,
}

impl std::fmt::Display for LogDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { frame, commits } = self;
        match frame {
            Some(frame) => {
                write!(f, "frame {frame} of the write-ahead log is damaged, and {commits} commits follow it")
            }
            None => write!(f, "the header of the write-ahead log is damaged, and {commits} commits lie behind it"),
        }
    }
}

/// The two numbers in every frame of a log. The first increases each time the log starts over, from a random number.
/// The second is random each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Salts(pub(crate) u32, pub(crate) u32);

impl Salts {
    /// The offset of the salts in the header of the log, in bytes.
    const PLACE: usize = 16;

    /// Reads the salts of a log. The log may be written meanwhile.
    pub(crate) fn read(log: &File) -> io::Result<Self> {
        let mut salts = [0; 8];
        log.read_exact_at(&mut salts, Self::PLACE as u64)?;
        Ok(Self(field(&salts, 0), field(&salts, 4)))
    }

    /// Returns true if these are the salts `noted`, or those of the same log after it started over once. A power loss
    /// can happen before the new salts are recorded.
    pub(crate) fn follow(self, noted: Self) -> bool {
        self == noted || self.0 == noted.0.wrapping_add(1)
    }
}

/// The salts of the log in a file. None if the log has no frame or the file is missing.
pub(crate) fn salts(log: &Path) -> io::Result<Option<Salts>> {
    let file = match File::open(log) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let smallest = (HEADER + FRAME_HEADER + PAGES.start()) as u64;
    let salts = if file.metadata()?.len() < smallest { None } else { Some(Salts::read(&file)?) };
    // A header of zeros was allocated and never written.
    Ok(salts.filter(|salts| *salts != Salts::default()))
}

/// Checks that a log, if it exists, is not damaged before its end.
pub(crate) fn check(log: &Path) -> io::Result<Option<LogDamage>> {
    match File::open(log) {
        Ok(file) => match examine(BufReader::with_capacity(BUFFER, file)) {
            // The log ends within a frame, as after an interrupted write.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            examined => examined,
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The running checksum: two sums over pairs of 32-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chain {
    big_endian: bool,
    sums: (u32, u32),
}

impl Chain {
    fn over(self, bytes: &[u8]) -> Self {
        let word = |bytes: &[u8]| {
            let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
            if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        let sums = bytes.chunks_exact(8).fold(self.sums, |(first, second), pair| {
            let first = first.wrapping_add(word(pair)).wrapping_add(second);
            (first, second.wrapping_add(word(&pair[4..])).wrapping_add(first))
        });
        Self { sums, ..self }
    }
}

/// A number of a header. These are always big-endian, also if the checksums are not.
fn field(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn examine(mut log: impl Read) -> io::Result<Option<LogDamage>> {
    let mut header = [0; HEADER];
    log.read_exact(&mut header)?;
    if header == [0; HEADER] {
        // The header was allocated and never written.
        return Ok(None);
    }
    let page = field(&header, 8) as usize;
    let start = Chain { big_endian: field(&header, 0) == MAGIC | 1, sums: (0, 0) }.over(&header[..FRAME_HEADER]);
    let is_log = field(&header, 0) | 1 == MAGIC | 1 && PAGES.contains(&page) && page.is_power_of_two();
    let whole = is_log && start.sums == (field(&header, 24), field(&header, 28));
    if !whole {
        // The header is written and synced alone, and fits into the smallest unit that disks write. So an invalid
        // header is damage.
        return Ok(Some(LogDamage { frame: None, commits: 0 }));
    }
    let salts = &header[16..24];
    let mut frame = vec![0; FRAME_HEADER + page];
    let mut torn: Option<LogDamage> = None;
    // The checksum up to the frame before. None if that frame does not belong to this log.
    let mut before = Some(start);
    for number in 0.. {
        match log.read_exact(&mut frame) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        let ours = frame[8..16] == *salts;
        let told = (field(&frame, 16), field(&frame, 20));
        let fits =
            ours && before.is_some_and(|before| before.over(&frame[..8]).over(&frame[FRAME_HEADER..]).sums == told);
        before = ours.then_some(Chain { sums: told, ..start });
        match &mut torn {
            None if !fits => torn = Some(LogDamage { frame: Some(number), commits: 0 }),
            // The last frame of a commit has the size of the database after the commit.
            Some(torn) if fits && field(&frame, 4) != 0 => torn.commits += 1,
            _ => {}
        }
    }
    Ok(torn.filter(|torn| torn.commits > COMMITS_BEHIND))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::*;

    /// A log of eight commits, as a killed process leaves it.
    fn log() -> Vec<u8> {
        let directory = TempDir::new().unwrap();
        let connection = Connection::open(directory.path().join("db")).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        connection.execute_batch("CREATE TABLE t (a)").unwrap();
        for number in 0..7 {
            connection.execute("INSERT INTO t VALUES (zeroblob(9000 + ?1))", [number]).unwrap();
        }
        std::fs::read(directory.path().join("db-wal")).unwrap()
    }

    #[track_caller]
    fn check(log: &[u8], damaged: bool) {
        let found = examine(log).unwrap();
        assert_eq!(found.is_some(), damaged, "{found:?}");
    }

    #[test]
    fn a_torn_last_commit_counts_as_a_power_loss() {
        let whole = log();
        check(&whole, false);
        for cut in 1..6000 {
            check(&whole[..whole.len() - cut], false);
        }
        // Any part of the unsynced data may be missing.
        let mut torn = whole.clone();
        let last = torn.len() - 2 * 4120;
        torn[last..last + 4120].fill(0);
        check(&torn, false);
        check(&[0; 5000], false);
    }

    #[test]
    fn damage_before_the_last_commits_is_detected_anywhere() {
        let whole = log();
        // Damage in the header, or in a commit that two more commits follow.
        for at in (0..whole.len() - 8 * 4120).step_by(97) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            check(&damaged, true);
        }
    }

    #[test]
    fn a_log_that_has_started_over_is_known_by_its_salts() {
        let directory = TempDir::new().unwrap();
        let (database, file) = (directory.path().join("db"), directory.path().join("db-wal"));
        assert_eq!(salts(&file).unwrap(), None);
        let connection = Connection::open(database).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.execute_batch("CREATE TABLE t (a)").unwrap();
        let first = salts(&file).unwrap().unwrap();
        connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        connection.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        let second = salts(&file).unwrap().unwrap();
        assert!(first != second && second.follow(first) && second.follow(second) && !first.follow(second));
        assert!(!Salts(second.0, 0).follow(second) && !Salts(second.0.wrapping_add(1), 0).follow(first));
        std::fs::write(&file, []).unwrap();
        assert_eq!(salts(&file).unwrap(), None);
    }

    #[test]
    fn frames_of_an_older_log_behind_the_end_are_ignored() {
        let mut whole = log();
        let mut older = log()[HEADER..].to_vec();
        // Another log has other salts.
        older.chunks_mut(4120).for_each(|frame| frame[8] ^= 1);
        whole.extend(older);
        check(&whole, false);
    }
}
