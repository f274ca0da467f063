//! Keeps the config map `kube-system/extension-apiserver-authentication`. It has the authorities and header fields with
//! which aggregated servers authenticate clients and front proxies.
//!
//! Each server adds its own entries, so the controller runs in each. The controller recreates the config map after a
//! deletion. It writes the object as a whole, so keys that upstream's controller does not know are dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_access::{AuthenticationInfo, RequestHeaders};
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};
use keelson_supervision::{info_repeated, warn_repeated};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, SERVER_MANAGER};
use crate::follow::{changes, follow};
use crate::queue::{Backoff, Outcome, Queue};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(30) };
/// The most attempts in a row after conflicts with other writers.
const TRIES: usize = 8;
/// The interval between checks for expired certificates.
const LOOK_AGAIN: Duration = Duration::from_secs(60 * 60);

/// Publishes this server's authentication information for aggregated servers, in addition to that of other servers.
pub struct AuthenticationPublication {
    registry: Arc<Registry>,
    client: Client,
    /// This server's information. It changes with the files that hold it.
    own: watch::Receiver<AuthenticationInfo>,
    /// Called with the trusted header fields after each check.
    published: Box<dyn Fn(&RequestHeaders) + Send + Sync>,
    /// A single key: there is one config map.
    queue: Queue<()>,
}

impl AuthenticationPublication {
    /// Creates the controller for the servers of a registry. `published` receives the header fields that aggregated
    /// servers trust, those that other servers have published included. Clients must not be able to set these fields.
    pub fn new(
        registry: Arc<Registry>,
        own: watch::Receiver<AuthenticationInfo>,
        published: impl Fn(&RequestHeaders) + Send + Sync + 'static,
    ) -> Self {
        let client = Client::of_upkeep(registry.clone(), SERVER_MANAGER);
        Self {
            registry,
            client,
            own,
            published: Box::new(published),
            queue: Queue::new("cluster_authentication_trust_controller", BACKOFF),
        }
    }

    /// Runs until the server stops.
    pub fn run(self: Arc<Self>, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self: Arc<Self>, stopping: CancellationToken) {
        let Ok(target) = self.client.collection("", "v1", "configmaps", Some(NAMESPACE)) else { return };
        let selector = FieldSelector::exact("metadata.name", NAME);
        let following = follow(&self.registry, self.client.caller(), &target, selector, |_| self.queue.add(()));
        let looking = async {
            loop {
                self.queue.add(());
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let own = changes(self.own.clone(), || self.queue.add(()));
        let work = self.queue.run(1, |()| self.turn());
        tokio::select! {
            () = stopping.cancelled() => {}
            never = following => match never {},
            () = looking => {}
            never = own => match never {},
            never = work => match never {},
        }
    }

    async fn turn(&self) -> Outcome {
        match self.ensure().await {
            Ok(()) => Outcome::Done,
            Err(error) => {
                warn_repeated!(""; %error, "writing authentication information for aggregated servers failed; retrying");
                Outcome::Again
            }
        }
    }

    /// Adds this server's information where it is missing.
    ///
    /// # Errors
    /// Errors of the verbs.
    pub async fn ensure(&self) -> Result<(), ApiError> {
        let target = self.client.collection("", "v1", "configmaps", Some(NAMESPACE))?;
        let own = self.own.borrow().clone();
        let mut tries = 0;
        loop {
            tries += 1;
            let written = match self.client.get(&target, NAME).await? {
                Some(current) => self.complete(&target, &own, current.object).await,
                None => {
                    let data = own.clone().with(&own, self.client.now()).to_data();
                    let object = json!({ "metadata": { "name": NAME }, "data": data });
                    self.client.create(&target, object).await.map(|_| ())
                }
            };
            match written {
                // Another server wrote the object meanwhile, without this server's entries.
                Err(ApiError::AlreadyExists { .. } | ApiError::Conflict { .. }) if tries < TRIES => {}
                written => return written,
            }
        }
    }

    /// Adds this server's information to the stored object.
    async fn complete(&self, target: &Target, own: &AuthenticationInfo, current: Object) -> Result<(), ApiError> {
        let told = data_of(&current);
        let all = AuthenticationInfo::read(&told).with(own, self.client.now());
        (self.published)(all.headers());
        let data = all.to_data();
        if data == told {
            return Ok(());
        }
        info_repeated!(""; "adding this server's authentication information for aggregated servers");
        let with = |data: BTreeMap<String, String>| {
            let mut next = current.clone();
            next.0.insert("data", json!(data));
            next
        };
        match self.client.update(target, with(data)).await {
            // The object has grown beyond the size limit, so it is replaced. Each server adds its own information
            // again.
            Err(ApiError::TooLarge { .. } | ApiError::ObjectTooLarge { .. } | ApiError::Invalid { .. }) => {
                self.client.update(target, with(own.to_data())).await.map(|_| ())
            }
            written => written.map(|_| ()),
        }
    }
}

fn data_of(object: &Object) -> BTreeMap<String, String> {
    let data = object.get(&["data"]).and_then(Value::as_object);
    let entries = data.into_iter().flat_map(Map::iter);
    entries.map(|(key, value)| (key.to_string(), value.as_str().unwrap_or_default().to_owned())).collect()
}
