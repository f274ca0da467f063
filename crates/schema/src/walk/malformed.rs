//! Removes metadata fields of wrong types from stored custom resources. Another program has written these fields, and
//! without them the rest of the object is usable.

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};

use super::{WalkOptions, WalkReport};
use crate::layout::Type;
use crate::schemas::{SchemaRef, object_meta};

impl SchemaRef<'_> {
    /// Removes fields of wrong types from the metadata of an object with this structural schema, and of its embedded
    /// objects.
    pub fn drop_malformed_metadata(self, object: &mut Object) {
        in_object(self, &mut object.0);
    }
}

fn in_value(schema: SchemaRef<'_>, value: &mut Value) {
    match (schema.value_type(), value) {
        (Type::Object, Value::Object(map)) => in_object(schema, map),
        (Type::Map, Value::Object(map)) => {
            let Some(values) = schema.items() else { return };
            map.values_mut().for_each(|value| in_value(values, value));
        }
        (Type::Array, Value::Array(items)) => {
            let Some(of_items) = schema.items() else { return };
            items.iter_mut().for_each(|item| in_value(of_items, item));
        }
        _ => {}
    }
}

fn in_object(schema: SchemaRef<'_>, map: &mut Map) {
    for field in schema.fields() {
        let name = field.field_name();
        if field.is_structural() && !field.fills_metadata() {
            if let Some(value) = map.get_mut(name) {
                in_value(field, value);
            }
        } else if let Some(Value::Object(metadata)) = map.get_mut(name) {
            retain_typed(metadata);
        } else {
            map.remove(name);
        }
    }
}

fn retain_typed(metadata: &mut Map) {
    let is_typed = |name: &str, value: &Value| {
        let mut alone = Object(Map::from_iter([(name.to_owned(), value.clone())]));
        let mut report = WalkReport::default();
        object_meta().walk(&mut alone, &mut report, WalkOptions::CHECK);
        report.fault().is_none()
    };
    let wrong: Vec<String> =
        metadata.iter().filter(|(name, value)| !is_typed(name, value)).map(|(name, _)| name.to_owned()).collect();
    for name in wrong {
        metadata.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::GroupVersionKind;
    use keelson_meta::json::json;

    use crate::Schema;

    use super::*;

    #[test]
    fn only_fields_of_wrong_types_are_removed() {
        let kind = GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Holder".into() };
        let embedded = json!({ "type": "object", "x-kubernetes-embedded-resource": true });
        let document = json!({ "type": "object", "properties": { "list": { "type": "array", "items": embedded } } });
        let schema = Schema::structural(&kind, &document).unwrap();
        let metadata = json!({ "labels": { "a": "b" }, "annotations": { "n": 42, "t": "x" }, "generation": null });
        let whole = json!({ "metadata": metadata, "list": [{ "metadata": metadata }, { "metadata": 5 }] });
        let mut object = Object::from_value(whole).unwrap();
        schema.get().drop_malformed_metadata(&mut object);
        let kept = json!({ "labels": { "a": "b" }, "generation": null });
        assert_eq!(object.into_value(), json!({ "metadata": kept, "list": [{ "metadata": kept }, {}] }));
    }
}
