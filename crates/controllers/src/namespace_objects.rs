//! Creates the objects that every namespace has: the service account `default`, and the config map with the server's
//! certificates.
//!
//! The objects are created with the namespace, and restored after a deletion or change.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};
use keelson_supervision::warn_repeated;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{CONTROLLER_MANAGER, Client};
use crate::follow::follow;
use crate::queue::{Backoff, Outcome, Queue};

/// The number of namespaces processed concurrently.
const AT_ONCE: usize = 16;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(30) };

const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const ROOT_CA_DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

/// The controller for one object in each namespace.
pub struct NamespaceObjects {
    registry: Arc<Registry>,
    client: Client,
    plural: &'static str,
    name: &'static str,
    content: Content,
    /// The names of namespaces.
    queue: Queue<String>,
}

/// The desired content of the object.
#[derive(Clone)]
enum Content {
    /// Anything: the object only has to exist.
    Any,
    /// Exactly these certificates, in PEM.
    RootCertificates(watch::Receiver<String>),
}

impl Content {
    /// The desired `data`; `None` where any is allowed.
    fn data(&self) -> Option<Value> {
        match self {
            Self::Any => None,
            Self::RootCertificates(pem) => Some(json!({ "ca.crt": *pem.borrow() })),
        }
    }

    /// Waits until the desired content changes.
    async fn changed(&mut self) {
        if let Self::RootCertificates(pem) = self
            && pem.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl NamespaceObjects {
    /// Creates the controller for the service account of pods that name none.
    pub fn service_accounts(registry: Arc<Registry>) -> Self {
        let queue = Queue::new("serviceaccount", BACKOFF);
        let client = Client::of_controller(registry.clone(), "service-account-controller", CONTROLLER_MANAGER);
        Self { registry, client, plural: "serviceaccounts", name: "default", content: Content::Any, queue }
    }

    /// Creates the controller for the server's certificates in PEM, which may change.
    pub fn root_certificates(registry: Arc<Registry>, certificates: watch::Receiver<String>) -> Self {
        let queue = Queue::new("root_ca_cert_publisher", BACKOFF);
        let client = Client::of_controller(registry.clone(), "root-ca-cert-publisher", CONTROLLER_MANAGER);
        let content = Content::RootCertificates(certificates);
        Self { registry, client, plural: "configmaps", name: ROOT_CA, content, queue }
    }

    /// Runs until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let (Ok(namespaces), Ok(objects)) =
            (self.client.collection("", "v1", "namespaces", None), self.client.collection("", "v1", self.plural, None))
        else {
            return;
        };
        let selector = FieldSelector::exact("metadata.name", self.name);
        let (registry, caller) = (&self.registry, self.client.caller());
        let add = |entry: &Entry| self.queue.add(entry.name().to_owned());
        let of_namespaces = async {
            let mut content = self.content.clone();
            loop {
                // After a change of the desired content, the watch starts again and reports all namespaces.
                tokio::select! {
                    never = follow(registry, caller, &namespaces, FieldSelector::default(), &add) => match never {},
                    () = content.changed() => {}
                }
            }
        };
        let of_objects = follow(registry, caller, &objects, selector, |entry| {
            self.queue.add(entry.namespace().unwrap_or_default().to_owned());
        });
        let work = self.queue.run(AT_ONCE, |namespace| self.turn(namespace));
        tokio::select! {
            () = stopping.cancelled() => {}
            () = of_namespaces => {}
            never = of_objects => match never {},
            never = work => match never {},
        }
    }

    async fn turn(&self, namespace: String) -> Outcome {
        match self.ensure(&namespace).await {
            // The namespace is gone or terminating.
            Ok(()) | Err(ApiError::NotFound { .. } | ApiError::Refused { .. }) => Outcome::Done,
            Err(ApiError::Conflict { .. } | ApiError::AlreadyExists { .. }) => Outcome::Again,
            Err(error) => {
                let resource = self.plural;
                warn_repeated!(format_args!("{namespace}/{resource}"); namespace, resource, %error, "creating an object of every namespace failed; retrying");
                Outcome::Again
            }
        }
    }

    async fn ensure(&self, namespace: &str) -> Result<(), ApiError> {
        let target = self.client.collection("", "v1", self.plural, Some(namespace))?;
        match self.client.get(&target, self.name).await? {
            None => self.make(&target).await,
            Some(current) => match self.mended(&current.object) {
                Some(next) => self.client.update(&target, next).await.map(|_| ()),
                None => Ok(()),
            },
        }
    }

    async fn make(&self, target: &Target) -> Result<(), ApiError> {
        let mut object = json!({ "metadata": { "name": self.name } });
        if let Some(data) = self.content.data() {
            object["metadata"]["annotations"] = json!({ DESCRIPTION: ROOT_CA_DESCRIPTION });
            object["data"] = data;
        }
        self.client.create(target, object).await.map(|_| ())
    }

    /// The corrected object; `None` when it needs no change.
    fn mended(&self, current: &Object) -> Option<Object> {
        let data = self.content.data()?;
        let described = current.annotations().any(|(key, text)| key == DESCRIPTION && !text.is_empty());
        if described && current.get(&["data"]) == Some(&data) {
            return None;
        }
        let mut next = current.clone();
        next.0.insert("data", data);
        let annotations = next.metadata_mut().entry("annotations").or_insert_with(|| json!({}));
        if let Value::Object(annotations) = annotations {
            annotations.insert(DESCRIPTION, json!(ROOT_CA_DESCRIPTION));
        }
        Some(next)
    }
}
