//! Encodes JSON text into the bytes of a message, in one pass and without a tree.
//!
//! Fields are written in the order of the JSON. Absent and null fields are not written, since readers then use zero.
//! Fields that the message does not have are skipped. If JSON inlines the fields of an inner message, the inner message
//! is written once for each of these fields, and readers join them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::decode::MAX_DEPTH;
use crate::error::ProtobufError;
use crate::repeats::Repeats;
use crate::scan::{Scanner, Text};
use crate::special::Timestamp;
use crate::table::{Cardinality, Field, FieldByName, Kind, Message, MessageId, message};
use crate::wire::{Open, Sink, WireType, varint_len};

/// The maximum length of a wrong value in an error, in characters.
const SHOWN: usize = 64;

/// The depth down to which messages are mostly longer than 127 bytes: metadata, spec, status, and the elements of lists
/// in them.
const LONG_MESSAGES: usize = 2;

/// Writes the fields of a message from compact JSON. `repeats` has the values that were written to the same output
/// before. No other code may have written to this output since.
pub(crate) fn write<'a>(
    id: MessageId,
    json: &'a [u8],
    repeats: Option<&mut Repeats<'a>>,
    out: &mut impl Sink,
) -> Result<(), ProtobufError> {
    let mut encoder = Encoder { json: Scanner::new(json), repeats, out, depth: 0 };
    match encoder.json.peek() {
        b'{' => encoder.fields(id).map_err(|fault| *fault)?,
        _ => encoder.json.give_up(),
    }
    encoder.json.finish()
}

/// Boxed, because errors are rare and large.
type Fault = Box<ProtobufError>;

/// The input and the output.
struct Encoder<'a, 's, S> {
    json: Scanner<'a>,
    repeats: Option<&'s mut Repeats<'a>>,
    out: &'s mut S,
    depth: usize,
}

