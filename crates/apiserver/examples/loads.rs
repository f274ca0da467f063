//! A server without storage: the load of this host, computed on each read.
//!
//! `docs/tutorials/aggregated-server.md` says more. It reads `LISTEN`, `DATA_DIR` and `KUBECONFIG` from the
//! environment.

use std::env::var;
use std::error::Error;

use keelson_apiserver::{ApiServer, Computed, ObjectKey, StoreFault, async_trait};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The average number of runnable processes in the last minutes.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "host.example.com",
    version = "v1",
    kind = "Load",
    printcolumn = r#"{"name": "Minutes", "type": "integer", "jsonPath": ".spec.minutes"}"#,
    printcolumn = r#"{"name": "Processes", "type": "number", "jsonPath": ".spec.processes"}"#
)]
pub struct LoadSpec {
    /// The length of the average in minutes.
    pub minutes: u32,
    /// The average number of runnable processes.
    pub processes: f64,
}

/// The load from the kernel (proc(5), `/proc/loadavg`).
struct Host;

#[async_trait]
impl Computed<Load> for Host {
    async fn get(&self, key: &ObjectKey) -> Result<Option<Load>, StoreFault> {
        Ok(self.list().await?.into_iter().find(|load| load.metadata.name.as_ref() == Some(&key.name)))
    }

    async fn list(&self) -> Result<Vec<Load>, StoreFault> {
        let text = tokio::fs::read_to_string("/proc/loadavg").await;
        let text = text.map_err(|error| StoreFault::Unavailable(format!("/proc/loadavg: {error}")))?;
        let averages = text.split_whitespace().map_while(|word| word.parse().ok());
        let named = [("one", 1), ("five", 5), ("fifteen", 15)].into_iter().zip(averages);
        Ok(named.map(|((name, minutes), processes)| Load::new(name, LoadSpec { minutes, processes })).collect())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A log that can't be written must not end the server.
    tracing_subscriber::fmt().with_writer(std::io::stderr).log_internal_errors(false).init();
    let mut server = ApiServer::builder().computed::<Load>(Host).serving_name("loads.default.svc");
    if let Ok(address) = var("LISTEN") {
        server = server.listen(address.parse()?);
    }
    if let Ok(directory) = var("DATA_DIR") {
        server = server.data_dir(directory);
    }
    Ok(server.serve().await?)
}
