//! The programs of a release: built for the oldest C library that is supported, and stripped of their debug information.
//!
//! Zig links the programs against any version of the C library, independent of this machine. pip installs Zig and the
//! cargo command that calls it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::dependencies::Dependencies;
use crate::run;
use crate::symbols::{Glibc, OLDEST, needed};

/// The Python packages, in tested versions.
const ZIG: &str = "ziglang==0.17.1";
const ZIGBUILD: &str = "cargo-zigbuild==0.24.1";
const PROFILE: &str = "dist";
/// cargo's arguments for the packages with the programs.
const BUILT: [&str; 5] = ["-p", "keelson", "-p", "keelson-etcd-double", "--bins"];

/// Programs that are ready to be packed.
pub(crate) struct Programs {
    pub(crate) keelson: PathBuf,
    pub(crate) plugin: PathBuf,
    /// The etcd stand-in as a separate small program. Absent in some prebuilt directories.
    pub(crate) etcd: Option<PathBuf>,
    /// Debug information of the server, for debuggers and `addr2line`.
    pub(crate) debug: PathBuf,
    /// The oldest C library that the programs run on.
    pub(crate) needs: Glibc,
}

/// Selects the C library that the programs are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// The oldest that is supported.
    Oldest,
    /// The one of this machine.
    Own,
}

impl Programs {
    /// Builds them.
    ///
    /// # Errors
    /// When the build fails, or a built program needs a newer C library than allowed.
    pub(crate) fn build(root: &Path, target: &Path, library: Library, stage: &Path) -> Result<Self> {
        let built = match library {
            Library::Oldest => build_for_oldest(root, target)?,
            Library::Own => {
                let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
                let mut command = Command::new(cargo);
                command.current_dir(root).args(["build", "--locked", "--profile", PROFILE]).args(BUILT);
                run::shown(&mut command)?;
                target.join(PROFILE)
            }
        };
        Self::new(&built, root, library, stage)
    }

    /// Uses prebuilt programs from a directory.
    ///
    /// # Errors
    /// When a program is missing, or needs a newer C library than allowed.
    pub(crate) fn new(built: &Path, root: &Path, library: Library, stage: &Path) -> Result<Self> {
        std::fs::create_dir_all(stage)?;
        let (keelson, plugin) = (stage.join("keelson"), stage.join("kubectl-keelson"));
        let debug = stage.join("keelson.debug");
        let list = stage.join("audit");
        std::fs::write(&list, Dependencies::load(root)?.audit_section()?)?;
        objcopy(&["--only-keep-debug", "--compress-debug-sections"], &built.join("keelson"), &debug)?;
        let audited = format!(".dep-v0={}", list.display());
        let strip = ["--strip-all", "--add-section", &audited];
        objcopy(&strip, &built.join("keelson"), &keelson)?;
        // The link to the debug information contains a checksum of it, so it is added after the debug information is
        // written.
        run::output(Command::new("objcopy").current_dir(stage).args(["--add-gnu-debuglink=keelson.debug", "keelson"]))?;
        objcopy(&strip, &built.join("kubectl-keelson"), &plugin)?;
        let mut needs = needed(&keelson)?.max(needed(&plugin)?);
        let etcd = built.join("etcd");
        let etcd = if etcd.exists() {
            let stripped = stage.join("etcd");
            objcopy(&["--strip-all"], &etcd, &stripped)?;
            needs = needs.max(needed(&stripped)?);
            Some(stripped)
        } else {
            None
        };
        if library == Library::Oldest && needs > OLDEST {
            bail!("the programs need glibc {needs}, and packages are for {OLDEST}; --own-libc packs them all the same");
        }
        Ok(Self { keelson, plugin, etcd, debug, needs })
    }
}

fn build_for_oldest(root: &Path, target: &Path) -> Result<PathBuf> {
    let zig = fetch_zig(target)?;
    let machine = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(zig.join("bin/cargo-zigbuild"));
    command.current_dir(root).env("CARGO_ZIGBUILD_ZIG_PATH", zig.join("ziglang/zig"));
    command.args(["zigbuild", "--locked", "--profile", PROFILE]).args(BUILT).arg("--target");
    run::shown(command.arg(format!("{machine}.{OLDEST}")))?;
    Ok(target.join(machine).join(PROFILE))
}

/// The directory with Zig and the cargo command that calls it.
fn fetch_zig(target: &Path) -> Result<PathBuf> {
    let directory = target.join("tools").join(ZIG.replace("==", "-"));
    if directory.exists() {
        return Ok(directory);
    }
    eprintln!("fetching {ZIG} and {ZIGBUILD} (Python packages)");
    let partial = directory.with_extension("partial");
    let _absent = std::fs::remove_dir_all(&partial);
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    pip.arg("--target").arg(&partial).args([ZIG, ZIGBUILD]);
    run::output(&mut pip).with_context(|| {
        format!(
            "programs for glibc {OLDEST} are linked by Zig, which pip could not fetch; --own-libc builds for the C library of this machine"
        )
    })?;
    std::fs::rename(&partial, &directory)?;
    Ok(directory)
}

fn objcopy(options: &[&str], from: &Path, to: &Path) -> Result<()> {
    run::output(Command::new("objcopy").args(options).arg(from).arg(to)).context("objcopy is in binutils").map(drop)
}
