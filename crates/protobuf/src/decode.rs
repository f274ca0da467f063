//! Decodes the bytes of a message into the JSON that Go's encoder would write.
//!
//! A message is first split into its fields. These are then written in the order of JSON, and left out by JSON's rules
//! for omission. If a message field occurs several times, its bytes are joined and read as one message, as the protobuf
//! encoding requires.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::json::{Map, Number, Value};

use crate::envelope;
use crate::error::{ProtobufError, WireFault};
use crate::special::Timestamp;
use crate::table::{Cardinality, Field, Kind, Message, MessageId, Omit, message};
use crate::wire::{Reader, Wire};

/// The maximum nesting of messages, including embedded objects. Apart from JSON schemas, the deepest kind has about ten
/// levels.
pub(crate) const MAX_DEPTH: usize = 128;

/// The maximum number of values in an object. It is far above the number in any useful request of 3 MiB. Without it, an
/// object of empty messages could exhaust the memory.
const MAX_VALUES: usize = 1 << 18;

/// The occurrences of each field of a message, by position in the table.
type Slots<'a> = Vec<Vec<Wire<'a>>>;

/// Decodes messages, and counts the values that it creates.
pub(crate) struct Decoder {
    values_left: usize,
    depth: usize,
}

impl Decoder {
    /// Creates a decoder that has counted no values yet.
    pub(crate) fn new() -> Self {
        Self { values_left: MAX_VALUES, depth: 0 }
    }

    /// Appends the fields of a message to a JSON object.
    pub(crate) fn fields(&mut self, id: MessageId, bytes: &[&[u8]], into: &mut Map) -> Result<(), ProtobufError> {
        let shape = message(id);
        if self.depth == MAX_DEPTH {
            return Err(ProtobufError::TooDeep { at: shape.name.to_owned(), limit: MAX_DEPTH });
        }
        self.depth += 1;
        let slots = split(shape, bytes, self.values_left)?;
        for (field, occurrences) in shape.fields.iter().zip(&slots) {
            let at = At { message: shape, field };
            if field.name.is_empty() {
                let Kind::Message(inner) = field.kind else { continue };
                self.fields(inner, &at.all_bytes(occurrences)?, into)?;
            } else if let Some(value) = self.field(&at, occurrences)? {
                self.count(1)?;
                into.insert(field.name, value);
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn count(&mut self, values: usize) -> Result<(), ProtobufError> {
        let left = self.values_left.checked_sub(values);
        self.values_left = left.ok_or(ProtobufError::TooManyValues { limit: MAX_VALUES })?;
        Ok(())
    }

    /// The value of a field. `None` if JSON omits it.
    fn field(&mut self, at: &At<'_>, occurrences: &[Wire<'_>]) -> Result<Option<Value>, ProtobufError> {
        let leaves_out_empty = at.field.omit != Omit::Never;
        if occurrences.is_empty() && at.field.shape != Cardinality::Value {
            return Ok(if leaves_out_empty { None } else { Some(Value::Null) });
        }
        let value = match at.field.shape {
            Cardinality::List => self.list(at, occurrences)?,
            Cardinality::Map => self.map(at, occurrences)?,
            Cardinality::Pointer => self.value(at, occurrences)?,
            Cardinality::Value => {
                let value = self.value(at, occurrences)?;
                if leaves_out_empty && is_empty(at.field, &value) {
                    return Ok(None);
                }
                value
            }
        };
        Ok(Some(value))
    }

    fn list(&mut self, at: &At<'_>, occurrences: &[Wire<'_>]) -> Result<Value, ProtobufError> {
        if occurrences.len() > self.values_left {
            return Err(ProtobufError::TooManyValues { limit: MAX_VALUES });
        }
        let mut items = Vec::with_capacity(occurrences.len());
        let numeric = matches!(at.field.kind, Kind::Int32 | Kind::Int64 | Kind::Bool);
        for occurrence in occurrences {
            match occurrence {
                Wire::Bytes(packed) if numeric => self.unpack(at, packed, &mut items)?,
                single => {
                    self.count(1)?;
                    items.push(self.value(at, std::slice::from_ref(single))?);
                }
            }
        }
        Ok(Value::Array(items))
    }

    fn unpack(&mut self, at: &At<'_>, packed: &[u8], items: &mut Vec<Value>) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(packed);
        while let Some(value) = reader.packed().map_err(|fault| at.fault(fault))? {
            self.count(1)?;
            items.push(self.value(at, &[Wire::Varint(value)])?);
        }
        Ok(())
    }

    fn map(&mut self, at: &At<'_>, occurrences: &[Wire<'_>]) -> Result<Value, ProtobufError> {
        let mut entries = BTreeMap::new();
        for occurrence in occurrences {
            let mut reader = Reader::new(at.check(occurrence.bytes())?);
            let (mut key, mut values) = ("", Vec::new());
            while let Some((number, wire)) = reader.field().map_err(|fault| at.fault(fault))? {
                match number {
                    1 => key = at.check(wire.text())?,
                    2 => values.push(wire),
                    _ => {}
                }
            }
            self.count(1)?;
            // In a map, empty bytes are a value. Elsewhere they count as absent.
            let absent = at.field.kind == Kind::Bytes && values.is_empty();
            let value = if absent { Value::from("") } else { self.value(at, &values)? };
            entries.insert(key.to_owned(), value);
        }
        Ok(Value::Object(entries.into_iter().collect()))
    }

