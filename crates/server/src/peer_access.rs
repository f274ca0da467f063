//! The clients that may act for other users: the operator's front proxies, and the other servers on the store, which
//! forward requests to each other as front proxies do.
//!
//! The operator configures both in files. The store's content is not trusted for this: a user with write access to a
//! config map could then act as every other user.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use keelson_access::{AuthenticationInfo, FileChanges, FileReads, Pki, pki};
use keelson_aggregator::{Aggregator, PeerServers};
use keelson_controllers::RegisteredServers;
use keelson_supervision::TaskGroup;

use crate::config::Config;

/// The name of the authorities' file in errors.
const PEER_AUTHORITIES: &str = "the CA of peers";

/// The trust in the other servers on the store.
pub(crate) struct PeerAccess {
    /// The authorities of their serving certificates (PEM).
    ca_bundle: Vec<u8>,
    /// The file of their authorities, which is read again when it changes.
    file: PathBuf,
    reads: FileReads,
}

impl PeerAccess {
    /// The trust by the operator's settings. `None` if servers do not answer for each other.
    ///
    /// # Errors
    /// When the file contains no valid authorities.
    pub(crate) fn new(config: &Config, pki: &Pki) -> anyhow::Result<Option<Self>> {
        let Some(path) = &config.peer_ca_file else { return Ok(None) };
        let ca_bundle = authorities(config, pki, path).context("reading --peer-ca-file")?.into_bytes();
        Ok(Some(Self { ca_bundle, file: path.clone(), reads: FileReads::default() }))
    }

    /// The reads of the authorities.
    pub(crate) fn reads(&self) -> &FileReads {
        &self.reads
    }

    /// Begins to follow the other servers, for the server with this name.
    pub(crate) fn follow(
        &self,
        aggregator: &Arc<Aggregator>,
        servers: &Arc<RegisteredServers>,
        own: &str,
        background: &TaskGroup,
    ) -> Arc<PeerServers> {
        let peers = PeerServers::new(aggregator.clone(), servers.clone(), own, self.ca_bundle.clone());
        background.spawn("peers", peers.clone().run(background.stopping().clone()));
        let following = follow_authorities(self.file.clone(), peers.clone(), self.reads.clone());
        let stopping = background.stopping().clone();
        background.spawn("peer-authorities", async move {
            let _: Option<()> = stopping.run_until_cancelled_owned(following).await;
        });
        peers
    }
}

/// Reads the authorities of peers again when their file changes. An invalid file leaves the earlier ones in effect.
/// Never ends.
async fn follow_authorities(file: PathBuf, peers: Arc<PeerServers>, reads: FileReads) {
    let mut changes = FileChanges::new(&file).await;
    loop {
        changes.changed().await;
        let path = file.clone();
        let read = keelson_supervision::spawn_blocking(move || pki::read_authorities(PEER_AUTHORITIES, &path)).await;
        match read.map_err(|error| error.to_string()).and_then(|read| read.map_err(|error| error.to_string())) {
            Ok(pem) => {
                peers.change_authorities(pem.into_bytes());
                reads.note(true);
                tracing::info!(file = %file.display(), "the authorities of peers were read again");
            }
            Err(why) => {
                reads.note(false);
                tracing::error!(
                    why,
                    "reading the certificate authorities of peers failed; the previous ones stay in use"
                );
            }
        }
    }
}

/// Returns true if some clients may act for other users.
pub(crate) fn believes_proxies(config: &Config) -> bool {
    config.peer_ca_file.is_some() || config.pki.front_proxy.client_ca.is_some()
}

/// Checks that clients that may act for other users can be distinguished from other clients.
///
/// # Errors
/// They cannot.
pub(crate) fn check_front_proxies(info: &AuthenticationInfo) -> anyhow::Result<()> {
    if info.proxies().is_empty() {
        bail!("peers need --requestheader-client-ca-file with --proxy-client-cert-file");
    }
    let is_shared = info.proxies().iter().any(|authority| info.clients().contains(authority));
    if is_shared && info.headers().allowed_names.is_empty() {
        bail!(
            "an authority signs certificates of clients and of front proxies, so any client could speak for others: \
             give --requestheader-allowed-names"
        );
    }
    Ok(())
}

/// The content of a file. This server's own authority is taken from memory, since the first start writes its file only
/// later.
fn authorities(config: &Config, pki: &Pki, path: &Path) -> anyhow::Result<String> {
    let own = config.data_dir.as_ref().map(|directory| directory.join("pki").join("ca.crt"));
    if own.is_some_and(|own| std::path::absolute(path).is_ok_and(|path| path == own)) {
        return Ok(pki.ca_pem.clone());
    }
    Ok(pki::read_authorities(PEER_AUTHORITIES, path)?)
}
