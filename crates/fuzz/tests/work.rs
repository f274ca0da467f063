//! Work on large inputs is linear in their length: ten times as many items allocate about ten times as much memory.
//!
//! Work is counted instead of timed, so that it is equal on every machine. This detects copies of each item for every
//! other one. Pairwise comparisons allocate nothing, so they are measured by thread time, once with many items and ten
//! times with few.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use keelson_builtin::Rules;
use keelson_fuzz::memory::measure;
use keelson_meta::field_error::FAULTS_MAX;
use keelson_meta::json::{Value, json};
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{GroupVersionKind, Object};
use keelson_patch::fields::{self, Duplicates, FieldSet, Manager, Owners, Versions, Writer};
use keelson_patch::json_patch::{self, Limits};
use keelson_patch::{merge_patch, strategic};
use keelson_registry::Validator as _;
use keelson_schema::{Schema, SchemaRef, Schemas, WalkOptions, WalkReport};

/// The number of items, compared with ten times as many.
const ITEMS: usize = 1_500;
/// The allowed growth of allocations for ten times as many items, including doubling vectors and deeper trees.
const TIMES: usize = 20;

fn check(what: &str, work: impl Fn(usize)) {
    // The first call creates lazy state.
    work(1);
    let few = measure(|| work(ITEMS)).1.asked;
    let many = measure(|| work(10 * ITEMS)).1.asked;
    assert!(many <= TIMES * few, "{what}: {few} bytes for {ITEMS} items, {many} for ten times as many");
}

/// The allowed growth of time for many items at once.
const TIMES_LONGER: u32 = 4;

/// Checks the time of work that compares. `prepare` creates its input and is not timed.
fn check_time<P>(what: &str, prepare: impl Fn(usize) -> P, work: impl Fn(&P)) {
    let (few, many) = (prepare(ITEMS), prepare(10 * ITEMS));
    let took = |times: usize, on: &P| {
        let began = thread_time();
        (0..times).for_each(|_| work(on));
        thread_time() - began
    };
    let (few, many) = (took(10, &few), took(1, &many));
    let noise = Duration::from_millis(20);
    assert!(
        many <= TIMES_LONGER * few + noise,
        "{what}: {few:?} for ten times {ITEMS} items, {many:?} for all at once"
    );
}

/// The run time of this thread, excluding other processes. If unavailable, the elapsed time.
fn thread_time() -> Duration {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let run = told.and_then(|told| told.split(' ').next()?.parse().ok());
    run.map_or_else(|| BEGAN.elapsed(), Duration::from_nanos)
}

fn pod_schema() -> SchemaRef<'static> {
    Schemas::builtin().kind("", "v1", "Pod").expect("a built-in kind")
}

/// A pod with this many containers, volumes and finalizers.
fn pod(items: usize, image: &str) -> Value {
    let containers: Vec<Value> =
        (0..items).map(|number| json!({"name": format!("c{number}"), "image": image})).collect();
    let volumes: Vec<Value> = (0..items).map(|number| json!({"name": format!("v{number}"), "emptyDir": {}})).collect();
    let finalizers: Vec<String> = (0..items).map(|number| format!("example.com/{number}")).collect();
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "finalizers": finalizers},
        "spec": {"containers": containers, "volumes": volumes}})
}

struct OneVersion;

impl Versions<'static> for OneVersion {
    type Schema = SchemaRef<'static>;

    fn schema(&self, _: &str) -> Option<SchemaRef<'static>> {
        Some(pod_schema())
    }

    fn convert(&self, object: &Value, _: &str) -> Option<Value> {
        Some(object.clone())
    }

    fn reset_fields(&self, _: &str) -> Cow<'_, FieldSet> {
        Cow::Owned(FieldSet::new())
    }
}

fn members(value: Value) -> keelson_meta::json::Map {
    match value {
        Value::Object(map) => map,
        _ => panic!("a pod is an object"),
    }
}

#[test]
fn a_strategic_patch_of_long_lists() {
    check("merging by key", |items| {
        let patch = members(pod(items, "b"));
        strategic::apply(members(pod(items, "a")), &patch, pod_schema()).expect("it applies");
    });
    check("deleting", |items| {
        let deleted: Vec<Value> =
            (0..items).map(|number| json!({"name": format!("c{number}"), "$patch": "delete"})).collect();
        let gone: Vec<String> = (0..items).map(|number| format!("example.com/{number}")).collect();
        let patch = json!({"spec": {"containers": deleted}, "metadata": {"$deleteFromPrimitiveList/finalizers": gone}});
        strategic::apply(members(pod(items, "a")), &members(patch), pod_schema()).expect("it applies");
    });
    check("ordering", |items| {
        let order: Vec<Value> = (0..items).rev().map(|number| json!({"name": format!("c{number}")})).collect();
        let patch = json!({"spec": {"$setElementOrder/containers": order}});
        strategic::apply(members(pod(items, "a")), &members(patch), pod_schema()).expect("it applies");
    });
}