    /// Decodes a single value: for a scalar the last occurrence, for a message all of them joined. Without an
    /// occurrence, the zero value.
    fn value(&mut self, at: &At<'_>, occurrences: &[Wire<'_>]) -> Result<Value, ProtobufError> {
        let last = occurrences.last().copied();
        let number = || last.map_or(Ok(0), |wire| at.check(wire.varint()));
        Ok(match at.field.kind {
            Kind::String => Value::from(last.map_or(Ok(""), |wire| at.check(wire.text()))?),
            Kind::Bool => Value::from(number()? != 0),
            // A 32-bit integer is encoded in 64 bits with its sign. Excess bits are dropped, as in Go.
            Kind::Int32 => Value::from(number()? as i32),
            Kind::Int64 => Value::from(number()? as i64),
            Kind::Double => double(at, last)?,
            Kind::Bytes => {
                last.map_or(Ok(Value::Null), |wire| at.check(wire.bytes()).map(|b| STANDARD.encode(b).into()))?
            }
            Kind::Time => time(at, occurrences, false)?,
            Kind::MicroTime => time(at, occurrences, true)?,
            Kind::Quantity => quantity(at, occurrences)?,
            Kind::IntOrString => int_or_string(at, occurrences)?,
            Kind::Json => self.json(at, occurrences)?,
            Kind::Strings => self.strings(at, occurrences)?,
            Kind::SchemaOrBool(schema) => self.schema_or_bool(at, schema, occurrences)?,
            Kind::SchemaOrList(schema) => self.schema_or_list(at, schema, occurrences)?,
            Kind::SchemaOrStrings(schema) => self.schema_or_strings(at, schema, occurrences)?,
            Kind::Message(id) => self.object(id, &at.all_bytes(occurrences)?)?,
        })
    }

    fn object(&mut self, id: MessageId, bytes: &[&[u8]]) -> Result<Value, ProtobufError> {
        let mut fields = Map::new();
        self.fields(id, bytes, &mut fields)?;
        Ok(Value::Object(fields))
    }

    /// Decodes embedded JSON, or an embedded object in protobuf.
    fn json(&mut self, at: &At<'_>, occurrences: &[Wire<'_>]) -> Result<Value, ProtobufError> {
        let [raw] = at.parts(occurrences)?;
        let Some(raw) = raw.last() else { return Ok(Value::Null) };
        let raw = at.check(raw.bytes())?;
        if raw.is_empty() {
            return Ok(Value::Null);
        }
        if raw.starts_with(&envelope::PREFIX) {
            return Ok(envelope::decode_within(self, raw, None)?.object.into_value());
        }
        let value = serde_json::from_slice(raw).map_err(|_| at.fault(WireFault::Json))?;
        self.count(values_within(&value))?;
        Ok(value)
    }

    fn strings(&mut self, at: &At<'_>, occurrences: &[Wire<'_>]) -> Result<Value, ProtobufError> {
        let [items] = at.parts(occurrences)?;
        if items.is_empty() { Ok(Value::Null) } else { self.texts(at, &items) }
    }

    fn texts(&mut self, at: &At<'_>, items: &[Wire<'_>]) -> Result<Value, ProtobufError> {
        self.count(items.len())?;
        items.iter().map(|item| at.check(item.text()).map(Value::from)).collect()
    }

    fn schema_or_bool(
        &mut self,
        at: &At<'_>,
        schema: MessageId,
        occurrences: &[Wire<'_>],
    ) -> Result<Value, ProtobufError> {
        let [allows, schemas] = at.parts(occurrences)?;
        if !schemas.is_empty() {
            return self.object(schema, &at.all_bytes(&schemas)?);
        }
        let allows = allows.last().map_or(Ok(0), |wire| at.check(wire.varint()))?;
        Ok(Value::from(allows != 0))
    }

    fn schema_or_list(
        &mut self,
        at: &At<'_>,
        schema: MessageId,
        occurrences: &[Wire<'_>],
    ) -> Result<Value, ProtobufError> {
        let [single, list] = at.parts(occurrences)?;
        if !list.is_empty() {
            self.count(list.len())?;
            let items = at.all_bytes(&list)?;
            return items.into_iter().map(|item| self.object(schema, &[item])).collect();
        }
        if single.is_empty() { Ok(Value::Null) } else { self.object(schema, &at.all_bytes(&single)?) }
    }

    fn schema_or_strings(
        &mut self,
        at: &At<'_>,
        schema: MessageId,
        occurrences: &[Wire<'_>],
    ) -> Result<Value, ProtobufError> {
        let [single, texts] = at.parts(occurrences)?;
        if !texts.is_empty() {
            return self.texts(at, &texts);
        }
        if single.is_empty() { Ok(Value::Null) } else { self.object(schema, &at.all_bytes(&single)?) }
    }
}

/// The place of a value in the table, for errors.
struct At<'t> {
    message: &'t Message,
    field: &'t Field,
}

impl At<'_> {
    fn fault(&self, fault: WireFault) -> ProtobufError {
        ProtobufError::Malformed { at: format!("{}.{}", self.message.name, self.field.name), fault }
    }

    fn check<T>(&self, result: Result<T, WireFault>) -> Result<T, ProtobufError> {
        result.map_err(|fault| self.fault(fault))
    }

    fn all_bytes<'a>(&self, occurrences: &[Wire<'a>]) -> Result<Vec<&'a [u8]>, ProtobufError> {
        occurrences.iter().map(|wire| self.check(wire.bytes())).collect()
    }

    /// The occurrences of fields 1 to `N` of a message that is not in the table.
    fn parts<'a, const N: usize>(&self, occurrences: &[Wire<'a>]) -> Result<[Vec<Wire<'a>>; N], ProtobufError> {
        let mut parts = std::array::from_fn(|_| Vec::new());
        for bytes in self.all_bytes(occurrences)? {
            let mut reader = Reader::new(bytes);
            while let Some((number, wire)) = self.check(reader.field())? {
                if let Some(part) = usize::try_from(number).ok().and_then(|number| parts.get_mut(number - 1)) {
                    part.push(wire);
                }
            }
        }
        Ok(parts)
    }
}

