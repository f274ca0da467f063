//! Encodes and decodes random objects of every kind in the table.
//!
//! Objects are generated from the table of messages, so new fields are tested without a new test.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{Object, Random as _, random::SeededRandom};
use proptest::prelude::*;

use crate::envelope::{MessageType, decode, encode};
use crate::list::ListForm;
use crate::table::{Cardinality, Field, Kind, MessageId, Omit, kinds, lookup, message};
use crate::wire::{Reader, Wire};

/// The depth down to which random messages have all their fields. Below it they have only the fields that JSON always
/// has.
const FULL_DEPTH: usize = 5;

/// Generates values in the form that decoding yields.
struct ValueGenerator(SeededRandom);

impl ValueGenerator {
    fn object(&self, id: MessageId, depth: usize) -> Value {
        let mut fields = Map::new();
        self.fields(id, depth, &mut fields);
        Value::Object(fields)
    }

    fn fields(&self, id: MessageId, depth: usize, into: &mut Map) {
        for field in &message(id).fields {
            if field.name.is_empty() {
                let Kind::Message(inner) = field.kind else { panic!("{}", field.number) };
                self.fields(inner, depth, into);
            } else if let Some(value) = self.field(field, depth) {
                into.insert(field.name, value);
            }
        }
    }

    fn field(&self, field: &Field, depth: usize) -> Option<Value> {
        let absent = || if field.omit == Omit::Never { Some(Value::Null) } else { None };
        let full = depth < FULL_DEPTH;
        match field.shape {
            Cardinality::Value => {
                let value = self.value(field.kind, depth);
                if field.omit == Omit::Never || !left_out(field, &value) { Some(value) } else { None }
            }
            Cardinality::Pointer if full && self.chance(2) => {
                Some(self.value(field.kind, depth)).filter(|v| !v.is_null()).or_else(absent)
            }
            Cardinality::List if full && self.chance(2) => {
                Some((0..=self.below(2)).map(|_| self.value(field.kind, depth)).collect())
            }
            Cardinality::Map if full && self.chance(2) => {
                let entries: BTreeMap<_, _> =
                    (0..=self.below(2)).map(|_| (self.text(), self.value(field.kind, depth))).collect();
                let bytes = |value: Value| if value.is_null() { json!("") } else { value };
                Some(
                    entries
                        .into_iter()
                        .map(|(key, value)| (key, if field.kind == Kind::Bytes { bytes(value) } else { value }))
                        .collect(),
                )
            }
            Cardinality::Pointer | Cardinality::List | Cardinality::Map => absent(),
        }
    }

    fn value(&self, kind: Kind, depth: usize) -> Value {
        let pick = self.below(3);
        match kind {
            Kind::String => self.text().into(),
            Kind::Bool => (pick == 0).into(),
            Kind::Int32 => [json!(0), json!(i32::MIN), json!(80)][pick].clone(),
            Kind::Int64 => [json!(0), json!(i64::MIN), json!(i64::MAX)][pick].clone(),
            Kind::Double => [json!(0), json!(-1.5), json!(300)][pick].clone(),
            Kind::Bytes => [Value::Null, STANDARD.encode([0, 255]).into(), STANDARD.encode("ab").into()][pick].clone(),
            Kind::Time => [Value::Null, json!("2026-01-02T03:04:05Z"), json!("1970-01-01T00:00:00Z")][pick].clone(),
            Kind::MicroTime => {
                [Value::Null, json!("2026-01-02T03:04:05.000006Z"), json!("1969-12-31T23:59:59.900000Z")][pick].clone()
            }
            Kind::Quantity => [json!("0"), json!("250m"), json!("1Gi")][pick].clone(),
            Kind::IntOrString => [json!(0), json!(-1), json!("http")][pick].clone(),
            Kind::Json => [Value::Null, json!({"f:a": {".": {}}, "n": [1, 2.5, null]}), json!("text")][pick].clone(),
            Kind::Strings => [Value::Null, json!([""]), json!(["a", "b"])][pick].clone(),
            Kind::SchemaOrBool(_) if pick == 0 => self.chance(2).into(),
            Kind::SchemaOrList(schema) if pick == 0 => json!([self.object(schema, depth + 1)]),
            Kind::SchemaOrStrings(_) if pick == 0 => json!(["a"]),
            Kind::SchemaOrBool(id) | Kind::SchemaOrList(id) | Kind::SchemaOrStrings(id) | Kind::Message(id) => {
                self.object(id, depth + 1)
            }
        }
    }

    fn text(&self) -> String {
        ["", "a", "web-1", "é\u{0}\"<", &"long".repeat(50)][self.below(5)].to_owned()
    }