#[test]
fn owners_of_long_lists() {
    let manager = Manager::applies("m", "");
    let other = Manager::updates("n", "v1", "");
    let writer = |manager| Writer { manager, version: "v1", now: None };
    check("validation", |items| {
        let twice = json!({"spec": {"containers": vec![json!({"name": "a"}); items]}});
        let _ = fields::validate(pod_schema(), &twice, Duplicates::Refused);
    });
    check("apply", |items| {
        let live = pod(items, "a");
        let owners = fields::update(&OneVersion, &Owners::default(), writer(&other), &json!({}), &live);
        let applied = fields::apply(&OneVersion, &owners, writer(&manager), &live, &pod(items, "b"), true);
        let applied = applied.unwrap_or_else(|_| panic!("an apply that is forced never conflicts"));
        let fewer = fields::apply(&OneVersion, &applied.owners, writer(&manager), &applied.object, &pod(1, "b"), true);
        assert!(fewer.is_ok());
        Owners::read_text(&applied.owners.write_text()).expect("owners can be read");
    });
    check("conflicts", |items| {
        let live = pod(items, "a");
        let owners = fields::update(&OneVersion, &Owners::default(), writer(&other), &json!({}), &live);
        let conflicts = fields::apply(&OneVersion, &owners, writer(&manager), &live, &pod(items, "b"), false);
        drop(conflicts.err().map(|conflicts| conflicts.to_string()));
    });
}

#[test]
fn patches_and_walks_of_long_lists() {
    check("a merge patch", |items| {
        let keys = (0..items).map(|number| (format!("k{number}"), Value::from("v")));
        let mut target: Value = keys.clone().collect::<keelson_meta::json::Map>().into();
        let removed: Value = keys.map(|(key, _)| (key, Value::Null)).collect::<keelson_meta::json::Map>().into();
        merge_patch::apply(&mut target, &removed);
    });
    check("a JSON patch", |items| {
        let target = json!({"a": vec![0; items], "b": {}});
        let operations = items.min(9_000);
        let patch: Value =
            (0..operations).map(|number| json!({"op": "add", "path": format!("/b/k{number}"), "value": 1})).collect();
        json_patch::apply(&target, &patch, Limits::default()).expect("it applies");
    });
    check("a walk", |items| {
        let mut object = keelson_meta::Object::from_value(pod(items, "a")).expect("an object");
        pod_schema().walk(&mut object, &mut WalkReport::default(), WalkOptions::STORE);
    });
    check("a selector", |items| {
        let text: Vec<String> = (0..items).map(|number| format!("k{number} in (a,b),!x{number}")).collect();
        LabelSelector::parse(&text.join(",")).expect("a selector");
    });
}

#[test]
fn structural_schemas_of_long_lists() {
    let kind = GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Long".into() };
    let schema = |list: Value| {
        let document = json!({"type": "object", "properties": {"list": list}});
        Schema::structural(&kind, &document).expect("a schema")
    };
    let [map, set, unique] = [
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}}}}),
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
        json!({"type": "array", "uniqueItems": true, "items": {"type": "object"}}),
    ]
    .map(schema);
    let faults = |schema: &Schema, object: &Value, old: Option<&Value>| {
        schema.rules().expect("it is structural").validate(object, old, None).faults.len()
    };
    let named = |items: usize, suffix: &str| {
        let list: Vec<Value> = (0..items).map(|number| json!({"name": format!("n{number}"), "is": suffix})).collect();
        json!({ "list": list })
    };
    check_time(
        "items and their partners",
        |items| (named(items, "old"), named(items, "new")),
        |(old, new)| assert_eq!(faults(&map, new, Some(old)), 0),
    );
    check_time(
        "items that are alike",
        |items| named(items, "x"),
        |object| assert_eq!(faults(&unique, object, None), 0),
    );
    let twice = |items: usize| {
        let list: Vec<Value> = (0..items).map(|number| Value::from(format!("n{}", number / 2))).collect();
        json!({ "list": list })
    };
    check_time("items that are there twice", twice, |object| assert!(faults(&set, object, None) > 0));
    assert_eq!(faults(&set, &twice(10 * FAULTS_MAX), None), FAULTS_MAX);
}

