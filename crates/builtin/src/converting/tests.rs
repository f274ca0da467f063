//! Tests round trips between every pair of versions of every kind, with random objects.
//!
//! A round trip must change nothing. Otherwise a write in an old version would lose fields.

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};
use keelson_registry::Conversion as _;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::Conversion;
use crate::catalogue;

/// A kind's pair of versions: the kind, and the two (group, version)s.
type Pair = (&'static str, (&'static str, &'static str), (&'static str, &'static str));

const HPA: Pair = ("HorizontalPodAutoscaler", ("autoscaling", "v2"), ("autoscaling", "v1"));
const EVENT: Pair = ("Event", ("", "v1"), ("events.k8s.io", "v1"));
const RESOURCE: &str = "resource.k8s.io";

fn devices(kind: &'static str, from: &'static str, to: &'static str) -> Pair {
    (kind, (RESOURCE, from), (RESOURCE, to))
}

fn backwards((kind, from, to): Pair) -> Pair {
    (kind, to, from)
}

/// The conversion from one version of a kind to another one.
fn conversion(kind: &str, from: (&str, &str), to: (&str, &str)) -> Option<&'static Conversion> {
    Conversion::between(to.0, kind, from, to).filter(|_| from != to)
}

/// Converts a body from the first version of a pair to the second.
fn convert((kind, from, to): Pair, body: &Value) -> Value {
    let conversion = conversion(kind, from, to).expect("both versions are served");
    let Value::Object(body) = body else { panic!("not an object") };
    let mut object = Object(Map::from_iter([
        ("kind".to_owned(), json!(kind)),
        ("apiVersion".to_owned(), json!(conversion.source_api_version())),
    ]));
    object.0.extend(body.clone());
    conversion.convert(&mut object).expect("a well formed object");
    assert_eq!(object.0.remove("kind"), Some(json!(kind)));
    assert_eq!(object.0.remove("apiVersion"), Some(json!(conversion.to_api_version())));
    object.into_value()
}

fn there_and_back(pair: Pair, body: &Value) -> Value {
    convert(backwards(pair), &convert(pair, body))
}

/// An object with these fields, without those that are `None`.
fn tree<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::from), fields("[a-z]{1,3}", inner)]
    })
}

fn fields(name: &'static str, value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    vec((name, value), 0..4).prop_map(|fields| fields.into_iter().collect())
}

fn text() -> impl Strategy<Value = Value> {
    "[a-zA-Z<>\"é]{1,6}".prop_map(Value::from)
}

fn quantity() -> impl Strategy<Value = Value> {
    "[1-9][0-9]{0,3}(m|k|Mi|Gi)?".prop_map(Value::from)
}

fn number() -> impl Strategy<Value = Value> {
    (1..10_000i32).prop_map(Value::from)
}

/// Metadata with annotations that do not belong to the server, and an unknown field.
fn metadata() -> impl Strategy<Value = Value> {
    let annotations =
        of(fields("[a-z]{1,3}", text()).prop_filter("not empty", |map| map.as_object() != Some(&Map::new())));
    ("[a-z]{1,5}", annotations, of(any_json())).prop_map(|(name, annotations, new)| {
        tree([("name", Some(json!(name))), ("annotations", annotations), ("new", new)])
    })
}

fn identifier() -> impl Strategy<Value = Value> {
    let selector = prop_oneof![
        fields("[a-z]{1,3}", text()).prop_map(|labels| json!({"matchLabels": labels})),
        (text(), text(), vec(text(), 0..3)).prop_map(|(key, operator, values)| {
            json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
        }),
    ];
    (text(), of(selector)).prop_map(|(name, selector)| tree([("name", Some(name)), ("selector", selector)]))
}

fn reference() -> impl Strategy<Value = Value> {
    (text(), text(), of(text()))
        .prop_map(|(kind, name, version)| tree([("kind", Some(kind)), ("name", Some(name)), ("apiVersion", version)]))
}

/// A target or a current value, with these field names.
fn values(average: bool) -> BoxedStrategy<Value> {
    if average {
        quantity().prop_map(|value| json!({"averageValue": value})).boxed()
    } else {
        quantity().prop_map(|value| json!({"value": value})).boxed()
    }
}

fn typed(name: &'static str, values: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let typed = move |mut values: Value| {
        values["type"] = json!(name);
        values
    };
    values.prop_map(typed).boxed()
}

fn percent() -> BoxedStrategy<Value> {
    number().prop_map(|percent| json!({"averageUtilization": percent})).boxed()
}

