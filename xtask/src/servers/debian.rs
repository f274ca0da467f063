//! Debian packages without installation: resolved and downloaded by apt, unpacked by dpkg into a directory below
//! `target`.
//!
//! Installed packages are not fetched again. If the system's package lists are empty, as in most container images,
//! separate lists are fetched beside the unpacked files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::run;

/// Packages that the tests do not need: large ones for PostgreSQL's compilation of queries, which the tests turn off,
/// and desktop packages recommended for Chromium.
const NOT_NEEDED: [&str; 26] = [
    "libllvm",
    "libclang",
    "libadwaita",
    "libcanberra",
    "libcolord",
    "libelogind",
    "libfltk",
    "libgck",
    "libgconf",
    "libgcr",
    "libgnome",
    "libgpgme",
    "libgtk",
    "libimobile",
    "libkf5",
    "libkwallet",
    "libpam-elogind",
    "libpipewire",
    "libplist",
    "libpolkit",
    "libqca",
    "libqt5",
    "libspa",
    "libusbmuxd",
    "libwacom",
    "libwebrtc",
];

/// Unpacks a package into `directory`, with those of its dependencies whose names start with one of `follow`.
pub(super) fn unpack(package: &str, follow: &[&str], directory: &Path) -> Result<()> {
    let partial = directory.with_extension("partial");
    remove(&partial)?;
    std::fs::create_dir_all(&partial)?;
    let mut apt = Apt { own_lists: None };
    if apt.packages(package, follow).is_err() {
        apt.own_lists = Some(directory.with_file_name("apt"));
        apt.update()?;
    }
    let packages = apt.packages(package, follow)?;
    eprintln!("fetching {} from the Debian archive", packages.join(", "));
    run::output(apt.command("apt-get", &["--quiet", "download"]).args(&packages).current_dir(&partial))?;
    let root = partial.join("root");
    for archive in entries(&partial)?.iter().filter(|path| path.extension().is_some_and(|end| end == "deb")) {
        run::output(Command::new("dpkg").arg("-x").arg(archive).arg(&root))?;
    }
    remove(directory)?;
    // Renamed when complete, so that an interrupted run leaves nothing that looks complete.
    std::fs::rename(&root, directory).context("nothing was unpacked")?;
    remove(&partial)
}

/// A library path for programs in `directory`: the libraries of the same unpacked tree, `usr/lib/<machine>`.
pub(super) fn libraries_beside(directory: &Path) -> OsString {
    let below = |lib: &Path| entries(lib).unwrap_or_default();
    let is_machine = |path: &PathBuf| path.to_string_lossy().contains("-linux-gnu");
    let libs = directory.ancestors().map(|ancestor| ancestor.join("usr/lib")).find(|lib| lib.is_dir());
    let found = libs.map(|lib| below(&lib)).unwrap_or_default().into_iter().filter(is_machine);
    // One library loads parts from its own subdirectory.
    std::env::join_paths(found.flat_map(|lib| [lib.clone(), lib.join("pulseaudio")])).unwrap_or_default()
}

struct Apt {
    /// The directory of separate package lists, if the system has none.
    own_lists: Option<PathBuf>,
}

impl Apt {
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        // The archive is downloaded into a directory that apt's own user may not be able to enter.
        command.args(["-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20"]);
        if let Some(lists) = &self.own_lists {
            let lists = lists.display();
            command.args(["-o", "Debug::NoLocking=1", "-o", "Dir::State::status=/var/lib/dpkg/status"]);
            command.args(["-o", &format!("Dir::State={lists}/state"), "-o", &format!("Dir::Cache={lists}/cache")]);
        }
        command.args(args);
        command
    }

    fn update(&self) -> Result<()> {
        if let Some(lists) = &self.own_lists {
            for below in ["state/lists/partial", "cache/archives/partial"] {
                std::fs::create_dir_all(lists.join(below))?;
            }
        }
        run::output(&mut self.command("apt-get", &["--quiet", "update"])).map(|_| ())
    }

    /// The package with its missing dependencies.
    fn packages(&self, package: &str, follow: &[&str]) -> Result<Vec<String>> {
        let options = ["depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks"];
        let more = ["--no-replaces", "--no-enhances", package];
        let listed = run::output(self.command("apt-cache", &options).args(more))?;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        // A package starts at the beginning of a line, its dependencies are indented below; virtual ones are in <>.
        let names = listed.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_alphanumeric()));
        let wanted = names.filter(|name| *name == package || follow.iter().any(|begin| name.starts_with(begin)));
        let wanted = wanted.filter(|name| !NOT_NEEDED.iter().any(|begin| name.starts_with(begin)) && !installed(name));
        let wanted: Vec<String> = wanted.map(str::to_owned).collect();
        if wanted.is_empty() {
            bail!("apt knows no package {package}");
        }
        Ok(wanted)
    }
}

fn installed(package: &str) -> bool {
    let status = run::output(Command::new("dpkg-query").args(["-W", "-f", "${Status}", package]));
    status.is_ok_and(|text| text.starts_with(b"install ok installed"))
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
}

fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}
