//! Flags for connections to kubelets, under the names of kube-apiserver.
//!
//! Their meaning is in `keelson_server::NodeOptions`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use keelson_server::NodeOptions;

use super::kinds::{List, ListValues as _, list};

#[derive(ClapArgs)]
pub(crate) struct Nodes {
    /// The authorities that sign the serving certificates of kubelets (PEM). Without this flag any certificate is accepted. The file is
    /// read again when it changes.
    #[arg(long, env = "KEELSON_KUBELET_CERTIFICATE_AUTHORITY")]
    kubelet_certificate_authority: Option<PathBuf>,
    /// The client certificate for kubelets (PEM). The file is read again when it changes.
    #[arg(long, env = "KEELSON_KUBELET_CLIENT_CERTIFICATE", requires = "kubelet_client_key")]
    kubelet_client_certificate: Option<PathBuf>,
    /// The private key of --kubelet-client-certificate (PEM).
    #[arg(long, env = "KEELSON_KUBELET_CLIENT_KEY", requires = "kubelet_client_certificate")]
    kubelet_client_key: Option<PathBuf>,
    /// The types of node addresses by which kubelets are reached, the preferred one first.
    #[arg(
        long,
        env = "KEELSON_KUBELET_PREFERRED_ADDRESS_TYPES",
        value_parser = list::<String>,
        default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"
    )]
    kubelet_preferred_address_types: Vec<List<String>>,
}

impl Nodes {
    pub(crate) fn into_options(self) -> NodeOptions {
        NodeOptions {
            certificate_authority: self.kubelet_certificate_authority,
            client: self.kubelet_client_certificate.zip(self.kubelet_client_key),
            preferred_address_types: self.kubelet_preferred_address_types.joined(),
        }
    }
}