/// Splits a message of at most `most` values into its fields. Unknown fields, which a newer version may have, are
/// skipped.
fn split<'a>(shape: &Message, bytes: &[&'a [u8]], most: usize) -> Result<Slots<'a>, ProtobufError> {
    let mut slots = vec![Vec::new(); shape.fields.len()];
    let mut left = most;
    for bytes in bytes {
        let mut reader = Reader::new(bytes);
        loop {
            let field = reader.field();
            match field.map_err(|fault| ProtobufError::Malformed { at: shape.name.to_owned(), fault })? {
                None => break,
                Some((number, wire)) => {
                    if let Some(position) = shape.position(number) {
                        left = left.checked_sub(1).ok_or(ProtobufError::TooManyValues { limit: MAX_VALUES })?;
                        slots[position].push(wire);
                    }
                }
            }
        }
    }
    Ok(slots)
}

/// Returns true if JSON omits this value of a field that is not a pointer, list or map.
fn is_empty(field: &Field, value: &Value) -> bool {
    match field.kind {
        Kind::Time | Kind::MicroTime => field.omit == Omit::Zero && value.is_null(),
        Kind::Quantity
        | Kind::IntOrString
        | Kind::Json
        | Kind::SchemaOrBool(_)
        | Kind::SchemaOrList(_)
        | Kind::SchemaOrStrings(_)
        | Kind::Message(_) => false,
        Kind::String | Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Double | Kind::Bytes | Kind::Strings => {
            match value {
                Value::Null => true,
                Value::Bool(value) => !value,
                Value::Number(number) => number.as_f64() == Some(0.0),
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Object(_) => false,
            }
        }
    }
}

