//! The egress proxies of a server, and connections to etcd through one.
//!
//! The engine of the store knows no proxies. It gets a function that connects.

use std::io;
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_access_config::EgressConfiguration;
use keelson_meta::Random;
use keelson_outbound::{Egress, EgressNetwork};
use keelson_storage_etcd::{DialMember, MemberStream};

use crate::store::StoreConfig;

/// Reads `--egress-selector-config-file`.
///
/// # Errors
/// The file, or one that it names, cannot be read or is invalid.
pub fn read_egress(file: &Path, random: &Arc<dyn Random>) -> anyhow::Result<Arc<Egress>> {
    let configuration = EgressConfiguration::load(file)?;
    Egress::new(configuration.proxies, random).map(Arc::new).map_err(anyhow::Error::msg)
}

/// Connects to etcd through its egress proxy, if there is one.
pub(crate) fn connect_store_through(egress: &Arc<Egress>, store: &mut StoreConfig) {
    if let StoreConfig::Etcd(etcd) = store
        && egress.has_proxy(EgressNetwork::Etcd)
    {
        etcd.dial = Some(Arc::new(ThroughProxy(egress.clone())));
    }
}

struct ThroughProxy(Arc<Egress>);

impl DialMember for ThroughProxy {
    fn dial(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn MemberStream>>> {
        let (egress, host) = (self.0.clone(), host.to_owned());
        Box::pin(async move {
            let stream = egress.dial(EgressNetwork::Etcd, &host, port).await.map_err(io::Error::other)?;
            Ok(Box::new(stream) as Box<dyn MemberStream>)
        })
    }
}
