//! Removes fields from an object.
//!
//! An apply removes the fields that its manager no longer applies.

use keelson_meta::json::{Map, Value};

use super::element_ref::PathElementRef;
use super::identity::{Items, Keys};
use super::schema::{FieldSchema, Granularity};
use super::set::FieldSet;
use super::view::View;

/// Returns the object without these fields and everything below them. Cost: proportional to the object.
///
/// An object or a list whose parts are all removed stays as an empty value, because many fields do not allow null.
pub fn remove<'a>(schema: impl FieldSchema<'a>, object: &Value, fields: &FieldSet) -> Value {
    if fields.is_empty() {
        return object.clone();
    }
    walk(View::Known(schema), object, fields)
}

fn walk<'a>(view: View<impl FieldSchema<'a>>, value: &Value, fields: &FieldSet) -> Value {
    match (view.form(), value) {
        (Granularity::Map | Granularity::Deduced, Value::Object(members)) => {
            let mut near = 0;
            let mut left = Map::new();
            for (name, value) in members {
                let kept = part(view.member_near(name, &mut near).0, PathElementRef::Field(name), value, fields);
                left.extend(kept.map(|kept| (name, kept)));
            }
            left.into()
        }
        (Granularity::Set | Granularity::KeyedList, Value::Array(list)) => items(view, list, fields),
        // The value has become atomic. If any field below it is removed, all of them are.
        (_, Value::Object(_)) => Map::new().into(),
        (_, Value::Array(_)) => Vec::<Value>::new().into(),
        (_, scalar) => scalar.clone(),
    }
}

fn items<'a>(view: View<impl FieldSchema<'a>>, list: &[Value], fields: &FieldSet) -> Value {
    let keys = Keys::from_list(view);
    let items = Items::new(&keys, list);
    let mut parts: Vec<_> = list.iter().map(|_| None).collect();
    for group in items.groups() {
        let step = items.step(group.start);
        for place in items.places(group) {
            parts[*place] = Some(part(view.items(), step, &list[*place], fields));
        }
    }
    // Items without an identity have no owner and stay.
    parts.into_iter().zip(list).filter_map(|(part, item)| part.unwrap_or_else(|| Some(item.clone()))).collect()
}

/// Returns the rest of one part. `None` if the whole part is removed.
fn part<'a>(
    view: View<impl FieldSchema<'a>>,
    step: PathElementRef<'_>,
    value: &Value,
    fields: &FieldSet,
) -> Option<Value> {
    match fields.at(step) {
        None => Some(value.clone()),
        Some(node) if node.member => None,
        Some(node) if node.below.is_empty() => Some(value.clone()),
        Some(node) => Some(walk(view, value, &node.below)),
    }
}
