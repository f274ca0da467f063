//! From JSON, text or tree, to the bytes of a message, in one pass and without a tree in between.
//!
//! Fields go out in the order in which JSON has them. What JSON does not have, or has as null, is not written, as a reader
//! takes it for zero; fields that the message does not have are passed over. Where JSON has the fields of an inner message
//! in the enclosing object, the inner message is written once for each: readers join the pieces.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::decode::MAX_DEPTH;
use crate::error::ProtobufError;
use crate::special::Timestamp;
use crate::table::{Field, Kind, Message, MessageId, Shape, message};
use crate::wire::{Sink, WireType};

/// How much of a wrong value an error shows, in characters.
const SHOWN: usize = 64;

/// Writes the fields of the message that this JSON is.
pub(crate) fn write<'de, D>(id: MessageId, json: D, out: &mut impl Sink) -> Result<(), ProtobufError>
where
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let mut encoder = Encoder { out, depth: 0, error: None };
    let result = json.deserialize_any(Fields { encoder: &mut encoder, id });
    let error = encoder.error;
    result.map_err(|json| error.unwrap_or_else(|| ProtobufError::NotJson(json.to_string())))
}

/// Where the bytes go, and what went wrong: serde carries only text, so the error is kept here.
struct Encoder<'s, S> {
    out: &'s mut S,
    depth: usize,
    error: Option<ProtobufError>,
}

impl<S: Sink> Encoder<'_, S> {
    fn fail<E: serde::de::Error>(&mut self, error: ProtobufError) -> E {
        self.error = Some(error);
        E::custom("the object does not fit the message")
    }

    fn begin(&mut self, number: u32) -> usize {
        self.out.tag(number, WireType::Bytes);
        self.out.begin()
    }

    fn delimited<E>(&mut self, number: u32, content: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let start = self.begin(number);
        content(self)?;
        self.out.end(start);
        Ok(())
    }

    /// A message with one field of bytes, whose number is 1.
    fn wrapped(&mut self, number: u32, bytes: &[u8]) {
        let start = self.begin(number);
        self.out.bytes(1, bytes);
        self.out.end(start);
    }
}

/// The fields of a message, from a JSON object.
struct Fields<'e, 's, S> {
    encoder: &'e mut Encoder<'s, S>,
    id: MessageId,
}

impl<'de, S: Sink> Visitor<'de> for Fields<'_, '_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of type {}", message(self.id).name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let Self { encoder, id } = self;
        let message = message(id);
        if encoder.depth == MAX_DEPTH {
            return Err(encoder.fail(ProtobufError::TooDeep { at: message.name.to_owned(), limit: MAX_DEPTH }));
        }
        encoder.depth += 1;
        let mut next = 0;
        while let Some(name) = object.next_key_seed(Name(message, &mut next))? {
            let Some(named) = name else {
                object.next_value::<IgnoredAny>()?;
                continue;
            };
            let starts: Vec<_> = named.around.iter().map(|&number| encoder.begin(number)).collect();
            object.next_value_seed(Content { encoder, place: Place::of(message, &named.field) })?;
            starts.into_iter().rev().for_each(|start| encoder.out.end(start));
        }
        encoder.depth -= 1;
        Ok(())
    }
}

/// Finds the field that a key names, without keeping the key, from the place where it is expected.
struct Name<'n>(&'static Message, &'n mut usize);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<&'static crate::table::Named>;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Self::Value, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<&'static crate::table::Named>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.named(key, self.1))
    }
}

/// Begins an entry of a map with its key.
struct Key<'e, 's, S> {
    encoder: &'e mut Encoder<'s, S>,
    number: u32,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Key<'_, '_, S> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<usize, D::Error> {
        key.deserialize_str(self)
    }
}

impl<S: Sink> Visitor<'_> for Key<'_, '_, S> {
    /// What ends the entry.
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<usize, E> {
        let start = self.encoder.begin(self.number);
        self.encoder.out.bytes(1, key.as_bytes());
        Ok(start)
    }
}

/// Where in the messages a value belongs, and under which number it is written there.
#[derive(Clone, Copy)]
struct Place {
    message: &'static Message,
    field: &'static Field,
    number: u32,
    takes: Takes,
    /// Whether it is an element of a list or map, which has to be there even if it is null.
    element: bool,
}

/// What is wanted at a place.
#[derive(Clone, Copy)]
enum Takes {
    List(Kind),
    Map(Kind),
    One(Kind),
}

impl Place {
    fn of(message: &'static Message, field: &'static Field) -> Self {
        let takes = match field.shape {
            Shape::List => Takes::List(field.kind),
            Shape::Map => Takes::Map(field.kind),
            Shape::Value | Shape::Pointer => Takes::One(field.kind),
        };
        Self { message, field, number: field.number, takes, element: false }
    }

    fn element(self, number: u32, kind: Kind) -> Self {
        Self { number, takes: Takes::One(kind), element: true, ..self }
    }

