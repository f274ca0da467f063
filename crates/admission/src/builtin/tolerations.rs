//! Tolerations of namespaces: pods get the default tolerations of their namespace, and may only have tolerations that
//! it allows.
//!
//! This is upstream's plugin PodTolerationRestriction. Two annotations of the namespace have the lists. The settings
//! have lists for namespaces without the annotations. A refused pod gets 403; upstream returns 500.

use futures::future::BoxFuture;
use keelson_codec::json;
use keelson_meta::json::{Map, Value};
use keelson_meta::pod_resources::quality_of_service;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation, Operation};

use super::reading::{is_written, items};
use crate::matching::namespace;

/// The annotation with the default tolerations for pods.
const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
/// The annotation with the allowed tolerations.
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
/// The taint that pods with resource requests or limits tolerate.
const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";

/// The largest number of tolerations of a pod. The limit is needed because each is compared with all others.
const MOST: usize = 1024;

const NOT_ALLOWED: &str =
    "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist";

/// The settings of the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TolerationSettings {
    /// The default tolerations in namespaces without the annotation.
    pub(crate) defaults: Vec<Toleration>,
    /// The allowed tolerations in namespaces without the annotation. An empty list allows all.
    pub(crate) allowed: Vec<Toleration>,
}

/// A toleration of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Toleration {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) value: String,
    pub(crate) effect: String,
    pub(crate) seconds: Option<i64>,
}

impl Toleration {
    /// Parses a toleration.
    ///
    /// # Errors
    /// The value is not an object, or a field has the wrong type.
    pub(crate) fn read(value: &Value) -> Result<Self, String> {
        let fields = value.as_object().ok_or("a toleration is not an object")?;
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(stated) => stated.as_str().map(str::to_owned).ok_or_else(|| format!("{name} is not a string")),
        };
        let seconds = match fields.get("tolerationSeconds") {
            None | Some(Value::Null) => None,
            Some(stated) => Some(stated.as_i64().ok_or("tolerationSeconds is not a whole number")?),
        };
        let (key, operator, value, effect) = (text("key")?, text("operator")?, text("value")?, text("effect")?);
        Ok(Self { key, operator, value, effect, seconds })
    }

    fn of_memory_pressure() -> Self {
        let [key, operator, effect] = [MEMORY_PRESSURE, "Exists", "NoSchedule"].map(str::to_owned);
        Self { key, operator, effect, ..Self::default() }
    }

    fn to_value(&self) -> Value {
        let texts =
            [("key", &self.key), ("operator", &self.operator), ("value", &self.value), ("effect", &self.effect)];
        let mut fields = Map::default();
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            fields.insert(name, text.as_str());
        }
        if let Some(seconds) = self.seconds {
            fields.insert("tolerationSeconds", seconds);
        }
        Value::Object(fields)
    }

    /// Returns true if this toleration covers the other one.
    fn includes(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let has_every_key = self.key.is_empty() && self.operator == "Exists";
        let is_shorter = self.effect == "NoExecute"
            && self.seconds.is_some_and(|own| other.seconds.is_none_or(|seconds| seconds > own));
        if (self.key != other.key && !has_every_key)
            || (self.effect != other.effect && !self.effect.is_empty())
            || is_shorter
        {
            return false;
        }
        match self.operator.as_str() {
            "Equal" | "" => other.operator == "Equal" && other.value == self.value,
            operator => operator == "Exists",
        }
    }
}

/// The tolerations of both lists, without those that another one covers.
fn merged(first: &[Toleration], second: &[Toleration]) -> Vec<Toleration> {
    let all: Vec<&Toleration> = first.iter().chain(second).collect();
    let mut merged: Vec<Toleration> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let is_included = merged.iter().any(|kept| kept.includes(one))
            || all[at + 1..].iter().any(|later| later != one && later.includes(one));
        if !is_included {
            merged.push((*one).clone());
        }
    }
    merged
}

/// Parses a list of tolerations.
///
/// # Errors
/// A toleration is invalid.
pub(crate) fn read_all(list: &[Value]) -> Result<Vec<Toleration>, String> {
    list.iter().map(Toleration::read).collect()
}

/// Adds the default tolerations of the namespace to pods, and refuses tolerations that the namespace does not allow.
#[derive(Debug)]
pub(crate) struct PodTolerationRestriction {
    settings: TolerationSettings,
}

impl PodTolerationRestriction {
    pub(crate) fn new(settings: TolerationSettings) -> Self {
        Self { settings }
    }

    /// The tolerations in an annotation of the namespace; `None` without that annotation.
    fn stated(attributes: &AdmissionAttributes<'_>, annotation: &str) -> Result<Option<Vec<Toleration>>, ApiError> {
        let Some(name) = attributes.target.namespace.as_deref() else { return Ok(None) };
        let namespace = namespace(attributes, name)?;
        let Some((_, text)) = namespace.annotations().find(|(key, _)| *key == annotation) else { return Ok(None) };
        if text.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let wrong = |why: String| ApiError::Internal(format!("annotation {annotation} of namespace {name}: {why}"));
        let read = json::parse(text.as_bytes()).map_err(|error| wrong(error.to_string()))?.value;
        match &read {
            Value::Null => Ok(Some(Vec::new())),
            Value::Array(list) => read_all(list).map(Some).map_err(wrong),
            _ => Err(wrong("it is not a list".to_owned())),
        }
    }

