//! Flags of `gateway`.
//!
//! The names of sources are checked here, since they become parts of paths.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::kinds::{List, list, switch};
use super::{LogFormat, listen_address};

/// Settings of `gateway`.
#[derive(ClapArgs)]
pub(crate) struct Gateway {
    /// The address to listen on, for HTTP/1.1 and HTTP/2 over TLS.
    #[arg(
        long,
        env = "KEELSON_BIND",
        default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6443),
        value_parser = listen_address
    )]
    pub(crate) bind: SocketAddr,
    /// The directory for the serving certificate and its authority.
    #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-gateway")]
    pub(crate) data_dir: PathBuf,
    /// A cluster behind the gateway: a name, and the kubeconfig with its address and the gateway's own credentials. May
    /// be repeated: a single cluster has the usual paths, and each of several has its paths below /clusters/NAME.
    #[arg(long, env = "KEELSON_SOURCE", value_name = "NAME=KUBECONFIG", value_parser = source, required = true)]
    pub(crate) source: Vec<NamedSource>,
    /// Labels of a cluster, for the parameter clusterSelector of lists over all clusters. May be repeated.
    #[arg(long, env = "KEELSON_CLUSTER_LABELS", value_name = "NAME:KEY=VALUE", value_parser = cluster_label)]
    pub(crate) cluster_label: Vec<ClusterLabel>,
    /// Impersonate users of client certificates with the credentials of the kubeconfig, so that their writes and other requests can be
    /// passed on. Without it such a request needs a bearer token.
    #[arg(long, env = "KEELSON_IMPERSONATE")]
    pub(crate) impersonate: bool,
    /// Resources that are passed through and not mirrored, such as secrets or leases.coordination.k8s.io.
    #[arg(
        long,
        env = "KEELSON_NOT_MIRRORED",
        value_name = "RESOURCES",
        value_parser = list::<String>,
        default_value = "secrets,events.events.k8s.io"
    )]
    pub(crate) not_mirrored: Vec<List<String>>,
    /// One more DNS name or IP address for the serving certificate. May be repeated.
    #[arg(long, env = "KEELSON_TLS_SAN", value_parser = list::<String>)]
    pub(crate) tls_san: Vec<List<String>>,
    /// Serve the console.
    #[arg(
        long,
        env = "KEELSON_CONSOLE",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        value_parser = switch
    )]
    pub(crate) console: bool,
    /// The log level, unless KEELSON_LOG sets it: debug from 4 on, trace from 8 on.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) verbosity: i32,
    /// The format of the log.
    #[arg(long, env = "KEELSON_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// A source by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedSource {
    pub(crate) name: String,
    pub(crate) kubeconfig: PathBuf,
}

/// A label of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterLabel {
    pub(crate) cluster: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Parses `NAME:KEY=VALUE`.
fn cluster_label(text: &str) -> Result<ClusterLabel, String> {
    let expected = || "NAME:KEY=VALUE is expected".to_owned();
    let (cluster, label) = text.split_once(':').ok_or_else(expected)?;
    let (key, value) = label.split_once('=').ok_or_else(expected)?;
    if cluster.is_empty() || key.is_empty() {
        return Err(expected());
    }
    Ok(ClusterLabel { cluster: cluster.to_owned(), key: key.to_owned(), value: value.to_owned() })
}

/// Parses `NAME=KUBECONFIG`. The name becomes a part of paths.
fn source(text: &str) -> Result<NamedSource, String> {
    let (name, file) = text.split_once('=').ok_or("NAME=KUBECONFIG is expected")?;
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(is_allowed) || name.starts_with(['-', '.']) {
        return Err(format!("{name:?} is no name of at most 63 lower case letters, digits, '-' and '.'"));
    }
    if file.is_empty() {
        return Err("the kubeconfig is missing".to_owned());
    }
    Ok(NamedSource { name: name.to_owned(), kubeconfig: file.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_of_a_cluster() {
        let label = cluster_label("prod:example.com/env=live=1").unwrap();
        assert_eq!((&*label.cluster, &*label.key, &*label.value), ("prod", "example.com/env", "live=1"));
        for wrong in ["", "a", "a:b", ":a=b", "a:=b"] {
            assert!(cluster_label(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_source_is_a_name_and_a_file() {
        let expected = NamedSource { name: "a-1".to_owned(), kubeconfig: "/x=y".into() };
        assert_eq!(source("a-1=/x=y"), Ok(expected));
        for wrong in ["", "a", "=f", "a=", "A=f", "a/b=f", "-a=f", "..=f"] {
            assert!(source(wrong).is_err(), "{wrong}");
        }
    }
}