/// Decodes a double. Go writes integral doubles without a fraction.
fn double(at: &At<'_>, wire: Option<Wire<'_>>) -> Result<Value, ProtobufError> {
    /// The limit up to which a double represents every integer exactly.
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    let value = match wire {
        None => 0.0,
        Some(Wire::Fixed64(bits)) => f64::from_bits(bits),
        Some(Wire::Varint(_) | Wire::Fixed32 | Wire::Bytes(_)) => return Err(at.fault(WireFault::WrongWireType)),
    };
    if value.fract() == 0.0 && value.abs() < WHOLE && !(value == 0.0 && value.is_sign_negative()) {
        return Ok(Value::from(value as i64));
    }
    Number::from_f64(value).map(Value::Number).ok_or_else(|| at.fault(WireFault::NotFinite))
}

fn time(at: &At<'_>, occurrences: &[Wire<'_>], micro: bool) -> Result<Value, ProtobufError> {
    // An empty message is Go's zero time, whereas a message of zeros is 1970.
    let bytes = at.all_bytes(occurrences)?;
    if bytes.iter().all(|bytes| bytes.is_empty()) {
        return Ok(Value::Null);
    }
    let [seconds, nanos] = at.parts(occurrences)?;
    let last = |wires: &[Wire<'_>]| wires.last().map_or(Ok(0), |wire| at.check(wire.varint()));
    let stamp = Timestamp { seconds: last(&seconds)? as i64, nanos: if micro { last(&nanos)? as i32 } else { 0 } };
    stamp.text(micro).map(Value::from).ok_or_else(|| at.fault(WireFault::TimeOutOfRange))
}

fn quantity(at: &At<'_>, occurrences: &[Wire<'_>]) -> Result<Value, ProtobufError> {
    let [text] = at.parts(occurrences)?;
    let text = text.last().map_or(Ok(""), |wire| at.check(wire.text()))?;
    Ok(Value::from(if text.is_empty() { "0" } else { text }))
}

fn int_or_string(at: &At<'_>, occurrences: &[Wire<'_>]) -> Result<Value, ProtobufError> {
    let [kind, number, text] = at.parts(occurrences)?;
    match kind.last().map_or(Ok(0), |wire| at.check(wire.varint()))? {
        0 => Ok(Value::from(number.last().map_or(Ok(0), |wire| at.check(wire.varint()))? as i32)),
        1 => Ok(Value::from(text.last().map_or(Ok(""), |wire| at.check(wire.text()))?)),
        _ => Err(at.fault(WireFault::IntOrString)),
    }
}

