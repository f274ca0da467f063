//! Generated objects of all kinds, checked by rules about pairs of responses. They compare the formats of a body, a dry
//! run and the write itself, and an object and the same object written back.
//!
//! `generated.rs` generates the objects. The seed and the number of rounds have the same variables.

use std::collections::BTreeMap;

use http::Method;
use keelson_meta::Object;
use keelson_testkit::{Answer, Raw};
use serde_json::{Value, json};

use crate::documented::{Stored, documents, renamed};
use crate::generated::{Dice, MERGE, SEED, Subject, ValueGenerator, form_urlencoded, place, quiet_server, setting};

/// The number of objects of each kind.
const ROUNDS: u64 = 3;
/// The largest number of reported findings.
const MOST_FINDINGS: usize = 30;
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const YAML: &str = "application/yaml";

/// Kinds that are only used in dry runs, since a stored object of them would change the responses to other requests.
const DRY_ALONE: [&str; 13] = [
    "apiservices",
    "customresourcedefinitions",
    "flowschemas",
    "limitranges",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "namespaces",
    "priorityclasses",
    "resourcequotas",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
];

/// Fields to which the server gives a new value each time.
const CHOSEN: [&str; 10] = [
    "clusterIP",
    "clusterIPs",
    "generation",
    "healthCheckNodePort",
    "managedFields",
    "name",
    "nodePort",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// An object without these fields, and with all times equal.
fn settled(mut object: Value) -> Value {
    settle(&mut object);
    object
}

fn settle(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !CHOSEN.contains(&name.as_str()));
            fields.values_mut().for_each(settle);
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        Value::String(text) if is_time(text) => *value = json!("time"),
        _ => {}
    }
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    (20..=30).contains(&bytes.len()) && bytes[4] == b'-' && bytes[10] == b'T' && bytes.ends_with(b"Z")
}

/// A message without uids and node ports, which are new each time.
fn without_choices(message: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_hexdigit() || letter == '-';
    let mut masked = String::new();
    let mut rest = message;
    while let Some(start) = rest.find(is_part) {
        let length = rest[start..].find(|letter| !is_part(letter)).unwrap_or(rest.len() - start);
        let (word, behind) = rest[start..].split_at(length);
        masked.push_str(&rest[..start]);
        let is_port = word.len() == 5 && word.parse().is_ok_and(|port: u32| (30_000..=32_767).contains(&port));
        masked.push_str(if word.len() == 36 || is_port { "chosen" } else { word });
        rest = behind;
    }
    masked.push_str(rest);
    masked
}

/// An object with its fields in alphabetical order, the order in which YAML is read.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, Value> = fields.iter().map(|(name, field)| (name, sorted(field))).collect();
            fields.into_iter().map(|(name, field)| (name.clone(), field)).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        plain => plain.clone(),
    }
}

/// Writes a value as YAML in block style.
fn write_yaml(value: &Value, indent: usize, out: &mut String) {
    let pad = "  ".repeat(indent);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                out.push_str(&format!("\n{pad}{}:", json!(name)));
                write_yaml(field, indent + 1, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                out.push_str(&format!("\n{pad}-"));
                write_yaml(item, indent + 1, out);
            }
        }
        plain => out.push_str(&format!(" {plain}")),
    }
}

/// The compared parts of a response: its code, and the object or the message.
fn compared(answer: &Answer) -> (u16, Value) {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|_| json!(answer.text()));
    match body["kind"] == "Status" {
        true => (answer.status, json!(without_choices(body["message"].as_str().unwrap_or_default()))),
        false => (answer.status, settled(body)),
    }
}

/// A kind with a generator for its objects.
struct GeneratedKind<'s> {
    raw: &'s Raw,
    subject: Subject<'s>,
    plural: &'s str,
    sent: usize,
    findings: Vec<String>,
}

impl<'s> GeneratedKind<'s> {
    async fn send(&mut self, form: &str, body: Vec<u8>, query: &str) -> Answer {
        self.sent += 1;
        let call = self.raw.call(Method::POST, format!("{}{query}", self.subject.path)).header("content-type", form);
        call.body(body).await
    }

    fn note(&mut self, rule: &str, object: &Value, one: impl std::fmt::Debug, other: impl std::fmt::Debug) {
        self.findings.push(format!("{rule}: POST {} {object}\n    {one:?}\n    {other:?}", self.subject.path));
    }

    /// Sends a body in JSON and in YAML, and checks that the responses and warnings are equal.
    async fn in_yaml(&mut self, object: &Value, query: &str) -> Answer {
        let object = &sorted(object);
        let in_json = self.send(JSON, object.to_string().into_bytes(), query).await;
        let mut text = String::new();
        write_yaml(object, 0, &mut text);
        let in_yaml = self.send(YAML, text.into_bytes(), query).await;
        if compared(&in_json) != compared(&in_yaml) || in_json.header("warning") != in_yaml.header("warning") {
            self.note("JSON and YAML", object, compared(&in_json), compared(&in_yaml));
        }
        in_json
    }

