//! A reachable server: its kubeconfig, and clients made from it.
//!
//! The endpoint does not depend on the way the server runs, so the same tests work with the in-process server, a child
//! process and any other server with a kubeconfig.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::{Kubectl, Raw};

/// A reachable server with its administrator's credentials.
#[derive(Clone, Debug)]
pub struct Endpoint {
    kubeconfig: PathBuf,
    config: kube::Config,
}

impl Endpoint {
    /// Reads address and credentials from a kubeconfig.
    ///
    /// # Errors
    /// The file is missing or incomplete.
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

    /// The kubeconfig for kubectl.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The configuration of the Rust client, for changes before a client is made.
    pub fn kube_config(&self) -> kube::Config {
        self.config.clone()
    }

    /// The Rust client, as an administrator.
    ///
    /// # Panics
    /// The credentials can't be used.
    pub fn client(&self) -> kube::Client {
        kube::Client::try_from(self.config.clone()).expect("the kubeconfig of a server has usable credentials")
    }

    /// A raw client, over HTTP/1.1 unless [`Raw::http2`] is called.
    pub fn raw(&self) -> Raw {
        Raw::new(&self.config)
    }

    /// A raw client without a certificate.
    pub fn anonymous(&self) -> Raw {
        let mut config = self.config.clone();
        config.auth_info = kube::config::AuthInfo::default();
        Raw::new(&config)
    }

    /// A kubectl command for this server. Await it to run it.
    pub fn kubectl<I>(&self, args: I) -> Kubectl
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        Kubectl::new(&self.kubeconfig, args)
    }

    /// A command of another kubectl (see [`other_kubectls`](crate::other_kubectls)) with this cache directory.
    pub fn kubectl_of<I>(&self, program: &Path, cache: &Path, args: I) -> Kubectl
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        Kubectl::other(program, &self.kubeconfig, cache, args)
    }
}