    fn wanted(self) -> &'static str {
        match self.takes {
            Takes::List(_) => "a list",
            Takes::Map(_) => "a map",
            Takes::One(kind) => match kind {
                Kind::String => "a string",
                Kind::Bool => "a boolean",
                Kind::Int32 => "an integer of 32 bits",
                Kind::Int64 => "an integer of 64 bits",
                Kind::Double => "a number",
                Kind::Bytes => "base64",
                Kind::Time | Kind::MicroTime => "a time",
                Kind::Quantity => "a quantity",
                Kind::IntOrString => "an integer of 32 bits or a string",
                Kind::Json => "JSON",
                Kind::Strings => "a list of strings",
                Kind::SchemaOrBool(_) => "a schema or a boolean",
                Kind::SchemaOrList(_) => "a schema or a list of schemas",
                Kind::SchemaOrStrings(_) => "a schema or a list of strings",
                Kind::Message(_) => "an object",
            },
        }
    }
}

/// The value at a place, from JSON.
struct Content<'e, 's, S> {
    encoder: &'e mut Encoder<'s, S>,
    place: Place,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Content<'_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        if !matches!(self.place.takes, Takes::One(Kind::Json)) {
            return json.deserialize_any(self);
        }
        let raw: Box<RawValue> = serde::Deserialize::deserialize(json)?;
        if raw.get() == "null" {
            return self.visit_unit();
        }
        self.encoder.wrapped(self.place.number, raw.get().as_bytes());
        Ok(())
    }
}

impl<S: Sink> Content<'_, '_, S> {
    fn double(self, value: f64) {
        self.encoder.out.tag(self.place.number, WireType::Fixed64);
        self.encoder.out.put(&value.to_bits().to_le_bytes());
    }

    fn whole<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        let (number, bits) = (self.place.number, value.cast_unsigned());
        let narrow = i32::try_from(value).is_ok();
        match self.place.takes {
            // Negative integers of 32 bits are written as those of 64.
            Takes::One(Kind::Int32) if narrow => self.encoder.out.integer(number, bits),
            Takes::One(Kind::Int64) => self.encoder.out.integer(number, bits),
            Takes::One(Kind::IntOrString) if narrow => {
                let start = self.encoder.begin(number);
                self.encoder.out.integer(2, bits);
                self.encoder.out.end(start);
            }
            Takes::One(Kind::Double) => self.double(value as f64),
            // A quantity may be a plain number.
            Takes::One(Kind::Quantity) => self.encoder.wrapped(number, value.to_string().as_bytes()),
            _ => return Err(self.wrong(value)),
        }
        Ok(())
    }

    fn time<E: serde::de::Error>(self, text: &str, micro: bool) -> Result<(), E> {
        let Some(time) = Timestamp::parse(text, micro) else { return Err(self.wrong(format_args!("{text:?}"))) };
        let start = self.encoder.begin(self.place.number);
        if !time.is_zero() {
            self.encoder.out.integer(1, time.seconds.cast_unsigned());
            self.encoder.out.integer(2, i64::from(time.nanos).cast_unsigned());
        }
        self.encoder.out.end(start);
        Ok(())
    }

    fn wrong<E: serde::de::Error>(self, found: impl fmt::Display) -> E {
        let at = format!("{}.{}", self.place.message.name, self.place.field.name);
        let found = found.to_string().chars().take(SHOWN).collect();
        self.encoder.fail(ProtobufError::WrongType { at, wanted: self.place.wanted(), found })
    }
}

