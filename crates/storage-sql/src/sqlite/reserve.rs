//! A reserve of disk space: a file of allocated blocks beside the database. The store releases it when the disk is
//! full.
//!
//! A deletion needs some space itself: it is appended to the log, and moving the log makes the database larger. The
//! reserve has space for both. It is allocated when the store is opened, and again when there is space after it was
//! released. It contains no data, so a crash loses nothing at any moment: a file of another length is completed at the
//! next start.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keelson_storage::{Disk, DiskSpace};
use keelson_supervision::warn_repeated;

use crate::sqlite::error::is_full;
use crate::sqlite::open::{DATABASE_FILE, LOG};
use crate::sqlite::private;

/// The file in the data directory.
const RESERVE_FILE: &str = "keelson.reserve";
/// The fraction of a disk that the reserve uses, and its limits in bytes.
const PART: u64 = 16;
const SMALLEST: u64 = 4 * 1024 * 1024;
const LARGEST: u64 = 64 * 1024 * 1024;
/// The maximum fraction of the store's possible space that the reserve uses, whatever size is configured: an eighth.
/// The log is limited to the size of the reserve, and a full store must get twice the size of the reserve free before
/// it accepts new data. So five eighths remain for objects.
const MOST_PART: u64 = 8;
/// The minimum size of a reserve if the disk has less space than that, in bytes.
const LEAST: u64 = 1024 * 1024;

/// The reserve of one data directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    /// The configured size, which it gets if the disk has the space.
    wanted: u64,
    bytes: u64,
    held: bool,
    /// True after this process or an earlier one released it, until it is allocated again.
    spent: bool,
}

impl Reserve {
    /// Finds the reserve of a directory. A file that is large enough is an allocated reserve, and an empty file is a
    /// released one. `bytes` is the configured size; `None` is a fraction of the disk.
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

    /// Computes its size from the possible space of the store: the free space and the size of the store's own files.
    fn fit(&mut self) {
        let Ok(room) = self.room() else { return };
        let length = |name: &str| std::fs::metadata(self.directory.join(name)).map_or(0, |found| found.len());
        let own = length(DATABASE_FILE) + length(&format!("{DATABASE_FILE}{LOG}")) + length(RESERVE_FILE);
        self.bytes = self.wanted.min(((room.free + own) / MOST_PART).max(LEAST));
    }

    /// The size of the allocated reserve, in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn is_held(&self) -> bool {
        self.held
    }

    /// Returns true from its release until it is allocated again. Meanwhile its space is for deletions.
    pub(crate) const fn is_spent(&self) -> bool {
        self.spent
    }

    /// The space of the disk, without the reserve.
    pub(crate) fn room(&self) -> io::Result<DiskSpace> {
        self.disk.room(&self.directory)
    }

    /// Allocates the reserve if the disk has twice its size free. An existing file gets the right size, and blocks if
    /// it has none, for example after a copy of the directory.
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
            // The disk may still have space.
            Err(error) => warn_repeated!(""; %error, "allocating the reserve on the disk failed"),
        }
    }

    /// Allocates the reserve if it is released. If a smaller one is allocated, and the disk now has space for the whole
    /// size, enlarges it.
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

    /// Releases the space to the disk. The empty file stays, so that a later allocation needs no new directory entry.
    pub(crate) fn give_up(&mut self) {
        (self.held, self.spent) = (false, self.bytes > 0);
        let path = self.directory.join(RESERVE_FILE);
        let emptied = File::options().write(true).open(&path).and_then(|file| file.set_len(0));
        match emptied {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, reserve = %path.display(), "freeing the reserve on the disk failed");
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

    /// A disk that always reports the same space.
    #[derive(Debug)]
    struct Sized(DiskSpace);

    impl Disk for Sized {
        fn room(&self, _: &Path) -> io::Result<DiskSpace> {
            Ok(self.0)
        }

        fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
            SystemDisk.allocate(file, bytes)
        }
    }

    /// A disk with free space that can't allocate blocks.
    #[derive(Debug)]
    struct FullDisk(ErrorKind);

    impl Disk for FullDisk {
        fn room(&self, _: &Path) -> io::Result<DiskSpace> {
            Ok(DiskSpace { total: 80 << 20, free: 80 << 20 })
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
            let mut reserve = Reserve::find(directory.path(), Arc::new(FullDisk(kind)), None);
            reserve.take();
            assert_eq!((reserve.is_held(), reserve.is_spent()), (false, is_spent), "{kind}");
        }
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join(RESERVE_FILE), "").unwrap();
        let mut spent = Reserve::find(directory.path(), Arc::new(FullDisk(ErrorKind::Unsupported)), None);
        spent.take();
        assert!(spent.is_spent(), "one that was given up stays so");
    }

    #[test]
    fn a_reserve_of_another_size_gets_the_one_that_is_requested() {
        let directory = TempDir::new().unwrap();
        let length = || std::fs::metadata(directory.path().join(RESERVE_FILE)).unwrap().len();
        for (bytes, is_held) in [(6 << 20, false), (8 << 20, false), (4 << 20, true)] {
            let disk = Arc::new(Sized(DiskSpace { total: 80 << 20, free: 80 << 20 }));
            let mut found = Reserve::find(directory.path(), disk, Some(bytes));
            assert_eq!((found.is_held(), found.is_spent()), (is_held, false), "{bytes}");
            found.take();
            assert!(found.is_held() && length() == bytes, "{bytes}");
        }
    }

    fn reserve(directory: &TempDir, total: u64, free: u64) -> Reserve {
        Reserve::find(directory.path(), Arc::new(Sized(DiskSpace { total, free })), None)
    }

    #[test]
    fn the_reserve_is_a_part_of_the_disk_within_bounds() {
        let directory = TempDir::new().unwrap();
        for (total, bytes) in [(32 << 20, SMALLEST), (80 << 20, 5 << 20), (1 << 40, LARGEST)] {
            assert_eq!(reserve(&directory, total, total).bytes(), bytes);
        }
    }

    #[test]
    fn a_reserve_leaves_room_for_objects_whatever_is_requested() {
        let directory = TempDir::new().unwrap();
        let find = |wanted: u64, free: u64| {
            let disk = Arc::new(Sized(DiskSpace { total: 80 << 20, free }));
            Reserve::find(directory.path(), disk, Some(wanted))
        };
        assert_eq!(find(70 << 20, 80 << 20).bytes(), 10 << 20);
        assert_eq!(find(0, 80 << 20).bytes(), 0);
        // Other files have filled the disk since the release: the reserve is allocated in a smaller size, and in its
        // whole size after they are removed.
        let mut spent = find(8 << 20, 80 << 20);
        spent.take();
        spent.give_up();
        spent.disk = Arc::new(Sized(DiskSpace { total: 80 << 20, free: 16 << 20 }));
        spent.keep();
        assert_eq!((spent.is_held(), spent.is_spent(), spent.bytes()), (true, false, 2 << 20));
        spent.keep();
        assert_eq!(spent.bytes(), 2 << 20);
        spent.disk = Arc::new(Sized(DiskSpace { total: 80 << 20, free: 70 << 20 }));
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
