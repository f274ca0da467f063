//! Address and credentials from the kubeconfig that the server writes.
//!
//! Only the lines of that file are supported, not other kubeconfigs.

use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The address and the credentials of the server.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    /// `host:port`
    pub(crate) authority: String,
    pub(crate) tls: ClientConfig,
}

impl Credentials {
    pub(crate) fn read(kubeconfig: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(kubeconfig).context("cannot read the server's kubeconfig")?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&pem(&text, "certificate-authority-data")?)? {
            roots.add(certificate)?;
        }
        let (chain, key) = identity(&text)?;
        let tls = ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, key)?;
        let authority = field(&text, "server")?.trim_start_matches("https://").trim_end_matches('/').to_owned();
        Ok(Self { authority, tls })
    }

    /// The client certificate of a kubeconfig, for a gateway at this address with this authority.
    pub(crate) fn behind(kubeconfig: &Path, authority: String, ca_file: &Path) -> Result<Self> {
        let pem = std::fs::read(ca_file).with_context(|| format!("cannot read {}", ca_file.display()))?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&pem)? {
            roots.add(certificate)?;
        }
        let text = std::fs::read_to_string(kubeconfig).context("cannot read the server's kubeconfig")?;
        let (chain, key) = identity(&text)?;
        let tls = ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, key)?;
        Ok(Self { authority, tls })
    }
}

/// A field of a kubeconfig.
fn field<'t>(text: &'t str, name: &str) -> Result<&'t str> {
    let value = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim).with_context(|| format!("the kubeconfig has no {name}"))
}

fn pem(text: &str, name: &str) -> Result<Vec<u8>> {
    STANDARD.decode(field(text, name)?).with_context(|| format!("{name} is not base64"))
}

/// The client certificate of a kubeconfig, with its key.
fn identity(text: &str) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let key = PrivateKeyDer::from_pem_slice(&pem(text, "client-key-data")?).context("the client key is not PEM")?;
    Ok((certificates(&pem(text, "client-certificate-data")?)?, key))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().context("a certificate is not PEM")
}
