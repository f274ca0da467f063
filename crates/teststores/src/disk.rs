//! A disk with injected faults under the SQLite of this process: power loss, no space, failures.
//!
//! The layer replaces SQLite's default VFS and wraps the original one. It affects files below registered directories
//! only. For each file it keeps the content after a power loss: synced writes, and a random part of the others. Files
//! themselves are created and deleted at once, as on a file system with an ordered journal.

#![allow(unsafe_code, reason = "a VFS is made of C functions")]

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use keelson_storage::{Disk, DiskSpace, SystemDisk};
use rusqlite::ffi;

/// The files below one directory.
#[derive(Clone, Debug)]
pub struct FragileDisk {
    directory: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<PathBuf, FileState>,
    fault: DiskFault,
    /// The number of writes that passed.
    writes: u64,
}

/// The fault of a [`FragileDisk`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskFault {
    /// Nothing.
    #[default]
    None,
    /// No space is left.
    Full,
    /// The disk has this many bytes, which files below the directory use up; `Disk::room` reports the rest.
    Room(u64),
    /// Syncing fails.
    SyncFails,
    /// Sync calls succeed without effect, as in a program that never syncs.
    SyncsNothing,
}

#[derive(Debug, Default)]
struct FileState {
    /// The content after a power loss.
    durable: Vec<u8>,
    /// The operations since the last sync.
    pending: Vec<Operation>,
}

#[derive(Clone, Debug)]
enum Operation {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl Operation {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write(at, bytes) => {
                to.resize(to.len().max(at + bytes.len()), 0);
                to[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Self::Truncate(length) => to.resize(*length, 0),
        }
    }
}

/// All registered directories, while their disk exists.
static WATCHED: Mutex<Vec<(PathBuf, Weak<Mutex<State>>)>> = Mutex::new(Vec::new());
/// The wrapped VFS.
static ORIGINAL: AtomicPtr<ffi::sqlite3_vfs> = AtomicPtr::new(std::ptr::null_mut());
static REGISTERED: Once = Once::new();

impl FragileDisk {
    /// Registers a directory. Affects files that SQLite opens from now on.
    pub fn below(directory: &Path) -> Self {
        REGISTERED.call_once(register);
        let disk = Self { directory: directory.to_owned(), state: Arc::default() };
        let mut watched = lock(&WATCHED);
        watched.retain(|(_, state)| state.strong_count() > 0);
        watched.push((disk.directory.clone(), Arc::downgrade(&disk.state)));
        disk
    }

    /// Sets the fault.
    pub fn set(&self, fault: DiskFault) {
        lock(&self.state).fault = fault;
    }

    /// The number of writes so far.
    pub fn writes(&self) -> u64 {
        lock(&self.state).writes
    }

    /// Writes the content after a power loss at this moment to another directory. `lucky` decides for each unsynced
    /// operation if it reached the disk.
    ///
    /// # Panics
    /// The directory can't be written.
    pub fn power_off(&self, to: &Path, mut lucky: impl FnMut() -> bool) {
        let state = lock(&self.state);
        for (path, file) in &state.files {
            let mut left = file.durable.clone();
            file.pending.iter().filter(|_| lucky()).for_each(|operation| operation.apply(&mut left));
            let name = path.file_name().expect("a file has a name");
            std::fs::write(to.join(name), left).expect("the directory is writable");
        }
    }
}

impl Disk for FragileDisk {
    fn room(&self, directory: &Path) -> std::io::Result<DiskSpace> {
        let fault = lock(&self.state).fault;
        match fault {
            DiskFault::Room(total) => Ok(DiskSpace { total, free: total.saturating_sub(used(directory)) }),
            DiskFault::Full => Ok(DiskSpace { free: 0, ..SystemDisk.room(directory)? }),
            DiskFault::None | DiskFault::SyncFails | DiskFault::SyncsNothing => SystemDisk.room(directory),
        }
    }

    fn allocate(&self, file: &std::fs::File, bytes: u64) -> std::io::Result<()> {
        let more = bytes.saturating_sub(file.metadata()?.len());
        if self.room(&self.directory)?.free < more {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        SystemDisk.allocate(file, bytes)
    }
}

/// The size of a directory's files in bytes.
fn used(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).filter(std::fs::Metadata::is_file).map(|found| found.len()).sum()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file as SQLite sees it. The original VFS's file follows it in memory.
#[repr(C)]
struct OpenFile {
    base: ffi::sqlite3_file,
    /// Null for an unregistered file. Owned.
    watched: *mut WatchedFile,
}

struct WatchedFile {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl WatchedFile {
    /// The used bytes of the disk once the file has grown to this length.
    fn end_of(&self, length: u64) -> u64 {
        let now = std::fs::metadata(&self.path).map_or(0, |found| found.len());
        used(self.path.parent().unwrap_or(&self.path)) + length.saturating_sub(now)
    }

