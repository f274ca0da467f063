//! Checks of packages in clean root directories. Each package is installed as by an administrator, started as the
//! package's user, and queried with kubectl. A check whose tools are missing on this machine is reported as not run.

mod assets;
mod languages;
mod roots;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use self::roots::Root;
use self::server::Running;
use crate::programs::Library;
use crate::release::Release;
use crate::symbols::{Glibc, OLDEST, needed};
use crate::{deb, oci, rpm, run};

/// The result of a check.
enum Outcome {
    Passed,
    /// The reason.
    NotRun(String),
}

/// A check of the package in a file.
type Check = fn(&Bench<'_>, &Path) -> Result<Outcome>;

/// The release under check, and the tools for it.
struct Bench<'b> {
    release: &'b Release,
    /// The newest C library that the programs may need; `None` if they were built for the C library of this machine.
    promised: Option<Glibc>,
    roots: PathBuf,
    /// The repository, for the tests of the language packages.
    sources: &'b Path,
    kubectl: &'b Path,
}

/// Checks all existing packages. Returns true unless a check has failed.
///
/// # Errors
/// Without kubectl.
pub(crate) fn all(
    release: &Release,
    library: Library,
    sources: &Path,
    target: &Path,
    kubectl: Option<&Path>,
) -> Result<bool> {
    let out = &target.join("dist/packages");
    let kubectl = kubectl.context("--kubectl names the kubectl that sends the requests")?;
    let promised = (library == Library::Oldest).then_some(OLDEST);
    let bench = Bench { release, promised, roots: target.join("dist/roots"), sources, kubectl };
    let wheel = languages::wheel_in(&bench, out);
    let checks: [(String, Check); 7] = [
        (format!("{}.tar.gz", release.stem()), tarball),
        (deb::file_name(release), debian),
        (rpm::file_name(release), fedora),
        (format!("{}.oci.tar", release.stem()), image),
        (crate::envtest::file_name(release), assets::envtest),
        (wheel.file_name().unwrap_or_default().to_string_lossy().into_owned(), languages::wheel),
        (crate::languages::npm_name(release), languages::npm),
    ];
    let mut passed = true;
    for (name, check) in checks {
        let package = out.join(&name);
        let outcome =
            if package.exists() { check(&bench, &package) } else { Ok(Outcome::NotRun("it was not made".into())) };
        match outcome {
            Ok(Outcome::Passed) => println!("ok       {name}"),
            Ok(Outcome::NotRun(why)) => println!("NOT RUN  {name}: {why}"),
            Err(error) => {
                passed = false;
                println!("FAILED   {name}: {error:#}");
            }
        }
    }
    Ok(passed)
}

/// Checks that the programs run in a root directory with only the C library, and need no newer one than documented.
fn tarball(bench: &Bench<'_>, package: &Path) -> Result<Outcome> {
    let root = Root::empty(&bench.roots.join("tarball"))?;
    run::output(Command::new("tar").arg("-C").arg(&root.path).arg("-xzf").arg(package))?;
    let unpacked = root.path.join(bench.release.stem());
    for program in ["keelson", "kubectl-keelson"] {
        let needs = needed(&unpacked.join(program))?;
        if let Some(promised) = bench.promised {
            ensure!(needs <= promised, "{program} needs glibc {needs}, and {promised} is promised");
        }
    }
    let data = root.path.join("data");
    let server = Running::start(Command::new(unpacked.join("keelson")), &data)?;
    server.ask(bench.kubectl, &data)?;
    Ok(Outcome::Passed)
}

fn debian(bench: &Bench<'_>, package: &Path) -> Result<Outcome> {
    if let Some(why) = roots::missing(&["debootstrap", "dpkg", "chroot"]) {
        return Ok(Outcome::NotRun(why));
    }
    lint(package)?;
    let root = Root::debian(&bench.roots.join("debian"))?;
    let copy = root.path.join("keelson.deb");
    std::fs::copy(package, &copy)?;
    root.run(&["dpkg", "--install", "/keelson.deb"])?;
    let data = root.path.join("var/lib/keelson");
    let program = root.command_as("keelson", "/usr/bin/keelson");
    Running::start_at(program, "/var/lib/keelson")?.ask(bench.kubectl, &data)?;
    root.run(&["sh", "-c", "man -w keelson >/dev/null 2>&1 || test -f /usr/share/man/man1/keelson.1.gz"])?;
    // Checks that an upgrade and a removal keep objects and settings, and that a purge deletes them.
    root.run(&["sh", "-c", "echo KEELSON_THREADS=1 >> /etc/keelson/keelson.env"])?;
    root.run(&["dpkg", "--install", "/keelson.deb"])?;
    root.run(&["grep", "-q", "KEELSON_THREADS=1", "/etc/keelson/keelson.env"])?;
    root.run(&["dpkg", "--remove", "keelson"])?;
    ensure!(data.join("kubeconfig").exists(), "a removal takes the data away");
    root.run(&["dpkg", "--purge", "keelson"])?;
    ensure!(!data.exists(), "a purge leaves the data");
    Ok(Outcome::Passed)
}

