//! The files of the packages: their paths on a system and in the tarball.
//!
//! Systems differ only in the directories of completions and licences.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::archive::gzip;
use crate::files::Files;
use crate::programs::Programs;
use crate::run;

/// The paths of a completion.
struct Completion {
    shell: &'static str,
    /// Debian's place.
    deb: &'static str,
    /// Fedora's place.
    rpm: &'static str,
}

const COMPLETIONS: [Completion; 3] = [
    Completion {
        shell: "bash",
        deb: "usr/share/bash-completion/completions/keelson",
        rpm: "usr/share/bash-completion/completions/keelson",
    },
    Completion {
        shell: "zsh",
        deb: "usr/share/zsh/vendor-completions/_keelson",
        rpm: "usr/share/zsh/site-functions/_keelson",
    },
    Completion {
        shell: "fish",
        deb: "usr/share/fish/vendor_completions.d/keelson.fish",
        rpm: "usr/share/fish/vendor_completions.d/keelson.fish",
    },
];

/// A family of systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Debian,
    Fedora,
}

/// The documentation files of every package.
pub(crate) struct Texts {
    /// Pages of the manual by their file names.
    pages: Vec<(String, Vec<u8>)>,
    /// Completions by the names of their shells.
    completions: Vec<(&'static Completion, Vec<u8>)>,
    licences: Vec<u8>,
}

impl Texts {
    /// Runs the program to generate its manual pages and completions.
    ///
    /// # Errors
    /// When the program does not run.
    pub(crate) fn new(program: &Path, stage: &Path, licences: Vec<u8>) -> Result<Self> {
        let directory = stage.join("man");
        let _absent = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory)?;
        run::output(Command::new(program).arg("man-pages").arg(&directory))?;
        let mut pages = Vec::new();
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            pages.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
        }
        pages.sort();
        let script = |completion: &'static Completion| {
            let script = run::output(Command::new(program).args(["completion", completion.shell]))?;
            Ok((completion, script.into_bytes()))
        };
        Ok(Self { pages, completions: COMPLETIONS.iter().map(script).collect::<Result<_>>()?, licences })
    }
}

/// The files of an installed package.
///
/// # Errors
/// When a file in `packaging/` can't be read.
pub(crate) fn installed(system: System, programs: &Programs, texts: &Texts, root: &Path) -> Result<Files> {
    let packaging = root.join("packaging");
    let mut files = Files::default();
    files.copy("usr/bin/keelson", 0o755, &programs.keelson)?;
    files.copy("usr/bin/kubectl-keelson", 0o755, &programs.plugin)?;
    files.copy("usr/lib/systemd/system/keelson.service", 0o644, &packaging.join("systemd/keelson.service"))?;
    files.copy("usr/lib/sysusers.d/keelson.conf", 0o644, &packaging.join("systemd/keelson.sysusers"))?;
    let settings = packaging.join("systemd/keelson.env");
    files.copy("etc/keelson/keelson.env", 0o640, &settings)?.is_configuration = true;
    for (name, page) in &texts.pages {
        files.add(format!("usr/share/man/man1/{name}.gz"), 0o644, gzip(page)?);
    }
    for (completion, script) in &texts.completions {
        let path = if system == System::Debian { completion.deb } else { completion.rpm };
        files.add(path, 0o644, script.clone());
    }
    match system {
        System::Debian => {
            files.copy("usr/share/doc/keelson/copyright", 0o644, &packaging.join("debian/copyright"))?;
        }
        System::Fedora => {
            files.copy("usr/share/licenses/keelson/LICENSE", 0o644, &root.join("LICENSE"))?;
        }
    }
    files.add("usr/share/doc/keelson/third-party-licenses.txt.gz", 0o644, gzip(&texts.licences)?);
    Ok(files)
}

/// The files of the tarball, below its own directory.
///
/// # Errors
/// When a file in `packaging/` can't be read.
pub(crate) fn tarball(programs: &Programs, texts: &Texts, root: &Path) -> Result<Files> {
    let packaging = root.join("packaging");
    let mut files = Files::default();
    files.copy("keelson", 0o755, &programs.keelson)?;
    files.copy("kubectl-keelson", 0o755, &programs.plugin)?;
    files.copy("LICENSE", 0o644, &root.join("LICENSE"))?;
    files.add("third-party-licenses.txt", 0o644, texts.licences.clone());
    files.copy("systemd/keelson.service", 0o644, &packaging.join("systemd/keelson.service"))?;
    files.copy("systemd/keelson.env", 0o644, &packaging.join("systemd/keelson.env"))?;
    for (name, page) in &texts.pages {
        files.add(format!("man/man1/{name}"), 0o644, page.clone());
    }
    for (completion, script) in &texts.completions {
        let name = Path::new(completion.deb).file_name().context("a completion has a name")?.to_string_lossy();
        files.add(format!("completions/{}/{name}", completion.shell), 0o644, script.clone());
    }
    Ok(files)
}