    /// Runs an operation after which the file has at least this length, or returns its error code.
    fn change(&self, grows: u64, operation: impl FnOnce() -> Operation, done: impl FnOnce() -> c_int) -> c_int {
        let mut state = lock(&self.state);
        match state.fault {
            DiskFault::Full => return ffi::SQLITE_FULL,
            DiskFault::Room(total) if self.end_of(grows) > total => return ffi::SQLITE_FULL,
            DiskFault::Room(_) | DiskFault::None | DiskFault::SyncFails | DiskFault::SyncsNothing => {}
        }
        let code = done();
        if code == ffi::SQLITE_OK {
            state.writes += 1;
            state.files.entry(self.path.clone()).or_default().pending.push(operation());
        }
        code
    }

    fn sync(&self, done: impl FnOnce() -> c_int) -> c_int {
        let mut state = lock(&self.state);
        match state.fault {
            DiskFault::SyncFails => return ffi::SQLITE_IOERR_FSYNC,
            DiskFault::SyncsNothing => return ffi::SQLITE_OK,
            DiskFault::None | DiskFault::Full | DiskFault::Room(_) => {}
        }
        let code = done();
        if code == ffi::SQLITE_OK {
            let file = state.files.entry(self.path.clone()).or_default();
            let pending = std::mem::take(&mut file.pending);
            pending.iter().for_each(|operation| operation.apply(&mut file.durable));
        }
        code
    }
}

fn register() {
    // SAFETY: the default VFS lives as long as the process, and so does its leaked copy.
    unsafe {
        ffi::sqlite3_initialize();
        let original = ffi::sqlite3_vfs_find(std::ptr::null());
        ORIGINAL.store(original, Ordering::SeqCst);
        let mut ours = *original;
        ours.pNext = std::ptr::null_mut();
        ours.zName = c"fragile".as_ptr();
        ours.szOsFile += c_int::try_from(size_of::<OpenFile>()).expect("it is small");
        ours.xOpen = Some(open);
        ours.xDelete = Some(delete);
        ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 1);
    }
}

/// The state of the registered directory above a path.
fn watching(name: *const c_char) -> Option<WatchedFile> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite ends names with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    let watched = lock(&WATCHED);
    let (_, state) = watched.iter().find(|(directory, _)| path.starts_with(directory))?;
    Some(WatchedFile { state: state.upgrade()?, path })
}

/// The original VFS's part of a file.
fn inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: SQLite allocates the size that the VFS requested for every file, which covers both parts.
    unsafe { file.cast::<OpenFile>().add(1).cast() }
}

fn watched<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a WatchedFile> {
    // SAFETY: `open` sets it before SQLite calls any method, and only `close` frees it.
    unsafe { (*file.cast::<OpenFile>()).watched.as_ref() }
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let original = ORIGINAL.load(Ordering::SeqCst);
    let watched = watching(name);
    if let Some(watched) = &watched {
        let there = std::fs::read(&watched.path).unwrap_or_default();
        let fresh = || FileState { durable: there, pending: Vec::new() };
        lock(&watched.state).files.entry(watched.path.clone()).or_insert_with(fresh);
    }
    // SAFETY: the same call as SQLite's, with the original VFS's part of the file.
    unsafe {
        (*file).pMethods = std::ptr::null();
        let Some(open) = (*original).xOpen else { return ffi::SQLITE_CANTOPEN };
        let code = open(original, name, inner(file), flags, out);
        if code == ffi::SQLITE_OK {
            let watched = watched.map_or(std::ptr::null_mut(), |watched| Box::into_raw(Box::new(watched)));
            (*file.cast::<OpenFile>()).watched = watched;
            (*file).pMethods = &raw const METHODS;
        }
        code
    }
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    if let Some(watched) = watching(name) {
        lock(&watched.state).files.remove(&watched.path);
    }
    let original = ORIGINAL.load(Ordering::SeqCst);
    // SAFETY: the same call as SQLite's.
    unsafe { (*original).xDelete.map_or(ffi::SQLITE_IOERR_DELETE, |delete| delete(original, name, sync)) }
}

/// Defines a method that forwards the call to the original VFS.
macro_rules! passed_on {
    ($method:ident, $x:ident $(, $argument:ident: $type:ty)*) => {
        unsafe extern "C" fn $method(file: *mut ffi::sqlite3_file $(, $argument: $type)*) -> c_int {
            let inner = inner(file);
            // SAFETY: the original VFS has opened its part.
            unsafe { (*(*inner).pMethods).$x.map_or(ffi::SQLITE_IOERR, |method| method(inner $(, $argument)*)) }
        }
    };
}

