//! The room of the disk that a store lies on, and blocks of it that a file owns.
//!
//! Passed in, so that tests can have a small disk.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// The bytes that are written at once to a file whose file system allocates nothing ahead.
const FILL_BYTES: usize = 1 << 16;

/// The room of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// Its size.
    pub total: u64,
    /// The part that this process may still fill.
    pub free: u64,
}

/// A disk.
pub trait Disk: Debug + Send + Sync {
    /// The room of the file system that a directory is in.
    ///
    /// # Errors
    /// When it does not say.
    fn room(&self, directory: &Path) -> io::Result<DiskRoom>;

    /// Gives a file so many bytes of real blocks from its beginning on, and that length. Blocks that it has stay.
    ///
    /// # Errors
    /// When there is no room for them; some may have been given.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()>;
}

/// The disks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn room(&self, directory: &Path) -> io::Result<DiskRoom> {
        let found = statvfs(directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(DiskRoom { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
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

/// Writes bytes that no file system compresses or leaves out.
fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    use io::{Seek as _, Write as _};
    file.rewind()?;
    let mut noise: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut left = bytes;
    let mut chunk = vec![0; FILL_BYTES];
    while left > 0 {
        for word in chunk.chunks_exact_mut(size_of::<u64>()) {
            // Xorshift: no two chunks are alike.
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
