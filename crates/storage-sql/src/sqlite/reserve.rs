//! A reserve of room on the disk: a file of real blocks beside the database, given up when the disk is full.
//!
//! A deletion takes some room itself: it is appended to the log, and the log is emptied into a database that grows by it. The reserve
//! has room for both. It is taken when the store is opened, and again when there is room after it was needed. It holds no data, so a
//! crash at any moment loses nothing: a file of another length is filled up at the next start.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keelson_storage::{Disk, DiskRoom};

use crate::sqlite::private;

/// The file in the data directory.
const RESERVE_FILE: &str = "keelson.reserve";
/// The part of a disk that the reserve takes, and its bounds in bytes.
const PART: u64 = 16;
const SMALLEST: u64 = 4 * 1024 * 1024;
const LARGEST: u64 = 64 * 1024 * 1024;

/// The reserve of one data directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    bytes: u64,
    held: bool,
    /// True when it was given up, by this process or one before, and is not taken again.
    spent: bool,
}

impl Reserve {
    /// The reserve of a directory, as it is there. `bytes` decides its size; `None` is a part of the disk.
    pub(crate) fn find(directory: &Path, disk: Arc<dyn Disk>, bytes: Option<u64>) -> Self {
        let size = || disk.room(directory).map_or(SMALLEST, |room| (room.total / PART).clamp(SMALLEST, LARGEST));
        let bytes = bytes.unwrap_or_else(size);
        let length = std::fs::metadata(directory.join(RESERVE_FILE)).ok().map(|found| found.len());
        let held = bytes > 0 && length == Some(bytes);
        Self { directory: directory.to_owned(), disk, bytes, held, spent: bytes > 0 && length.is_some() && !held }
    }

    /// Its size when it is held, in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn is_held(&self) -> bool {
        self.held
    }

    /// Returns true from when it was given up until it is taken again: the room that it left is for deletions.
    pub(crate) const fn is_spent(&self) -> bool {
        self.spent
    }

    /// The room of the disk beside the reserve.
    pub(crate) fn room(&self) -> io::Result<DiskRoom> {
        self.disk.room(&self.directory)
    }

    /// Takes the reserve where the disk has room for it and as much again. One that is there gets blocks
    /// where it has none, as a copy of the directory may have left it.
    pub(crate) fn take(&mut self) {
        let needed = if self.held { 0 } else { 2 * self.bytes };
        if self.bytes == 0 || !self.room().is_ok_and(|room| room.free >= needed) {
            return;
        }
        let file = private::open_file(&self.directory.join(RESERVE_FILE));
        match file.and_then(|file| self.disk.allocate(&file, self.bytes).and_then(|()| file.sync_all())) {
            Ok(()) => (self.held, self.spent) = (true, false),
            Err(error) => {
                tracing::debug!(%error, "the disk had no room for the reserve after all");
                self.give_up();
            }
        }
    }

    /// Gives the room back to the disk. The file stays, empty: to take it again needs no new entry in the directory.
    pub(crate) fn give_up(&mut self) {
        (self.held, self.spent) = (false, self.bytes > 0);
        let path = self.directory.join(RESERVE_FILE);
        let emptied = File::options().write(true).open(&path).and_then(|file| file.set_len(0));
        match emptied {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, reserve = %path.display(), "the reserve on the disk could not be given up");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_storage::SystemDisk;
    use tempfile::TempDir;

    use super::*;

    /// A disk of one size, however much of it is used.
    #[derive(Debug)]
    struct Sized(DiskRoom);

    impl Disk for Sized {
        fn room(&self, _: &Path) -> io::Result<DiskRoom> {
            Ok(self.0)
        }

        fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
            SystemDisk.allocate(file, bytes)
        }
    }

    fn reserve(directory: &TempDir, total: u64, free: u64) -> Reserve {
        Reserve::find(directory.path(), Arc::new(Sized(DiskRoom { total, free })), None)
    }

    #[test]
    fn the_reserve_is_a_part_of_the_disk_within_bounds() {
        let directory = TempDir::new().unwrap();
        for (total, bytes) in [(0, SMALLEST), (80 << 20, 5 << 20), (1 << 40, LARGEST)] {
            assert_eq!(reserve(&directory, total, 0).bytes(), bytes);
        }
    }

    #[test]
    fn the_reserve_outlives_the_process_and_is_taken_where_there_is_room() {
        let directory = TempDir::new().unwrap();
        let mut short = reserve(&directory, 80 << 20, 9 << 20);
        short.take();
        assert!(!short.is_held() && !short.is_spent());
        let mut first = reserve(&directory, 80 << 20, 10 << 20);
        first.take();
        assert!(first.is_held() && reserve(&directory, 80 << 20, 0).is_held());
        first.give_up();
        assert!(!first.is_held() && first.is_spent());
        let mut next = reserve(&directory, 80 << 20, 10 << 20);
        assert!(!next.is_held() && next.is_spent(), "a restart does not make it room for anything else");
        next.take();
        assert!(next.is_held() && !next.is_spent());
    }

    #[test]
    fn a_file_that_a_crash_left_half_made_is_no_reserve() {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join(RESERVE_FILE), [1; 1000]).unwrap();
        let mut found = reserve(&directory, 80 << 20, 80 << 20);
        assert!(!found.is_held());
        found.take();
        assert!(found.is_held());
    }
}
