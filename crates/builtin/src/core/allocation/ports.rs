//! Node ports. Each allocated port is a key in the store whose value names the service.
//!
//! The transaction of the service creates the key on the condition that it is absent. So ports are unique without a
//! lock. The API has no object for ports, so the keys are keelson's own.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use keelson_meta::ApiError;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value, json};
use keelson_registry::{AssociatedWrites, OnConflict, Registry, store_error};
use keelson_storage::{KeyValue, RangeRequest, StoreKey};

use super::counts::{Scope, note_port};
use super::spec::{Spec as _, held_ports, needs_health_check, needs_node_ports};
use super::{FULL, ServiceRef};

/// The prefix of the keys; `0` follows `/` in byte order.
const PREFIX: &str = "/registry/ranges/nodeports/";
const END: &str = "/registry/ranges/nodeports0";

const TAKEN: &str = "provided port is already allocated";

/// Allocates the ports that a service needs and does not have: the requested ones, or any free ones.
pub(super) async fn assign(
    registry: &Registry,
    service_ref: &ServiceRef<'_>,
    before: Option<&Map>,
    spec: &mut Map,
    attempt: usize,
    companions: &mut AssociatedWrites,
) -> Result<(), ApiError> {
    let held: HashSet<u16> = before.map(held_ports).unwrap_or_default().into_iter().collect();
    // Most ports are free, so the first attempt tries random ones. Later attempts read which ports are allocated.
    let taken = if attempt == 0 { HashSet::new() } else { taken(registry).await? };
    let mut taking = Taking { registry, service_ref, held, taken, new: HashSet::new(), companions };
    if needs_node_ports(spec) {
        let shared = before.is_none();
        let all = spec.text("type") == "NodePort"
            || spec.get("allocateLoadBalancerNodePorts").and_then(Value::as_bool) != Some(false);
        if let Some(Value::Array(ports)) = spec.get_mut("ports") {
            taking.ports(ports, shared, all)?;
        }
    }
    if needs_health_check(spec) {
        taking.health_check(spec)?;
    }
    Ok(())
}

/// Releases ports that the service had and no longer has.
pub(super) async fn give_back(
    registry: &Registry,
    service_ref: &ServiceRef<'_>,
    before: &Map,
    after: Option<&Map>,
    companions: &mut AssociatedWrites,
) -> Result<(), ApiError> {
    let kept: HashSet<u16> = after.map(held_ports).unwrap_or_default().into_iter().collect();
    // The value is not an object, but the text from `owner`.
    let is_own = |found: &KeyValue| {
        serde_json::from_slice::<Value>(&found.value).is_ok_and(|owner| owner["uid"] == service_ref.uid)
    };
    for port in held_ports(before).into_iter().filter(|port| !kept.contains(port)) {
        super::give_back(registry, key(port), is_own, companions).await?;
    }
    Ok(())
}

struct Taking<'a> {
    registry: &'a Registry,
    service_ref: &'a ServiceRef<'a>,
    /// The ports of the service before this write.
    held: HashSet<u16>,
    /// The ports that other services have, as far as known.
    taken: HashSet<u16>,
    /// The ports that the service gets in this write.
    new: HashSet<u16>,
    companions: &'a mut AssociatedWrites,
}

