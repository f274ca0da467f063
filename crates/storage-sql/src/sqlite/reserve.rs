//! A reserve of room on the disk: a file of real blocks beside the database, given up when the disk is full.
//!
//! A deletion takes some room itself: it is appended to the log, and the log is emptied into a database that grows by it. The reserve
//! has room for both. It is taken when the store is opened, and again when there is room after it was needed. It holds no data, so a
//! crash at any moment loses nothing: a file of another length is filled up at the next start.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keelson_storage::{Disk, DiskRoom};
use keelson_supervision::warn_repeated;

use crate::sqlite::error::is_full;
use crate::sqlite::open::{DATABASE_FILE, LOG};
use crate::sqlite::private;

/// The file in the data directory.
const RESERVE_FILE: &str = "keelson.reserve";
/// The part of a disk that the reserve takes, and its bounds in bytes.
const PART: u64 = 16;
const SMALLEST: u64 = 4 * 1024 * 1024;
const LARGEST: u64 = 64 * 1024 * 1024;
/// The most that it takes of the room that the store can have, whatever is asked for: an eighth. The log is kept as long as the reserve,
/// and twice the reserve must be free before a full store has room again, so five eighths are left for objects.
const MOST_PART: u64 = 8;
/// The smallest reserve on a disk with less room than that, in bytes.
const LEAST: u64 = 1024 * 1024;

/// The reserve of one data directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    /// Its size where the disk has room for that.
    wanted: u64,
    bytes: u64,
    held: bool,
    /// True when it was given up, by this process or one before, and is not taken again.
    spent: bool,
}

impl Reserve {
    /// The reserve of a directory, as it is there: a larger one is held, and an empty one is spent. `bytes` decides its size; `None` is a
    /// part of the disk.
    pub(crate) fn find(directory: &Path, disk: Arc<dyn Disk>, bytes: Option<u64>) -> Self {
        let size = || disk.room(directory).map_or(SMALLEST, |room| (room.total / PART).clamp(SMALLEST, LARGEST));
        let wanted = bytes.unwrap_or_else(size);
        let length = std::fs::metadata(directory.join(RESERVE_FILE)).ok().map(|found| found.len());
        let spent = wanted > 0 && length == Some(0);
        let mut reserve = Self { directory: directory.to_owned(), disk, wanted, bytes: wanted, held: false, spent };
        reserve.fit();
        reserve.held = reserve.bytes > 0 && length.is_some_and(|length| length >= reserve.bytes);
        if bytes.is_some() && reserve.bytes < wanted {
            tracing::warn!(
                wanted,
                bytes = reserve.bytes,
                "--store-reserve asks for more than an eighth of the room that the store has on its disk, and gets that"
            );
        }
        reserve
    }

