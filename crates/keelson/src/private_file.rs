//! Creates files that only their owner can read.
//!
//! Kubeconfigs and keys are written in this way. An existing file is never replaced.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a new file; fails if the file exists.
pub(crate) fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
