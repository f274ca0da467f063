//! The total requests and limits of a pod.
//!
//! The amounts of regular containers are added up. Init containers count if they need more than the containers that run
//! after them. Resources that the pod itself states replace the sum. The rules are upstream's.

mod quality_of_service;

use crate::amounts::Amounts;
use crate::json::{Map, Value};

pub use quality_of_service::quality_of_service;

/// The kind of amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Reserved amounts.
    Requests,
    /// Maximum amounts.
    Limits,
}

impl Side {
    /// The name of the field.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

fn items<'v>(spec: &'v Map, field: &str) -> &'v [Value] {
    spec.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The resources that a container states, or those that a pod itself states.
pub fn stated(of: &Value, side: Side) -> Amounts {
    Amounts::read(of.get("resources").and_then(|resources| resources.get(side.field())))
}

/// Returns true for an init container that keeps running, which is a sidecar.
fn is_sidecar(container: &Value) -> bool {
    container.get("restartPolicy").and_then(Value::as_str) == Some("Always")
}

/// Returns true for resources that a pod may state itself.
pub fn is_of_pods(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// The total of the containers of this pod specification.
pub fn of_containers(spec: &Map, side: Side) -> Amounts {
    let mut sum = Amounts::default();
    for container in items(spec, "containers") {
        sum.add_all(&stated(container, side));
    }
    let (mut beside, mut first) = (Amounts::default(), Amounts::default());
    for container in items(spec, "initContainers") {
        let mut needed = stated(container, side);
        if is_sidecar(container) {
            sum.add_all(&needed);
            beside.add_all(&needed);
            needed = beside.clone();
        } else {
            needed.add_all(&beside);
        }
        first.raise_to(&needed);
    }
    sum.raise_to(&first);
    sum
}

/// The total of this pod specification.
pub fn of_pod(spec: &Value, side: Side) -> Amounts {
    let mut sum = spec.as_object().map(|spec| of_containers(spec, side)).unwrap_or_default();
    for (name, amount) in stated(spec, side).0 {
        if is_of_pods(&name) {
            sum.set(name, amount);
        }
    }
    for (name, amount) in Amounts::read(spec.get("overhead")).0 {
        // The overhead is not added to a limit that is absent: the resource stays unlimited.
        if side == Side::Requests || sum.get(&name).is_some_and(|limit| !limit.is_zero()) {
            sum.add(&name, amount);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn containers_add_up_and_those_that_run_first_count_as_the_largest() {
        let cpu = |amount: &str| json!({ "resources": { "requests": { "cpu": amount } } });
        let check = |spec: Value, expected: &str| {
            assert_eq!(of_pod(&spec, Side::Requests).to_string(), expected, "{spec:?}");
        };
        let mut sidecar = cpu("1500m");
        sidecar["restartPolicy"] = json!("Always");
        check(json!({ "containers": [cpu("1"), cpu("200m")] }), "cpu=1200m");
        check(json!({ "containers": [cpu("1")], "initContainers": [cpu("3")] }), "cpu=3");
        check(json!({ "containers": [cpu("1")], "initContainers": [cpu("1")] }), "cpu=1");
        check(json!({ "containers": [cpu("1")], "initContainers": [sidecar.clone()] }), "cpu=2500m");
        check(json!({ "containers": [cpu("1")], "initContainers": [sidecar, cpu("2")] }), "cpu=3500m");
        let whole = json!({ "containers": [cpu("1")], "resources": { "requests": { "cpu": "3" } } });
        check(whole, "cpu=3");
        check(
            json!({ "containers": [cpu("1")], "overhead": { "cpu": "250m", "memory": "1Mi" } }),
            "cpu=1250m,memory=1Mi",
        );
        let limited = json!({ "containers": [{}], "overhead": { "cpu": "250m" } });
        assert_eq!(of_pod(&limited, Side::Limits), Amounts::default());
    }
}
