//! `keelson.db-mark`: a small file beside the database with the newest acknowledged revision.
//!
//! The writer overwrites it after each group of writes and before it answers, without a sync. The kernel has the new
//! content even if the process is killed. So a store whose newest revision is below the mark has lost acknowledged
//! writes. A power loss can reset the file to its last sync. It is synced when the store is opened, at a clean stop,
//! and each time the log starts over. It never has a revision that was not yet durable.
//!
//! The file also identifies the store and the log, so that a file of another store is detected.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use keelson_meta::Revision;

use crate::sqlite::log::Salts;
use crate::sqlite::private;

/// The suffix of the file's name after the name of the database.
pub(crate) const MARK: &str = "-mark";

/// The first words of the file: its name and the version of its format.
const TITLE: &str = "keelson-mark 1";
/// The text before the checksum, in bytes: the title, the store, the start, the revision and the log, with a space
/// before each.
const TEXT: usize = TITLE.len() + 17 + 17 + 21 + 17;
/// The maximum size of a file that is read, in bytes.
const MOST_BYTES: u64 = 4096;
/// The size of the file in bytes: the text, a space, the checksum and a newline. Disks write this size at once.
const LENGTH: usize = TEXT + 1 + 8 + 1;

/// The content of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The random name of the store, which the table `facts` of the database also has.
    pub(crate) store: u64,
    /// The number of the server start that opened the store.
    pub(crate) start: u64,
    /// The newest acknowledged revision.
    pub(crate) revision: Revision,
    /// The salts of the log that the server writes. None if a log may be missing: after a clean stop, and while a
    /// server starts.
    pub(crate) log: Option<Salts>,
}

/// The result of reading the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkRead {
    Nothing,
    /// The content is not a mark, or only a part of one.
    Damaged,
    Mark(Mark),
}

impl MarkRead {
    pub(crate) fn mark(self) -> Option<Mark> {
        match self {
            Self::Mark(mark) => Some(mark),
            Self::Nothing | Self::Damaged => None,
        }
    }
}

impl Mark {
    fn encode(self) -> [u8; LENGTH] {
        let Salts(first, second) = self.log.unwrap_or_default();
        let text = format!(
            "{TITLE} {:016x} {:016x} {:020} {first:08x}{second:08x}",
            self.store,
            self.start,
            self.revision.get()
        );
        let line = format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()));
        line.into_bytes().try_into().expect("each number has as many digits as its type can have")
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(bytes).ok().filter(|line| line.len() == LENGTH && line.is_ascii())?;
        let (text, sum) = line.split_at(TEXT);
        if u32::from_str_radix(sum.trim(), 16) != Ok(crc32fast::hash(text.as_bytes())) {
            return None;
        }
        let mut words = text.strip_prefix(TITLE)?.split_ascii_whitespace();
        let mut number = || u64::from_str_radix(words.next()?, 16).ok();
        let (store, start) = (number()?, number()?);
        let revision = words.next()?.parse().ok().map(Revision::new)?;
        let salts = u64::from_str_radix(words.next()?, 16).ok()?;
        let log = Salts((salts >> 32) as u32, (salts & 0xffff_ffff) as u32);
        Some(Self { store, start, revision, log: Some(log).filter(|log| *log != Salts::default()) })
    }

    /// Reads the file.
    pub(crate) fn read(file: &Path) -> io::Result<MarkRead> {
        match read_regular(file) {
            Ok(bytes) => Ok(Self::decode(&bytes).map_or(MarkRead::Damaged, MarkRead::Mark)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(MarkRead::Nothing),
            Err(error) => Err(error),
        }
    }
}

/// Reads a file. Returns no bytes if it is not a regular file, which might never end, or is larger than a mark.
fn read_regular(file: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(file)?;
    let is_fit = found.is_dir() || (found.is_file() && found.len() <= MOST_BYTES);
    if is_fit { std::fs::read(file) } else { Ok(Vec::new()) }
}

/// The mark of an open store. Only the writer has it.
pub(crate) struct MarkFile {
    file: File,
    /// The log. None if the database could not record that it is open.
    log: Option<File>,
    mark: Mark,
    /// The salts in the file at its last sync.
    synced: Option<Salts>,
    /// True while writes fail, so that the failure is logged once.
    failing: bool,
}

impl MarkFile {
    /// Writes and syncs the file, with a mark without a log. Does not sync the directory.
    pub(crate) fn make(path: &Path, mark: Mark) -> io::Result<Self> {
        let file = private::open_file(path)?;
        let marking = Self { file, log: None, mark: Mark { log: None, ..mark }, synced: None, failing: false };
        marking.file.set_len(LENGTH as u64)?;
        marking.file.write_all_at(&marking.mark.encode(), 0)?;
        marking.file.sync_all()?;
        Ok(marking)
    }