/// A metric of v2 other than the CPU utilization. `outer` is `target` or `current`; the values are for [object,
/// average, use].
fn metric(outer: &'static str, [value, average, percent]: [BoxedStrategy<Value>; 3]) -> impl Strategy<Value = Value> {
    let either = prop_oneof![value, average.clone()].boxed();
    let object = (reference(), identifier(), either.clone())
        .prop_map(move |(object, metric, values)| json!({"describedObject": object, "metric": metric, outer: values}));
    let pods =
        (identifier(), average.clone()).prop_map(move |(metric, values)| json!({"metric": metric, outer: values}));
    let external = (identifier(), either).prop_map(move |(metric, values)| json!({"metric": metric, outer: values}));
    let memory = percent.clone().prop_map(move |values| json!({"name": "memory", outer: values}));
    let raw = average.prop_map(move |values| json!({"name": "cpu", outer: values}));
    let container = (text(), percent)
        .prop_map(move |(container, values)| json!({"name": "cpu", "container": container, outer: values}));
    prop_oneof![
        object.prop_map(|object| json!({"type": "Object", "object": object})),
        pods.prop_map(|pods| json!({"type": "Pods", "pods": pods})),
        external.prop_map(|external| json!({"type": "External", "external": external})),
        memory.prop_map(|resource| json!({"type": "Resource", "resource": resource})),
        raw.prop_map(|resource| json!({"type": "Resource", "resource": resource})),
        container.prop_map(|resource| json!({"type": "ContainerResource", "containerResource": resource})),
    ]
}

fn target() -> impl Strategy<Value = Value> {
    let [value, average] = [typed("Value", values(false)), typed("AverageValue", values(true))];
    metric("target", [value, average, typed("Utilization", percent())])
}

fn current() -> impl Strategy<Value = Value> {
    let both = (number(), quantity())
        .prop_map(|(percent, value)| json!({"averageUtilization": percent, "averageValue": value}));
    let both = both.boxed();
    let cpu =
        both.clone().prop_map(|values| json!({"type": "Resource", "resource": {"name": "cpu", "current": values}}));
    prop_oneof![cpu, metric("current", [values(false), values(true), both])]
}

fn behavior() -> impl Strategy<Value = Value> {
    let policy = (text(), number(), number())
        .prop_map(|(name, value, period)| json!({"type": name, "value": value, "periodSeconds": period}));
    let rules =
        (of(number()), of(text()), of(vec(policy, 0..3)), of(quantity())).prop_map(|(window, select, policies, by)| {
            tree([
                ("stabilizationWindowSeconds", window),
                ("selectPolicy", select),
                ("policies", policies.map(Value::from)),
                ("tolerance", by),
            ])
        });
    let rules = rules.boxed();
    (of(rules.clone()), rules).prop_map(|(up, down)| tree([("scaleUp", up), ("scaleDown", Some(down))]))
}

fn condition() -> impl Strategy<Value = Value> {
    let time = prop_oneof![Just(Value::Null), Just(json!("2026-01-02T03:04:05Z"))];
    (text(), time, of(text())).prop_map(|(name, time, message)| {
        tree([
            ("type", Some(name)),
            ("status", Some(json!("True"))),
            ("lastTransitionTime", Some(time)),
            ("message", message),
        ])
    })
}

/// A stored autoscaler of v2: it has at least one metric, and the CPU metric is last.
fn autoscaler() -> impl Strategy<Value = Value> {
    let cpu = number()
        .prop_map(|percent| {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        })
        .boxed();
    let metrics = (vec(target(), 0..4), of(cpu.clone()), cpu).prop_map(|(others, last, only)| {
        if others.is_empty() { vec![only] } else { others.into_iter().chain(last).collect() }
    });
    let spec = (reference(), metrics, of(behavior()), of(any_json())).prop_map(|(scaled, metrics, behavior, new)| {
        tree([
            ("scaleTargetRef", Some(scaled)),
            ("metrics", Some(json!(metrics))),
            ("behavior", behavior),
            ("new", new),
        ])
    });
    let currents = prop_oneof![Just(Value::Null), vec(current(), 1..4).prop_map(Value::from)];
    let status = (of(number()), currents, of(vec(condition(), 1..3)), of(any_json())).prop_map(
        |(now, current, conditions, new)| {
            tree([
                ("currentReplicas", now),
                ("desiredReplicas", Some(json!(0))),
                ("currentMetrics", Some(current)),
                ("conditions", conditions.map(Value::from)),
                ("new", new),
            ])
        },
    );
    (metadata(), spec, of(status)).prop_map(|(metadata, spec, status)| {
        tree([("metadata", Some(metadata)), ("spec", Some(spec)), ("status", status)])
    })
}