impl<'a, S: Sink> Encoder<'a, '_, S> {
    /// Writes the fields of a message from the current object.
    fn fields(&mut self, id: MessageId) -> Result<(), Fault> {
        let message = message(id);
        if self.depth == MAX_DEPTH {
            return Err(Box::new(ProtobufError::TooDeep { at: message.name.to_owned(), limit: MAX_DEPTH }));
        }
        self.depth += 1;
        self.json.open();
        let names = message.names();
        // The index of the previous name plus 1. In a list, most objects have the same names in the same order.
        let mut before = 0;
        loop {
            let expected =
                self.repeats.as_ref().map_or(before, |repeats| repeats.next_name(message.name_number(before)));
            let place = match names.get(expected) {
                Some(named) if self.json.expected_key(&named.key) => Some(expected),
                _ => {
                    let Some(key) = self.json.key() else { break };
                    let place = match key.plain() {
                        Some(name) => message.place(name),
                        None => message.place(&key.bytes()?),
                    };
                    if let (Some(place), Some(repeats)) = (place, &mut self.repeats) {
                        repeats.note_name(message.name_number(before), place);
                    }
                    place
                }
            };
            let Some(place) = place else {
                self.json.raw();
                continue;
            };
            before = place + 1;
            self.field(message, &names[place])?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Writes the current value as a field.
    fn field(&mut self, message: &'static Message, named: &'static FieldByName) -> Result<(), Fault> {
        let slot = FieldSlot::new(message, &named.field);
        if named.around.is_empty() {
            return self.value(slot);
        }
        let opened: Vec<_> = named.around.iter().map(|&number| self.begin(number)).collect();
        self.value(slot)?;
        opened.into_iter().rev().for_each(|open| self.end(open));
        Ok(())
    }

    /// Writes the current value.
    fn value(&mut self, place: FieldSlot) -> Result<(), Fault> {
        match self.json.peek() {
            b'{' | b'[' => self.container(place),
            _ if place.is_json() => {
                self.json(place);
                Ok(())
            }
            b'"' => {
                let text = self.json.string();
                self.text(place, text)
            }
            _ => match self.json.raw() {
                b"null" => {
                    self.null(place);
                    Ok(())
                }
                b"true" => self.bool(place, true),
                b"false" => self.bool(place, false),
                number => self.number(place, number),
            },
        }
    }

    /// Writes the current object or list. If it repeats an earlier one, copies its encoding.
    fn container(&mut self, place: FieldSlot) -> Result<(), Fault> {
        let key = Place { number: place.number, takes: place.takes, depth: self.depth };
        let text = self.json.rest();
        let slot = self.repeats.as_ref().and_then(|_| Repeats::slot(key, text));
        let (Some(repeats), Some(slot)) = (&self.repeats, slot) else { return self.new_container(place) };
        if let Some((length, message)) = repeats.find(slot, key, text) {
            self.out.repeat(message);
            self.json.pass(length);
            return Ok(());
        }
        let start = self.out.position();
        self.new_container(place)?;
        if let (Some(repeats), Some(text)) = (&mut self.repeats, self.json.passed(text)) {
            repeats.note(slot, key, text, start..self.out.position());
        }
        Ok(())
    }

    fn new_container(&mut self, place: FieldSlot) -> Result<(), Fault> {
        if place.is_json() {
            self.json(place);
            return Ok(());
        }
        if self.json.peek() == b'{' { self.object(place) } else { self.list(place) }
    }

    /// Writes the current value as JSON.
    fn json(&mut self, place: FieldSlot) {
        match self.json.raw() {
            b"null" => self.null(place),
            raw => self.wrapped(place.number, raw),
        }
    }

    /// Writes a null: nothing for a field, a zero value for an element.
    fn null(&mut self, place: FieldSlot) {
        match place.takes {
            _ if !place.element => {}
            ExpectedType::One(Kind::Bool | Kind::Int32 | Kind::Int64) => self.out.integer(place.number, 0),
            ExpectedType::One(Kind::Double) => self.double(place, 0.0),
            _ => self.out.bytes(place.number, &[]),
        }
    }

    fn bool(&mut self, place: FieldSlot, value: bool) -> Result<(), Fault> {
        match place.takes {
            ExpectedType::One(Kind::Bool) => self.out.integer(place.number, u64::from(value)),
            ExpectedType::One(Kind::SchemaOrBool(_)) => {
                let open = self.begin(place.number);
                self.out.integer(1, u64::from(value));
                self.end(open);
            }
            _ => return Err(place.wrong(value)),
        }
        Ok(())
    }

    fn number(&mut self, place: FieldSlot, text: &[u8]) -> Result<(), Fault> {
        let text = std::str::from_utf8(text).unwrap_or_default();
        // Only a float can be a negative zero.
        if let (Ok(value), true) = (text.parse(), text != "-0") {
            return self.whole(place, value);
        }
        let Ok(value) = text.parse::<f64>() else {
            self.json.give_up();
            return Ok(());
        };
        if text.parse::<u64>().is_ok() && !matches!(place.takes, ExpectedType::One(Kind::Double | Kind::Quantity)) {
            return Err(place.wrong(text));
        }
        self.float(place, value)
    }

    fn whole(&mut self, place: FieldSlot, value: i64) -> Result<(), Fault> {
        let (number, bits) = (place.number, value.cast_unsigned());
        let narrow = i32::try_from(value).is_ok();
        match place.takes {
            // A negative 32-bit integer is encoded as a 64-bit one.
            ExpectedType::One(Kind::Int32) if narrow => self.out.integer(number, bits),
            ExpectedType::One(Kind::Int64) => self.out.integer(number, bits),
            ExpectedType::One(Kind::IntOrString) if narrow => {
                let open = self.begin(number);
                self.out.integer(2, bits);
                self.end(open);
            }
            ExpectedType::One(Kind::Double) => self.double(place, value as f64),
            // A quantity may be a plain number.
            ExpectedType::One(Kind::Quantity) => self.wrapped(number, value.to_string().as_bytes()),
            _ => return Err(place.wrong(value)),
        }
        Ok(())
    }

    /// Writes a number such as `1.0` or `1e3`, which may be an integer.
    fn float(&mut self, place: FieldSlot, value: f64) -> Result<(), Fault> {
        const RANGE: std::ops::Range<f64> = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
        match place.takes {
            ExpectedType::One(Kind::Double) => self.double(place, value),
            ExpectedType::One(Kind::Quantity) => self.wrapped(place.number, value.to_string().as_bytes()),
            _ if value.fract() == 0.0 && RANGE.contains(&value) => return self.whole(place, value as i64),
            _ => return Err(place.wrong(value)),
        }
        Ok(())
    }

    fn double(&mut self, place: FieldSlot, value: f64) {
        self.out.tag(place.number, WireType::Fixed64);
        self.out.put(&value.to_bits().to_le_bytes());
    }

    fn text(&mut self, place: FieldSlot, text: Text<'_>) -> Result<(), Fault> {
        let number = place.number;
        match place.takes {
            ExpectedType::One(Kind::String) => self.string(number, text)?,
            ExpectedType::One(Kind::Bytes) => match STANDARD.decode(text.bytes()?) {
                Ok(bytes) => self.out.bytes(number, &bytes),
                Err(_) => return Err(place.wrong_text(text)),
            },
            ExpectedType::One(Kind::Quantity) => self.wrapped(number, &text.bytes()?),
            ExpectedType::One(Kind::Time) => return self.time(place, text, false),
            ExpectedType::One(Kind::MicroTime) => return self.time(place, text, true),
            ExpectedType::One(Kind::IntOrString) => {
                let open = self.begin(number);
                self.out.integer(1, 1);
                self.string(3, text)?;
                self.end(open);
            }
            _ => return Err(place.wrong_text(text)),
        }
        Ok(())
    }

    fn time(&mut self, place: FieldSlot, text: Text<'_>, micro: bool) -> Result<(), Fault> {
        let Some(time) = Timestamp::parse(&text.text()?, micro) else { return Err(place.wrong_text(text)) };
        let open = self.begin(place.number);
        if !time.is_zero() {
            self.out.integer(1, time.seconds.cast_unsigned());
            self.out.integer(2, i64::from(time.nanos).cast_unsigned());
        }
        self.end(open);
        Ok(())
    }

    fn list(&mut self, place: FieldSlot) -> Result<(), Fault> {
        let number = place.number;
        let (outer, element) = match place.takes {
            ExpectedType::List(kind) => (None, place.element(number, kind)),
            ExpectedType::One(Kind::Strings) => (Some(number), place.element(1, Kind::String)),
            ExpectedType::One(Kind::SchemaOrStrings(_)) => (Some(number), place.element(2, Kind::String)),
            ExpectedType::One(Kind::SchemaOrList(id)) => (Some(number), place.element(2, Kind::Message(id))),
            _ => return Err(place.wrong("a list")),
        };
        let open = outer.map(|number| self.begin(number));
        self.json.open();
        while self.json.element() {
            self.value(element)?;
        }
        if let Some(open) = open {
            self.end(open);
        }
        Ok(())
    }

    fn object(&mut self, place: FieldSlot) -> Result<(), Fault> {
        let number = place.number;
        match place.takes {
            ExpectedType::Map(kind) => self.entries(place, kind),
            ExpectedType::One(Kind::Message(id)) => self.delimited(number, |encoder| encoder.fields(id)),
            ExpectedType::One(Kind::SchemaOrBool(id)) => self.delimited(number, |encoder| {
                encoder.out.integer(1, 1);
                encoder.delimited(2, |encoder| encoder.fields(id))
            }),
            ExpectedType::One(Kind::SchemaOrList(id) | Kind::SchemaOrStrings(id)) => {
                self.delimited(number, |encoder| encoder.delimited(1, |encoder| encoder.fields(id)))
            }
            _ => Err(place.wrong("an object")),
        }
    }

    fn entries(&mut self, place: FieldSlot, kind: Kind) -> Result<(), Fault> {
        let value = place.element(2, kind);
        self.json.open();
        while let Some(key) = self.json.key() {
            let open = self.begin(place.number);
            self.string(1, key)?;
            self.value(value)?;
            self.end(open);
        }
        Ok(())
    }

    fn string(&mut self, number: u32, text: Text<'_>) -> Result<(), Fault> {
        match text.plain() {
            Some(bytes) => self.out.bytes(number, bytes),
            None => self.out.bytes(number, &text.bytes()?),
        }
        Ok(())
    }

    fn begin(&mut self, number: u32) -> Open {
        self.out.tag(number, WireType::Bytes);
        self.out.begin()
    }

    fn end(&mut self, open: Open) {
        let moved = self.out.end(open);
        if moved != 0
            && let Some(repeats) = &mut self.repeats
        {
            repeats.moved(open.start(), moved);
        }
    }

    fn delimited(&mut self, number: u32, content: impl FnOnce(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        self.out.tag(number, WireType::Bytes);
        let open = if self.depth <= LONG_MESSAGES { self.out.begin_long() } else { self.out.begin() };
        content(self)?;
        self.end(open);
        Ok(())
    }

    /// Writes a message with one field of bytes, whose number is 1.
    fn wrapped(&mut self, number: u32, bytes: &[u8]) {
        // The length is known, so the content need not be moved.
        self.out.tag(number, WireType::Bytes);
        self.out.varint((1 + varint_len(bytes.len()) + bytes.len()) as u64);
        self.out.bytes(1, bytes);
    }
}

/// The place of a value in the messages, and its field number.
#[derive(Clone, Copy)]
struct FieldSlot {
    message: &'static Message,
    field: &'static Field,
    number: u32,
    takes: ExpectedType,
    /// True for an element of a list or map, which is written even if it is null.
    element: bool,
}

/// The place of a value, which together with its text determines the encoding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    number: u32,
    takes: ExpectedType,
    depth: usize,
}

impl Place {
    /// A hash.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.number) << 16 | self.depth as u64
    }
}

