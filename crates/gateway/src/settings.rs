//! Settings of a gateway: its address, its directory and its sources.
//!
//! The settings are plain values. The code that uses them validates them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use keelson_http::filters::OpenPages;

/// The resources that are passed through unless set otherwise: secrets, which a mirror should not hold, and the second
/// form of events, whose objects are mirrored as core events.
pub(crate) const NOT_MIRRORED: [&str; 2] = ["secrets", "events.events.k8s.io"];

/// The settings of a gateway.
#[derive(Clone)]
pub struct GatewaySettings {
    /// The address to listen on.
    pub bind: SocketAddr,
    /// The directory for the serving certificate and its authority.
    pub data_dir: PathBuf,
    /// Further names and addresses for the serving certificate.
    pub extra_names: Vec<String>,
    /// The clusters behind the gateway: at least one, with different names. One alone has the paths of its own server.
    /// Of several, each has its paths below `/clusters/NAME`.
    pub sources: Vec<SourceSettings>,
    /// The pages of the console, if it is served. They need the paths of a server, so that they are served for a single
    /// source only.
    pub console: Option<OpenPages>,
}

/// A cluster to mirror.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Its name in messages.
    pub name: String,
    /// The kubeconfig with its address and the gateway's own credentials.
    pub kubeconfig: PathBuf,
    /// The resources that are passed through and not mirrored, as `plural` or `plural.group`.
    pub not_mirrored: BTreeSet<String>,
    /// The labels of the source, for selectors of lists over several sources.
    pub labels: BTreeMap<String, String>,
    /// True to impersonate users of client certificates with the gateway's own credentials, so that their requests can
    /// be passed through.
    pub impersonates: bool,
}

impl SourceSettings {
    /// A source with the default resources.
    pub fn new(name: impl Into<String>, kubeconfig: impl Into<PathBuf>) -> Self {
        let not_mirrored = NOT_MIRRORED.map(str::to_owned).into_iter().collect();
        Self {
            name: name.into(),
            kubeconfig: kubeconfig.into(),
            not_mirrored,
            labels: BTreeMap::new(),
            impersonates: false,
        }
    }
}
