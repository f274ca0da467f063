//! The audit log: a file that is rotated at a size, as by upstream's library, or standard output.
//!
//! A pipe or device is never rotated. Rotated files are compressed and, if they are too many or too old, deleted, on a
//! separate thread. A failed write loses its events, which are counted. The next write opens the file again and begins
//! a new line. Neither a full disk nor a slow or absent reader of standard output ends the server.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use futures::future::BoxFuture;
use keelson_access::audit::{AuditEvent, Sink};
use keelson_codec::{DeflateBlock, MemberWriter};
use keelson_meta::clock::rfc3339_micro;
use keelson_supervision::warn_repeated;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::config::{AuditLogConfig, AuditLogFormat};

/// The size of a file if the settings have none, as upstream.
const DEFAULT_MEGABYTES: u64 = 100;
const MEGABYTE: u64 = 1024 * 1024;
/// The number of bytes compressed in one step, and the gzip level.
const PIECE_BYTES: usize = 1 << 20;
const COMPRESSION: u32 = 6;
/// The longest wait for a reader of standard output if the stream is non-blocking.
const READER_TIME: Duration = Duration::from_secs(5);
/// The interval of attempts during this wait.
const TRY_EVERY: Duration = Duration::from_millis(5);

/// A log of audit events.
pub(super) struct AuditLog {
    format: AuditLogFormat,
    writer: Arc<Mutex<Writer>>,
}

enum Writer {
    Stdout(Stream<File>),
    File(RotatedFile),
}

impl AuditLog {
    /// Opens the log. Creates missing directories.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn open(path: &Path, config: &AuditLogConfig) -> io::Result<Self> {
        let writer = if config.is_standard_output() {
            // Not the process's buffered writer: bytes left in its buffer by a failed write would appear in a later
            // line.
            Writer::Stdout(Stream::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
        } else {
            let mut file = RotatedFile::new(path, config);
            file.open()?;
            Writer::File(file)
        };
        Ok(Self { format: config.format, writer: Arc::new(Mutex::new(writer)) })
    }
}

