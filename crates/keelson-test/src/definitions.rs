//! Installs definitions of custom resources together, and waits until the server serves their resources.
//!
//! A definition is established before its resource is served everywhere, so the wait ends with a successful list.

use std::ops::ControlFlow;
use std::time::Duration;

use futures::future::try_join_all;
use http::Method;
use kube::Client;
use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::wait::until;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The timeout until a definition is established and served.
const LIMIT: Duration = Duration::from_secs(30);
/// The number of attempts to replace a definition that another client also writes.
const ATTEMPTS: usize = 5;

pub(crate) async fn install(client: &Client, definitions: Vec<Value>) -> Result<(), Error> {
    try_join_all(definitions.into_iter().map(|definition| install_one(client, definition))).await.map(drop)
}

async fn install_one(client: &Client, mut definition: Value) -> Result<(), Error> {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(Error::Argument("a definition has no metadata.name".to_owned()));
    }
    let action = format!("installing the definition {name}");
    let mut made = Endpoint::request(client, &action, Method::POST, DEFINITIONS, Some(&definition)).await;
    let path = format!("{DEFINITIONS}/{name}");
    for _ in 0..ATTEMPTS {
        match &made {
            Err(error) if error.is_code(409) => {}
            _ => break,
        }
        let current = Endpoint::request(client, &action, Method::GET, &path, None).await?;
        definition["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        made = Endpoint::request(client, &action, Method::PUT, &path, Some(&definition)).await;
    }
    made?;
    established(client, &name, &path).await?;
    served(client, &name, &definition["spec"]).await
}

async fn established(client: &Client, name: &str, path: &str) -> Result<(), Error> {
    let action = format!("reading the definition {name}");
    let look = || async {
        let found = Endpoint::request(client, &action, Method::GET, path, None).await?;
        let conditions = found["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        if conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True") {
            return Ok(ControlFlow::Break(()));
        }
        let failing = conditions.iter().filter(|condition| condition["status"] == "False");
        let messages: Vec<_> = failing.filter_map(|condition| condition["message"].as_str()).collect();
        Ok(ControlFlow::Continue(format!("the definition {name} is not established ({})", messages.join("; "))))
    };
    until(LIMIT, look).await
}

/// Waits until a list of each served version does not return 404.
async fn served(client: &Client, name: &str, spec: &Value) -> Result<(), Error> {
    let (group, plural) = (&spec["group"], &spec["names"]["plural"]);
    let (Some(group), Some(plural)) = (group.as_str(), plural.as_str()) else { return Ok(()) };
    let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
    let action = format!("listing {name}");
    for version in versions.iter().filter(|version| version["served"] == true) {
        let version = version["name"].as_str().unwrap_or_default();
        let path = format!("/apis/{group}/{version}/{plural}?limit=1");
        let look = || async {
            match Endpoint::request(client, &action, Method::GET, &path, None).await {
                Err(error) if error.is_code(404) => {
                    Ok(ControlFlow::Continue(format!("{name} is not served in {version}")))
                }
                // Other errors, such as a missing conversion webhook, concern the test and not the installation.
                Ok(_) | Err(_) => Ok(ControlFlow::Break(())),
            }
        };
        until(LIMIT, look).await?;
    }
    Ok(())
}
