//! Connections to the members of etcd: TLS, keep-alive, windows.

use std::path::Path;
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::client::Member;
use crate::config::{EtcdConfig, TlsFiles};
use crate::error::OpenError;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// How often a ping is sent while a question or a watch is open. etcd ends connections that ping more often than every 5
/// seconds, or at all when nothing is open.
const PING: Duration = Duration::from_secs(10);
/// How long the answer to a ping may take before the connection is given up.
const PONG: Duration = Duration::from_secs(5);
/// How many bytes of one answer may be on their way, and of all answers of a connection.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Prepares the connections to all members of a configuration.
pub(crate) fn members(config: &EtcdConfig) -> Result<Vec<Member>, OpenError> {
    let tls = config.tls.as_ref().map(tls_config).transpose()?;
    config.endpoints.iter().map(|endpoint| member(endpoint, tls.clone())).collect()
}

fn member(endpoint: &str, tls: Option<ClientTlsConfig>) -> Result<Member, OpenError> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{endpoint}");
    let refused = |error: tonic::transport::Error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        OpenError::Unreachable { endpoints: url.clone(), cause: cause.to_string() }
    };
    let mut prepared = Endpoint::from_shared(url.clone())
        .map_err(&refused)?
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .keep_alive_while_idle(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    if let Some(tls) = tls {
        prepared = prepared.tls_config(tls).map_err(&refused)?;
    }
    Ok(Member { calls: prepared.connect_lazy(), watches: prepared.connect_lazy(), endpoint: url })
}

fn tls_config(files: &TlsFiles) -> Result<ClientTlsConfig, OpenError> {
    let mut tls = ClientTlsConfig::new();
    tls = match &files.ca {
        Some(path) => tls.ca_certificate(Certificate::from_pem(read("the CA certificate", path)?)),
        None => tls.with_native_roots(),
    };
    if let Some((certificate, key)) = &files.identity {
        let certificate = read("the client certificate", certificate)?;
        tls = tls.identity(Identity::from_pem(certificate, read("the client's key", key)?));
    }
    if let Some(name) = &files.server_name {
        tls = tls.domain_name(name);
    }
    Ok(tls)
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(path).map_err(|cause| OpenError::File {
        what,
        path: path.display().to_string(),
        cause: cause.to_string(),
    })
}
