//! `keelson-dist`, started by `cargo xtask dist`: makes the packages of a release, each from the same programs.
//!
//! Packages are reproducible: the same commit and tools give the same bytes. Simple formats are written here. The
//! sources of the packaging are in `packaging/`. `--check` installs the packages in clean root directories, starts the
//! servers and sends requests.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks on its streams")]

mod archive;
mod chart;
mod check;
mod contents;
mod deb;
mod dependencies;
mod envtest;
mod files;
mod languages;
mod oci;
mod programs;
mod release;
mod rpm;
mod run;
mod sums;
mod symbols;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};

use crate::archive::{gzip, tar};
use crate::contents::{System, Texts};
use crate::dependencies::Dependencies;
use crate::files::Files;
use crate::programs::{Library, Programs};
use crate::release::Release;

/// Makes the packages of a release.
#[derive(Parser)]
#[command(name = "cargo xtask dist")]
struct Cli {
    /// The repository.
    #[arg(long, hide = true)]
    root: PathBuf,
    /// The target directory of cargo.
    #[arg(long, hide = true)]
    target: PathBuf,
    /// The kubectl for the envtest archive and for checks.
    #[arg(long)]
    kubectl: Option<PathBuf>,
    /// Make these packages only. May be repeated.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Package>,
    /// Make only the archive for envtest, with its index.
    #[arg(long)]
    envtest: bool,
    /// The URL of the archive for envtest, for the index.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    address: String,
    /// Build for the C library of this machine instead of the oldest supported one.
    #[arg(long)]
    own_libc: bool,
    /// Pack the programs in this directory rather than build them.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Sign the list of checksums with this secret key of minisign.
    #[arg(long)]
    key: Option<PathBuf>,
    /// Install each package in a clean root, start it and send requests. Takes root.
    #[arg(long)]
    check: bool,
}

/// A kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Package {
    /// Programs, manual and completions in a tar.
    Tarball,
    /// The Debian package.
    Deb,
    /// The RPM package.
    Rpm,
    /// The image, as an OCI layout.
    Image,
    /// The Helm chart and plain manifests.
    Chart,
    /// The bill of materials.
    Sbom,
    /// The archive for envtest.
    Envtest,
    /// The wheel for Python.
    Wheel,
    /// The package for npm.
    Npm,
    /// Debug information.
    Debug,
}

fn main() -> ExitCode {
    match make(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the requested packages. Returns true unless a check has failed.
fn make(cli: &Cli) -> Result<bool> {
    let (root, out) = (cli.root.as_path(), cli.target.join("dist/packages"));
    let stage = cli.target.join("dist/stage");
    std::fs::create_dir_all(&out)?;
    let library = if cli.own_libc { Library::Own } else { Library::Oldest };
    let programs = match &cli.programs {
        Some(built) => Programs::new(built, root, library, &stage)?,
        None => Programs::build(root, &cli.target, library, &stage)?,
    };
    let release = Release::read(&programs.keelson, root)?;
    let maker = Maker { cli, root, release, programs, stage, out };
    for package in Package::value_variants() {
        let is_wanted = match (cli.envtest, &*cli.only) {
            (true, _) => *package == Package::Envtest,
            (false, []) => true,
            (false, only) => only.contains(package),
        };
        if is_wanted {
            maker.make(*package).with_context(|| format!("making {package:?}"))?;
        }
    }
    sums::write(&maker.out, cli.key.as_deref())?;
    if !cli.check {
        return Ok(true);
    }
    check::all(&maker.release, library, root, &cli.target, cli.kubectl.as_deref())
}

struct Maker<'m> {
    cli: &'m Cli,
    root: &'m Path,
    release: Release,
    programs: Programs,
    stage: PathBuf,
    out: PathBuf,
}

impl Maker<'_> {
    fn make(&self, package: Package) -> Result<()> {
        let Self { release, programs, root, .. } = self;
        let packaging = root.join("packaging");
        match package {
            Package::Tarball => {
                let files = contents::tarball(programs, &self.texts()?, root)?;
                let below = format!("{}/", release.stem());
                self.write(&format!("{}.tar.gz", release.stem()), &gzip(&tar(&files, &below, release.seconds)?)?)
            }
            Package::Deb => {
                let files = contents::installed(System::Debian, programs, &self.texts()?, root)?;
                let made = deb::package(release, &files, &packaging.join("debian"), programs.needs)?;
                self.write(&deb::file_name(release), &made)
            }
            Package::Rpm => {
                let files = contents::installed(System::Fedora, programs, &self.texts()?, root)?;
                let made = rpm::package(release, &files, &packaging.join("rpm"), programs.needs)?;
                self.write(&rpm::file_name(release), &made)
            }
            Package::Image => {
                let files = oci::files(&programs.keelson, &self.cli.target.join("dist"), &self.licences()?)?;
                self.write(&format!("{}.oci.tar", release.stem()), &oci::image(release, &files)?)
            }
            Package::Chart => {
                self.write(&chart::file_name(release), &chart::archive(release, &packaging.join("helm/keelson"))?)?;
                for (name, file) in chart::manifests(release, &packaging.join("manifests"))?.iter() {
                    self.write(name, file.bytes())?;
                }
                Ok(())
            }
            Package::Sbom => {
                let bill = Dependencies::load(root)?.bill(release);
                let name = format!("{}.cdx.json", release.stem());
                self.write(&name, serde_json::to_string_pretty(&bill)?.as_bytes())
            }
            Package::Envtest => {
                let kubectl = self.cli.kubectl.as_ref().context("--kubectl names the kubectl that is packed")?;
                envtest::check_kubectl(release, kubectl)?;
                let made = envtest::archive(release, programs, kubectl)?;
                let index = envtest::index(release, &made, &self.cli.address);
                self.write(&envtest::file_name(release), &made)?;
                self.write(envtest::INDEX, format!("{index:#}\n").as_bytes())
            }
            Package::Wheel => {
                let path = languages::wheel(programs, root, &self.out)?;
                announce(&path, std::fs::metadata(&path)?.len());
                Ok(())
            }
            Package::Npm => self.write(&languages::npm_name(release), &languages::npm(release, programs, root)?),
            Package::Debug => {
                let mut files = Files::default();
                files.copy("keelson.debug", 0o644, &programs.debug)?;
                self.write(&format!("{}.debug.tar.gz", release.stem()), &gzip(&tar(&files, "", release.seconds)?)?)
            }
        }
    }

    fn texts(&self) -> Result<Texts> {
        Texts::new(&self.programs.keelson, &self.stage, self.licences()?)
    }

    fn licences(&self) -> Result<Vec<u8>> {
        Ok(Dependencies::load(self.root)?.licences()?.into_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.out.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        announce(&path, bytes.len() as u64);
        Ok(())
    }
}

/// Prints the size of a package.
fn announce(path: &Path, bytes: u64) {
    println!("{:>9.1} MB  {}", bytes as f64 / 1e6, path.display());
}
