//! A server that can be reached: its kubeconfig, and the clients made from it.
//!
//! It knows nothing of how the server runs, so the in-process server, the child process and any other server with a
//! kubeconfig are driven by the same tests.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::{Kubectl, Raw};

/// A reachable server and the credentials of its administrator.
#[derive(Clone, Debug)]
pub struct Endpoint {
    kubeconfig: PathBuf,
    config: kube::Config,
}

impl Endpoint {
    /// Reads the address and the credentials from a kubeconfig.
    ///
    /// # Errors
    /// When the file is missing or incomplete.
    pub async fn from_kubeconfig(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let file = Kubeconfig::read_from(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .with_context(|| format!("{} is not a usable kubeconfig", path.display()))?;
        Ok(Self { kubeconfig: path, config })
    }

    /// The address of the server, `https://host:port`.
    pub fn url(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }

    /// The kubeconfig that kubectl is given.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The configuration of the Rust client, to be changed before a client is made of it.
    pub fn kube_config(&self) -> kube::Config {
        self.config.clone()
    }

    /// The Rust client, as an administrator.
    ///
    /// # Panics
    /// When the credentials cannot be used.
    pub fn client(&self) -> kube::Client {
        kube::Client::try_from(self.config.clone()).expect("the kubeconfig of a server has usable credentials")
    }

    /// Requests as they are on the wire, over HTTP/1.1 unless [`Raw::http2`] is called.
    pub fn raw(&self) -> Raw {
        Raw::new(&self.config)
    }

    /// Requests without a client certificate.
    pub fn anonymous(&self) -> Raw {
        let mut config = self.config.clone();
        config.auth_info = kube::config::AuthInfo::default();
        Raw::new(&config)
    }

    /// A kubectl command on this server; await it to run it.
    pub fn kubectl<I>(&self, args: I) -> Kubectl
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        Kubectl::new(&self.kubeconfig, args)
    }

    /// A command of another kubectl (see [`other_kubectls`](crate::other_kubectls)), which keeps in a directory what it learns.
    pub fn kubectl_of<I>(&self, program: &Path, cache: &Path, args: I) -> Kubectl
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        Kubectl::other(program, &self.kubeconfig, cache, args)
    }
}
