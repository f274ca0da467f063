//! Access to nodes: follows the certificate files for connections to kubelets.
//!
//! An invalid file leaves the earlier certificates in effect.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use keelson_access::FileChanges;
use keelson_http::nodes::NodeAccess;
use keelson_outbound::{ClientCertificate, Egress, KubeletTrust, NodeClient};
use keelson_registry::NodeAddresses;
use keelson_supervision::TaskGroup;

use crate::remote::PublishedFields;

/// One in this many outgoing connections is reserved for nodes.
pub(crate) const NODE_PART: usize = 4;
/// The port of kubelets whose node has none in its status.
const KUBELET_PORT: u16 = 10250;
/// The types of kubelet addresses, the preferred one first.
pub const KUBELET_ADDRESS_TYPES: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];

/// The settings of connections to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// The authorities that sign the certificates of kubelets (PEM). If there are none, any certificate is accepted.
    pub certificate_authority: Option<PathBuf>,
    /// The client certificate for kubelets, and its key (PEM).
    pub client: Option<(PathBuf, PathBuf)>,
    /// The types of addresses by which kubelets are reached, the preferred one first.
    pub preferred_address_types: Vec<String>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            certificate_authority: None,
            client: None,
            preferred_address_types: KUBELET_ADDRESS_TYPES.map(str::to_owned).to_vec(),
        }
    }
}

impl NodeOptions {
    fn files(&self) -> Vec<PathBuf> {
        let client = self.client.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.certificate_authority.iter().chain(client).cloned().collect()
    }

    fn trust(&self) -> anyhow::Result<KubeletTrust> {
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
        let text =
            |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
        let ca_bundle = self.certificate_authority.as_ref().map(read).transpose()?;
        // An empty file must not mean that every certificate is accepted.
        if let (Some(path), Some([])) = (&self.certificate_authority, ca_bundle.as_deref()) {
            anyhow::bail!("{} holds no certificate", path.display());
        }
        let certificate = match &self.client {
            Some((certificate, key)) => {
                Some(ClientCertificate { certificate_pem: text(certificate)?, key_pem: text(key)? })
            }
            None => None,
        };
        Ok(KubeletTrust { ca_bundle: ca_bundle.unwrap_or_default(), certificate })
    }

    /// The client for nodes, with the current content of the files, its part of this many outgoing connections, and the
    /// egress proxies.
    ///
    /// # Errors
    /// A file cannot be read, or has invalid content.
    pub(crate) fn client(&self, connections: usize, egress: &Arc<Egress>) -> anyhow::Result<Arc<NodeClient>> {
        let most = connections / NODE_PART;
        let new = |trust| NodeClient::new(trust, most, egress.clone()).map_err(anyhow::Error::msg);
        let client = self.trust().and_then(new);
        client.context(
            "preparing connections to kubelets (--kubelet-certificate-authority, --kubelet-client-certificate)",
        )
    }

    fn change(&self, client: &NodeClient) -> anyhow::Result<()> {
        client.change(self.trust()?).map_err(anyhow::Error::msg)
    }

    /// The access to nodes through a client. Follows its files from now on.
    pub(crate) fn access(
        self,
        client: Arc<NodeClient>,
        fields: Arc<PublishedFields>,
        background: &TaskGroup,
    ) -> Arc<NodeAccess> {
        let addresses =
            NodeAddresses { preferred_types: self.preferred_address_types.clone(), default_port: KUBELET_PORT };
        let access = NodeAccess::new(client.clone(), addresses, move || fields.current(), background.clone());
        if !self.files().is_empty() {
            let stopping = background.stopping().clone();
            background.spawn("kubelet-certificates", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(self.follow(client)).await;
            });
        }
        Arc::new(access)
    }

    async fn follow(self, client: Arc<NodeClient>) {
        let mut changes = FileChanges::of_all(self.files()).await;
        let options = Arc::new(self);
        loop {
            let (read, changed) = (options.clone(), client.clone());
            match keelson_supervision::spawn_blocking(move || read.change(&changed)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(
                    "the certificates for kubelets are invalid; the previous ones stay in use: {error:#}"
                ),
                Err(error) => tracing::error!(%error, "reading certificates for kubelets failed"),
            }
            changes.changed().await;
        }
    }
}
