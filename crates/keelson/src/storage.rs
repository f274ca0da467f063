//! `keelson storage`: backup and restore of the embedded store.

use anyhow::Context as _;

use crate::args::Storage;

/// Runs one of the storage commands.
#[expect(clippy::print_stdout, reason = "this is what the user who gave the command reads")]
pub(crate) fn run(command: Storage) -> anyhow::Result<()> {
    match command {
        Storage::Backup { file, data_dir } => {
            keelson_server::backup(&data_dir, &file).context("the backup was not made")?;
            println!("wrote {}", file.display());
        }
        Storage::Restore { file, data_dir, bump_revision } => {
            let revision = keelson_server::restore(&file, &data_dir, bump_revision).context("nothing was restored")?;
            println!("restored {} into {}; revisions go on at {revision}", file.display(), data_dir.display());
        }
    }
    Ok(())
}