/// The type expected at a place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ExpectedType {
    List(Kind),
    Map(Kind),
    One(Kind),
}

impl FieldSlot {
    fn new(message: &'static Message, field: &'static Field) -> Self {
        let takes = match field.shape {
            Cardinality::List => ExpectedType::List(field.kind),
            Cardinality::Map => ExpectedType::Map(field.kind),
            Cardinality::Value | Cardinality::Pointer => ExpectedType::One(field.kind),
        };
        Self { message, field, number: field.number, takes, element: false }
    }

    fn element(self, number: u32, kind: Kind) -> Self {
        Self { number, takes: ExpectedType::One(kind), element: true, ..self }
    }

    fn is_json(self) -> bool {
        matches!(self.takes, ExpectedType::One(Kind::Json))
    }

    /// The error of a value with the wrong type.
    #[cold]
    fn wrong(self, found: impl fmt::Display) -> Fault {
        let at = format!("{}.{}", self.message.name, self.field.name);
        let found = found.to_string().chars().take(SHOWN).collect();
        Box::new(ProtobufError::WrongType { at, wanted: self.wanted(), found })
    }

    #[cold]
    fn wrong_text(self, text: Text<'_>) -> Fault {
        match text.text() {
            Ok(text) => self.wrong(format_args!("{text:?}")),
            Err(error) => error.into(),
        }
    }

    fn wanted(self) -> &'static str {
        match self.takes {
            ExpectedType::List(_) => "a list",
            ExpectedType::Map(_) => "a map",
            ExpectedType::One(kind) => match kind {
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

#[cfg(test)]
mod tests {
    use crate::envelope::{MessageType, decode, encode, encode_json};
    use crate::error::ProtobufError;
    use keelson_meta::json::{Value, json};
    use keelson_meta::{Object, Revision};

    /// Encodes and decodes an object.
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
    fn inlined_messages_are_written_field_by_field() {
        let probe = json!({"httpGet": {"path": "/", "port": "web"}, "exec": {"command": ["true"]}, "periodSeconds": 5});
        let given = json!({"spec": {"containers": [{"name": "a", "livenessProbe": probe}]}});
        let read = through("v1", "Pod", given).unwrap();
        let expected =
            json!({"exec": {"command": ["true"]}, "httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5});
        assert_eq!(read["spec"]["containers"][0]["livenessProbe"], expected);
    }

    #[test]
    fn a_revision_is_added_to_the_metadata() {
        let message = MessageType::new("v1", "ConfigMap").unwrap();
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
        let message = MessageType::new("v1", "ConfigMap").unwrap();
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