#[test]
fn patterns_are_not_compiled_before_they_are_asked() {
    let kind = GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Patterns".into() };
    let property = |index: usize| {
        (format!("p{index}"), json!({"type": "string", "pattern": format!("^[a-z\\p{{L}}]{{0,200}}x{index}$")}))
    };
    let properties: Value = (0..900).map(property).collect::<keelson_meta::json::Map>().into();
    let document = json!({"type": "object", "properties": properties});
    let (schema, cost) = measure(|| Schema::structural(&kind, &document).expect("a schema"));
    assert!(cost.asked < 8_000_000, "{cost:?}");
    let rules = schema.rules().expect("it is structural");
    let found = rules.validate(&json!({"p7": "yx7", "p8": "x7"}), None, None);
    assert_eq!(found.faults.len(), 1);
    assert_eq!(found.faults[0].field, "p8");
}

#[test]
fn values_that_are_compared_with_many() {
    let kind = GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Many".into() };
    let names = |count: usize| -> Vec<String> { (0..count).map(|number| format!("n{number}")).collect() };
    let schema = |items: usize| {
        let list = json!({"type": "array", "items": {"type": "string", "enum": names(items)}});
        let document = json!({"type": "object", "properties": {"list": list, "spec": {"type": "object", "required": names(items)}}});
        Schema::structural(&kind, &document).expect("a schema")
    };
    check_time(
        "items of an enum",
        |items| (schema(items), json!({"list": names(items)})),
        |(schema, object)| {
            assert_eq!(schema.rules().expect("it is structural").validate(object, None, None).faults.len(), 0);
        },
    );
    let missing = schema(10 * FAULTS_MAX);
    let found = missing.rules().expect("it is structural").validate(&json!({"spec": {}}), None, None);
    assert_eq!(found.faults.len(), FAULTS_MAX);
    // An error lists all allowed values, so the number of errors is limited.
    let object = json!({"list": vec!["other"; FAULTS_MAX]});
    let (found, cost) = measure(|| missing.rules().expect("it is structural").validate(&object, None, None));
    assert!(!found.faults.is_empty() && cost.peak < 32_000_000, "{cost:?}");
}

/// A path is as long as its keys, so many errors below a long key would have quadratic size.
#[test]
fn the_text_of_faults_is_limited() {
    let long = "k".repeat(500_000);
    let env: Vec<Value> = (0..2_000).map(|number| json!({"name": format!("e{number}"), "value": {}})).collect();
    let faulty = json!({"spec": {"containers": [{"name": long, "env": env}]}});
    let (violations, cost) =
        measure(|| fields::validate(pod_schema(), &faulty, Duplicates::Refused).expect_err("faults"));
    assert!(!violations.0.is_empty());
    assert!(cost.peak < 8_000_000, "{cost:?}");

    let pod = |value: &str| {
        let env: Vec<Value> = (0..2_000).map(|number| json!({"name": format!("e{number}"), "value": value})).collect();
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"containers": [{"name": long, "env": env}]}})
    };
    let (manager, other) = (Manager::applies("m", ""), Manager::updates("n", "v1", ""));
    let writer = |manager| Writer { manager, version: "v1", now: None };
    let owners = fields::update(&OneVersion, &Owners::default(), writer(&other), &json!({}), &pod("a"));
    let conflicts = fields::apply(&OneVersion, &owners, writer(&manager), &pod("a"), &pod("b"), false);
    let conflicts = conflicts.expect_err("others own what is applied");
    let (said, cost) = measure(|| (conflicts.to_string(), conflicts.causes().len()));
    assert!(said.0.starts_with("Apply failed with 2000 conflicts"), "{}", &said.0[..100]);
    assert!(cost.peak < 8_000_000, "{cost:?}");
}

#[test]
fn errors_about_every_item_of_long_lists() {
    let faults = |object: Value, group: &str, kind: &str| {
        let object = Object::from_value(object).expect("an object");
        let rules = Rules::for_kind(group, kind).expect("a built-in kind");
        assert!(!rules.create(&object).is_empty());
    };
    check("scopes that nobody knows", |items| {
        let scopes: Vec<String> = (0..=items).map(|number| format!("s{number}")).collect();
        faults(json!({"metadata": {"name": "q"}, "spec": {"scopes": scopes}}), "", "ResourceQuota");
    });
    check("claims that the pod does not have", |items| {
        let names = |letter: &str| -> Vec<Value> {
            (0..=items).map(|number| json!({"name": format!("{letter}{number}")})).collect()
        };
        let container = json!({"name": "c", "image": "i", "resources": {"claims": names("a")}});
        let spec = json!({"containers": [container], "resourceClaims": names("b")});
        faults(json!({"metadata": {"name": "p"}, "spec": spec}), "", "Pod");
    });
    check("topologies that are all alike", |items| {
        let topologies = vec![json!({}); items + 1];
        let class = json!({"metadata": {"name": "c"}, "provisioner": "p", "allowedTopologies": topologies});
        faults(class, "storage.k8s.io", "StorageClass");
    });
}
