//! `keelson completion` and `keelson man-pages`: shell completions and man pages, generated from the command line's
//! definition.
//!
//! Packages contain both as files. `cargo xtask dist` runs these commands to make them.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Args;
use crate::build;

/// Prints the script that completes the command in a shell.
///
/// # Errors
/// When it can't be written.
pub(crate) fn complete(shell: Shell) -> anyhow::Result<()> {
    std::io::stdout().lock().write_all(&completion(shell)).context("writing to standard output")
}

/// Writes a man page for each command into a directory, and one for the kubectl plugin.
///
/// # Errors
/// When a page can't be written.
pub(crate) fn write_pages(directory: &Path) -> anyhow::Result<()> {
    let writing = || format!("writing into {}", directory.display());
    clap_mangen::generate_to(Args::definition(), directory).with_context(writing)?;
    let mut page = Vec::new();
    Man::new(keelson_kubectl::definition().name("kubectl-keelson")).render(&mut page).context("writing a page")?;
    std::fs::write(directory.join("kubectl-keelson.1"), page).with_context(writing)?;
    for entry in std::fs::read_dir(directory).with_context(writing)? {
        let path = entry.with_context(writing)?.path();
        if path.extension().is_some_and(|extension| extension == "1") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let page = std::fs::read_to_string(&path).with_context(writing)?;
            std::fs::write(&path, titled(&page, &name)).with_context(writing)?;
        }
    }
    Ok(())
}

/// The page with the title of its own command, the date of the build and the release, which clap writes as one text.
fn titled(page: &str, name: &str) -> String {
    let title =
        format!(".TH {} 1 \"{}\" \"keelson {}\" keelson", name.to_uppercase(), build::day(), env!("CARGO_PKG_VERSION"));
    let lines = page.lines().map(|line| if line.starts_with(".TH ") { title.as_str() } else { line });
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn completion(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::definition(), "keelson", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_flags_of_the_server() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completion(shell)).unwrap();
            assert!(script.contains("data-dir") && script.contains("keelson"), "{shell}");
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        write_pages(directory.path()).unwrap();
        let page = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(page("keelson.1").contains(".SH NAME"));
        assert!(page("keelson-serve.1").contains("data\\-dir"));
        let title = page("keelson-storage-backup.1").lines().find(|line| line.starts_with(".TH ")).unwrap().to_owned();
        assert!(title.starts_with(".TH KEELSON-STORAGE-BACKUP 1 \"") && title.ends_with("\" keelson"), "{title}");
        assert!(page("kubectl-keelson.1").contains("kubectl"));
    }
}
