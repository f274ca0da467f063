//! An aggregated API server of one type in two versions. It stores objects in the version that `STORED` names, and
//! migrates objects stored in the other one (`docs/tutorials/aggregated-server.md`).
//!
//! It reads `LISTEN`, `STORE`, `DATA_DIR`, `STORED`, `LEASE_SECONDS` and `KUBECONFIG` from the environment.

use std::env::var;
use std::error::Error;
use std::time::Duration;

use keelson_apiserver::{ApiServer, Storage};
use kube::core::crd::merge_crds;
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod v1 {
    use super::*;

    /// The desired state of a crate.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "moved.example.com", version = "v1", kind = "Crate", namespaced)]
    pub(crate) struct CrateSpec {
        /// The content.
        pub(crate) content: String,
    }
}

mod v2 {
    use super::*;

    /// The desired state of a crate.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "moved.example.com", version = "v2", kind = "Crate", namespaced)]
    pub(crate) struct CrateSpec {
        /// The content.
        pub(crate) content: String,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).log_internal_errors(false).init();
    let stored = var("STORED").unwrap_or("v1".to_owned());
    let mut server = ApiServer::builder()
        .definition(merge_crds(vec![v1::Crate::crd(), v2::Crate::crd()], &stored)?)
        .serving_name("moved.default.svc")
        .storage(Storage::parse(&var("STORE").unwrap_or("memory:".to_owned()))?);
    if let Ok(address) = var("LISTEN") {
        server = server.listen(address.parse()?);
    }
    if let Ok(directory) = var("DATA_DIR") {
        server = server.data_dir(directory);
    }
    if let Ok(seconds) = var("LEASE_SECONDS") {
        server = server.lease(Duration::from_secs(seconds.parse()?));
    }
    Ok(server.serve().await?)
}
