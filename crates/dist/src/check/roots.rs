//! Root directories of clean systems, in which packages are installed.
//!
//! debootstrap downloads a clean Debian once, which is copied for each check.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::run;

/// The dependencies of keelson's package, installed in the clean Debian beside the essential packages.
const INCLUDED: &str = "--include=adduser,ca-certificates";

/// Creates an empty root directory. Deletes the directory of an earlier run.
pub(super) struct Root {
    pub(super) path: PathBuf,
}

/// The reason why root directories can't be used here, if any.
pub(super) fn missing(tools: &[&str]) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    // The user id of this process, without a call to the C library.
    if !std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        return Some("it takes root".to_owned());
    }
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| !run::has(tool)).collect();
    (!missing.is_empty()).then(|| format!("{} is not installed", missing.join(" and ")))
}

impl Root {
    /// A directory with nothing in it.
    pub(super) fn empty(path: &Path) -> Result<Self> {
        let _absent = std::fs::remove_dir_all(path);
        std::fs::create_dir_all(path)?;
        Ok(Self { path: path.to_owned() })
    }

    /// A clean Debian of this machine's release. It is downloaded once, and copied for each check.
    pub(super) fn debian(path: &Path) -> Result<Self> {
        let base = path.with_file_name("debian-base");
        if !base.join("var/lib/dpkg/status").exists() {
            let (mirror, release) = mirror()?;
            let partial = base.with_extension("partial");
            let _absent = std::fs::remove_dir_all(&partial);
            std::fs::create_dir_all(&partial)?;
            let mut debootstrap = Command::new("debootstrap");
            debootstrap.args(["--variant=minbase", INCLUDED, &release]).arg(&partial).arg(mirror);
            run::shown(&mut debootstrap)?;
            std::fs::rename(&partial, &base)?;
        }
        let _absent = std::fs::remove_dir_all(path);
        run::output(Command::new("cp").arg("-a").arg(&base).arg(path))?;
        Ok(Self { path: path.to_owned() })
    }

    /// Runs a command in the root directory as root.
    pub(super) fn run(&self, command: &[&str]) -> Result<()> {
        run::output(Command::new("chroot").arg(&self.path).args(command)).map(drop)
    }

    /// A command in the root directory, as a user without files.
    pub(super) fn command_as(&self, user: &str, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(format!("--userspec={user}:{user}")).arg(&self.path).arg(program);
        command
    }

    /// A command in the root directory, as a user id without an entry in `/etc/passwd`.
    pub(super) fn command_as_number(&self, user: u32, program: &str) -> Command {
        self.command_as(&format!("+{user}"), program)
    }

    /// A command that can write only to `data`, mounted at `/data`, as in a container.
    pub(super) fn read_only(&self, user: u32, program: &str, data: &Path) -> Command {
        const MOUNTED: &str = "mount --bind \"$1\" \"$1\" && mount --bind \"$2\" \"$1/data\" && \
                               mount -o remount,bind,ro \"$1\" && user=$3 root=$1 program=$4 && shift 4 && \
                               exec chroot --userspec=+$user:+$user \"$root\" \"$program\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", MOUNTED, "sh"]);
        command.arg(&self.path).arg(data).arg(user.to_string()).arg(program);
        command
    }
}

/// The mirror and the release of this machine's apt.
fn mirror() -> Result<(String, String)> {
    let targets = run::output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(SITE) $(CODENAME)",
        "Created-By: Packages",
    ]))?;
    let is_main = |line: &&str| !line.contains("security") && !line.contains("updates") && line.contains(' ');
    let line = targets.lines().find(is_main).context("apt has no package lists: try `apt-get update`")?;
    let (site, release) = line.split_once(' ').context("apt names a site and a release")?;
    Ok((site.to_owned(), release.to_owned()))
}