    /// Decides its size by the room that the store can have: what is free, and what its own files take.
    fn fit(&mut self) {
        let Ok(room) = self.room() else { return };
        let length = |name: &str| std::fs::metadata(self.directory.join(name)).map_or(0, |found| found.len());
        let own = length(DATABASE_FILE) + length(&format!("{DATABASE_FILE}{LOG}")) + length(RESERVE_FILE);
        self.bytes = self.wanted.min(((room.free + own) / MOST_PART).max(LEAST));
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
    /// where it has none, as a copy of the directory may have left it, and its size where it has another.
    pub(crate) fn take(&mut self) {
        if !self.held {
            self.fit();
        }
        let needed = if self.held { 0 } else { 2 * self.bytes };
        if self.bytes == 0 || !self.room().is_ok_and(|room| room.free >= needed) {
            return;
        }
        let file = private::open_file(&self.directory.join(RESERVE_FILE));
        let taken = file.and_then(|file| {
            file.set_len(self.bytes)?;
            self.disk.allocate(&file, self.bytes)?;
            file.sync_all()
        });
        match taken {
            Ok(()) => (self.held, self.spent) = (true, false),
            Err(error) if is_full(&error) => {
                tracing::debug!(%error, "the disk had no room for the reserve after all");
                self.give_up();
            }
            // The disk may have room all the same.
            Err(error) => warn_repeated!(""; %error, "the reserve on the disk can't be taken"),
        }
    }

    /// Takes the reserve where it is not held, and its whole size where a smaller one is held and the disk has room for all of it.
    pub(crate) fn keep(&mut self) {
        let before = self.bytes;
        if self.held && before < self.wanted {
            self.fit();
            let has_room = self.room().is_ok_and(|room| room.free >= 2 * self.wanted);
            if self.bytes == self.wanted && has_room {
                self.take();
            } else {
                self.bytes = before;
            }
        } else if !self.held {
            self.take();
        }
    }

    /// Gives the room back to the disk. The file stays, empty: to take it again needs no new entry in the directory.
    pub(crate) fn give_up(&mut self) {
        (self.held, self.spent) = (false, self.bytes > 0);
        let path = self.directory.join(RESERVE_FILE);
        let emptied = File::options().write(true).open(&path).and_then(|file| file.set_len(0));
        match emptied {
            Err(error) if error.kind() != ErrorKind::NotFound => {
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

    /// A disk with room that makes no blocks.
    #[derive(Debug)]
    struct Failing(ErrorKind);

    impl Disk for Failing {
        fn room(&self, _: &Path) -> io::Result<DiskRoom> {
            Ok(DiskRoom { total: 80 << 20, free: 80 << 20 })
        }

        fn allocate(&self, _: &File, _: u64) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn only_a_disk_without_room_spends_the_reserve() {
        for (kind, is_spent) in [
            (ErrorKind::StorageFull, true),
            (ErrorKind::QuotaExceeded, true),
            (ErrorKind::Unsupported, false),
            (ErrorKind::PermissionDenied, false),
        ] {
            let directory = TempDir::new().unwrap();
            let mut reserve = Reserve::find(directory.path(), Arc::new(Failing(kind)), None);
            reserve.take();
            assert_eq!((reserve.is_held(), reserve.is_spent()), (false, is_spent), "{kind}");
        }
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join(RESERVE_FILE), "").unwrap();
        let mut spent = Reserve::find(directory.path(), Arc::new(Failing(ErrorKind::Unsupported)), None);
        spent.take();
        assert!(spent.is_spent(), "one that was given up stays so");
    }

    #[test]
    fn a_reserve_of_another_size_gets_the_one_that_is_asked_for() {
        let directory = TempDir::new().unwrap();
        let length = || std::fs::metadata(directory.path().join(RESERVE_FILE)).unwrap().len();
        for (bytes, is_held) in [(6 << 20, false), (8 << 20, false), (4 << 20, true)] {
            let disk = Arc::new(Sized(DiskRoom { total: 80 << 20, free: 80 << 20 }));
            let mut found = Reserve::find(directory.path(), disk, Some(bytes));
            assert_eq!((found.is_held(), found.is_spent()), (is_held, false), "{bytes}");
            found.take();
            assert!(found.is_held() && length() == bytes, "{bytes}");
        }
    }

    fn reserve(directory: &TempDir, total: u64, free: u64) -> Reserve {
        Reserve::find(directory.path(), Arc::new(Sized(DiskRoom { total, free })), None)
    }

    #[test]
    fn the_reserve_is_a_part_of_the_disk_within_bounds() {
        let directory = TempDir::new().unwrap();
        for (total, bytes) in [(32 << 20, SMALLEST), (80 << 20, 5 << 20), (1 << 40, LARGEST)] {
            assert_eq!(reserve(&directory, total, total).bytes(), bytes);
        }
    }

    #[test]
    fn a_reserve_leaves_room_for_objects_whatever_is_asked_for() {
        let directory = TempDir::new().unwrap();
        let find = |wanted: u64, free: u64| {
            let disk = Arc::new(Sized(DiskRoom { total: 80 << 20, free }));
            Reserve::find(directory.path(), disk, Some(wanted))
        };
        assert_eq!(find(70 << 20, 80 << 20).bytes(), 10 << 20);
        assert_eq!(find(0, 80 << 20).bytes(), 0);
        // Others have filled the disk since it was given up: it is taken as it fits, and whole when they go.
        let mut spent = find(8 << 20, 80 << 20);
        spent.take();
        spent.give_up();
        spent.disk = Arc::new(Sized(DiskRoom { total: 80 << 20, free: 16 << 20 }));
        spent.keep();
        assert_eq!((spent.is_held(), spent.is_spent(), spent.bytes()), (true, false, 2 << 20));
        spent.keep();
        assert_eq!(spent.bytes(), 2 << 20);
        spent.disk = Arc::new(Sized(DiskRoom { total: 80 << 20, free: 70 << 20 }));
        spent.keep();
        assert_eq!((spent.is_held(), spent.bytes()), (true, 8 << 20));
    }

    #[test]
    fn the_reserve_outlives_the_process_and_is_taken_where_there_is_room() {
        let directory = TempDir::new().unwrap();
        let mut short = reserve(&directory, 80 << 20, 1 << 20);
        short.take();
        assert!(!short.is_held() && !short.is_spent());
        let mut first = reserve(&directory, 80 << 20, 48 << 20);
        first.take();
        assert!(first.is_held() && first.bytes() == 5 << 20 && reserve(&directory, 80 << 20, 43 << 20).is_held());
        first.give_up();
        assert!(!first.is_held() && first.is_spent());
        let mut next = reserve(&directory, 80 << 20, 48 << 20);
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