    /// From now on, the mark has this start and the salts of this log, also after the log starts over.
    pub(crate) fn follow(&mut self, start: u64, log: File) {
        self.log = Some(log);
        self.mark.start = start;
        self.note(self.mark.revision);
    }

    /// Records a durable revision. After a failure the file has an older mark, which is still valid.
    pub(crate) fn note(&mut self, revision: Revision) {
        let log = self.log.as_ref().and_then(|log| Salts::read(log).ok()).or(self.mark.log);
        let is_new_log = self.synced != log;
        if self.mark.revision == revision && self.mark.log == log && !is_new_log && !self.failing {
            return;
        }
        self.mark = Mark { revision, log, ..self.mark };
        self.write(is_new_log);
    }

    /// Records that the log may be missing, since all of it is in the database.
    pub(crate) fn close(mut self) {
        self.mark.log = None;
        self.write(true);
    }

    fn write(&mut self, sync: bool) {
        let written = self.file.write_all_at(&self.mark.encode(), 0);
        let written = written.and_then(|()| if sync { self.file.sync_data() } else { Ok(()) });
        if let Err(error) = &written
            && !self.failing
        {
            tracing::warn!(%error, "the newest revision can't be noted in keelson.db{MARK}; a loss of the log's end would not be noticed");
        }
        self.failing = written.is_err();
        if sync && !self.failing {
            self.synced = self.mark.log;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Mark = Mark { store: 7, start: 9, revision: Revision::new(u64::MAX), log: Some(Salts(1, u32::MAX)) };

    #[test]
    fn a_mark_reads_back_and_a_part_of_one_does_not() {
        for mark in [WHOLE, Mark { log: None, ..WHOLE }, Mark { store: u64::MAX, start: u64::MAX, ..WHOLE }] {
            assert_eq!(Mark::decode(&mark.encode()), Some(mark));
        }
        let bytes = WHOLE.encode();
        for length in 0..LENGTH {
            assert_eq!(Mark::decode(&bytes[..length]), None, "{length}");
        }
        for place in 0..LENGTH - 1 {
            let mut changed = bytes;
            changed[place] ^= 2;
            assert_eq!(Mark::decode(&changed), None, "{place}");
        }
    }

    #[test]
    fn a_log_is_named_again_when_that_has_failed() {
        let directory = tempfile::TempDir::new().unwrap();
        let (path, log) = (directory.path().join("mark"), directory.path().join("log"));
        let mut file = MarkFile::make(&path, Mark { revision: Revision::new(5), ..WHOLE }).unwrap();
        let mut header = [0; 32];
        header[16..24].copy_from_slice(&[0, 0, 0, 3, 0, 0, 0, 4]);
        std::fs::write(&log, header).unwrap();
        // A file that is open only for reading, so that writes fail.
        let writable = std::mem::replace(&mut file.file, File::open(&path).unwrap());
        file.follow(9, File::open(&log).unwrap());
        assert_eq!(Mark::read(&path).unwrap().mark().unwrap().log, None);
        file.file = writable;
        file.note(Revision::new(5));
        assert_eq!(Mark::read(&path).unwrap().mark().unwrap().log, Some(Salts(3, 4)));
        assert_eq!(file.synced, Some(Salts(3, 4)));
    }

    #[test]
    fn a_mark_file_returns_the_last_mark() {
        let directory = tempfile::TempDir::new().unwrap();
        let (path, log) = (directory.path().join("mark"), directory.path().join("log"));
        assert_eq!(Mark::read(&path).unwrap(), MarkRead::Nothing);
        let mut file = MarkFile::make(&path, Mark { revision: Revision::new(5), ..WHOLE }).unwrap();
        assert_eq!(Mark::read(&path).unwrap().mark().unwrap(), Mark { log: None, revision: Revision::new(5), ..WHOLE });
        let mut header = [0; 32];
        header[16..24].copy_from_slice(&[0, 0, 0, 3, 0, 0, 0, 4]);
        std::fs::write(&log, header).unwrap();
        file.follow(10, File::open(&log).unwrap());
        file.note(Revision::new(6));
        let noted = Mark { start: 10, revision: Revision::new(6), log: Some(Salts(3, 4)), ..WHOLE };
        assert_eq!(Mark::read(&path).unwrap(), MarkRead::Mark(noted));
        file.close();
        assert_eq!(Mark::read(&path).unwrap(), MarkRead::Mark(Mark { log: None, ..noted }));
        std::fs::write(&path, "keelson-mark").unwrap();
        assert_eq!(Mark::read(&path).unwrap(), MarkRead::Damaged);
    }
}