impl Taking<'_> {
    /// Sets the node ports of a service's ports. In a new service, ports with the same number and different protocols
    /// share a node port (`shared`). Unless `all` is true, only requested node ports are allocated.
    fn ports(&mut self, ports: &mut [Value], shared: bool, all: bool) -> Result<(), ApiError> {
        let mut chosen: HashMap<u16, u16> = HashMap::new();
        // A service may have 65,535 ports, so a map is used instead of a search.
        let mut wishes: HashMap<u16, u16> = HashMap::new();
        for (port, node_port) in ports.iter().filter_map(numbers).filter(|(_, node_port)| *node_port != 0) {
            wishes.entry(port).or_insert(node_port);
        }
        for (index, value) in ports.iter_mut().enumerate() {
            let Some((port, node_port)) = numbers(value) else { continue };
            if let Some(number) = value.as_object().and_then(|port| no_port_number(port, "nodePort")) {
                let field = format!("spec.ports[{index}].nodePort");
                return Err(self.service_ref.refuse(vec![FieldError::invalid(field, number, self.outside())]));
            }
            let sibling = chosen.get(&port).copied().filter(|_| shared);
            let wish = match (node_port, sibling) {
                (0, _) if !all => continue,
                (0, None) if shared => wishes.get(&port).map(|wish| (port, *wish)),
                (0, None) => None,
                (0, Some(sibling)) => Some((port, sibling)),
                (wish, _) => Some((port, wish)),
            };
            let node_port = match wish {
                Some((_, wish)) if sibling == Some(wish) || self.held.contains(&wish) => wish,
                // An existing service may use one node port for several of its ports.
                Some((_, wish)) if !shared && self.new.contains(&wish) => wish,
                Some((_, wish)) => {
                    let field = format!("spec.ports[{index}].nodePort");
                    self.take(wish, |service_ref, why| {
                        service_ref.refuse(vec![FieldError::invalid(field.as_str(), wish, why)])
                    })?;
                    wish
                }
                None => self.any().ok_or_else(|| no_port("failed to allocate a nodePort"))?,
            };
            chosen.entry(port).or_insert(node_port);
            if let Value::Object(port) = value {
                port.put("nodePort", Some(json!(node_port)));
            }
        }
        Ok(())
    }

    fn health_check(&mut self, spec: &mut Map) -> Result<(), ApiError> {
        if let Some(number) = no_port_number(spec, "healthCheckNodePort") {
            let why = self.outside();
            return Err(ApiError::Internal(format!(
                "failed to allocate requested HealthCheck NodePort {number}: {why}"
            )));
        }
        let port = match spec.port("healthCheckNodePort") {
            0 => self.any().ok_or_else(|| no_port("failed to allocate a HealthCheck NodePort 0"))?,
            wish if self.held.contains(&wish) => wish,
            wish => {
                let message = format!("failed to allocate requested HealthCheck NodePort {wish}");
                self.take(wish, |_, why| ApiError::Internal(format!("{message}: {why}")))?;
                wish
            }
        };
        spec.put("healthCheckNodePort", Some(json!(port)));
        Ok(())
    }

    /// Allocates a requested port.
    fn take(&mut self, port: u16, refused: impl Fn(&ServiceRef<'_>, &str) -> ApiError) -> Result<(), ApiError> {
        let is_in_range = self.registry.config().service_ranges.node_ports.holds(port);
        note_port(Scope::Static, is_in_range && !self.new.contains(&port) && !self.taken.contains(&port));
        if !is_in_range {
            return Err(refused(self.service_ref, &self.outside()));
        }
        let taken = refused(self.service_ref, TAKEN);
        if !self.new.insert(port) {
            return Err(taken);
        }
        self.companions.take(key(port), self.owner(), OnConflict::Refuse(Box::new(taken)));
        Ok(())
    }

    /// The error for a port outside of the range.
    fn outside(&self) -> String {
        let range = self.registry.config().service_ranges.node_ports;
        format!("provided port is not in the valid range. The range of valid ports is {range}")
    }

    /// Allocates a random port; `None` if all are allocated.
    fn any(&mut self) -> Option<u16> {
        let chance = self.registry.random().u64();
        let parts = self.registry.config().service_ranges.node_ports.parts();
        let mut ports =
            parts.into_iter().flat_map(|part| part.all_from(chance)).filter_map(|port| u16::try_from(port).ok());
        let free = |port: &u16| [&self.held, &self.taken, &self.new].iter().all(|taken| !taken.contains(port));
        let port = ports.find(free);
        note_port(Scope::Dynamic, port.is_some());
        let port = port?;
        self.new.insert(port);
        self.companions.take(key(port), self.owner(), OnConflict::TryAgain);
        Some(port)
    }

    fn owner(&self) -> Bytes {
        let ServiceRef { namespace, name, uid, .. } = self.service_ref;
        json!({ "namespace": namespace, "name": name, "uid": uid }).to_string().into()
    }
}

/// The value of a port field that is not a valid port number.
fn no_port_number(fields: &Map, field: &str) -> Option<i64> {
    let number = fields.get(field).and_then(Value::as_i64).filter(|number| *number != 0)?;
    u16::try_from(number).is_err().then_some(number)
}

/// The port and the node port of a service's port; 0 for an absent node port.
fn numbers(port: &Value) -> Option<(u16, u16)> {
    let port = port.as_object()?;
    Some((port.port("port"), port.port("nodePort")))
}

fn no_port(message: &str) -> ApiError {
    ApiError::Internal(format!("{message}: {FULL}"))
}

fn key(port: u16) -> StoreKey {
    StoreKey::new(format!("{PREFIX}{port}"))
}

async fn taken(registry: &Registry) -> Result<HashSet<u16>, ApiError> {
    let all = RangeRequest { from: StoreKey::new(PREFIX), to: StoreKey::new(END), revision: None, limit: None };
    let page = registry.store().range(all).await.map_err(store_error)?;
    let port = |key: &StoreKey| key.as_str().strip_prefix(PREFIX)?.parse().ok();
    Ok(page.entries.iter().filter_map(|entry| port(&entry.key)).collect())
}
