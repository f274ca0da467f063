//! Limit ranges: defaults for containers without requests or limits, and limits for pods and claims.
//!
//! Only new pods get defaults; an annotation lists them. All violations of a write are in one message, with upstream's
//! text.

use std::collections::HashSet;

use futures::future::BoxFuture;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::pod_resources::{Side, of_pod, stated as stated_resources};
use keelson_meta::{Amount, Amounts, ApiError, Object, Quantity};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation, Operation};

use super::reading::items;
use super::stored::{MOST_READ, MOST_READ_BYTES, StoredObjects};

/// The largest number of comparisons between containers and amounts of limits for one write. It also limits the amounts
/// that are added to a pod.
const MOST_COMPARED: usize = 50_000;
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Adds defaults, and refuses pods and claims that violate a limit.
#[derive(Debug)]
pub(crate) struct LimitRanger;

/// The kind of object that is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limited {
    Pod,
    Claim,
}

impl Limited {
    fn from_attributes(attributes: &AdmissionAttributes<'_>) -> Option<Self> {
        let target = attributes.target;
        match (&*target.resource.group, &*target.resource.plural, attributes.subresource(), attributes.operation) {
            ("", "pods", "", Operation::Create) | ("", "pods", "resize", Operation::Update) => Some(Self::Pod),
            ("", "persistentvolumeclaims", "", Operation::Create | Operation::Update) => Some(Self::Claim),
            _ => None,
        }
    }
}

/// Returns true if the namespace has limit ranges.
fn has_limits(attributes: &AdmissionAttributes<'_>) -> Result<bool, ApiError> {
    let Some(namespace) = attributes.target.namespace.as_deref() else { return Ok(false) };
    Ok(StoredObjects::new(attributes.registry, "", "limitranges")?.count_in(namespace) > 0)
}

/// The limit ranges of the namespace of the write, sorted by name.
///
/// # Errors
/// 403 if there are more than one write can be compared with.
fn limits(attributes: &AdmissionAttributes<'_>, object: &Object) -> Result<Vec<Object>, ApiError> {
    let Some(namespace) = attributes.target.namespace.as_deref() else { return Ok(Vec::new()) };
    let way_out = || format!("delete some of them (kubectl delete limitranges NAME -n {namespace})");
    let found = StoredObjects::new(attributes.registry, "", "limitranges")?.in_namespace(namespace);
    let found = found.map_err(|(count, bytes)| {
        attributes.refused(format!(
            "namespace {namespace} has {count} limit ranges with {bytes} bytes, and a write is compared with {MOST_READ} and \
             {MOST_READ_BYTES} bytes at most: {}",
            way_out()
        ))
    })?;
    let (amounts, containers) = (found.iter().map(amounts_of).sum::<usize>(), containers_of(object));
    if amounts.saturating_mul(containers) > MOST_COMPARED {
        return Err(attributes.refused(format!(
            "its {containers} containers and the {amounts} amounts of the limit ranges in namespace {namespace} need more than \
             {MOST_COMPARED} comparisons: state fewer containers, or {}",
            way_out()
        )));
    }
    Ok(found)
}

/// The number of containers of the object, at least one.
fn containers_of(object: &Object) -> usize {
    let lists = ["containers", "initContainers"].into_iter().map(|field| items(object.get(&["spec", field])).len());
    lists.sum::<usize>().max(1)
}

/// The number of limits in a limit range, plus the number of amounts in them.
fn amounts_of(limits: &Object) -> usize {
    let fields = ["default", "defaultRequest", "min", "max", "maxLimitRequestRatio"];
    let of = |limit: &Value| {
        let maps = fields.into_iter().filter_map(|field| limit.get(field).and_then(Value::as_object));
        1 + maps.map(|amounts| amounts.iter().count()).sum::<usize>()
    };
    stated(limits).map(|(_, limit)| of(limit)).sum()
}