/// A core event as a server stores it.
fn event() -> impl Strategy<Value = Value> {
    let time = || prop_oneof![Just(Value::Null), Just(json!("2026-01-02T03:04:05.000000Z"))];
    let series = (number(), time()).prop_map(|(count, time)| json!({"count": count, "lastObservedTime": time}));
    let names = (of(text()), of(text()), of(text()), of(text()), prop_oneof![Just(json!("")), text()]);
    let times = (time(), time(), time(), of(number()), of(series));
    (metadata(), names, times, any_json(), of(any_json())).prop_map(|(metadata, names, times, object, new)| {
        let object = if object.is_object() { object } else { json!({}) };
        tree([
            ("metadata", Some(metadata)),
            ("involvedObject", Some(object.clone())),
            ("reason", names.0),
            ("message", names.1),
            ("source", Some(object.clone())),
            ("firstTimestamp", Some(times.0)),
            ("lastTimestamp", Some(times.1)),
            ("count", times.3),
            ("type", names.2),
            ("eventTime", Some(times.2)),
            ("series", times.4),
            ("action", names.3),
            ("related", new.clone().map(|_| object)),
            ("reportingComponent", Some(names.4.clone())),
            ("reportingInstance", Some(names.4)),
            ("new", new),
        ])
    })
}

/// The properties of a request or device in a later version; `new` is an unknown field.
fn properties(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let value = prop_oneof![text(), number(), fields("[a-z]{1,3}", text())];
    let some = prop::sample::subsequence(names.to_vec(), 0..=names.len());
    (some, vec(value, names.len()), of(any_json())).prop_map(|(names, values, new)| {
        let new = new.filter(|value| !value.is_null()).map(|value| ("new", value));
        let fields = names.into_iter().zip(values).chain(new);
        fields.map(|(name, value)| (name.to_owned(), value)).collect()
    })
}

fn request() -> impl Strategy<Value = Value> {
    const EXACTLY: &[&str] = &["selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"];
    let exactly = (text(), properties(EXACTLY)).prop_map(|(class, mut exactly)| {
        exactly["deviceClassName"] = class;
        exactly
    });
    (text(), of(exactly), of(vec(properties(&["name", "count"]), 0..2)), of(any_json())).prop_map(
        |(name, exactly, first, new)| {
            tree([("name", Some(name)), ("exactly", exactly), ("firstAvailable", first.map(Value::from)), ("new", new)])
        },
    )
}

fn claim_spec() -> impl Strategy<Value = Value> {
    (of(vec(request(), 0..3)), of(any_json())).prop_map(|(requests, new)| {
        json!({"devices": tree([("requests", requests.map(Value::from)), ("config", new.clone())]), "new": new})
    })
}

fn slice() -> impl Strategy<Value = Value> {
    const DEVICE: &[&str] = &[
        "name",
        "attributes",
        "capacity",
        "consumesCounters",
        "nodeName",
        "nodeSelector",
        "allNodes",
        "taints",
        "bindsToNode",
        "bindingConditions",
        "bindingFailureConditions",
        "allowMultipleAllocations",
        "nodeAllocatableResourceMappings",
    ];
    (metadata(), of(text()), vec(properties(DEVICE), 0..3), of(any_json())).prop_map(
        |(metadata, node, devices, new)| {
            let spec = tree([("nodeName", node), ("devices", Some(json!(devices))), ("pool", new)]);
            json!({"metadata": metadata, "spec": spec})
        },
    )
}

