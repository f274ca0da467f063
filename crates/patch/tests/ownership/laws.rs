//! Laws of apply and update, for pod specs with a few parts. They are checked with the built-in schema, and with an
//! equal schema of a custom resource.

use std::borrow::Cow;
use std::sync::LazyLock;

use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Value, json};
use keelson_patch::fields::{FieldSet, Manager, Owners, Versions, Writer, apply, compare, extract, update};
use keelson_schema::{Schema, SchemaRef, Schemas};
use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;

use super::{NOON, V1};

struct PodSpecs(SchemaRef<'static>);

impl Versions<'static> for PodSpecs {
    type Schema = SchemaRef<'static>;

    fn schema(&self, _: &str) -> Option<SchemaRef<'static>> {
        Some(self.0)
    }

    fn convert(&self, object: &Value, _: &str) -> Option<Value> {
        Some(object.clone())
    }

    fn reset_fields(&self, _: &str) -> Cow<'_, FieldSet> {
        Cow::Owned(FieldSet::new())
    }
}

static CUSTOM: LazyLock<Schema> = LazyLock::new(|| {
    let text = json!({ "type": "string" });
    let port = json!({
        "type": "object",
        "properties": { "containerPort": { "type": "integer" }, "protocol": { "type": "string", "default": "TCP" } },
    });
    let variable = json!({ "type": "object", "properties": { "name": text, "value": text } });
    let map = |items: &Value, keys: Value| json!({ "type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys });
    let container = json!({
        "type": "object",
        "properties": {
            "name": text,
            "image": text,
            "env": map(&variable, json!(["name"])),
            "ports": map(&port, json!(["containerPort", "protocol"])),
        },
    });
    let document = json!({
        "type": "object",
        "properties": {
            "hostname": text,
            "containers": map(&container, json!(["name"])),
            "nodeSelector": { "type": "object", "additionalProperties": text, "x-kubernetes-map-type": "atomic" },
            "securityContext": { "type": "object", "properties": { "runAsUser": { "type": "integer" } } },
        },
    });
    let kind = GroupVersionKind { group: "laws.example.com".into(), version: "v1".into(), kind: "Pod".into() };
    Schema::structural(&kind, &document).unwrap()
});

fn any_schema() -> impl Strategy<Value = SchemaRef<'static>> {
    prop_oneof![Just(Schemas::builtin().definition("io.k8s.api.core.v1.PodSpec").unwrap()), Just(CUSTOM.get())]
}

fn text() -> impl Strategy<Value = Value> {
    "[xy]".prop_map(Value::from)
}

fn container() -> impl Strategy<Value = Value> {
    let env = btree_map("[a-c]", option::of("[xy]"), 0..3).prop_map(|env| {
        env.into_iter()
            .map(|(name, value)| value.map_or(json!({"name": name}), |value| json!({"name": name, "value": value})))
            .collect()
    });
    let ports = btree_map(1..3u8, any::<bool>(), 0..3).prop_map(|ports| {
        let port = |(port, tcp)| {
            if tcp { json!({"containerPort": port, "protocol": "TCP"}) } else { json!({"containerPort": port}) }
        };
        ports.into_iter().map(port).collect()
    });
    (option::of(text()), option::of(env), option::of(ports)).prop_map(
        |(image, env, ports): (_, Option<Value>, Option<Value>)| {
            object([("image", image), ("env", env), ("ports", ports)])
        },
    )
}

fn pod() -> impl Strategy<Value = Value> {
    let containers = btree_map("[a-c]", container(), 0..3).prop_shuffle_values();
    let selector = btree_map("[ab]", text(), 0..3).prop_map(|map| map.into_iter().collect::<Value>());
    let security = (0..3).prop_map(|user| if user == 2 { json!({}) } else { json!({"runAsUser": user}) });
    (option::of(text()), option::of(containers), option::of(selector), option::of(security)).prop_map(
        |(hostname, containers, selector, security)| {
            object([
                ("hostname", hostname),
                ("containers", containers),
                ("nodeSelector", selector),
                ("securityContext", security),
            ])
        },
    )
}

trait Shuffled {
    fn prop_shuffle_values(self) -> BoxedStrategy<Value>;
}

impl<S: Strategy<Value = std::collections::BTreeMap<String, Value>> + 'static> Shuffled for S {
    /// The values as a list in any order. Each item has the value's key as its name.
    fn prop_shuffle_values(self) -> BoxedStrategy<Value> {
        let named = self.prop_map(|items| {
            let name = |(name, mut item): (String, Value)| {
                item["name"] = name.into();
                item
            };
            items.into_iter().map(name).collect::<Vec<_>>()
        });
        named.prop_shuffle().prop_map(Value::from).boxed()
    }
}

fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn writer(manager: &Manager) -> Writer<'_> {
    Writer { manager, version: "v1", now: Some(NOON) }
}

fn fields(schema: SchemaRef<'static>, object: &Value) -> FieldSet {
    extract(schema, object).union(&compare(schema, &json!({}), object).added)
}

