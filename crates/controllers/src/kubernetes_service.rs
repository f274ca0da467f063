//! Keeps the service `kubernetes` in the namespace `default`, at which pods find the API servers: the service, the
//! ServiceCIDR, and the addresses of live servers.
//!
//! Every server writes the addresses and ports of all servers in the same order, so equal results cause no further
//! write. A server that stops removes its own address. The address of a server in doubt stays if it is listed, but is
//! never added. So two servers that see a death at different times don't undo each other's removal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Value, json};
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Family, Registry, ServiceRanges, Target};
use keelson_supervision::warn_repeated;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, RevisedObject, SERVER_MANAGER, clean_up};
use crate::servers::{Addresses, RegisteredServers};

/// The interval between checks, as in kube-apiserver.
const INTERVAL: Duration = Duration::from_secs(10);

/// The name of all these objects.
const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";
/// The port of the service.
const PORT: u16 = 443;

/// The label of a slice with the name of its service.
const SLICE_SERVICE: &str = "kubernetes.io/service-name";
/// The label of a slice with its controller.
const SLICE_MANAGER: &str = "endpointslice.kubernetes.io/managed-by";
/// The value of the label for the managing controller, in slices for further ports. kube-apiserver creates no such
/// slices.
const OURS: &str = "keelson";

/// Keeps the objects.
pub struct KubernetesService {
    client: Client,
    ranges: ServiceRanges,
    servers: Arc<RegisteredServers>,
    /// The port of this server.
    port: u16,
    /// True if the service gets the addresses of servers.
    publishes: bool,
}

impl KubernetesService {
    /// Creates the controller of a server on `port`.
    pub fn new(registry: Arc<Registry>, ranges: ServiceRanges, servers: Arc<RegisteredServers>, port: u16) -> Self {
        Self { client: Client::of_upkeep(registry, SERVER_MANAGER), ranges, servers, port, publishes: true }
    }

    /// Leaves the addresses of the service to others, or not.
    #[must_use]
    pub fn publishing(self, publishes: bool) -> Self {
        Self { publishes, ..self }
    }