    /// Sends a valid object in JSON and in protobuf.
    async fn in_protobuf(&mut self, taken: &Value) {
        let mut object = taken.clone();
        let metadata = object["metadata"].as_object_mut().unwrap();
        for given in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"] {
            metadata.remove(given);
        }
        let text = object.to_string();
        let decoded = Object::from_value(serde_json::from_str(&text).unwrap()).unwrap();
        let (version, kind) = self.subject.kind;
        // Custom kinds have no protobuf form.
        let Ok(encoded) = keelson_protobuf::encode(version, kind, &decoded) else { return };
        let in_json = self.send(JSON, text.into_bytes(), "?dryRun=All").await;
        let in_protobuf = self.send(PROTOBUF, encoded, "?dryRun=All").await;
        if compared(&in_json) != compared(&in_protobuf) {
            self.note("JSON and protobuf", &object, compared(&in_json), compared(&in_protobuf));
        }
    }

    /// Creates the object, and checks that the result equals that of the dry run. Returns the path of the object.
    async fn stored(&mut self, object: &Value) -> Option<String> {
        let text = object.to_string().into_bytes();
        let dry = self.send(JSON, text.clone(), "?dryRun=All").await;
        let made = self.send(JSON, text, "").await;
        if compared(&made) != compared(&dry) {
            self.note("dry run and create", object, compared(&dry), compared(&made));
        }
        let name = (made.status == 201).then(|| made.json()["metadata"]["name"].as_str().unwrap().to_owned())?;
        Some(format!("{}/{}", self.subject.path, form_urlencoded(&name)))
    }

    /// Checks that nothing changes when an object is written back, or patched with an empty patch.
    async fn written_back(&mut self, path: &str) {
        let read = self.raw.get(path).await.expect(200).json();
        let version = |object: &Value| ["resourceVersion", "generation"].map(|field| object["metadata"][field].clone());
        let put = self.raw.put(path, &read).await;
        if put.status != 200 || version(&put.json()) != version(&read) {
            self.note("written back", &read, put.status, put.text());
        }
        let patched = self.raw.patch(path, MERGE, &json!({})).await;
        if patched.status != 200 || version(&patched.json()) != version(&read) {
            self.note("an empty patch", &read, patched.status, patched.text());
        }
        self.sent += 3;
    }

    /// Updates the object, and checks that the result equals that of the dry run.
    async fn changed(&mut self, path: &str, maker: &mut ValueGenerator<'s>) {
        let mut whole = self.raw.get(path).await.expect(200).json();
        maker.change(&mut whole, self.subject.schema);
        let dry = self.raw.put(format!("{path}?dryRun=All"), &whole).await;
        let put = self.raw.put(path, &whole).await;
        if compared(&put) != compared(&dry) {
            self.note("dry run and update", &whole, compared(&dry), compared(&put));
        }
        self.sent += 3;
    }

    async fn round(&mut self, maker: &mut ValueGenerator<'s>, round: u64) {
        let validation = ["", "&fieldValidation=Strict", "&fieldValidation=Ignore"][maker.dice.below(3)];
        let mut object = renamed(self.subject.stored, "formed");
        maker.change(&mut object, self.subject.schema);
        // Random values differ.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("generateName");
        }
        let dry = self.in_yaml(&object, &format!("?dryRun=All{validation}")).await;
        if dry.status == 201 {
            self.in_protobuf(&dry.json()).await;
        }
        if DRY_ALONE.contains(&self.plural) || !object["metadata"].is_object() {
            return;
        }
        // Each stored object has a unique name.
        object["metadata"]["name"] = json!(format!("formed-{round}"));
        // A dry run accepts a resourceVersion, as in kube-apiserver, and a create rejects it.
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let Some(path) = self.stored(&object).await else { return };
        self.written_back(&path).await;
        self.changed(&path, maker).await;
        if self.raw.get(&*path).await.status == 200 {
            self.written_back(&path).await;
        }
        self.raw.delete(&*path).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_objects_get_one_answer_in_every_form() {
    let server = quiet_server().await;
    let raw = server.raw();
    let stored = Stored::make(&raw).await;
    let documents: BTreeMap<String, Value> = documents(&raw).await;
    let (seed, rounds) = (setting("KEELSON_SEED", SEED), setting("KEELSON_ROUNDS", ROUNDS));
    let (mut sent, mut findings) = (0, Vec::new());
    for (api_version, plural, object) in stored.all() {
        let Some((document, path)) = place(&documents, api_version, plural, object) else { continue };
        let Some(subject) = Subject::new(&raw, document, object, &path) else { continue };
        let mut maker = ValueGenerator { document, dice: Dice::new(seed.wrapping_add(1), plural) };
        let mut checked = GeneratedKind { raw: &raw, subject, plural, sent: 0, findings: Vec::new() };
        for round in 0..rounds {
            checked.round(&mut maker, round).await;
        }
        sent += checked.sent;
        findings.append(&mut checked.findings);
    }
    assert!(sent as u64 > 150 * rounds, "{sent} requests");
    let shown = findings[..findings.len().min(MOST_FINDINGS)].join("\n");
    assert!(findings.is_empty(), "seed {seed}: {} findings of {sent} requests:\n{shown}", findings.len());
}
