//! From a JSON tree to the bytes of a message, as Go would write the same object.
//!
//! Fields go out in the order of their numbers and map entries in the order of their keys, so equal objects give equal
//! bytes. Fields that are not pointers are written even when they are zero, as generated Go code does; fields of the tree
//! that the message does not have are passed over.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use crate::decode::MAX_DEPTH;
use crate::error::ProtobufError;
use crate::special::Timestamp;
use crate::table::{Field, Kind, Message, MessageId, Shape, message};
use crate::wire::{Sink, WireType};

/// Writes messages to a sink.
pub(crate) struct Encoder<'s, S> {
    out: &'s mut S,
    depth: usize,
}

/// Where in the table a value belongs.
struct At<'t> {
    message: &'t Message,
    field: &'t Field,
}

impl<'s, S: Sink> Encoder<'s, S> {
    /// An encoder that writes there.
    pub(crate) fn new(out: &'s mut S) -> Self {
        Self { out, depth: 0 }
    }

    /// Writes the fields of a message.
    pub(crate) fn fields(&mut self, id: MessageId, object: &Map<String, Value>) -> Result<(), ProtobufError> {
        let shape = message(id);
        if self.depth == MAX_DEPTH {
            return Err(ProtobufError::TooDeep { at: shape.name.to_owned(), limit: MAX_DEPTH });
        }
        self.depth += 1;
        for &position in &shape.by_number {
            let at = At { message: shape, field: &shape.fields[usize::from(position)] };
            match at.field.kind {
                Kind::Message(inner) if at.field.name.is_empty() => {
                    self.delimited(at.field.number, |encoder| encoder.fields(inner, object))?;
                }
                _ => self.field(&at, object.get(at.field.name).and_then(present))?,
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Writes a field; null in JSON is the same as nothing.
    fn field(&mut self, at: &At<'_>, value: Option<&Value>) -> Result<(), ProtobufError> {
        let number = at.field.number;
        match (at.field.shape, value) {
            (Shape::List | Shape::Map | Shape::Pointer, None) => Ok(()),
            (Shape::Value, None) if at.field.kind == Kind::Bytes => Ok(()),
            (Shape::Value | Shape::Pointer, value) => self.value(at, number, value),
            (Shape::List, Some(Value::Array(items))) => {
                items.iter().try_for_each(|item| self.value(at, number, present(item)))
            }
            (Shape::Map, Some(Value::Object(entries))) => {
                let mut sorted: Vec<_> = entries.iter().collect();
                sorted.sort_unstable_by_key(|(key, _)| *key);
                sorted.into_iter().try_for_each(|(key, value)| self.entry(at, key, value))
            }
            (Shape::List, Some(other)) => Err(at.wrong("a list", other)),
            (Shape::Map, Some(other)) => Err(at.wrong("a map", other)),
        }
    }

    fn entry(&mut self, at: &At<'_>, key: &str, value: &Value) -> Result<(), ProtobufError> {
        self.delimited(at.field.number, |encoder| {
            encoder.out.bytes(1, key.as_bytes());
            encoder.value(at, 2, present(value))
        })
    }

    /// Writes one value as the field with this number, nothing as the zero value.
    fn value(&mut self, at: &At<'_>, number: u32, value: Option<&Value>) -> Result<(), ProtobufError> {
        match at.field.kind {
            Kind::String => self.out.bytes(number, at.text(value)?.as_bytes()),
            Kind::Bool => self.out.integer(number, u64::from(at.boolean(value)?)),
            Kind::Int32 => self.out.integer(number, at.int32(value)?),
            Kind::Int64 => self.out.integer(number, at.int64(value)?),
            Kind::Double => {
                let bits = at.number(value)?.map_or(0.0, |number| number.as_f64().unwrap_or_default()).to_bits();
                self.out.tag(number, WireType::Fixed64);
                self.out.put(&bits.to_le_bytes());
            }
            Kind::Bytes => self.out.bytes(number, &at.bytes(value)?),
            Kind::Time => self.time(at, number, value, false)?,
            Kind::MicroTime => self.time(at, number, value, true)?,
            Kind::Quantity => self.quantity(at, number, value)?,
            Kind::IntOrString => self.int_or_string(at, number, value)?,
            Kind::Json => self.json(number, value),
            Kind::Strings => self.delimited(number, |encoder| encoder.texts(at, 1, value))?,
            Kind::SchemaOrBool(schema) => self.schema_or_bool(at, number, schema, value)?,
            Kind::SchemaOrList(schema) => self.schema_or_list(at, number, schema, value)?,
            Kind::SchemaOrStrings(schema) => self.schema_or_strings(at, number, schema, value)?,
            Kind::Message(id) => self.object(at, number, id, value)?,
        }
        Ok(())
    }

    fn delimited(
        &mut self,
        number: u32,
        content: impl FnOnce(&mut Self) -> Result<(), ProtobufError>,
    ) -> Result<(), ProtobufError> {
        self.out.tag(number, WireType::Bytes);
        let start = self.out.begin();
        content(self)?;
        self.out.end(start);
        Ok(())
    }

    fn object(&mut self, at: &At<'_>, number: u32, id: MessageId, value: Option<&Value>) -> Result<(), ProtobufError> {
        match value {
            None => self.delimited(number, |encoder| encoder.fields(id, &Map::new())),
            Some(Value::Object(object)) => self.delimited(number, |encoder| encoder.fields(id, object)),
            Some(other) => Err(at.wrong("an object", other)),
        }
    }

    fn time(&mut self, at: &At<'_>, number: u32, value: Option<&Value>, micro: bool) -> Result<(), ProtobufError> {
        let text = at.text(value)?;
        let time = match value {
            None => None,
            Some(found) => Some(Timestamp::parse(text, micro).ok_or_else(|| at.wrong("a time", found))?),
        };
        self.delimited(number, |encoder| {
            if let Some(time) = time.filter(|time| !time.is_zero()) {
                encoder.out.integer(1, time.seconds.cast_unsigned());
                encoder.out.integer(2, i64::from(time.nanos).cast_unsigned());
            }
            Ok(())
        })
    }

    /// A quantity may stand in JSON as a plain number.
    fn quantity(&mut self, at: &At<'_>, number: u32, value: Option<&Value>) -> Result<(), ProtobufError> {
        let written;
        let text = match value {
            None => "0",
            Some(Value::String(text)) => text,
            Some(Value::Number(value)) => {
                written = value.to_string();
                &written
            }
            Some(other) => return Err(at.wrong("a quantity", other)),
        };
        self.delimited(number, |encoder| {
            encoder.out.bytes(1, text.as_bytes());
            Ok(())
        })
    }

    fn int_or_string(&mut self, at: &At<'_>, number: u32, value: Option<&Value>) -> Result<(), ProtobufError> {
        let (kind, integer, text) = match value {
            Some(Value::String(text)) => (1, 0, text.as_str()),
            other => (0, at.int32(other)?, ""),
        };
        self.delimited(number, |encoder| {
            encoder.out.integer(1, kind);
            encoder.out.integer(2, integer);
            encoder.out.bytes(3, text.as_bytes());
            Ok(())
        })
    }

    fn json(&mut self, number: u32, value: Option<&Value>) {
        self.out.tag(number, WireType::Bytes);
        let outer = self.out.begin();
        if let Some(value) = value {
            self.out.tag(1, WireType::Bytes);
            let inner = self.out.begin();
            serde_json::to_writer(AsWriter(self.out), value)
                .expect("a tree has string keys and a sink takes every byte");
            self.out.end(inner);
        }
        self.out.end(outer);
    }

    fn texts(&mut self, at: &At<'_>, number: u32, value: Option<&Value>) -> Result<(), ProtobufError> {
        match value {
            None => {}
            Some(Value::Array(items)) => {
                for item in items {
                    self.out.bytes(number, at.text(present(item))?.as_bytes());
                }
            }
            Some(other) => return Err(at.wrong("a list", other)),
        }
        Ok(())
    }

    fn schema_or_bool(
        &mut self,
        at: &At<'_>,
        number: u32,
        schema: MessageId,
        value: Option<&Value>,
    ) -> Result<(), ProtobufError> {
        self.delimited(number, |encoder| {
            if let Some(Value::Object(_)) = value {
                encoder.out.integer(1, 1);
                return encoder.object(at, 2, schema, value);
            }
            encoder.out.integer(1, u64::from(at.boolean(value)?));
            Ok(())
        })
    }

    fn schema_or_list(
        &mut self,
        at: &At<'_>,
        number: u32,
        schema: MessageId,
        value: Option<&Value>,
    ) -> Result<(), ProtobufError> {
        self.delimited(number, |encoder| match value {
            None => Ok(()),
            Some(Value::Array(items)) => items.iter().try_for_each(|item| encoder.object(at, 2, schema, present(item))),
            other => encoder.object(at, 1, schema, other),
        })
    }

    fn schema_or_strings(
        &mut self,
        at: &At<'_>,
        number: u32,
        schema: MessageId,
        value: Option<&Value>,
    ) -> Result<(), ProtobufError> {
        self.delimited(number, |encoder| match value {
            None => Ok(()),
            Some(Value::Array(_)) => encoder.texts(at, 2, value),
            other => encoder.object(at, 1, schema, other),
        })
    }
}

impl At<'_> {
    fn wrong(&self, wanted: &'static str, found: &Value) -> ProtobufError {
        /// How much of a value an error shows, in characters.
        const SHOWN: usize = 64;
        let at = format!("{}.{}", self.message.name, self.field.name);
        let found = match found {
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            scalar => scalar.to_string().chars().take(SHOWN).collect(),
        };
        ProtobufError::WrongType { at, wanted, found }
    }

    fn text<'v>(&self, value: Option<&'v Value>) -> Result<&'v str, ProtobufError> {
        match value {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(self.wrong("a string", other)),
        }
    }