proptest! {
    #[test]
    fn autoscalers(v2 in autoscaler()) {
        let v1 = convert(HPA, &v2);
        prop_assert_eq!(convert(backwards(HPA), &v1), v2);
        prop_assert_eq!(there_and_back(backwards(HPA), &v1), v1);
    }

    #[test]
    fn events(core in event()) {
        let new = convert(EVENT, &core);
        prop_assert_eq!(convert(backwards(EVENT), &new), core);
        prop_assert_eq!(there_and_back(backwards(EVENT), &new), new);
    }

    #[test]
    fn claims_and_their_templates(metadata in metadata(), spec in claim_spec()) {
        for (kind, body) in [
            ("ResourceClaim", json!({"metadata": metadata, "spec": spec, "status": {}})),
            ("ResourceClaimTemplate", json!({"metadata": metadata, "spec": {"metadata": {}, "spec": spec}})),
        ] {
            for later in ["v1", "v1beta2"] {
                let pair = devices(kind, later, "v1beta1");
                let old = convert(pair, &body);
                prop_assert_eq!(&convert(backwards(pair), &old), &body);
                prop_assert_eq!(there_and_back(backwards(pair), &old), old);
            }
        }
    }

    #[test]
    fn slices(slice in slice()) {
        for later in ["v1", "v1beta2"] {
            let pair = devices("ResourceSlice", later, "v1beta1");
            let old = convert(pair, &slice);
            prop_assert_eq!(&convert(backwards(pair), &old), &slice);
            prop_assert_eq!(there_and_back(backwards(pair), &old), old);
        }
    }

    /// Conversions never panic. A mere rename changes nothing else, and unknown fields stay.
    #[test]
    fn conversions_of_arbitrary_objects_never_panic(body in fields("(spec|status|metadata|series|source|[a-z]{1,3})", any_json()), new in any_json()) {
        let kinds: Vec<_> = catalogue()
            .resources()
            .flat_map(|resource| resource.versions.iter().map(|version| resource.gvk(&version.name)))
            .collect();
        for (to, from) in kinds.iter().flat_map(|to| kinds.iter().filter(|from| from.kind == to.kind).map(move |from| (to, from))) {
            let gvs = ((&*from.group, &*from.version), (&*to.group, &*to.version));
            let Some(conversion) = conversion(&to.kind, gvs.0, gvs.1) else { continue };
            let Value::Object(mut before) = body.clone() else { unreachable!("fields make an object") };
            before.insert("unknown".to_owned(), new.clone());
            before.insert("apiVersion", json!(from.group_version().to_string()));
            let mut after = Object(before.clone());
            let outcome = conversion.convert(&mut after);
            if conversion.is_rename() {
                prop_assert_eq!(&outcome, &Ok(()));
                before.insert("apiVersion", json!(to.group_version().to_string()));
                prop_assert_eq!(&after.0, &before);
            }
            if outcome.is_ok() {
                prop_assert_eq!(after.0.get("unknown"), Some(&new));
                let wanted = to.group_version().to_string();
                prop_assert_eq!(after.api_version(), Some(wanted.as_str()));
            }
        }
    }
}

#[test]
fn conversion_annotations_of_requests_are_removed() {
    let canonical = |version| Conversion::canonical("autoscaling", "HorizontalPodAutoscaler", ("autoscaling", version));
    let note = json!({"autoscaling.alpha.kubernetes.io/metrics": "abc"});
    for (version, spec) in [("v2", json!({"new": 1})), ("v1", json!({"new": 1, "targetCPUUtilizationPercentage": 80}))]
    {
        let body = json!({"apiVersion": format!("autoscaling/{version}"), "metadata": {"annotations": note}, "spec": {"new": 1}});
        let mut object = Object::from_value(body).expect("an object");
        canonical(version).expect("autoscalers have notes").convert(&mut object).expect("an autoscaler");
        let expected = json!({"apiVersion": format!("autoscaling/{version}"), "metadata": {}, "spec": spec});
        assert_eq!(object.into_value(), expected);
    }
    assert!(Conversion::canonical("networking.k8s.io", "IPAddress", ("networking.k8s.io", "v1")).is_none());
    assert!(Conversion::canonical("apps", "Deployment", ("apps", "v1")).is_none());
}

/// Selectors name fields of the requested version, and read them in the stored form. Both must agree.
#[test]
fn selectable_fields_are_the_same_in_every_version() {
    let mut checked = 0;
    for resource in catalogue().resources().filter(|resource| !resource.selectable_fields.is_empty()) {
        let stored = resource.default_storage_kind().expect("what is selected is stored");
        let from = (stored.group.as_str(), stored.version.as_str());
        for version in &resource.versions {
            let to = (&*resource.group, &*version.name);
            let Some(conversion) = conversion(&resource.kind, from, to) else { continue };
            for declared in &resource.selectable_fields {
                let path = declared.paths.first().expect("every such field has a path");
                let mut object = Object::default();
                object.0.insert("apiVersion", json!(conversion.source_api_version()));
                let fields = path.split('.').rev().fold(json!("found"), |value, key| json!({key: value}));
                object.0.extend(fields.as_object().expect("a path has a segment").clone());
                conversion.convert(&mut object).expect("a well formed object");
                let name: Vec<&str> = declared.name.split('.').collect();
                assert_eq!(object.get(&name), Some(&json!("found")), "{} {}", resource.plural, declared.name);
                checked += 1;
            }
        }
    }
    let others = "events of events.k8s.io, resource slices in two more versions, and bundles of trust in one";
    assert_eq!(checked, 10 + 3 * 2 + 1, "{others}");
}
