//! An aggregated API server: flunders in a store of its own, with columns, a status, and an admission hook.
//!
//! `docs/tutorials/aggregated-server.md` walks through it. It reads `LISTEN`, `STORE`, `DATA_DIR` and `KUBECONFIG` from
//! the environment.

use std::env::var;
use std::error::Error;

use keelson_apiserver::{AdmissionHook, AdmissionRequest, ApiServer, Refusal, Storage, async_trait};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The desired state of a flunder.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "wardle.example.com",
    version = "v1",
    kind = "Flunder",
    namespaced,
    shortname = "fl",
    category = "all",
    status = "FlunderStatus",
    selectable = ".spec.colour",
    printcolumn = r#"{"name": "Colour", "type": "string", "jsonPath": ".spec.colour"}"#,
    printcolumn = r#"{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}"#,
    printcolumn = r#"{"name": "Polished", "type": "boolean", "jsonPath": ".status.polished"}"#
)]
pub struct FlunderSpec {
    /// The colour that it is painted in.
    #[schemars(regex(pattern = "^[a-z]+$"))]
    pub colour: String,
    /// The size in metres.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100))]
    pub size: u32,
}

/// The observed state of a flunder.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct FlunderStatus {
    /// True once it shines.
    #[serde(default)]
    pub polished: bool,
}

fn one() -> u32 {
    1
}

/// Labels flunders by colour, and forbids a smaller size.
struct Rules;

#[async_trait]
impl AdmissionHook<Flunder> for Rules {
    async fn mutate(&self, _: &AdmissionRequest<'_, Flunder>, flunder: &mut Flunder) -> Result<(), Refusal> {
        let labels = flunder.metadata.labels.get_or_insert_default();
        labels.insert("wardle.example.com/colour".to_owned(), flunder.spec.colour.clone());
        Ok(())
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_, Flunder>,
        flunder: Option<&Flunder>,
    ) -> Result<(), Refusal> {
        if let (Some(old), Some(new)) = (&request.old, flunder)
            && new.spec.size < old.spec.size
        {
            return Err(Refusal::new("a flunder does not shrink"));
        }
        if flunder.is_some_and(|new| new.spec.size > 50) {
            request.warn("flunders of this size are hard to polish");
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A log that can't be written must not end the server.
    tracing_subscriber::fmt().with_writer(std::io::stderr).log_internal_errors(false).init();
    let mut server = ApiServer::builder()
        .resource::<Flunder>()
        .admission(Rules)
        .serving_name("flunders.default.svc")
        .storage(Storage::parse(&var("STORE").unwrap_or("memory:".to_owned()))?);
    if let Ok(address) = var("LISTEN") {
        server = server.listen(address.parse()?);
    }
    if let Ok(directory) = var("DATA_DIR") {
        server = server.data_dir(directory);
    }
    Ok(server.serve().await?)
}