    /// The new tolerations of a pod.
    fn tolerations(&self, attributes: &AdmissionAttributes<'_>, pod: &Object) -> Result<Vec<Toleration>, ApiError> {
        let mut own = own(pod)?;
        let is_new = attributes.operation == Operation::Create;
        let defaults = if is_new { Self::stated(attributes, DEFAULTS)? } else { Some(Vec::new()) };
        let defaults = defaults.unwrap_or_else(|| self.settings.defaults.clone());
        if !defaults.is_empty() {
            own = if own.is_empty() { defaults } else { merged(&defaults, &own) };
        }
        let pressure = Toleration::of_memory_pressure();
        if quality_of_service(pod) == "BestEffort" {
            return Ok(own);
        }
        match is_new {
            true => Ok(merged(&own, &[pressure])),
            // An update never removes tolerations of a stored pod.
            false => {
                if !own.iter().any(|one| one.includes(&pressure)) {
                    own.push(pressure);
                }
                Ok(own)
            }
        }
    }

    fn check(&self, attributes: &AdmissionAttributes<'_>, tolerations: &[Toleration]) -> Result<(), ApiError> {
        if tolerations.is_empty() {
            return Ok(());
        }
        let allowed = Self::stated(attributes, ALLOWED)?;
        let allowed = allowed.as_ref().unwrap_or(&self.settings.allowed);
        let is_allowed = |one: &Toleration| allowed.iter().any(|allowed| allowed.includes(one));
        if allowed.is_empty() || tolerations.iter().all(is_allowed) {
            return Ok(());
        }
        Err(attributes.refused(NOT_ALLOWED))
    }
}

/// The tolerations of a pod.
fn own(pod: &Object) -> Result<Vec<Toleration>, ApiError> {
    read_all(items(pod.get(&["spec", "tolerations"]))).map_err(ApiError::Internal)
}

impl Admission for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        if is_written(attributes, "pods") { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(Mutation::Unchanged) };
            if items(pod.get(&["spec", "tolerations"])).len() > MOST {
                return Err(attributes.refused(format!("pod has more than {MOST} tolerations")));
            }
            let tolerations = self.tolerations(attributes, pod)?;
            self.check(attributes, &tolerations)?;
            if tolerations == own(pod)? {
                return Ok(Mutation::Unchanged);
            }
            let Some(spec) = pod.0.get_mut("spec").and_then(Value::as_object_mut) else {
                return Ok(Mutation::Unchanged);
            };
            spec.insert("tolerations", tolerations.iter().map(Toleration::to_value).collect::<Vec<_>>());
            Ok(Mutation::Changed)
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            self.check(attributes, &own(pod)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    fn toleration(value: &Value) -> Toleration {
        Toleration::read(value).unwrap()
    }

    #[test]
    fn a_toleration_includes_what_it_tolerates_besides() {
        let check = |one: &Value, other: &Value, expected: bool| {
            assert_eq!(toleration(one).includes(&toleration(other)), expected, "{one:?} {other:?}");
        };
        let equal = json!({ "key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule" });
        check(&json!({ "operator": "Exists" }), &equal, true);
        check(&json!({ "key": "a", "operator": "Exists" }), &equal, true);
        check(&json!({ "key": "a", "value": "b" }), &equal, true);
        check(&json!({ "key": "a", "operator": "Equal", "value": "c" }), &equal, false);
        check(&json!({ "key": "c", "operator": "Exists" }), &equal, false);
        check(&json!({ "key": "a", "operator": "Exists", "effect": "NoExecute" }), &equal, false);
        check(&equal, &equal, true);
        check(&equal, &json!({ "key": "a", "operator": "Exists" }), false);
        let executed = |seconds: Option<i64>| json!({ "key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
        check(&executed(Some(5)), &executed(Some(3)), true);
        check(&executed(Some(3)), &executed(Some(5)), false);
        check(&executed(Some(3)), &executed(None), false);
        check(&executed(None), &executed(Some(3)), true);
    }

    #[test]
    fn merged_tolerations_have_no_part_twice() {
        let list = |values: &[Value]| values.iter().map(toleration).collect::<Vec<_>>();
        let (a, b) = (json!({ "key": "a", "operator": "Exists" }), json!({ "key": "b", "operator": "Exists" }));
        let narrow = json!({ "key": "a", "operator": "Equal", "value": "x", "effect": "NoSchedule" });
        let check = |first: &[Value], second: &[Value], expected: &[Value]| {
            assert_eq!(merged(&list(first), &list(second)), list(expected), "{first:?} {second:?}");
        };
        let [a, b, narrow] = [a, b, narrow].map(|value| [value]);
        check(&a, &b, &[a.clone(), b.clone()].concat());
        check(&narrow, &a, &a);
        check(&a, &[narrow, b.clone()].concat(), &[a.clone(), b].concat());
        check(&a, &a, &a);
    }
}
