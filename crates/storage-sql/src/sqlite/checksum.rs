//! The SHA-256 checksum of a backup, in a file beside it that `sha256sum --check` reads too.
//!
//! Checksums of rows detect damage of the disk. This one also shows that the file is the one which the backup wrote.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::sqlite::error::OpenError;
use crate::sqlite::private::{self, beside};
use crate::sqlite::work::{self, OnProgress, WorkStage};

/// The end of the name of the file with the checksum.
const SUFFIX: &str = ".sha256";
/// The number of bytes that are read at a time.
const BLOCK: usize = 1 << 20;
/// The number of hexadecimal digits of a checksum.
const DIGITS: usize = 64;
/// The most bytes that are read of the file with the checksum.
const MOST_BYTES: u64 = 64 * 1024;

/// The size and the checksum of a file.
pub(crate) fn of_file(file: &Path, on_progress: &mut OnProgress<'_>) -> Result<(u64, String), OpenError> {
    let mut opened = File::open(file).map_err(OpenError::io(file))?;
    let size = opened.metadata().map_err(OpenError::io(file))?.len();
    let (mut sum, mut block, mut done) = (Sha256::new(), vec![0; BLOCK], 0);
    loop {
        let read = opened.read(&mut block).map_err(OpenError::io(file))?;
        if read == 0 {
            break;
        }
        sum.update(&block[..read]);
        done += read as u64;
        work::report(on_progress, WorkStage::Summing, done, size.max(done)).map_err(OpenError::sqlite(file))?;
    }
    let mut text = String::with_capacity(DIGITS);
    for byte in sum.finalize() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok((done, text))
}

/// Writes the checksum of a backup beside it, and makes it durable.
pub(crate) fn write_beside(backup: &Path, sha256: &str) -> Result<(), OpenError> {
    let file = beside(backup, SUFFIX);
    let name = backup.file_name().unwrap_or_default().to_string_lossy();
    let write = || {
        let mut opened = private::open_file(&file)?;
        opened.set_len(0)?;
        opened.write_all(format!("{sha256}  {name}\n").as_bytes())?;
        opened.sync_all()
    };
    write().map_err(OpenError::io(&file))
}

/// Removes the checksum of a backup that was not written.
pub(crate) fn remove_beside(backup: &Path) {
    // The error of the backup is returned. A checksum without a file is of no use.
    let _ = fs::remove_file(beside(backup, SUFFIX));
}

/// Compares a backup's checksum with the one beside it. Returns false if there is none, as for a backup of an older
/// release.
pub(crate) fn compare_beside(backup: &Path, sha256: &str) -> Result<bool, OpenError> {
    let file = beside(backup, SUFFIX);
    let Some(noted) = first_word(&file).map_err(OpenError::io(&file))? else { return Ok(false) };
    if noted.eq_ignore_ascii_case(sha256) {
        return Ok(true);
    }
    Err(OpenError::OtherChecksum { file: backup.into(), beside: file, found: sha256.to_owned(), noted })
}

/// The first word of a file; `None` if the file does not exist.
fn first_word(file: &PathBuf) -> io::Result<Option<String>> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    opened.take(MOST_BYTES).read_to_string(&mut text)?;
    let word = text.split_whitespace().next().unwrap_or_default();
    // The error quotes the word, which may be anything.
    Ok(Some(word.chars().filter(char::is_ascii_graphic).take(DIGITS).collect()))
}