/// Findings of lintian are failures, if lintian is installed.
fn lint(package: &Path) -> Result<()> {
    if !run::has("lintian") {
        println!("NOT RUN  lintian, which is not installed");
        return Ok(());
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error,warning", "--allow-root", "--tag-display-limit", "0"]).arg(package);
    run::shown(&mut lintian)
}

fn fedora(bench: &Bench<'_>, package: &Path) -> Result<Outcome> {
    if let Some(why) = roots::missing(&["rpm", "chroot"]) {
        return Ok(Outcome::NotRun(why));
    }
    run::output(Command::new("rpm").args(["--checksig", "--nosignature"]).arg(package))?;
    let root = Root::debian(&bench.roots.join("rpm"))?;
    // The root directory is a Debian without an RPM database, so rpm installs without checking dependencies.
    let mut rpm = Command::new("rpm");
    rpm.arg("--root").arg(&root.path).args(["--install", "--nodeps", "--nosignature"]).arg(package);
    run::output(&mut rpm)?;
    let verified =
        run::output(Command::new("rpm").arg("--root").arg(&root.path).args(["--verify", "--nodeps", "keelson"]))?;
    ensure!(verified.trim().is_empty(), "installed files differ from the package's: {verified}");
    let program = root.command_as("keelson", "/usr/bin/keelson");
    std::fs::create_dir_all(root.path.join("var/lib/keelson"))?;
    root.run(&["chown", "keelson:keelson", "/var/lib/keelson"])?;
    Running::start_at(program, "/var/lib/keelson")?.ask(bench.kubectl, &root.path.join("var/lib/keelson"))?;
    run::output(Command::new("rpm").arg("--root").arg(&root.path).args(["--erase", "--nodeps", "keelson"]))?;
    ensure!(!root.path.join("usr/bin/keelson").exists(), "a removal leaves the program");
    Ok(Outcome::Passed)
}

/// Checks that the image runs as its user on a read-only root file system.
fn image(bench: &Bench<'_>, package: &Path) -> Result<Outcome> {
    if let Some(why) = roots::missing(&["unshare", "chroot", "mount"]) {
        return Ok(Outcome::NotRun(why));
    }
    const MOST: u64 = 35_000_000;
    let size = std::fs::metadata(package)?.len();
    ensure!(size <= MOST, "the image has {size} bytes, and at most {MOST} are allowed");
    let layout = Root::empty(&bench.roots.join("layout"))?;
    run::output(Command::new("tar").arg("-C").arg(&layout.path).arg("-xf").arg(package))?;
    let listed: serde_json::Value = serde_json::from_slice(&std::fs::read(layout.path.join("manifest.json"))?)?;
    let Some(layer) = listed[0]["Layers"][0].as_str() else { bail!("the image has no layer") };
    let root = Root::empty(&bench.roots.join("image"))?;
    run::output(Command::new("tar").arg("-C").arg(&root.path).arg("-xzf").arg(layout.path.join(layer)))?;
    let data = bench.roots.join("image-data");
    let _absent = std::fs::remove_dir_all(&data);
    std::fs::create_dir_all(&data)?;
    std::os::unix::fs::chown(&data, Some(oci::USER), Some(oci::USER))?;
    for name in ["usr/bin/keelson", "usr/bin/kube-apiserver"] {
        let said = run::output(root.command_as_number(oci::USER, &format!("/{name}")).arg("--version"))?;
        ensure!(said.contains(&bench.release.kubernetes), "{name} says {said:?}");
    }
    Running::start_at(root.read_only(oci::USER, "/usr/bin/keelson", &data), "/data")?.ask(bench.kubectl, &data)?;
    Ok(Outcome::Passed)
}