/// The limits of a limit range, each with its type (`Container`, `Pod`, ...).
fn stated(limits: &Object) -> impl Iterator<Item = (&str, &Value)> {
    let items = items(limits.get(&["spec", "limits"])).iter();
    items.map(|limit| (limit.get("type").and_then(Value::as_str).unwrap_or_default(), limit))
}

/// Adds default requests and limits to the containers of a pod. Returns a text for each addition.
fn fill_in(limits: &Object, pod: &mut Object) -> Vec<String> {
    let (mut requests, mut maxima) = (Map::new(), Map::new());
    for (_, limit) in stated(limits).filter(|(about, _)| *about == "Container") {
        for (defaults, field) in [(&mut requests, "defaultRequest"), (&mut maxima, "default")] {
            let amounts = limit.get(field).and_then(Value::as_object).into_iter().flat_map(Map::iter);
            amounts.for_each(|(name, amount)| {
                defaults.insert(name, amount.clone());
            });
        }
    }
    let mut given = Vec::new();
    for (field, called) in [("containers", "container"), ("initContainers", "init container")] {
        let list = pod.0.get_mut("spec").and_then(|spec| spec.get_mut(field)).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            for (field, word, defaults) in [("requests", "request", &requests), ("limits", "limit", &maxima)] {
                let added = add_missing(container, field, defaults);
                if !added.is_empty() {
                    given.push(format!("{} {word} for {called} {name}", added.join(", ")));
                }
            }
        }
    }
    given
}

/// Adds the amounts that a container lacks. Returns the names of the added resources, sorted.
fn add_missing(container: &mut Map, field: &str, defaults: &Map) -> Vec<String> {
    let has = |name: &str| {
        let amounts = container.get("resources").and_then(|resources| resources.get(field));
        amounts.and_then(|amounts| amounts.get(name)).is_some()
    };
    let missing: Vec<(&str, &Value)> = defaults.iter().filter(|(name, _)| !has(name)).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let Some(resources) = object_at(container, "resources") else { return Vec::new() };
    let Some(amounts) = object_at(resources, field) else { return Vec::new() };
    let mut added: Vec<String> = missing.iter().map(|(name, _)| (*name).to_owned()).collect();
    for (name, amount) in missing {
        amounts.insert(name, amount.clone());
    }
    added.sort();
    added
}

/// The object in a field. An absent or null field is set to an empty object.
fn object_at<'m>(map: &'m mut Map, field: &str) -> Option<&'m mut Map> {
    let value = map.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// The amounts that are compared with a limit. `about` is their type in messages.
struct LimitedAmounts<'j> {
    about: &'j str,
    requests: &'j Amounts,
    limits: &'j Amounts,
}

impl LimitedAmounts<'_> {
    /// The violations of the minima, maxima and ratios of a limit.
    fn faults(&self, limit: &Value) -> Vec<String> {
        let amounts = |field: &str| Amounts::read(limit.get(field)).0;
        let below = amounts("min").into_iter().filter_map(|(name, least)| self.below(&name, least));
        let above = amounts("max").into_iter().filter_map(|(name, most)| self.above(&name, most));
        let ratios = amounts("maxLimitRequestRatio").into_iter();
        below.chain(above).chain(ratios.filter_map(|(name, most)| self.out_of_ratio(&name, most))).collect()
    }

    fn below(&self, name: &str, least: Amount) -> Option<String> {
        let minimum = format!("minimum {name} usage per {} is {least}", self.about);
        let Some(request) = self.requests.get(name) else {
            return Some(format!("{minimum}.  No request is specified"));
        };
        if request.quantity() < least.quantity() {
            return Some(format!("{minimum}, but request is {request}"));
        }
        let limit = self.limits.get(name).filter(|limit| limit.quantity() < least.quantity())?;
        Some(format!("{minimum}, but limit is {limit}"))
    }

    fn above(&self, name: &str, most: Amount) -> Option<String> {
        let maximum = format!("maximum {name} usage per {} is {most}", self.about);
        let Some(limit) = self.limits.get(name) else { return Some(format!("{maximum}.  No limit is specified")) };
        if limit.quantity() > most.quantity() {
            return Some(format!("{maximum}, but limit is {limit}"));
        }
        let request = self.requests.get(name).filter(|request| request.quantity() > most.quantity())?;
        Some(format!("{maximum}, but request is {request}"))
    }

    fn out_of_ratio(&self, name: &str, most: Amount) -> Option<String> {
        let ratio = format!("{name} max limit to request ratio per {} is {most}", self.about);
        let (request, limit) = (self.requests.get(name), self.limits.get(name));
        let Some(request) = request.filter(|request| !request.is_zero()) else {
            return Some(format!("{ratio}, but no request is specified or request is 0"));
        };
        let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
            return Some(format!("{ratio}, but no limit is specified or limit is 0"));
        };
        let provided = limit.quantity().over(request.quantity());
        (provided > most.quantity().over(Quantity::units(1)))
            .then(|| format!("{ratio}, but provided ratio is {provided:.6}"))
    }
}

