//! Servers written with `keelson-apiserver`: the examples of the library as processes behind a main server.
//!
//! The servers are processes, as in production: tests start, kill and restart them.

use std::ffi::OsStr;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_testkit::Endpoint;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::lab::PATIENCE;
use crate::{SERVICES, api_service, until_reason};

/// The duration of a process's lease in seconds: short for tests that wait until it expires.
const LEASE_SECONDS: &str = "30";

/// A running example of the library.
pub(crate) struct Example {
    name: &'static str,
    child: Child,
    address: SocketAddr,
    kubeconfig: PathBuf,
    store: String,
    /// The storage version, for the example that serves two versions.
    stored: &'static str,
    directory: TempDir,
}

impl Example {
    /// Starts the example with a store behind a main server, and registers it there.
    pub(crate) async fn flunders(main: &Endpoint, store: impl FnOnce(&Path) -> String) -> Self {
        Self::start("flunders", "wardle.example.com", main, store).await
    }

    /// Starts the example without a store.
    pub(crate) async fn loads(main: &Endpoint) -> Self {
        Self::start("loads", "host.example.com", main, |_| String::new()).await
    }

    /// Starts the example with two versions. It stores the first one.
    pub(crate) async fn moved(main: &Endpoint, store: impl FnOnce(&Path) -> String) -> Self {
        Self::start("moved", "moved.example.com", main, store).await
    }

    async fn start(name: &'static str, group: &str, main: &Endpoint, store: impl FnOnce(&Path) -> String) -> Self {
        let directory = TempDir::new().unwrap();
        let (kubeconfig, store) = (main.kubeconfig().to_owned(), store(directory.path()));
        let stored = "v1";
        let settings = [("KUBECONFIG", kubeconfig.as_os_str()), ("STORE", store.as_ref()), ("STORED", stored.as_ref())];
        let (child, address) = launch(name, directory.path(), settings, "127.0.0.1:0").await;
        let example = Self { name, child, address, kubeconfig, store, stored, directory };
        example.register(group, main).await;
        example
    }

    /// Starts another process on the same store. No APIService refers to it.
    pub(crate) async fn another(&self) -> Self {
        self.another_storing(self.stored).await
    }

    /// Starts another process on the same store, with another storage version.
    pub(crate) async fn another_storing(&self, stored: &'static str) -> Self {
        let directory = TempDir::new().unwrap();
        let (name, kubeconfig, store) = (self.name, self.kubeconfig.clone(), self.store.clone());
        let settings = [("KUBECONFIG", kubeconfig.as_os_str()), ("STORE", store.as_ref()), ("STORED", stored.as_ref())];
        let (child, address) = launch(name, directory.path(), settings, "127.0.0.1:0").await;
        Self { name, child, address, kubeconfig, store, stored, directory }
    }

    /// Sets the storage version for the next start.
    pub(crate) fn store_in(&mut self, version: &'static str) {
        self.stored = version;
    }

    /// Its data directory.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    async fn register(&self, group: &str, main: &Endpoint) {
        let service = json!({
            "metadata": { "name": self.name },
            "spec": { "type": "ExternalName", "externalName": "localhost" },
        });
        main.raw().post("/api/v1/namespaces/default/services", &service).await.expect(201);
        let service = json!({ "namespace": "default", "name": self.name, "port": self.address.port() });
        let mut registered = api_service(group, "v1", &service);
        let authority = std::fs::read(self.directory.path().join("pki/ca.crt")).unwrap();
        registered["spec"]["caBundle"] = json!(BASE64.encode(authority));
        main.raw().post(SERVICES, &registered).await.expect(201);
        until_reason(&main.raw(), &format!("v1.{group}"), "Passed").await;
    }

    /// The server itself, for direct requests with the credentials of the main server's administrator.
    pub(crate) async fn direct(&self, main: &Endpoint) -> Endpoint {
        let text = std::fs::read_to_string(main.kubeconfig()).unwrap();
        let authority = BASE64.encode(std::fs::read(self.directory.path().join("pki/ca.crt")).unwrap());
        let line = |line: &str| {
            let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
            match rest.split_once(": ") {
                Some(("server", _)) => format!("{indent}server: https://{}", self.address),
                Some(("certificate-authority-data", _)) => format!("{indent}certificate-authority-data: {authority}"),
                _ => line.to_owned(),
            }
        };
        let changed: Vec<String> = text.lines().map(line).collect();
        let path = self.directory.path().join("kubeconfig");
        std::fs::write(&path, changed.join("\n")).unwrap();
        Endpoint::from_kubeconfig(path).await.unwrap()
    }

    /// Kills the process (kill -9), and starts it on the same data and address.
    pub(crate) async fn crash(&mut self) {
        self.kill().await;
        self.start_again().await;
    }

    /// Kills the process (kill -9).
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Stops it, and waits for its end.
    pub(crate) async fn stop(&mut self) {
        self.signal("-TERM").await;
        assert!(self.child.wait().await.unwrap().success());
    }

    /// Sends a signal to the process: `-STOP` pauses it until `-CONT`.
    pub(crate) async fn signal(&self, signal: &str) {
        let process = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().await.unwrap().success());
    }

    /// Starts the process on the same data and address.
    pub(crate) async fn start_again(&mut self) {
        let (address, directory) = (self.address.to_string(), self.directory.path());
        let settings = [
            ("KUBECONFIG", self.kubeconfig.as_os_str()),
            ("STORE", self.store.as_ref()),
            ("STORED", self.stored.as_ref()),
        ];
        let (child, address) = launch(self.name, directory, settings, &address).await;
        (self.child, self.address) = (child, address);
    }
}

/// Starts the example and waits until it is ready.
async fn launch(name: &str, directory: &Path, settings: [(&str, &OsStr); 3], listen: &str) -> (Child, SocketAddr) {
    let target = std::env::current_exe().unwrap();
    let binary = target.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(binary.exists(), "the example is not built: cargo build --workspace --examples");
    let log = directory.join("log");
    let child = Command::new(binary)
        .envs(settings)
        .env("LISTEN", listen)
        .env("DATA_DIR", directory)
        .env("LEASE_SECONDS", LEASE_SECONDS)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let ready = async {
        loop {
            let text = std::fs::read_to_string(&log).unwrap();
            if let Some((_, rest)) = text.split_once("the server is ready addr=") {
                break rest.split_whitespace().next().unwrap().parse().unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let address = tokio::time::timeout(PATIENCE, ready).await;
    let address = address.unwrap_or_else(|_| panic!("it does not start: {}", std::fs::read_to_string(&log).unwrap()));
    (child, address)
}
