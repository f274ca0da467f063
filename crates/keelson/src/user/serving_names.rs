//! Compares the names in a server's certificate with the host name that a user's client will use.
//!
//! The command connects to the server by its own URL and verifies the certificate for the other name, as the user's
//! client will.

use std::io;
use std::net::{IpAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use http::Uri;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore};

use super::PATIENCE;

/// The port of `https` where a URL names none.
const HTTPS: u16 = 443;

/// The host and the port of a server's URL. The scheme may be absent, as in kubectl.
///
/// # Errors
/// When the URL has no host.
pub(super) fn host_of(url: &str) -> anyhow::Result<(String, u16)> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
    let uri: Uri = whole.parse().with_context(|| format!("{url} is not a URL of a server"))?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| anyhow!("{url} names no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok((host, uri.port_u16().unwrap_or(HTTPS)))
}

/// The names in the certificate of the server at `url` if `host` is not among them; `None` if the certificate is valid
/// for `host`.
///
/// # Errors
/// When the server can't be reached, or its certificate is not valid at all.
pub(super) fn other_names(url: &str, ca_pem: &str, host: &str) -> anyhow::Result<Option<Vec<String>>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate.context("reading the certificate authority")?)?;
    }
    if roots.is_empty() {
        bail!("the kubeconfig names no certificate authority");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).with_context(|| format!("{host} is not the name of a host"))?;
    let mut connection = ClientConnection::new(Arc::new(config), name)?;
    let (at, port) = host_of(url)?;
    let address = (at.as_str(), port).to_socket_addrs()?.next().ok_or_else(|| anyhow!("{at} has no address"))?;
    let mut stream =
        TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    while connection.is_handshaking() {
        if let Err(error) = connection.complete_io(&mut stream) {
            return presented(&error).map(Some).ok_or_else(|| error.into());
        }
    }
    Ok(None)
}

/// The names in a certificate that was rejected for its names.
fn presented(error: &io::Error) -> Option<Vec<String>> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
            Some(presented.iter().map(|name| plain(name)).collect())
        }
        rustls::Error::InvalidCertificate(CertificateError::NotValidForName) => Some(Vec::new()),
        _ => None,
    }
}

/// The plain name from rustls' form `DnsName("localhost")`.
fn plain(reported: &str) -> String {
    let inner = reported.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(reported);
    // rustls writes IPv6 addresses in a longer form, such as `0::1`.
    inner.parse().map_or_else(|_| inner.trim_matches('"').to_owned(), |address: IpAddr| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_read_from_server_addresses_of_kubectl() {
        for (url, host, port) in [
            ("https://api.example.org:6443", "api.example.org", 6443),
            ("api.example.org:6443", "api.example.org", 6443),
            ("https://[2001:db8::1]:6443/prefix", "2001:db8::1", 6443),
            ("https://192.0.2.7", "192.0.2.7", 443),
        ] {
            assert_eq!(host_of(url).unwrap(), (host.to_owned(), port));
        }
        assert!(host_of("").is_err() && host_of("https://").is_err() && host_of("two words").is_err());
    }

    #[test]
    fn a_reported_name_is_shown_as_it_is_written() {
        assert_eq!(plain(r#"DnsName("localhost")"#), "localhost");
        assert_eq!(plain("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(plain("IpAddress(0::1)"), "::1");
        assert_eq!(plain("other"), "other");
    }
}
