//! Fields of features whose gates are off: they are decoded and then dropped without an error.
//!
//! Clients of a newer version can therefore write to this server. Such fields are not validated. An object that has
//! one, from a server with the feature on, keeps it. The versions of a resource list the fields.

use std::collections::BTreeSet;

use keelson_meta::json::{Map, Value};
use keelson_meta::{FeatureGates, Object};

use crate::strategy::FieldPath;
use crate::target::Target;

/// The part of a path that matches each item of a list, or each value of a map.
pub const EACH: &str = "*";

/// Fields of a kind that are dropped while a feature gate is off.
#[derive(Clone, Copy, Debug)]
pub struct ClosedFields {
    /// The gate. Empty if the fields are always dropped.
    gate: &'static str,
    /// The path that they are relative to.
    below: FieldPath,
    /// The paths of the fields, relative to `below`.
    fields: &'static [FieldPath],
}

impl ClosedFields {
    /// The fields at these paths relative to `below`, which the gate guards.
    pub const fn new(gate: &'static str, below: FieldPath, fields: &'static [FieldPath]) -> Self {
        Self { gate, below, fields }
    }

    /// Returns true if the gate of the fields is off.
    pub fn are_closed(&self, gates: &FeatureGates) -> bool {
        !gates.is_on(self.gate)
    }
}

/// Drops these fields from an object, except those that its stored state, `current`, has too.
pub(crate) fn drop_closed(target: &Target, current: Option<&Object>, object: &mut Object) {
    let closed = target.version.closed_fields();
    let found = present_fields(closed, object);
    if found.is_empty() {
        return;
    }
    let kept = current.map(|current| present_fields(closed, &mut current.clone())).unwrap_or_default();
    look_at_all(closed, object, &mut |map, field| {
        if !kept.contains(&field) {
            map.remove(field.1);
        }
    });
}

/// A field as part of a feature: the gate and the name of the field.
type Guarded = (&'static str, &'static str);

/// The fields that an object has.
fn present_fields(closed: &[ClosedFields], object: &mut Object) -> BTreeSet<Guarded> {
    let mut found = BTreeSet::new();
    look_at_all(closed, object, &mut |map, field| {
        if map.contains_key(field.1) {
            found.insert(field);
        }
    });
    found
}

/// A function on a field, given the object that contains it and its name there.
type Look<'l> = &'l mut dyn FnMut(&mut Map, Guarded);

fn look_at_all(closed: &[ClosedFields], object: &mut Object, look: Look<'_>) {
    for ClosedFields { gate, below, fields } in closed {
        descend(&mut object.0, below, &mut |map| {
            fields.iter().for_each(|field| {
                let Some((name, above)) = field.split_last() else { return };
                descend(map, above, &mut |map| look(map, (gate, name)));
            });
        });
    }
}

/// Calls `each` with every object at a path.
fn descend(map: &mut Map, path: &[&str], each: &mut dyn FnMut(&mut Map)) {
    let Some((name, rest)) = path.split_first() else { return each(map) };
    match (map.get_mut(name), rest) {
        (Some(Value::Array(items)), [EACH, rest @ ..]) => {
            items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| descend(item, rest, each));
        }
        (Some(Value::Object(values)), [EACH, rest @ ..]) => {
            let values = values.iter_mut().filter_map(|(_, value)| value.as_object_mut());
            values.for_each(|value| descend(value, rest, each));
        }
        (Some(Value::Object(inner)), rest) => {
            let had_any = !inner.is_empty();
            descend(inner, rest, each);
            // A `lifecycle` without any other field is removed.
            if had_any && inner.is_empty() && *name == "lifecycle" {
                map.remove(name);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;
    use crate::surface::tests::target_of;

    const CLOSED: &[ClosedFields] = &[ClosedFields::new(
        "",
        &["spec"],
        &[
            &["schedulingGroup"],
            &["containers", EACH, "lifecycle", "stopSignal"],
            &["volumes", EACH, "projected", "sources", EACH, "clusterTrustBundle"],
        ],
    )];

    #[test]
    fn stored_gated_fields_stay_and_new_ones_are_dropped() {
        let check = |current: Option<Value>, sent: Value, expected: Value| {
            let target = target_of("pods", |version| version.with_closed_fields(CLOSED.to_vec()));
            let pod = |spec: Value| Object::from_value(json!({ "spec": spec })).unwrap();
            let mut sent = pod(sent);
            drop_closed(&target, current.map(pod).as_ref(), &mut sent);
            assert_eq!(sent, pod(expected));
        };
        let bundle = json!([{ "projected": { "sources": [{ "clusterTrustBundle": {} }, { "secret": {} }] } }]);
        let signal = json!([{ "name": "a", "lifecycle": { "stopSignal": "SIGTERM" } }, { "lifecycle": {} }]);
        let sent = json!({ "containers": signal, "volumes": bundle, "schedulingGroup": {} });
        let bare = json!([{ "name": "a" }, { "lifecycle": {} }]);
        let sources = json!([{ "projected": { "sources": [{}, { "secret": {} }] } }]);
        check(None, sent.clone(), json!({ "containers": bare, "volumes": sources }));
        let old = json!({ "containers": signal });
        check(Some(old), sent, json!({ "containers": signal, "volumes": sources }));
    }
}
