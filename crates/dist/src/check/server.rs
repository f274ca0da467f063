//! Starts the server of an installed package and sends requests to it.
//!
//! The server listens on a free port of the loopback address, and ends when its handle is dropped.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::run;

/// The longest time until a server is ready.
const START: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(200);

/// A server that runs until this is dropped.
pub(super) struct Running {
    process: Child,
    port: u16,
}

impl Running {
    /// Starts a server on a directory of this machine.
    pub(super) fn start(program: Command, data: &Path) -> Result<Self> {
        Self::start_at(program, &data.display().to_string())
    }

    /// Starts a server with a data directory inside the root directory.
    pub(super) fn start_at(mut program: Command, data: &str) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        program.args(["serve", "--bind", &format!("127.0.0.1:{port}"), "--data-dir", data]);
        program.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self { process: program.spawn().context("starting the server")?, port })
    }

    /// Creates and reads an object with kubectl, with the kubeconfig from the server's data directory.
    pub(super) fn ask(mut self, kubectl: &Path, data: &Path) -> Result<()> {
        let kubeconfig = data.join("kubeconfig");
        let ask = |args: &[&str]| run::output(Command::new(kubectl).arg("--kubeconfig").arg(&kubeconfig).args(args));
        let begun = Instant::now();
        while ask(&["get", "--raw", "/readyz"]).is_err() {
            if let Some(status) = self.process.try_wait()? {
                bail!("the server has ended: {status}");
            }
            ensure!(begun.elapsed() < START, "the server on port {} is not ready in {START:?}", self.port);
            std::thread::sleep(LOOK);
        }
        ask(&["create", "configmap", "packed", "--from-literal=key=value"])?;
        let value = ask(&["get", "configmap", "packed", "--output=jsonpath={.data.key}"])?;
        ensure!(value == "value", "the server answers {value:?}");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}
