//! A value tree without the parts that nobody is going to look at.
//!
//! Making nodes for every environment variable of every container is most of the cost of a tree. Whoever shows only a
//! few fields names the members that can be passed over; they are read past without becoming nodes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads one JSON value, leaving out the members of `spec` (at any depth) that `passed_over` names, and the metadata's
/// `managedFields`. `None` when the text is not JSON.
pub(super) fn read(json: &[u8], passed_over: &[&str]) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    deserializer.disable_recursion_limit();
    Node { place: Place::Root, passed_over }.deserialize(&mut deserializer).ok()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Metadata,
    Spec,
    Elsewhere,
}

#[derive(Clone, Copy)]
struct Node<'a> {
    place: Place,
    passed_over: &'a [&'a str],
}

impl Node<'_> {
    fn is_passed_over(&self, key: &str) -> bool {
        match self.place {
            Place::Metadata => key == "managedFields",
            Place::Spec => self.passed_over.contains(&key),
            Place::Root | Place::Elsewhere => false,
        }
    }

    fn below(self, key: &str) -> Self {
        let place = match (self.place, key) {
            (Place::Root, "metadata") => Place::Metadata,
            (Place::Root, "spec") | (Place::Spec, _) => Place::Spec,
            (Place::Root | Place::Metadata | Place::Elsewhere, _) => Place::Elsewhere,
        };
        Self { place, ..self }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if self.is_passed_over(&key) {
                members.next_value::<IgnoredAny>()?;
            } else {
                let value = members.next_value_seed(self.below(&key))?;
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_named_members_of_the_spec_are_left_out() {
        let text = json!({
            "metadata": {"name": "n", "managedFields": [1], "env": "kept"},
            "spec": {"env": 1, "containers": [{"name": "c", "env": [{"name": "A"}]}], "nodeName": "x"},
            "data": {"env": "kept"},
            "status": {"env": "kept", "n": 1.5, "m": -3, "b": true, "z": null},
        });
        let read = read(text.to_string().as_bytes(), &["env"]).unwrap();
        let expected = json!({
            "metadata": {"name": "n", "env": "kept"},
            "spec": {"containers": [{"name": "c"}], "nodeName": "x"},
            "data": {"env": "kept"},
            "status": {"env": "kept", "n": 1.5, "m": -3, "b": true, "z": null},
        });
        assert_eq!(read, expected);
    }
}
