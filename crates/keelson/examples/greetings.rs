//! A controller: it keeps a config map with a greeting for each `Greeting`, and reports the text in the status.
//!
//! `docs/tutorials/first-controller.md` walks through it. `KUBECONFIG` names the server.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, CustomResource, Resource as _, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The desired state of a greeting.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.org", version = "v1", kind = "Greeting", namespaced, status = "GreetingStatus")]
pub struct GreetingSpec {
    /// The name that is greeted.
    pub name: String,
}

/// The observed state of a greeting.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct GreetingStatus {
    /// The text in the config map.
    pub text: String,
}

/// The owner of the fields that the controller applies.
const MANAGER: &str = "greetings";
/// The wait before a failed reconciliation is repeated.
const RETRY: Duration = Duration::from_secs(1);

async fn reconcile(greeting: Arc<Greeting>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let (name, namespace) = (greeting.name_any(), greeting.namespace().unwrap_or_default());
    let text = format!("Hello, {}!", greeting.spec.name);
    let apply = PatchParams::apply(MANAGER).force();

    let config_maps: Api<ConfigMap> = Api::namespaced((*client).clone(), &namespace);
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "ownerReferences": [greeting.controller_owner_ref(&())] },
        "data": { "text": text },
    });
    config_maps.patch(&name, &apply, &Patch::Apply(&config_map)).await?;

    let greetings: Api<Greeting> = Api::namespaced((*client).clone(), &namespace);
    let status = json!({ "apiVersion": "example.org/v1", "kind": "Greeting", "status": { "text": text } });
    greetings.patch_status(&name, &apply, &Patch::Apply(&status)).await?;
    Ok(Action::await_change())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::try_default().await?;
    Controller::new(Api::<Greeting>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(RETRY), Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
    Ok(())
}
