//! The trust in those who speak for others: the front proxies of the operator, and the other servers on the store, which answer for each
//! other as front proxies do.
//!
//! Both are told by files of the operator. What stands in the store is not believed: whoever may write a config map could speak for anybody
//! then.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use keelson_access::{AuthenticationInfo, Pki, pki};
use keelson_aggregator::{Aggregator, PeerServers};
use keelson_controllers::RegisteredServers;
use keelson_supervision::TaskGroup;

use crate::config::Config;

/// How the other servers on the store are known.
pub(crate) struct PeerAccess {
    /// The authorities of their serving certificates (PEM).
    ca_bundle: Vec<u8>,
}

impl PeerAccess {
    /// As the operator says; `None` where servers do not answer for each other.
    ///
    /// # Errors
    /// When the file holds no authorities that can be read.
    pub(crate) fn of(config: &Config, pki: &Pki) -> anyhow::Result<Option<Self>> {
        let Some(path) = &config.peer_ca_file else { return Ok(None) };
        let ca_bundle = authorities(config, pki, path).context("reading --peer-ca-file")?.into_bytes();
        Ok(Some(Self { ca_bundle }))
    }

    /// Begins to follow the others beside the server of this name.
    pub(crate) fn follow(
        &self,
        aggregator: &Arc<Aggregator>,
        servers: &Arc<RegisteredServers>,
        own: &str,
        background: &TaskGroup,
    ) -> Arc<PeerServers> {
        let peers = PeerServers::new(aggregator.clone(), servers.clone(), own, self.ca_bundle.clone());
        background.spawn("peers", peers.clone().run(background.stopping().clone()));
        peers
    }
}

/// Whether somebody may speak for others.
pub(crate) fn believes_proxies(config: &Config) -> bool {
    config.peer_ca_file.is_some() || config.pki.front_proxy.client_ca.is_some()
}

/// Whether those who may speak for others can be told from other clients.
///
/// # Errors
/// When they can't.
pub(crate) fn check_front_proxies(told: &AuthenticationInfo) -> anyhow::Result<()> {
    if told.proxies().is_empty() {
        bail!("peers that answer for each other need --requestheader-client-ca-file beside --proxy-client-cert-file");
    }
    let is_shared = told.proxies().iter().any(|authority| told.clients().contains(authority));
    if is_shared && told.headers().allowed_names.is_empty() {
        bail!(
            "an authority signs certificates of clients and of front proxies, so any client could speak for others: \
             give --requestheader-allowed-names"
        );
    }
    Ok(())
}

/// What a file holds; that of this server's own authority is made with the first start.
fn authorities(config: &Config, pki: &Pki, path: &Path) -> anyhow::Result<String> {
    let own = config.data_dir.as_ref().map(|directory| directory.join("pki").join("ca.crt"));
    if own.is_some_and(|own| std::path::absolute(path).is_ok_and(|path| path == own)) {
        return Ok(pki.ca_pem.clone());
    }
    Ok(pki::read_authorities("the CA of peers", path)?)
}
