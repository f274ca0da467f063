//! The free space of a store's disk, and preallocated blocks of a file.
//!
//! [`Disk`] is a trait, so that tests can use a small disk.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// The bytes of one write to a file whose file system can't preallocate.
const FILL_BYTES: usize = 1 << 16;

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Its size.
    pub total: u64,
    /// The part that this process may still use.
    pub free: u64,
}

/// A disk.
pub trait Disk: Debug + Send + Sync {
    /// The space of the file system with a directory.
    ///
    /// # Errors
    /// The file system does not report it.
    fn room(&self, directory: &Path) -> io::Result<DiskSpace>;

    /// Allocates real blocks for the first `bytes` of a file and sets that length. Existing blocks stay.
    ///
    /// # Errors
    /// There is no space for them; some may have been allocated.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()>;
}

/// The disks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn room(&self, directory: &Path) -> io::Result<DiskSpace> {
        let found = statvfs(directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(DiskSpace { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }

    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => {
                fill(file, bytes)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes bytes that no file system compresses or skips.
fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    use io::{Seek as _, Write as _};
    file.rewind()?;
    let mut noise: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut left = bytes;
    let mut chunk = vec![0; FILL_BYTES];
    while left > 0 {
        for word in chunk.chunks_exact_mut(size_of::<u64>()) {
            // Xorshift, so that no two chunks are equal.
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            word.copy_from_slice(&noise.to_le_bytes());
        }
        let part = usize::try_from(left).unwrap_or(FILL_BYTES).min(FILL_BYTES);
        file.write_all(&chunk[..part])?;
        left -= part as u64;
    }
    file.set_len(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn allocated_bytes_are_real_blocks() {
        let file = tempfile::tempfile().unwrap();
        for allocate in [|file: &File| SystemDisk.allocate(file, 300_000), |file: &File| fill(file, 300_000)] {
            file.set_len(0).unwrap();
            allocate(&file).unwrap();
            file.sync_all().unwrap();
            let found = file.metadata().unwrap();
            assert_eq!(found.len(), 300_000);
            assert!(found.blocks() * 512 >= 300_000, "{} blocks", found.blocks());
        }
        let room = SystemDisk.room(Path::new("/")).unwrap();
        assert!(room.free <= room.total && room.total > 0);
    }
}
