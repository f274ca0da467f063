//! The service `kubernetes` in the namespace `default`, by which pods find the API servers: the service itself, the range
//! of addresses that services come from, and the addresses of the servers that live.
//!
//! Each server writes the addresses of all of them, so the last one to write is right whichever it is; one that stops takes
//! its own away.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_meta::clock::rfc3339;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Family, Registry, ServiceRanges, Target};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Stored, collection, farewell};

/// How often the objects are looked at, as in the reference server.
const INTERVAL: Duration = Duration::from_secs(10);
/// Who owns what is written here, as in the reference server.
const MANAGER: &str = "kube-apiserver";

/// The name of all these objects.
const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";
/// The port of the service.
const PORT: u16 = 443;

/// Where the servers are that live.
pub trait LiveServers: Send + Sync {
    /// Their addresses, this server's among them if it has one that others can reach.
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<IpAddr>, ApiError>>;
}

/// A server that knows of no others.
impl LiveServers for Option<IpAddr> {
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<IpAddr>, ApiError>> {
        let addresses = self.iter().copied().collect();
        Box::pin(async move { Ok(addresses) })
    }
}

/// Keeps the objects.
pub struct KubernetesService {
    client: Client,
    ranges: ServiceRanges,
    servers: Arc<dyn LiveServers>,
    /// This server's own address, if others can reach it.
    own: Option<IpAddr>,
    /// The port on which servers listen.
    port: u16,
}

impl KubernetesService {
    /// For servers that listen on `port`.
    pub fn new(
        registry: Arc<Registry>,
        ranges: ServiceRanges,
        servers: Arc<dyn LiveServers>,
        own: Option<IpAddr>,
        port: u16,
    ) -> Self {
        Self { client: Client::new(registry, MANAGER), ranges, servers, own, port }
    }