    fn boolean(&self, value: Option<&Value>) -> Result<bool, ProtobufError> {
        match value {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => Err(self.wrong("a boolean", other)),
        }
    }

    fn number<'v>(&self, value: Option<&'v Value>) -> Result<Option<&'v Number>, ProtobufError> {
        match value {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number)),
            Some(other) => Err(self.wrong("a number", other)),
        }
    }

    /// A whole number, which JSON may write as `1.0` or `1e3`.
    fn integer(&self, value: Option<&Value>) -> Result<i64, ProtobufError> {
        let Some(number) = self.number(value)? else { return Ok(0) };
        let whole = |number: f64| {
            let exact =
                number.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
            exact.then_some(number as i64)
        };
        let integer = number.as_i64().or_else(|| number.as_f64().filter(|_| number.is_f64()).and_then(whole));
        integer.ok_or_else(|| self.wrong("an integer of 64 bits", value.unwrap_or(&Value::Null)))
    }

    fn int64(&self, value: Option<&Value>) -> Result<u64, ProtobufError> {
        self.integer(value).map(i64::cast_unsigned)
    }

    /// Negative integers of 32 bits are written as those of 64.
    fn int32(&self, value: Option<&Value>) -> Result<u64, ProtobufError> {
        let integer = self.integer(value)?;
        let narrow = i32::try_from(integer);
        let wrong = |_| self.wrong("an integer of 32 bits", value.unwrap_or(&Value::Null));
        narrow.map(|narrow| i64::from(narrow).cast_unsigned()).map_err(wrong)
    }

    fn bytes(&self, value: Option<&Value>) -> Result<Vec<u8>, ProtobufError> {
        let decoded = STANDARD.decode(self.text(value)?);
        decoded.map_err(|_| self.wrong("base64", value.unwrap_or(&Value::Null)))
    }
}