fn values_within(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        Value::Array(items) => 1 + items.iter().map(values_within).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values_within).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{kinds, lookup};
    use proptest::prelude::*;

    fn read(id: MessageId, bytes: &[u8]) -> Result<Value, ProtobufError> {
        Decoder::new().object(id, &[bytes])
    }

    fn read_kind(kind: (&str, &str), bytes: &[u8]) -> Result<Value, ProtobufError> {
        read(lookup(kind.0, kind.1).expect("the kind is in the table"), bytes)
    }

    fn check(kind: (&str, &str), bytes: &[u8], expected: &str) {
        assert_eq!(read_kind(kind, bytes).unwrap().to_string(), expected);
    }

    #[test]
    fn an_empty_message_of_every_kind_reads() {
        for (api_version, kind, id) in kinds() {
            read(id, &[]).unwrap_or_else(|error| panic!("{api_version} {kind}: {error}"));
        }
    }

    #[test]
    fn zero_values_show_where_go_shows_them() {
        check(("v1", "Namespace"), &[], r#"{"metadata":{},"spec":{},"status":{}}"#);
        check(("v1", "PodList"), &[], r#"{"metadata":{},"items":null}"#);
        check(("v1", "Event"), &[], &event(r#""firstTimestamp":null,"lastTimestamp":null,"eventTime":null"#));
        check(("apps/v1", "ControllerRevision"), &[], r#"{"metadata":{},"data":null,"revision":0}"#);
    }

    fn event(times: &str) -> String {
        let tail = r#""reportingComponent":"","reportingInstance":""}"#;
        format!(r#"{{"metadata":{{}},"involvedObject":{{}},"source":{{}},{times},{tail}"#)
    }

    #[test]
    fn a_message_that_occurs_twice_is_joined_and_a_scalar_is_replaced() {
        let twice = [0x0a, 3, 0x0a, 1, b'a', 0x0a, 6, 0x0a, 1, b'b', 0x1a, 1, b'n'];
        check(("v1", "ServiceAccount"), &twice, r#"{"metadata":{"name":"b","namespace":"n"}}"#);
    }

    #[test]
    fn fields_of_newer_versions_are_passed_over() {
        let unknown = [0xf8, 0x7f, 1, 0xfa, 0x7f, 1, 0, 0xfd, 0x7f, 0, 0, 0, 0, 0xf9, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0];
        check(("v1", "ServiceAccount"), &unknown, r#"{"metadata":{}}"#);
    }

    #[test]
    fn invalid_messages_are_refused() {
        let account = ("v1", "ServiceAccount");
        let fault = |bytes: &[u8]| match read_kind(account, bytes) {
            Err(ProtobufError::Malformed { fault, .. }) => fault,
            other => panic!("{other:?}"),
        };
        assert_eq!(fault(&[0x0a, 5]), WireFault::Truncated);
        assert_eq!(fault(&[0x08]), WireFault::Truncated);
        assert_eq!(fault(&[0x08, 1]), WireFault::WrongWireType);
        assert_eq!(fault(&[0x0b]), WireFault::IllegalTag);
        assert_eq!(fault(&[0x02, 0]), WireFault::IllegalTag);
        assert_eq!(fault(&[0xff; 11]), WireFault::Overflow);
        assert_eq!(fault(&[0x0a, 3, 0x0a, 1, 0xff]), WireFault::InvalidUtf8);
    }

    #[test]
    fn depth_and_number_of_values_are_bounded() {
        let mut schema = Vec::new();
        for _ in 0..200 {
            // Nested `JSONSchemaProps.not`.
            let mut outer = vec![0xe2, 1];
            let length = schema.len();
            if length >= 0x80 {
                outer.push((length & 0x7f) as u8 | 0x80);
                outer.push((length >> 7) as u8);
            } else {
                outer.push(length as u8);
            }
            outer.append(&mut schema);
            schema = outer;
        }
        let Kind::SchemaOrBool(id) = schema_kind() else { panic!("not a schema") };
        assert!(matches!(read(id, &schema), Err(ProtobufError::TooDeep { limit: MAX_DEPTH, .. })));
        let pods = [0x12, 0].repeat(MAX_VALUES / 2);
        assert_eq!(read_kind(("v1", "PodList"), &pods), Err(ProtobufError::TooManyValues { limit: MAX_VALUES }));
    }

    fn schema_kind() -> Kind {
        let mut found = None;
        for (_, _, id) in kinds() {
            find_schema(id, &mut Vec::new(), &mut found);
        }
        found.expect("some kind holds a schema")
    }

    fn find_schema(id: MessageId, seen: &mut Vec<MessageId>, found: &mut Option<Kind>) {
        if seen.contains(&id) || found.is_some() {
            return;
        }
        seen.push(id);
        for field in &message(id).fields {
            match field.kind {
                Kind::SchemaOrBool(_) => *found = Some(field.kind),
                Kind::Message(inner) => find_schema(inner, seen, found),
                _ => {}
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(index in 0usize..10_000, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let kinds = kinds();
            let _ = read(kinds[index % kinds.len()].2, &bytes);
        }
    }
}