impl Sink for AuditLog {
    fn name(&self) -> &'static str {
        "log"
    }

    fn frame(&self) -> [&'static [u8]; 3] {
        [b"", b"\n", b"\n"]
    }

    fn write(&self, event: &AuditEvent<'_>, out: &mut Vec<u8>) {
        match self.format {
            AuditLogFormat::Json => event.write_json(true, out),
            AuditLogFormat::Legacy => event.write_legacy(out),
        }
    }

    fn send(&self, batch: Vec<u8>) -> BoxFuture<'_, Result<(), String>> {
        let writer = self.writer.clone();
        Box::pin(async move {
            let written = keelson_supervision::spawn_blocking(move || match &mut *writer.lock() {
                Writer::Stdout(stream) => stream.write(&batch).map_err(|error| format!("standard output: {error}")),
                Writer::File(file) => {
                    let written = file.write(&batch, SystemTime::now());
                    written.map_err(|error| format!("{}: {error}", file.path.display()))
                }
            });
            match written.await {
                Ok(written) => written,
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

/// A stream whose reader may be slow.
struct Stream<W> {
    out: W,
    /// True if the last write ended within a line.
    is_torn: bool,
}

impl<W: Write> Stream<W> {
    const fn new(out: W) -> Self {
        Self { out, is_torn: false }
    }

    fn write(&mut self, batch: &[u8]) -> io::Result<()> {
        write_lines(&mut self.out, batch, &mut self.is_torn)
    }
}

/// Writes lines. If the last write ended within a line, ends that line first. Waits for a slow reader, even if the
/// stream is non-blocking (`O_NONBLOCK`).
fn write_lines(out: &mut impl Write, batch: &[u8], is_torn: &mut bool) -> io::Result<()> {
    let end: &[u8] = if *is_torn { b"\n" } else { b"" };
    for mut left in [end, batch] {
        let mut deadline = None;
        while !left.is_empty() {
            match out.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    *is_torn = left[written - 1] != b'\n';
                    left = &left[written..];
                    deadline = None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() >= *deadline.get_or_insert_with(|| Instant::now() + READER_TIME) {
                        return Err(error);
                    }
                    thread::sleep(TRY_EVERY);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// A file that is rotated at a size.
struct RotatedFile {
    path: PathBuf,
    most_bytes: u64,
    keeping: FileMaintenance,
    file: Option<File>,
    /// True for a regular file, which can be renamed.
    is_regular: bool,
    bytes: u64,
    /// True if the last write may have ended within a line.
    is_torn: bool,
}

/// The maintenance of rotated files.
#[derive(Clone)]
struct FileMaintenance {
    path: PathBuf,
    most_age: Option<Duration>,
    most_files: Option<usize>,
    compress: bool,
    /// True while a thread maintains the files. The second flag is true if there is more to do since the thread began.
    is_busy: Arc<AtomicBool>,
    is_wanted: Arc<AtomicBool>,
}

impl RotatedFile {
    fn new(path: &Path, config: &AuditLogConfig) -> Self {
        let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
        let keeping = FileMaintenance {
            path: path.to_owned(),
            most_age: positive(config.max_age_days).map(|days| Duration::from_secs(days.saturating_mul(24 * 60 * 60))),
            most_files: positive(config.max_backups).and_then(|files| usize::try_from(files).ok()),
            compress: config.compress,
            is_busy: Arc::default(),
            is_wanted: Arc::default(),
        };
        let most_bytes = positive(config.max_megabytes).unwrap_or(DEFAULT_MEGABYTES).saturating_mul(MEGABYTE);
        Self { path: path.to_owned(), most_bytes, keeping, file: None, is_regular: false, bytes: 0, is_torn: false }
    }

    fn open(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            if let Some(directory) = self.path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            }
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600);
            // Opening a pipe would wait for a reader, which may never open it.
            if fs::metadata(&self.path).is_ok_and(|found| found.file_type().is_fifo()) {
                options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
            }
            let file = options.open(&self.path).map_err(|error| match error.raw_os_error() {
                Some(code) if code == Errno::NXIO.raw_os_error() => io::Error::other("no process reads the pipe"),
                _ => error,
            })?;
            let metadata = file.metadata()?;
            self.bytes = metadata.len();
            self.is_regular = metadata.is_file();
            // The server that wrote the file may have stopped within a line, because of a full disk.
            self.is_torn |= self.bytes > 0 && !ends_with_a_line(&self.path, self.bytes).unwrap_or(true);
            self.file = Some(file);
        }
        Ok(())
    }

    fn write(&mut self, batch: &[u8], now: SystemTime) -> io::Result<()> {
        self.open()?;
        if self.is_regular && self.bytes > 0 && self.bytes + batch.len() as u64 > self.most_bytes {
            self.put_aside(now)?;
        }
        self.open()?;
        let Some(file) = &mut self.file else { return Err(io::Error::other("the file was just opened")) };
        let before = u64::from(self.is_torn);
        match write_lines(file, batch, &mut self.is_torn) {
            Ok(()) => {
                self.bytes += batch.len() as u64 + before;
                Ok(())
            }
            Err(error) => {
                self.file = None;
                Err(error)
            }
        }
    }

    /// Renames the file after the current time, and opens a new one.
    fn put_aside(&mut self, now: SystemTime) -> io::Result<()> {
        self.file = None;
        let mut time = now;
        // Two rotations within a millisecond need different names.
        let aside = loop {
            let aside = self.keeping.aside(time);
            if !aside.try_exists()? && !with_gz(&aside).try_exists()? {
                break aside;
            }
            time += Duration::from_millis(1);
        };
        fs::rename(&self.path, aside)?;
        self.is_torn = false;
        self.open()?;
        self.keeping.see_to_it(now);
        Ok(())
    }
}

/// Reads through a separate handle: a process that has a pipe open for reading never learns that there is no other
/// reader.
fn ends_with_a_line(path: &Path, bytes: u64) -> io::Result<bool> {
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, bytes - 1)?;
    Ok(last == *b"\n")
}

impl FileMaintenance {
    /// The name of a rotated file: `audit-2026-01-02T03-04-05.678.log`.
    fn aside(&self, now: SystemTime) -> PathBuf {
        let (stem, extension) = self.names();
        let mut time = rfc3339_micro(now).replace(':', "-");
        // Milliseconds, without a time zone.
        time.truncate("2026-01-02T03-04-05.678".len());
        self.path.with_file_name(format!("{stem}-{time}{extension}"))
    }

    fn names(&self) -> (String, String) {
        let text = |text: Option<&OsStr>| text.map(|text| text.to_string_lossy().into_owned());
        let extension = text(self.path.extension()).map_or_else(String::new, |extension| format!(".{extension}"));
        (text(self.path.file_stem()).unwrap_or_default(), extension)
    }

    /// Compresses and deletes rotated files on a separate thread, of which only one runs.
    fn see_to_it(&self, now: SystemTime) {
        if !self.compress && self.most_age.is_none() && self.most_files.is_none() {
            return;
        }
        // ORDER: the flag is set before the check for a running thread. A thread checks the flag after it has ended its
        // run.
        self.is_wanted.store(true, Ordering::SeqCst);
        if self.is_busy.swap(true, Ordering::SeqCst) {
            return;
        }
        let keeping = self.clone();
        keelson_supervision::spawn_blocking(move || {
            loop {
                while keeping.is_wanted.swap(false, Ordering::SeqCst) {
                    if let Err(error) = keeping.tidy(now) {
                        warn_repeated!(""; %error, path = %keeping.path.display(), "older audit logs can't be tidied up");
                    }
                }
                keeping.is_busy.store(false, Ordering::SeqCst);
                if !keeping.is_wanted.load(Ordering::SeqCst) || keeping.is_busy.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        });
    }

    fn tidy(&self, now: SystemTime) -> io::Result<()> {
        let mut aside = self.files()?;
        // Sorted by the time in the name, newest first.
        aside.sort_unstable_by(|a, b| b.cmp(a));
        let oldest = self.most_age.and_then(|age| now.checked_sub(age)).map(|oldest| self.aside(oldest));
        let oldest = oldest.as_deref().and_then(Path::file_name);
        for (place, file) in aside.iter().enumerate() {
            let is_one_too_many = self.most_files.is_some_and(|most| place >= most);
            if is_one_too_many || oldest.is_some_and(|oldest| file.file_name() < Some(oldest)) {
                fs::remove_file(file)?;
            } else if self.compress && file.extension() != Some(OsStr::new("gz")) {
                compress(file)?;
            }
        }
        Ok(())
    }

    /// The rotated files.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let (stem, extension) = self.names();
        let directory = self.path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let mut files = Vec::new();
        for entry in fs::read_dir(directory.unwrap_or(Path::new(".")))? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let time = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('-'));
            let time = time.map(|rest| rest.strip_suffix(".gz").unwrap_or(rest));
            let time = time.and_then(|rest| rest.strip_suffix(extension.as_str()));
            // A file with another name format belongs to another program.
            if time.is_some_and(|time| time.len() == "2026-01-02T03-04-05.678".len() && time.as_bytes()[10] == b'T') {
                files.push(path);
            }
        }
        Ok(files)
    }
}

