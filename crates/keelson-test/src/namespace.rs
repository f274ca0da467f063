//! A namespace for one test: it has a unique name and is deleted when the test ends.
//!
//! So tests can share a server without seeing each other's objects.

use std::ops::ControlFlow;
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::json;

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::keelson::Keelson;
use crate::wait::until;

const NAMESPACES: &str = "/api/v1/namespaces";
/// The prefix of all names.
const PREFIX: &str = "test-";
/// The timeout until the service account `default` exists. Without it the server rejects pods.
const ACCOUNT_LIMIT: Duration = Duration::from_secs(10);
/// The timeout for the deletion of a namespace with its content.
const DELETION_LIMIT: Duration = Duration::from_secs(30);

/// A namespace. Dropping this value deletes it.
#[derive(Debug)]
pub struct Namespace<'s> {
    server: &'s Keelson,
    name: String,
    deleted: bool,
}

pub(crate) async fn create(server: &Keelson, has_accounts: bool) -> Result<Namespace<'_>, Error> {
    let client = server.client();
    let body = json!({ "metadata": { "generateName": PREFIX } });
    let made = Endpoint::request(&client, "creating a namespace", Method::POST, NAMESPACES, Some(&body)).await?;
    let name = made["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespace = Namespace { server, name, deleted: false };
    if has_accounts {
        let path = format!("{NAMESPACES}/{}/serviceaccounts/default", namespace.name);
        wait(&client, &path, ACCOUNT_LIMIT, true, "the service account default does not exist").await?;
    }
    Ok(namespace)
}

impl Namespace<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client of the administrator whose default namespace is this one.
    pub fn client(&self) -> Client {
        let mut config = self.server.config();
        config.default_namespace.clone_from(&self.name);
        // Only the default namespace differs from the server's configuration, whose credentials are usable.
        Client::try_from(config).expect("the credentials of a test server are usable")
    }

    /// Deletes the namespace and waits until it is gone. Dropping the value deletes it without waiting.
    ///
    /// # Errors
    /// [`Error::Late`] if its content remains: no controller runs, or an object has a finalizer.
    pub async fn delete(mut self) -> Result<(), Error> {
        self.deleted = true;
        let (client, path) = (self.server.client(), format!("{NAMESPACES}/{}", self.name));
        Endpoint::request(&client, &format!("deleting the namespace {}", self.name), Method::DELETE, &path, None)
            .await?;
        wait(&client, &path, DELETION_LIMIT, false, &format!("the namespace {} still exists", self.name)).await
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        if self.deleted {
            return;
        }
        // If no thread can be started, the namespace remains until the server ends.
        let Ok(handle) = self.server.background().handle() else { return };
        let (config, path) = (self.server.config(), format!("{NAMESPACES}/{}", self.name));
        handle.spawn(async move {
            let Ok(client) = Client::try_from(config) else { return };
            // The server may be stopping.
            let _ = Endpoint::request(&client, "deleting a namespace", Method::DELETE, &path, None).await;
        });
    }
}

/// Waits until an object exists, or until it does not.
async fn wait(client: &Client, path: &str, limit: Duration, exists: bool, state: &str) -> Result<(), Error> {
    let look = || async {
        match Endpoint::request(client, state, Method::GET, path, None).await {
            Ok(_) if exists => Ok(ControlFlow::Break(())),
            Err(error) if error.is_code(404) && !exists => Ok(ControlFlow::Break(())),
            Ok(_) => Ok(ControlFlow::Continue(state.to_owned())),
            Err(error) if error.is_code(404) => Ok(ControlFlow::Continue(state.to_owned())),
            Err(error) => Err(error),
        }
    };
    until(limit, look).await
}