    /// Runs until the server stops. Removes its address when it is about to stop, so that clients go elsewhere while it
    /// still answers, as kube-apiserver does.
    pub fn run(self: Arc<Self>, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self: Arc<Self>, stopping: CancellationToken) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The bootstrap has already written the objects once.
        ticks.tick().await;
        let mut has_left = false;
        loop {
            tokio::select! {
                () = stopping.cancelled() => break,
                () = self.servers.leaving().cancelled(), if !has_left => {
                    has_left = true;
                    clean_up(self.leave(), "removing the address of this server failed; retrying").await;
                    continue;
                }
                _ = ticks.tick() => {}
            }
            for done in [self.ensure_range().await, self.ensure_service().await] {
                if let Err(error) = done {
                    warn_repeated!(""; %error, "updating the service of the API servers failed; retrying");
                }
            }
        }
        clean_up(self.leave(), "removing the address of this server failed").await;
    }

    /// Creates the ServiceCIDR of the cluster and sets its condition `Ready`.
    pub(crate) async fn ensure_range(&self) -> Result<(), ApiError> {
        let target = self.client.collection("networking.k8s.io", "v1", "servicecidrs", None)?;
        let cidrs: Vec<String> = self.ranges.addresses().iter().map(ToString::to_string).collect();
        let current = match self.client.get(&target, NAME).await? {
            Some(current) => current,
            None => {
                let object = json!({ "metadata": { "name": NAME }, "spec": { "cidrs": cidrs } });
                match self.client.create(&target, object).await {
                    Err(ApiError::AlreadyExists { .. }) => return Ok(()),
                    created => created?.read(),
                }
            }
        };
        let RevisedObject { object, .. } = self.widen(&target, current, &cidrs).await?;
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
        next.0.insert("status", json!({ "conditions": [ready] }));
        let status = target.below("status");
        unless_changed(self.client.update(&status, next).await)
    }

    /// Adds the second family to a range with one family.
    async fn widen(
        &self,
        target: &Target,
        current: RevisedObject,
        cidrs: &[String],
    ) -> Result<RevisedObject, ApiError> {
        let had = current.object.get(&["spec", "cidrs"]);
        if cidrs.len() != 2 || had != Some(&json!([cidrs[0]])) {
            if had != Some(&json!(cidrs)) {
                warn_repeated!(""; ?had, ?cidrs, "the range of services is not the one that this server is set to");
            }
            return Ok(current);
        }
        let mut next = current.object;
        next.0.insert("spec", json!({ "cidrs": cidrs }));
        Ok(self.client.update(target, next).await?.read())
    }

    /// Creates the service, and writes the addresses of live servers to its endpoints.
    pub(crate) async fn ensure_service(&self) -> Result<(), ApiError> {
        let target = self.client.collection("", "v1", "services", Some(NAMESPACE))?;
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

    /// Removes this server's address.
    async fn leave(&self) -> Result<(), ApiError> {
        let Addresses { mut live, mut doubtful } = self.servers.addresses().await?;
        for addresses in [&mut live, &mut doubtful] {
            addresses.retain(|address| Some(*address) != self.servers.own());
        }
        self.lead_to(Addresses { live, doubtful }).await
    }

    async fn lead_to(&self, servers: Addresses) -> Result<(), ApiError> {
        if !self.publishes {
            return Ok(());
        }
        let target = self.client.collection("", "v1", "endpoints", Some(NAMESPACE))?;
        let current = self.client.get(&target, NAME).await?;
        let stated = current.as_ref().map(|stored| stated(&stored.object)).unwrap_or_default();
        let kept = servers.doubtful.into_iter().filter(|address| stated.contains(address));
        let addresses: BTreeSet<SocketAddr> = servers.live.into_iter().chain(kept).collect();
        self.write_endpoints(&target, current, &addresses).await?;
        self.write_slices(&addresses).await
    }

    /// Writes one subset for each port, since a subset's ports apply to all its addresses.
    async fn write_endpoints(
        &self,
        target: &Target,
        current: Option<RevisedObject>,
        servers: &BTreeSet<SocketAddr>,
    ) -> Result<(), ApiError> {
        let mut ports: BTreeMap<u16, Vec<Value>> = BTreeMap::new();
        for server in servers {
            ports.entry(server.port()).or_default().push(json!({ "ip": server.ip().to_string() }));
        }
        let subset = |(port, addresses)| json!({ "addresses": addresses, "ports": [endpoint_port(port)] });
        let subsets: Vec<Value> = ports.into_iter().map(subset).collect();
        let labels = json!({ "endpointslice.kubernetes.io/skip-mirror": "true" });
        let wanted = json!({ "metadata": { "name": NAME, "labels": labels }, "subsets": subsets });
        self.write(target, current, &wanted, &["subsets"]).await
    }

    /// Writes one slice for each port and address family, since a slice has one family and its ports apply to all its
    /// addresses.
    async fn write_slices(&self, servers: &BTreeSet<SocketAddr>) -> Result<(), ApiError> {
        let target = self.client.collection("discovery.k8s.io", "v1", "endpointslices", Some(NAMESPACE))?;
        let primary = self.ranges.primary().family();
        let mut slices: BTreeMap<(bool, u16), Vec<IpAddr>> = BTreeMap::new();
        for server in servers {
            let second = Family::from_address(server.ip()) != primary;
            slices.entry((second, server.port())).or_default().push(server.ip());
        }
        if slices.is_empty() {
            slices.insert((false, self.port), Vec::new());
        }
        let wanted: Vec<Value> =
            slices.iter().enumerate().map(|(place, ((_, port), of))| slice(place, primary, *port, of)).collect();
        for slice in &wanted {
            self.write_slice(&target, slice).await?;
        }
        let ours = LabelSelector::everything().and_label(SLICE_SERVICE, NAME).and_label(SLICE_MANAGER, OURS);
        for left in self.client.list(&target, ours).await? {
            if !wanted.iter().any(|slice| slice["metadata"]["name"] == left.object.name()) {
                unless_changed(self.client.delete(&target, &left).await)?;
            }
        }
        Ok(())
    }

    async fn write_slice(&self, target: &Target, wanted: &Value) -> Result<(), ApiError> {
        let name = wanted["metadata"]["name"].as_str().unwrap_or(NAME);
        let mut current = self.client.get(target, name).await?;
        if let Some(other) = current.take_if(|slice| slice.object.get(&["addressType"]) != Some(&wanted["addressType"]))
        {
            // The address family of a slice is immutable.
            self.client.delete(target, &other).await?;
        }
        self.write(target, current, wanted, &["endpoints", "ports"]).await
    }

    /// Writes these fields of an object where they differ. Conflicts are ignored: the other writer wrote the same, or
    /// the next round corrects it.
    async fn write(
        &self,
        target: &Target,
        current: Option<RevisedObject>,
        wanted: &Value,
        fields: &[&str],
    ) -> Result<(), ApiError> {
        let Some(RevisedObject { object, .. }) = current else {
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

fn unless_changed<T>(written: Result<T, ApiError>) -> Result<(), ApiError> {
    match written {
        Ok(_) | Err(ApiError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn endpoint_port(port: u16) -> Value {
    json!({ "name": "https", "port": port, "protocol": "TCP" })
}

/// The addresses and ports that the endpoints list.
fn stated(endpoints: &Object) -> BTreeSet<SocketAddr> {
    let list = |of: &Value, field: &str| of[field].as_array().cloned().unwrap_or_default();
    let subsets = endpoints.get(&["subsets"]).and_then(Value::as_array);
    let mut found = BTreeSet::new();
    for subset in subsets.into_iter().flatten() {
        let ports: Vec<u16> =
            list(subset, "ports").iter().filter_map(|port| port["port"].as_u64()?.try_into().ok()).collect();
        for address in list(subset, "addresses") {
            let Some(ip) = address["ip"].as_str().and_then(|ip| ip.parse().ok()) else { continue };
            found.extend(ports.iter().map(|port| SocketAddr::new(ip, *port)));
        }
    }
    found
}

/// The slice for a port and address family. The first slice has the service's name, as in kube-apiserver.
fn slice(place: usize, primary: Family, port: u16, addresses: &[IpAddr]) -> Value {
    let family = addresses.first().map_or(primary, |address| Family::from_address(*address)).name();
    let (name, labels) = match place {
        0 => (NAME.to_owned(), json!({ SLICE_SERVICE: NAME })),
        _ => {
            let name = format!("{NAME}-{}-{port}", family.to_ascii_lowercase());
            (name, json!({ SLICE_SERVICE: NAME, SLICE_MANAGER: OURS }))
        }
    };
    let endpoint = |address: &IpAddr| json!({ "addresses": [address.to_string()], "conditions": { "ready": true } });
    let endpoints: Vec<Value> = addresses.iter().map(endpoint).collect();
    json!({
        "metadata": { "name": name, "labels": labels },
        "addressType": family, "endpoints": endpoints, "ports": [endpoint_port(port)],
    })
}