    fn chance(&self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn below(&self, limit: usize) -> usize {
        usize::try_from(self.0.u64() % limit as u64).expect("less than the limit")
    }
}

/// Returns true for a value that Go omits under `omitempty`. Lists, maps and pointers are never generated empty.
fn left_out(field: &Field, value: &Value) -> bool {
    match field.kind {
        Kind::Message(_) | Kind::IntOrString | Kind::Json | Kind::MicroTime | Kind::Quantity => false,
        Kind::Time => field.omit == Omit::Zero && value.is_null(),
        _ => [json!(null), json!(""), json!(0), json!(false)].contains(value),
    }
}

fn check(api_version: &str, kind: &str, seed: u64) {
    let id = lookup(api_version, kind).expect("a kind of the table");
    let mut fields = Map::new();
    fields.insert("kind", kind);
    fields.insert("apiVersion", api_version);
    ValueGenerator(SeededRandom::new(seed)).fields(id, 0, &mut fields);
    let object = Object(fields);
    let body = encode(api_version, kind, &object).unwrap();
    let decoded = decode(&body).unwrap_or_else(|error| panic!("{api_version} {kind}: {error}: {object:?}"));
    let (found, made) = (decoded.object.into_value().to_string(), object.clone().into_value().to_string());
    assert_eq!(found, made, "{api_version} {kind}");
    let (message, mut bare) = (MessageType::new(api_version, kind).unwrap(), Vec::new());
    message.write(&object, &mut bare).unwrap();
    let (text, mut transcoded) = (serde_json::to_vec(&object).unwrap(), Vec::new());
    message.write_json(&text, None, &mut transcoded).unwrap();
    assert_eq!(transcoded, bare);
    assert_eq!(message.json_len(&text, None), Ok(bare.len()));
}

/// Objects with repetitions, some equal and some sharing parts.
fn alike(id: MessageId, seeds: &[u64]) -> Vec<Vec<u8>> {
    let made = |seed: u64| {
        let mut fields = Map::new();
        ValueGenerator(SeededRandom::new(seed)).fields(id, 0, &mut fields);
        fields
    };
    let objects = seeds.iter().map(|seed| {
        let mut object = made(seed % 3);
        for (at, (name, value)) in made(seed % 5).into_iter().enumerate() {
            if seed >> at & 1 == 1 {
                object.insert(name, value);
            }
        }
        serde_json::to_vec(&object).unwrap()
    });
    objects.collect()
}

/// Checks that a list is encoded like its items one by one, whichever parts they share.
fn check_list(api_version: &str, list_kind: &str, kind: &str, seeds: &[u64]) {
    let form = ListForm::new(api_version, list_kind, kind).unwrap();
    let items = alike(lookup(api_version, kind).unwrap(), seeds);
    let (mut out, mut measure) = (b"before".to_vec(), form.measure_items());
    let mut writer = form.write_items(&mut out);
    for item in &items {
        writer.item(item).unwrap();
        measure.item(item).unwrap();
    }
    let mut alone = b"before".to_vec();
    items.iter().for_each(|item| form.write_items(&mut alone).item(item).unwrap());
    let mut reader = Reader::new(&alone[6..]);
    for item in &items {
        let mut bare = Vec::new();
        form.item().write_json(item, None, &mut bare).unwrap();
        assert_eq!(reader.field().unwrap().unwrap().1, Wire::Bytes(&bare));
    }
    assert!(out == alone, "{api_version} {list_kind}: objects of {seeds:?}");
    assert_eq!(measure.bytes(), out.len() - 6);
}

/// Each list of the table with the kind of its items.
fn lists() -> Vec<(&'static str, &'static str, &'static str)> {
    let lists = kinds().into_iter().filter_map(|(api_version, list, _)| {
        let kind = list.strip_suffix("List")?;
        ListForm::new(api_version, list, kind).ok().map(|_| (api_version, list, kind))
    });
    lists.collect()
}

#[test]
fn lists_of_every_kind_equal_their_encoded_items() {
    for (api_version, list, kind) in lists() {
        check_list(api_version, list, kind, &[0, 3, 6, 22, 0b1100_1001, 31, 0, 0b1010_1010, 1]);
    }
}

#[test]
fn every_kind_survives() {
    for (api_version, kind, _) in kinds() {
        (0..4).for_each(|seed| check(api_version, kind, seed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_kind_survives(index in 0usize..10_000, seed: u64) {
        let kinds = kinds();
        let (api_version, kind, _) = kinds[index % kinds.len()];
        check(api_version, kind, seed);
    }

    #[test]
    fn arbitrary_lists_equal_their_encoded_items(index in 0usize..10_000, seeds in proptest::collection::vec(any::<u64>(), 1..12)) {
        let lists = lists();
        let (api_version, list, kind) = lists[index % lists.len()];
        check_list(api_version, list, kind, &seeds);
    }

    #[test]
    fn damaged_bodies_are_read_or_refused(index in 0usize..10_000, seed: u64, at: usize, with: u8, cut: usize) {
        let kinds = kinds();
        let (api_version, kind, id) = kinds[index % kinds.len()];
        let Value::Object(fields) = ValueGenerator(SeededRandom::new(seed)).object(id, 2) else { unreachable!() };
        let mut body = encode(api_version, kind, &Object(fields)).unwrap();
        let length = body.len();
        body[at % length] = with;
        let _ = decode(&body);
        let _ = decode(&body[..cut % length]);
    }
}