/// The name of the compressed form of a file.
fn with_gz(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    PathBuf::from(name)
}

/// Replaces a file by its compressed form.
fn compress(path: &Path) -> io::Result<()> {
    let target = with_gz(path);
    let mut unfinished = target.clone().into_os_string();
    unfinished.push(".tmp");
    let unfinished = PathBuf::from(unfinished);
    let mut from = File::open(path)?;
    let mut to = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    let mut member = MemberWriter::new();
    to.write_all(&MemberWriter::header())?;
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    loop {
        piece.clear();
        (&mut from).take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
        if piece.is_empty() {
            break;
        }
        let block = DeflateBlock::compress(&piece, COMPRESSION);
        member.push(&block);
        to.write_all(&block.bytes)?;
    }
    to.write_all(&member.finish())?;
    to.sync_all()?;
    fs::rename(&unfinished, &target)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use keelson_meta::clock::parse_rfc3339;
    use tempfile::TempDir;

    use super::*;

    fn config(path: &Path, change: impl FnOnce(&mut AuditLogConfig)) -> AuditLogConfig {
        let mut config = AuditLogConfig { path: Some(path.to_owned()), ..AuditLogConfig::default() };
        change(&mut config);
        config
    }

    fn time(second: u32) -> SystemTime {
        parse_rfc3339(&format!("2026-01-02T03:04:{second:02}Z")).unwrap()
    }

    fn names(directory: &TempDir) -> Vec<String> {
        let entries = fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_has_grown_is_put_aside_under_the_time() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit.log");
        let mut log = RotatedFile::new(&path, &config(&path, |_| {}));
        log.most_bytes = 10;
        for (second, line) in [(1, "one\n"), (2, "two\n"), (3, "three\n"), (4, "a line that is too long\n")] {
            log.write(line.as_bytes(), time(second)).unwrap();
        }
        let aside = ["audit-2026-01-02T03-04-03.000.log", "audit-2026-01-02T03-04-04.000.log"];
        assert_eq!(names(&directory), [aside[0], aside[1], "audit.log"]);
        let text = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!((text(aside[0]), text(aside[1])), ("one\ntwo\n".to_owned(), "three\n".to_owned()));
        assert_eq!(text("audit.log"), "a line that is too long\n");
        let mut again = RotatedFile::new(&path, &config(&path, |_| {}));
        again.write(b"more\n", time(5)).unwrap();
        assert_eq!(text("audit.log"), "a line that is too long\nmore\n");
    }

    #[test]
    fn files_of_one_millisecond_have_a_name_each() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit.log");
        let mut log = RotatedFile::new(&path, &config(&path, |_| {}));
        log.most_bytes = 10;
        for line in ["line one\n", "line two\n", "line three\n", "line four\n"] {
            log.write(line.as_bytes(), time(1)).unwrap();
        }
        let aside = ["000", "001", "002"].map(|millis| format!("audit-2026-01-02T03-04-01.{millis}.log"));
        assert_eq!(names(&directory), [&aside[0], &aside[1], &aside[2], "audit.log"]);
    }

    #[test]
    fn an_unread_pipe_is_reported_and_does_not_block() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit.log");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let mut log = RotatedFile::new(&path, &config(&path, |_| {}));
        assert_eq!(log.write(b"lost\n", time(1)).unwrap_err().to_string(), "no process reads the pipe");
        let mut reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        log.write(b"one\n", time(2)).unwrap();
        let mut line = [0; 4];
        reader.read_exact(&mut line).unwrap();
        assert_eq!(line, *b"one\n");
    }

    /// Renaming a device would remove it from the whole system.
    #[test]
    fn only_regular_files_are_rotated() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit.log");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let mut log = RotatedFile::new(&path, &config(&path, |_| {}));
        log.most_bytes = 10;
        for second in 1..4 {
            log.write(b"a line that is too long\n", time(second)).unwrap();
        }
        assert_eq!(names(&directory), ["audit.log"]);
    }

    #[test]
    fn older_files_are_compressed_and_those_too_many_or_too_old_deleted() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit.log");
        let others = ["audit-notes.log", "other-2026-01-02T03-04-01.000.log"];
        let mine = [1, 2, 3, 4].map(|second| format!("audit-2026-01-02T03-04-0{second}.000.log"));
        for name in others.iter().copied().chain(mine.iter().map(String::as_str)) {
            fs::write(directory.path().join(name), "line\n".repeat(300_000)).unwrap();
        }
        let keeping = RotatedFile::new(
            &path,
            &config(&path, |config| {
                config.max_backups = 3;
                config.compress = true;
            }),
        )
        .keeping;
        keeping.tidy(time(5)).unwrap();
        let compressed = mine[1..].iter().map(|name| format!("{name}.gz"));
        let mut expect: Vec<String> = others.iter().map(|name| (*name).to_owned()).chain(compressed).collect();
        expect.sort();
        assert_eq!(names(&directory), expect);
        let mut text = String::new();
        let file = File::open(directory.path().join(format!("{}.gz", mine[1]))).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "line\n".repeat(300_000));

        let keeping = RotatedFile::new(&path, &config(&path, |config| config.max_age_days = 1)).keeping;
        keeping.tidy(time(4) + Duration::from_secs(24 * 60 * 60)).unwrap();
        assert_eq!(names(&directory), [&format!("{}.gz", mine[3]), others[0], others[1]]);
    }

    #[test]
    fn a_failed_write_is_reported_and_the_next_starts_a_line() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit.log");
        let mut log = RotatedFile::new(&path, &config(&path, |_| {}));
        log.write(b"one\n", time(1)).unwrap();
        // A full disk leaves a part of a line.
        log.file = Some(File::open(&path).unwrap());
        assert!(log.write(b"lost\n", time(2)).is_err());
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"lo").unwrap();
        log.write(b"two\n", time(3)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\nlo\ntwo\n");
    }

    /// Accepts the given number of bytes at each write. `Err` entries fail or are not ready.
    struct Reader {
        taken: Vec<u8>,
        takes: Vec<Result<usize, io::ErrorKind>>,
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let take = self.takes.pop().unwrap_or(Ok(bytes.len()))?.min(bytes.len());
            self.taken.extend_from_slice(&bytes[..take]);
            Ok(take)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn streams_wait_for_readers_and_terminate_torn_lines() {
        use io::ErrorKind::{BrokenPipe, Interrupted, WouldBlock};
        // In reverse order: the first batch is written although the stream is not ready at times, the second up to
        // `tw`.
        let takes = vec![Err(BrokenPipe), Ok(2), Ok(3), Err(WouldBlock), Ok(1), Err(Interrupted), Err(WouldBlock)];
        let mut stream = Stream::new(Reader { taken: Vec::new(), takes });
        stream.write(b"one\n").unwrap();
        assert_eq!(stream.write(b"two\n").unwrap_err().kind(), BrokenPipe);
        stream.write(b"three\n").unwrap();
        stream.write(b"four\n").unwrap();
        assert_eq!(String::from_utf8(stream.out.taken).unwrap(), "one\ntw\nthree\nfour\n");
    }

    #[test]
    fn a_line_that_an_earlier_process_left_unfinished_is_ended_first() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("audit.log");
        for (before, expected) in [("", "one\n"), ("whole\n", "whole\none\n"), ("torn", "torn\none\n")] {
            fs::write(&path, before).unwrap();
            RotatedFile::new(&path, &config(&path, |_| {})).write(b"one\n", time(1)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        }
    }
}