fn all_exist(schema: SchemaRef<'static>, owners: &Owners, object: &Value) -> bool {
    owners.iter().all(|(_, owned)| owned.fields.difference(&fields(schema, object)).is_empty())
}

proptest! {
    #[test]
    fn an_apply_takes_effect_and_is_idempotent(schema in any_schema(), first in pod(), second in pod(), third in pod()) {
        let (one, two) = (Manager::applies("one", ""), Manager::applies("two", ""));
        let live = apply(&PodSpecs(schema), &Owners::default(), writer(&one), &json!({}), &first, true).unwrap();
        let live = apply(&PodSpecs(schema), &live.owners, writer(&two), &live.object, &second, true).unwrap();
        let live = apply(&PodSpecs(schema), &live.owners, writer(&one), &live.object, &third, true).unwrap();
        let changes = compare(schema, &third, &live.object);
        let lost = changes.removed.union(&changes.modified).intersection(&extract(schema, &third));
        prop_assert!(lost.is_empty(), "{:?}", lost.paths());
        prop_assert!(all_exist(schema, &live.owners, &live.object));
        let again = apply(&PodSpecs(schema), &live.owners, writer(&one), &live.object, &third, false).unwrap();
        prop_assert!(!again.changed);
        prop_assert_eq!(again.owners, live.owners);
    }

    #[test]
    fn without_force_nothing_of_others_changes(schema in any_schema(), first in pod(), second in pod()) {
        let (one, two) = (Manager::applies("one", ""), Manager::applies("two", ""));
        let live = apply(&PodSpecs(schema), &Owners::default(), writer(&one), &json!({}), &first, false).unwrap();
        let before = live.owners.get(&one).map(|owned| owned.fields.clone().into_set()).unwrap_or_default();
        match apply(&PodSpecs(schema), &live.owners, writer(&two), &live.object, &second, false) {
            Ok(after) => {
                let changes = compare(schema, &live.object, &after.object);
                prop_assert!(changes.modified.union(&changes.removed).intersection(&before).is_empty());
                prop_assert_eq!(after.owners.get(&one), live.owners.get(&one));
            }
            Err(conflicts) => {
                prop_assert!(conflicts.0.iter().all(|it| before.contains(it.path.elements())));
            }
        }
    }

    #[test]
    fn an_empty_apply_removes_solely_owned_fields(schema in any_schema(), first in pod(), second in pod()) {
        let (one, two) = (Manager::applies("one", ""), Manager::applies("two", ""));
        let live = apply(&PodSpecs(schema), &Owners::default(), writer(&one), &json!({}), &first, true).unwrap();
        let live = apply(&PodSpecs(schema), &live.owners, writer(&two), &live.object, &second, true).unwrap();
        let left = apply(&PodSpecs(schema), &live.owners, writer(&one), &live.object, &json!({}), false).unwrap();
        prop_assert!(left.owners.get(&one).is_none());
        prop_assert_eq!(left.owners.get(&two), live.owners.get(&two));
        let owned = live.owners.get(&two).map(|owned| owned.fields.clone().into_set()).unwrap_or_default();
        let strangers = extract(schema, &left.object).difference(&owned);
        prop_assert!(strangers.is_empty(), "{:?} in {}", strangers.paths(), left.object);
    }

    #[test]
    fn of_a_text_as_much_is_read_as_matters(schema in any_schema(), first in pod(), second in pod()) {
        let (owned, asked) = (fields(schema, &first), fields(schema, &second));
        let entry = json!({
            "manager": "m", "operation": "Update", "apiVersion": V1, "fieldsType": "FieldsV1",
            "fieldsV1": owned.to_fields_v1(),
        });
        let owners = Owners::read_text(&json!([entry]).to_string()).unwrap();
        let unread = owners.get(&Manager::updates("m", V1, "")).map(|owned| owned.fields.clone()).unwrap_or_default();
        prop_assert_eq!(unread.intersection(&asked), owned.intersection(&asked));
        prop_assert_eq!(unread.into_set(), owned);
    }

    #[test]
    fn each_field_an_update_changes_has_that_owner_alone(schema in any_schema(), first in pod(), second in pod()) {
        let (one, two) = (Manager::applies("one", ""), Manager::updates("two", "v1", ""));
        let live = apply(&PodSpecs(schema), &Owners::default(), writer(&one), &json!({}), &first, true).unwrap();
        let owners = update(&PodSpecs(schema), &live.owners, writer(&two), &live.object, &second);
        let changes = compare(schema, &live.object, &second);
        let changed = changes.added.union(&changes.modified);
        let of = |manager| owners.get(manager).map(|owned| owned.fields.clone().into_set()).unwrap_or_default();
        prop_assert_eq!(of(&two), changed.clone());
        prop_assert!(of(&one).intersection(&changed.union(&changes.removed)).is_empty());
        prop_assert!(all_exist(schema, &owners, &second));
    }
}