passed_on!(read, xRead, to: *mut c_void, amount: c_int, at: ffi::sqlite3_int64);
passed_on!(inner_write, xWrite, from: *const c_void, amount: c_int, at: ffi::sqlite3_int64);
passed_on!(inner_truncate, xTruncate, size: ffi::sqlite3_int64);
passed_on!(inner_sync, xSync, flags: c_int);
passed_on!(inner_close, xClose);
passed_on!(file_size, xFileSize, size: *mut ffi::sqlite3_int64);
passed_on!(take_lock, xLock, level: c_int);
passed_on!(unlock, xUnlock, level: c_int);
passed_on!(check_reserved_lock, xCheckReservedLock, out: *mut c_int);
passed_on!(file_control, xFileControl, operation: c_int, argument: *mut c_void);
passed_on!(sector_size, xSectorSize);
passed_on!(device_characteristics, xDeviceCharacteristics);
passed_on!(shm_map, xShmMap, page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void);
passed_on!(shm_lock, xShmLock, offset: c_int, count: c_int, flags: c_int);
passed_on!(shm_unmap, xShmUnmap, delete: c_int);

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    let inner = inner(file);
    // SAFETY: the original VFS has opened its part.
    unsafe {
        if let Some(barrier) = (*(*inner).pMethods).xShmBarrier {
            barrier(inner);
        }
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    amount: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the arguments are SQLite's own.
    let done = || unsafe { inner_write(file, from, amount, at) };
    let Some(watched) = watched(file) else { return done() };
    let operation = || {
        let amount = usize::try_from(amount).unwrap_or_default();
        // SAFETY: SQLite passes a buffer of this length.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), amount) };
        Operation::Write(usize::try_from(at).unwrap_or_default(), bytes.to_vec())
    };
    let end = u64::try_from(at).unwrap_or_default() + u64::try_from(amount).unwrap_or_default();
    watched.change(end, operation, done)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: the arguments are SQLite's own.
    let done = || unsafe { inner_truncate(file, size) };
    let Some(watched) = watched(file) else { return done() };
    watched.change(0, || Operation::Truncate(usize::try_from(size).unwrap_or_default()), done)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's own.
    let done = || unsafe { inner_sync(file, flags) };
    watched(file).map_or_else(done, |watched| watched.sync(done))
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the file is no longer in use, and `open` allocated its part.
    unsafe {
        let code = inner_close(file);
        let watched = std::mem::replace(&mut (*file.cast::<OpenFile>()).watched, std::ptr::null_mut());
        if !watched.is_null() {
            drop(Box::from_raw(watched));
        }
        code
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(take_lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// The number of rows after a power loss.
    fn left(synchronous: &str) -> i64 {
        let (directory, after) = (TempDir::new().expect("a directory"), TempDir::new().expect("a directory"));
        let disk = FragileDisk::below(directory.path());
        let connection = rusqlite::Connection::open(directory.path().join("db")).expect("it opens");
        connection.pragma_update(None, "journal_mode", "WAL").expect("it has a log");
        connection.execute_batch("CREATE TABLE t (a); PRAGMA wal_checkpoint(TRUNCATE)").expect("it is written");
        connection.pragma_update(None, "synchronous", synchronous).expect("it is set");
        for number in 0..10 {
            connection.execute("INSERT INTO t VALUES (?1)", [number]).expect("it is written");
        }
        disk.power_off(after.path(), || false);
        let connection = rusqlite::Connection::open(after.path().join("db")).expect("it opens");
        connection.query_row("SELECT COUNT(*) FROM t", [], |row| row.get(0)).expect("it is whole")
    }

    #[test]
    fn only_synced_writes_survive() {
        assert_eq!(left("FULL"), 10);
        assert_eq!(left("OFF"), 0);
    }

    #[test]
    fn a_disk_without_room_or_health_fails() {
        let directory = TempDir::new().expect("a directory");
        let disk = FragileDisk::below(directory.path());
        let connection = rusqlite::Connection::open(directory.path().join("db")).expect("it opens");
        connection.execute_batch("CREATE TABLE t (a)").expect("it is written");
        for fault in [DiskFault::Full, DiskFault::SyncFails] {
            disk.set(fault);
            assert!(connection.execute_batch("INSERT INTO t VALUES (1)").is_err(), "{fault:?}");
            disk.set(DiskFault::None);
            connection.execute_batch("INSERT INTO t VALUES (1)").expect("it is mended");
        }
        assert!(disk.writes() > 0);
    }
}