/// The violations of a limit range by a pod.
fn faults_of_pod(limits: &Object, pod: &Object) -> Vec<String> {
    let Some(spec) = pod.0.get("spec") else { return Vec::new() };
    let mut faults = Vec::new();
    for (about, limit) in stated(limits) {
        if about == "Container" {
            for container in ["containers", "initContainers"].into_iter().flat_map(|field| items(spec.get(field))) {
                let (requests, limits) =
                    (stated_resources(container, Side::Requests), stated_resources(container, Side::Limits));
                faults.extend(LimitedAmounts { about, requests: &requests, limits: &limits }.faults(limit));
            }
        } else if about == "Pod" {
            let (requests, limits) = (of_pod(spec, Side::Requests), of_pod(spec, Side::Limits));
            faults.extend(LimitedAmounts { about, requests: &requests, limits: &limits }.faults(limit));
        }
    }
    faults
}

/// The violations of a limit range by a claim. Minima and maxima both apply to the requests, since claims have no
/// limits.
fn faults_of_claim(limits: &Object, claim: &Object) -> Vec<String> {
    let requests = Amounts::read(claim.get(&["spec", "resources", "requests"]));
    let mut faults = Vec::new();
    for (about, limit) in stated(limits).filter(|(about, _)| *about == "PersistentVolumeClaim") {
        let none = Amounts::default();
        let judged = LimitedAmounts { about, requests: &requests, limits: &none };
        let least = Amounts::read(limit.get("min")).0.into_iter();
        faults.extend(least.filter_map(|(name, least)| judged.below(&name, least)));
        for (name, most) in Amounts::read(limit.get("max")).0 {
            let maximum = format!("maximum {name} usage per {about} is {most}");
            match requests.get(&name) {
                None => faults.push(format!("{maximum}.  No request is specified")),
                Some(request) if request.quantity() > most.quantity() => {
                    faults.push(format!("{maximum}, but request is {request}"));
                }
                Some(_) => {}
            }
        }
    }
    faults
}

/// Joins violations into one message, without duplicates.
fn joined(faults: Vec<String>) -> String {
    let mut seen = HashSet::new();
    let mut messages: Vec<String> = faults.into_iter().filter(|fault| seen.insert(fault.clone())).collect();
    if messages.len() == 1 { messages.remove(0) } else { format!("[{}]", messages.join(", ")) }
}