    /// Runs until the server stops, and takes its address away then.
    pub async fn run(self: Arc<Self>, stopping: CancellationToken) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The bootstrap has done it once.
        ticks.tick().await;
        loop {
            tokio::select! {
                () = stopping.cancelled() => break,
                _ = ticks.tick() => {}
            }
            for done in [self.ensure_range().await, self.ensure_service().await] {
                if let Err(error) = done {
                    tracing::warn!(%error, "the service of the API servers could not be kept; trying again");
                }
            }
        }
        farewell(self.leave(), "this server's address could not be taken away").await;
    }

    /// Makes the ServiceCIDR of the cluster, and says that it is ready.
    pub(crate) async fn ensure_range(&self) -> Result<(), ApiError> {
        let target = collection("networking.k8s.io", "v1", "servicecidrs", None)?;
        let cidrs: Vec<String> = self.ranges.addresses().iter().map(ToString::to_string).collect();
        let current = match self.client.get(&target, NAME).await? {
            Some(current) => current,
            None => {
                let object = json!({ "metadata": { "name": NAME }, "spec": { "cidrs": cidrs } });
                match self.client.create(&target, object).await {
                    Err(ApiError::AlreadyExists { .. }) => return Ok(()),
                    created => created?,
                }
            }
        };
        let Stored { object, .. } = self.widen(&target, current, &cidrs).await?;
        let stated = object.get(&["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
        let known = stated.clone().any(|condition| condition["type"] == "Ready" && condition["status"] != "Unknown");
        if known || object.deletion_timestamp().is_some() || object.get(&["spec", "cidrs"]) != Some(&json!(cidrs)) {
            return Ok(());
        }
        let mut next = object.clone();
        let ready = json!({
            "type": "Ready", "status": "True", "lastTransitionTime": rfc3339(self.client.now()),
            "reason": "", "message": "Kubernetes default Service CIDR is ready",
        });
        next.0.insert("status".to_owned(), json!({ "conditions": [ready] }));
        let status = Target { subresource: target.version.subresource("status"), ..target };
        unless_changed(self.client.update(&status, next).await)
    }

    /// Adds a second family to the range of a cluster that had one.
    async fn widen(&self, target: &Target, current: Stored, cidrs: &[String]) -> Result<Stored, ApiError> {
        let had = current.object.get(&["spec", "cidrs"]);
        if cidrs.len() != 2 || had != Some(&json!([cidrs[0]])) {
            if had != Some(&json!(cidrs)) {
                tracing::warn!(?had, ?cidrs, "the range of services is not the one that this server is set to");
            }
            return Ok(current);
        }
        let mut next = current.object;
        next.0.insert("spec".to_owned(), json!({ "cidrs": cidrs }));
        self.client.update(target, next).await
    }

    /// Makes the service, and has it lead to the servers that live.
    pub(crate) async fn ensure_service(&self) -> Result<(), ApiError> {
        let target = collection("", "v1", "services", Some(NAMESPACE))?;
        if self.client.get(&target, NAME).await?.is_none() {
            let service = json!({
                "metadata": { "name": NAME, "labels": { "component": "apiserver", "provider": "kubernetes" } },
                "spec": {
                    "type": "ClusterIP",
                    "clusterIP": self.ranges.primary().first().to_string(),
                    "ipFamilyPolicy": "SingleStack",
                    "sessionAffinity": "None",
                    "ports": [{ "name": "https", "port": PORT, "protocol": "TCP", "targetPort": self.port }],
                },
            });
            match self.client.create(&target, service).await {
                Ok(_) | Err(ApiError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.lead_to(self.servers.addresses().await?).await
    }

    /// Takes this server's address away.
    async fn leave(&self) -> Result<(), ApiError> {
        let mut others = self.servers.addresses().await?;
        others.retain(|address| Some(*address) != self.own);
        self.lead_to(others).await
    }

    async fn lead_to(&self, mut addresses: Vec<IpAddr>) -> Result<(), ApiError> {
        addresses.sort_unstable();
        addresses.dedup();
        self.write_endpoints(&addresses).await?;
        self.write_slice(&addresses).await
    }

    async fn write_endpoints(&self, addresses: &[IpAddr]) -> Result<(), ApiError> {
        let target = collection("", "v1", "endpoints", Some(NAMESPACE))?;
        let mut subsets = Vec::new();
        if !addresses.is_empty() {
            let addresses: Vec<Value> = addresses.iter().map(|address| json!({ "ip": address.to_string() })).collect();
            subsets.push(json!({ "addresses": addresses, "ports": [self.endpoint_port()] }));
        }
        let labels = json!({ "endpointslice.kubernetes.io/skip-mirror": "true" });
        let wanted = json!({ "metadata": { "name": NAME, "labels": labels }, "subsets": subsets });
        let current = self.client.get(&target, NAME).await?;
        self.write(&target, current, &wanted, &["subsets"]).await
    }

    async fn write_slice(&self, addresses: &[IpAddr]) -> Result<(), ApiError> {
        let target = collection("discovery.k8s.io", "v1", "endpointslices", Some(NAMESPACE))?;
        let family = addresses.first().map_or_else(|| self.ranges.primary().family(), |address| Family::of(*address));
        let reachable = addresses.iter().filter(|address| Family::of(**address) == family);
        let endpoints: Vec<Value> = reachable
            .map(|address| json!({ "addresses": [address.to_string()], "conditions": { "ready": true } }))
            .collect();
        let wanted = json!({
            "metadata": { "name": NAME, "labels": { "kubernetes.io/service-name": NAME } },
            "addressType": family.name(), "endpoints": endpoints, "ports": [self.endpoint_port()],
        });
        let mut current = self.client.get(&target, NAME).await?;
        if let Some(other) = current.take_if(|slice| slice.object.get(&["addressType"]) != Some(&json!(family.name())))
        {
            // A slice keeps its family for life.
            self.client.delete(&target, &other).await?;
        }
        self.write(&target, current, &wanted, &["endpoints", "ports"]).await
    }

    fn endpoint_port(&self) -> Value {
        json!({ "name": "https", "port": self.port, "protocol": "TCP" })
    }

    /// Has these fields of an object be as they are wanted. Who was faster wanted the same, or is corrected next time.
    async fn write(
        &self,
        target: &Target,
        current: Option<Stored>,
        wanted: &Value,
        fields: &[&str],
    ) -> Result<(), ApiError> {
        let Some(Stored { object, .. }) = current else {
            return match self.client.create(target, wanted.clone()).await {
                Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error),
            };
        };
        let empty = json!([]);
        let is = |object: &Object, field: &str| {
            object.get(&[field]).filter(|value| !value.is_null()).unwrap_or(&empty).clone()
        };
        if fields.iter().all(|field| is(&object, field) == wanted[*field]) {
            return Ok(());
        }
        let mut next = object;
        for field in fields {
            next.0.insert((*field).to_owned(), wanted[*field].clone());
        }
        unless_changed(self.client.update(target, next).await)
    }
}

fn unless_changed(written: Result<Stored, ApiError>) -> Result<(), ApiError> {
    match written {
        Ok(_) | Err(ApiError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