/// Null in JSON is the same as nothing.
fn present(value: &Value) -> Option<&Value> {
    if value.is_null() { None } else { Some(value) }
}

struct AsWriter<'s, S>(&'s mut S);

impl<S: Sink> io::Write for AsWriter<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::envelope::{decode, encode};
    use crate::error::ProtobufError;
    use keelson_meta::Object;
    use serde_json::{Value, json};

    /// What comes back after writing and reading.
    fn through(api_version: &str, kind: &str, value: Value) -> Result<Value, ProtobufError> {
        let body = encode(api_version, kind, &Object::from_value(value).expect("an object"))?;
        Ok(decode(&body)?.object.into_value())
    }

    fn refused(spec: &Value) -> String {
        through("v1", "Pod", json!({"spec": spec})).unwrap_err().to_string()
    }

    #[test]
    fn types_that_do_not_fit_are_named() {
        assert_eq!(refused(&json!({"nodeName": 7})), "PodSpec.nodeName: cannot write 7 as a string");
        assert_eq!(refused(&json!({"containers": {}})), "PodSpec.containers: cannot write an object as a list");
        assert_eq!(refused(&json!({"containers": ["a"]})), "PodSpec.containers: cannot write \"a\" as an object");
        assert_eq!(
            refused(&json!({"priority": 1u64 << 31})),
            "PodSpec.priority: cannot write 2147483648 as an integer of 32 bits"
        );
        let time = through("v1", "Pod", json!({"metadata": {"creationTimestamp": "soon"}})).unwrap_err();
        assert_eq!(time.to_string(), "ObjectMeta.creationTimestamp: cannot write \"soon\" as a time");
        let data = through("v1", "Secret", json!({"data": {"a": "?"}})).unwrap_err();
        assert_eq!(data.to_string(), "Secret.data: cannot write \"?\" as base64");
    }

    #[test]
    fn nulls_and_unknown_fields_are_passed_over() {
        let given = json!({"metadata": {"name": "a", "labels": null}, "nope": {"a": 1}, "data": {"k": null}});
        let expected = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": ""}});
        assert_eq!(through("v1", "Secret", given), Ok(expected));
    }

    #[test]
    fn whole_numbers_may_be_written_with_a_fraction() {
        let given = json!({"spec": {"replicas": 2.0}});
        assert_eq!(through("autoscaling/v1", "Scale", given).unwrap()["spec"], json!({"replicas": 2}));
        let half = through("autoscaling/v1", "Scale", json!({"spec": {"replicas": 2.5}}));
        assert!(matches!(half, Err(ProtobufError::WrongType { .. })), "{half:?}");
    }

    #[test]
    fn kinds_that_are_not_built_in_have_no_message() {
        let unknown = through("example.com/v1", "Widget", json!({})).unwrap_err();
        assert_eq!(unknown.to_string(), "no kind \"Widget\" is registered for version \"example.com/v1\"");
    }
}