impl Admission for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let is_limited =
            Limited::from_attributes(attributes).is_some() && has_limits(attributes).is_ok_and(|has_limits| has_limits);
        if is_limited { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(Mutation::Unchanged) };
            if attributes.operation != Operation::Create || Limited::from_attributes(attributes) != Some(Limited::Pod) {
                return Ok(Mutation::Unchanged);
            }
            let mut mutation = Mutation::Unchanged;
            for limits in limits(attributes, pod)? {
                let given = fill_in(&limits, pod);
                if !given.is_empty() {
                    let note = format!("LimitRanger plugin set: {}", given.join("; "));
                    if let Some(annotations) = object_at(pod.metadata_mut(), "annotations") {
                        annotations.insert(ANNOTATION, note);
                    }
                    mutation = Mutation::Changed;
                }
            }
            Ok(mutation)
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let (Some(object), Some(limited)) = (object, Limited::from_attributes(attributes)) else { return Ok(()) };
            if attributes.operation == Operation::Update && object.deletion_timestamp().is_some() {
                return Ok(());
            }
            for limits in limits(attributes, object)? {
                let faults = match limited {
                    Limited::Pod => faults_of_pod(&limits, object),
                    Limited::Claim => faults_of_claim(&limits, object),
                };
                if !faults.is_empty() {
                    return Err(attributes.refused(joined(faults)));
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "the values of a test are made where they are given")]
    fn limits(limit: Value) -> Object {
        Object::from_value(json!({ "spec": { "limits": [limit] } })).unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "the values of a test are made where they are given")]
    fn pod(requests: Value, limits: Value) -> Object {
        let container = json!({ "name": "c", "resources": { "requests": requests, "limits": limits } });
        Object::from_value(json!({ "spec": { "containers": [container] } })).unwrap()
    }

    #[test]
    fn missing_container_resources_are_defaulted() {
        let limits = limits(json!({
            "type": "Container", "default": { "cpu": "200m", "memory": "256Mi" }, "defaultRequest": { "cpu": "100m" },
        }));
        let mut pod = Object::from_value(json!({ "spec": {
            "containers": [{ "name": "c" }],
            "initContainers": [{ "name": "i", "resources": { "limits": { "cpu": "1" } } }],
        } }))
        .unwrap();
        let given = fill_in(&limits, &mut pod);
        assert_eq!(
            given,
            [
                "cpu request for container c",
                "cpu, memory limit for container c",
                "cpu request for init container i",
                "memory limit for init container i",
            ]
        );
        let of = |field: &str| pod.get(&["spec", field]).unwrap()[0]["resources"].clone();
        let all = json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "200m", "memory": "256Mi" } });
        assert_eq!(of("containers"), all);
        let some = json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "1", "memory": "256Mi" } });
        assert_eq!(of("initContainers"), some);
        assert!(fill_in(&limits, &mut pod).is_empty(), "nothing is given twice");
    }

    #[test]
    fn amounts_beyond_the_limits_are_reported() {
        let check = |limit: Value, requests: Value, maxima: Value, expected: &str| {
            assert_eq!(joined(faults_of_pod(&limits(limit), &pod(requests, maxima))), expected);
        };
        let least = json!({ "type": "Container", "min": { "cpu": "100m" } });
        check(
            least.clone(),
            json!({ "cpu": "50m" }),
            json!({}),
            "minimum cpu usage per Container is 100m, but request is 50m",
        );
        check(least, json!({ "cpu": "0.1" }), json!({}), "[]");
        let most = json!({ "type": "Pod", "max": { "cpu": "2" } });
        check(most.clone(), json!({}), json!({}), "maximum cpu usage per Pod is 2.  No limit is specified");
        check(most, json!({}), json!({ "cpu": "2500m" }), "maximum cpu usage per Pod is 2, but limit is 2500m");
        let ratio = json!({ "type": "Container", "maxLimitRequestRatio": { "cpu": "2" } });
        let message = "cpu max limit to request ratio per Container is 2, but provided ratio is 3.333333";
        check(ratio.clone(), json!({ "cpu": "300m" }), json!({ "cpu": "1" }), message);
        let message = "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0";
        check(ratio, json!({ "cpu": "0" }), json!({ "cpu": "1" }), message);
    }
}