impl<'de, S: Sink> Visitor<'de> for Content<'_, '_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.place.wanted())
    }

    /// Null is the same as nothing, but among elements it is a zero value.
    fn visit_unit<E>(self) -> Result<(), E> {
        match self.place.takes {
            _ if !self.place.element => {}
            Takes::One(Kind::Bool | Kind::Int32 | Kind::Int64) => self.encoder.out.integer(self.place.number, 0),
            Takes::One(Kind::Double) => self.double(0.0),
            _ => self.encoder.out.bytes(self.place.number, &[]),
        }
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match self.place.takes {
            Takes::One(Kind::Bool) => self.encoder.out.integer(self.place.number, u64::from(value)),
            Takes::One(Kind::SchemaOrBool(_)) => {
                let start = self.encoder.begin(self.place.number);
                self.encoder.out.integer(1, u64::from(value));
                self.encoder.out.end(start);
            }
            _ => return Err(self.wrong(value)),
        }
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.whole(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match (i64::try_from(value), self.place.takes) {
            (Ok(value), _) => self.whole(value),
            (Err(_), Takes::One(Kind::Double | Kind::Quantity)) => self.visit_f64(value as f64),
            (Err(_), _) => Err(self.wrong(value)),
        }
    }

    /// A whole number may be written as `1.0` or `1e3`.
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        const RANGE: std::ops::Range<f64> = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
        match self.place.takes {
            Takes::One(Kind::Double) => self.double(value),
            Takes::One(Kind::Quantity) => self.encoder.wrapped(self.place.number, value.to_string().as_bytes()),
            _ if value.fract() == 0.0 && RANGE.contains(&value) => return self.whole(value as i64),
            _ => return Err(self.wrong(value)),
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let number = self.place.number;
        match self.place.takes {
            Takes::One(Kind::String) => self.encoder.out.bytes(number, text.as_bytes()),
            Takes::One(Kind::Bytes) => match STANDARD.decode(text) {
                Ok(bytes) => self.encoder.out.bytes(number, &bytes),
                Err(_) => return Err(self.wrong(format_args!("{text:?}"))),
            },
            Takes::One(Kind::Quantity) => self.encoder.wrapped(number, text.as_bytes()),
            Takes::One(Kind::Time) => return self.time(text, false),
            Takes::One(Kind::MicroTime) => return self.time(text, true),
            Takes::One(Kind::IntOrString) => {
                let start = self.encoder.begin(number);
                self.encoder.out.integer(1, 1);
                self.encoder.out.bytes(3, text.as_bytes());
                self.encoder.out.end(start);
            }
            _ => return Err(self.wrong(format_args!("{text:?}"))),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Place { number, takes, .. } = self.place;
        let (outer, place) = match takes {
            Takes::List(kind) => (None, self.place.element(number, kind)),
            Takes::One(Kind::Strings) => (Some(number), self.place.element(1, Kind::String)),
            Takes::One(Kind::SchemaOrStrings(_)) => (Some(number), self.place.element(2, Kind::String)),
            Takes::One(Kind::SchemaOrList(id)) => (Some(number), self.place.element(2, Kind::Message(id))),
            _ => return Err(self.wrong("a list")),
        };
        let start = outer.map(|number| self.encoder.begin(number));
        while items.next_element_seed(Content { encoder: &mut *self.encoder, place })?.is_some() {}
        if let Some(start) = start {
            self.encoder.out.end(start);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        let Place { number, takes, .. } = self.place;
        let fields = |encoder: &mut Encoder<'_, S>, id, object| Fields { encoder, id }.visit_map(object);
        match takes {
            Takes::Map(kind) => self.entries(kind, object),
            Takes::One(Kind::Message(id)) => self.encoder.delimited(number, |encoder| fields(encoder, id, object)),
            Takes::One(Kind::SchemaOrBool(id)) => self.encoder.delimited(number, |encoder| {
                encoder.out.integer(1, 1);
                encoder.delimited(2, |encoder| fields(encoder, id, object))
            }),
            Takes::One(Kind::SchemaOrList(id) | Kind::SchemaOrStrings(id)) => {
                self.encoder.delimited(number, |encoder| encoder.delimited(1, |encoder| fields(encoder, id, object)))
            }
            _ => Err(self.wrong("an object")),
        }
    }
}

impl<S: Sink> Content<'_, '_, S> {
    fn entries<'de, A: MapAccess<'de>>(self, kind: Kind, mut entries: A) -> Result<(), A::Error> {
        let place = self.place.element(2, kind);
        let number = self.place.number;
        while let Some(start) = entries.next_key_seed(Key { encoder: &mut *self.encoder, number })? {
            entries.next_value_seed(Content { encoder: &mut *self.encoder, place })?;
            self.encoder.out.end(start);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::envelope::{MessageType, decode, encode, encode_json};
    use crate::error::ProtobufError;
    use keelson_meta::{Object, Revision};
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
    fn inner_messages_whose_fields_stand_outside_are_written_in_pieces() {
        let probe = json!({"httpGet": {"path": "/", "port": "web"}, "exec": {"command": ["true"]}, "periodSeconds": 5});
        let given = json!({"spec": {"containers": [{"name": "a", "livenessProbe": probe}]}});
        let read = through("v1", "Pod", given).unwrap();
        let expected =
            json!({"exec": {"command": ["true"]}, "httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5});
        assert_eq!(read["spec"]["containers"][0]["livenessProbe"], expected);
    }

    #[test]
    fn a_revision_is_added_to_the_metadata() {
        let message = MessageType::of("v1", "ConfigMap").unwrap();
        let mut out = Vec::new();
        let text = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n"},"data":{"a":"b"}}"#;
        message.write_json(text, Some(Revision::new(41)), &mut out).unwrap();
        assert_eq!(message.json_len(text, Some(Revision::new(41))), Ok(out.len()));
        let whole = Object::from_value(json!({"metadata": {"name": "n", "resourceVersion": "41"}, "data": {"a": "b"}}));
        let expected = encode("v1", "ConfigMap", &whole.expect("an object")).unwrap();
        let body = encode_json("v1", "ConfigMap", text, Some(Revision::new(41))).unwrap();
        assert_eq!(decode(&body), decode(&expected));
    }

    #[test]
    fn text_that_is_not_an_object_is_refused() {
        let message = MessageType::of("v1", "ConfigMap").unwrap();
        for text in ["", "[]", "{", "{}{}", "null", "7"] {
            let result = message.write_json(text.as_bytes(), None, &mut Vec::new());
            assert!(matches!(result, Err(ProtobufError::NotJson(_))), "{text}: {result:?}");
        }
    }

    #[test]
    fn kinds_that_are_not_built_in_have_no_message() {
        let unknown = through("example.com/v1", "Widget", json!({})).unwrap_err();
        assert_eq!(unknown.to_string(), "no kind \"Widget\" is registered for version \"example.com/v1\"");
    }
}
