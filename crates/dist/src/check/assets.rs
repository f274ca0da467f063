//! The check of the archive for envtest: its programs start with envtest's arguments, and its kubectl reaches them.
//!
//! The tests of the server follow the whole sequence of envtest. This check shows that the archive has the programs.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::roots::Root;
use super::{Bench, Outcome};
use crate::run;

/// The time that envtest waits for each program.
const START: Duration = Duration::from_secs(20);
/// The interval at which envtest looks.
const LOOK: Duration = Duration::from_millis(100);

/// A program, killed on drop.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The archive is unpacked as by `setup-envtest`, which keeps only the file names of paths.
pub(super) fn envtest(bench: &Bench<'_>, package: &Path) -> Result<Outcome> {
    let root = Root::empty(&bench.roots.join("envtest"))?;
    run::output(Command::new("tar").arg("-C").arg(&root.path).args(["--strip-components=2", "-xzf"]).arg(package))?;
    let directory = |name: &str| format!("{}/{name}", root.path.display());
    let program = |name: &str| Command::new(root.path.join(name));
    let (etcd_port, port) = (free_port()?, free_port()?);
    let urls = format!("http://127.0.0.1:{etcd_port}");
    std::fs::create_dir(directory("data"))?;
    std::fs::create_dir(directory("certificates"))?;
    let _etcd = start(program("etcd").args([
        format!("--advertise-client-urls={urls}"),
        format!("--data-dir={}", directory("data")),
        format!("--listen-client-urls={urls}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--unsafe-no-fsync=true".to_owned(),
    ]))?;
    // Any response shows that the etcd stand-in listens. The API server checks the rest.
    until("etcd listens", || std::net::TcpStream::connect(("127.0.0.1", etcd_port)).is_ok())?;
    let _server = start(program("kube-apiserver").args([
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", directory("certificates")),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        format!("--etcd-servers={urls}"),
        format!("--secure-port={port}"),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
    ]))?;
    // The server writes the administrator's kubeconfig into the data directory of the etcd stand-in.
    let kubeconfig = directory("data/keelson/kubeconfig");
    let ask = |path: &str| run::output(program("kubectl").args(["--kubeconfig", &kubeconfig, "get", "--raw", path]));
    until("kube-apiserver is healthy", || ask("/healthz").is_ok())?;
    let version = ask("/version")?;
    ensure!(version.contains(&bench.release.kubernetes), "the server says {version}");
    Ok(Outcome::Passed)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn start(command: &mut Command) -> Result<Started> {
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    started.map(Started).with_context(|| format!("starting {}", command.get_program().to_string_lossy()))
}

fn until(what: &str, holds: impl Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !holds() {
        ensure!(begun.elapsed() < START, "{what}: no success within {START:?}");
        std::thread::sleep(LOOK);
    }
    Ok(())
}
