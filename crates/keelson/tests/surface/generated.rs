//! Requests that are generated from the published schemas, for all kinds and verbs. Every response is checked against
//! invariants.
//!
//! A request starts from a valid object. A few of its fields then get values that their schemas allow or forbid. A seed
//! always gives the same requests; `KEELSON_SEED` and `KEELSON_ROUNDS` set others by hand.

use std::collections::BTreeMap;

use http::Method;
use keelson_server::{AdmissionPlugins, Switches};
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use crate::documented::{Stored, collections, documents, renamed, resolved};

pub(crate) const SEED: u64 = 0x6b65_656c;
/// The number of requests of each verb for each kind.
const ROUNDS: u64 = 6;
/// The largest depth of a generated value.
const DEPTH: usize = 6;
/// The largest number of reported findings.
const MOST_FINDINGS: usize = 40;

const APPLY: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Texts for any field: names, numbers, quantities, times, paths, and others.
const TEXTS: [&str; 20] = [
    "",
    "a",
    "stored",
    "default",
    "example.org/a",
    "A_b",
    "-a",
    "1",
    "100m",
    "1Gi",
    "10.0.0.1",
    "::1",
    "*",
    "1s",
    "2026-01-01T00:00:00Z",
    "TCP",
    "a=b",
    "{}",
    "\u{e4}\u{1f600}",
    "a/../b",
];
const NUMBERS: [i64; 8] = [0, 1, -1, 7, 80, 65_536, 2_147_483_648, i64::MAX];

/// Parts of messages with which kube-apiserver also returns 500, since clients depend on them.
const OF_REFERENCE: [&str; 5] = [
    "failed to create typed patch object",
    "failed to convert new object",
    "does not contain declared merge key",
    "list element types are not identical",
    "resourceVersion should not be set on objects to be created",
];

/// Pseudo-random numbers that depend only on the seed (SplitMix64).
pub(crate) struct Dice(u64);

impl Dice {
    /// The numbers for a kind.
    pub(crate) fn new(seed: u64, plural: &str) -> Self {
        Self(seed ^ plural.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }

    /// Returns true once in this number of times on average.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Generates values for the schemas of a document.
pub(crate) struct ValueGenerator<'d> {
    pub(crate) document: &'d Value,
    pub(crate) dice: Dice,
}

impl<'d> ValueGenerator<'d> {
    fn resolved(&self, schema: &'d Value) -> &'d Value {
        let first = &schema["allOf"][0];
        resolved(self.document, if first["$ref"].is_string() { first } else { schema })
    }

    /// A value that mostly fits the schema.
    fn value(&mut self, schema: &'d Value, depth: usize) -> Value {
        let schema = self.resolved(schema);
        if self.dice.once_in(12) {
            return self.anything();
        }
        if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.is_empty()) {
            return self.dice.one_of(allowed).clone();
        }
        if let Some(choices) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
            let choice = self.dice.below(choices.len());
            return self.value(&choices[choice], depth);
        }
        match schema["type"].as_str() {
            Some("object") => self.object(schema, depth),
            Some("array") => {
                let items = if depth == 0 { 0 } else { self.dice.below(3) };
                (0..items).map(|_| self.value(&schema["items"], depth - 1)).collect()
            }
            Some("integer") => json!(self.dice.one_of(&NUMBERS)),
            Some("number") => json!(1.5),
            Some("boolean") => json!(self.dice.once_in(2)),
            _ => json!(self.dice.one_of(&TEXTS)),
        }
    }

    fn object(&mut self, schema: &'d Value, depth: usize) -> Value {
        let mut object = serde_json::Map::new();
        if depth == 0 {
            return Value::Object(object);
        }
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            if (required.contains(&name.as_str()) && !self.dice.once_in(10)) || self.dice.once_in(6) {
                object.insert(name.clone(), self.value(field, depth - 1));
            }
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            for _ in 0..self.dice.below(3) {
                let name = (*self.dice.one_of(&TEXTS)).to_owned();
                object.insert(name, self.value(values, depth - 1));
            }
        }
        if self.dice.once_in(20) {
            object.insert("unheard".to_owned(), self.anything());
        }
        Value::Object(object)
    }

    /// A value of any type.
    fn anything(&mut self) -> Value {
        match self.dice.below(7) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(self.dice.one_of(&NUMBERS)),
            3 => json!(self.dice.one_of(&TEXTS)),
            4 => json!([]),
            5 => json!({}),
            _ => json!([{ "name": "a" }, { "name": "a" }]),
        }
    }

    /// Changes the values of some fields of an object.
    pub(crate) fn change(&mut self, object: &mut Value, schema: &'d Value) {
        for _ in 0..=self.dice.below(2) {
            self.change_one(object, schema, DEPTH);
        }
    }

    fn change_one(&mut self, value: &mut Value, schema: &'d Value, depth: usize) {
        let schema = self.resolved(schema);
        let Some(fields) = schema["properties"].as_object().filter(|fields| !fields.is_empty()) else {
            *value = self.value(schema, depth.min(3));
            return;
        };
        let names: Vec<&String> =
            fields.keys().filter(|name| !["apiVersion", "kind"].contains(&name.as_str())).collect();
        if !value.is_object() || names.is_empty() {
            *value = self.value(schema, depth.min(3));
            return;
        }
        // Mostly an existing field, whose content was valid.
        let present: Vec<&String> = names.iter().copied().filter(|name| value.get(name.as_str()).is_some()).collect();
        let candidates = if present.is_empty() || self.dice.once_in(3) { &names } else { &present };
        let name = (*self.dice.one_of(candidates)).clone();
        let field = &fields[&name];
        match value.get_mut(&name) {
            Some(current) if depth > 0 && !self.dice.once_in(4) => match current.as_array_mut() {
                Some(items) if !items.is_empty() => {
                    let place = self.dice.below(items.len());
                    let of_items = &self.resolved(field)["items"];
                    self.change_one(&mut items[place], of_items, depth - 1);
                }
                _ => self.change_one(current, field, depth - 1),
            },
            _ => value[name] = self.value(field, depth.min(3)),
        }
    }
}

/// A request, and the fault in its response.
struct Finding {
    request: String,
    why: String,
}

/// Checks the invariants of every answer.
fn check(request: &str, answer: &Answer, kind: (&str, &str)) -> Result<Value, Finding> {
    let finding = |why: String| Finding { request: request.to_owned(), why: format!("{why}: {}", answer.text()) };
    let is_of_reference = OF_REFERENCE.iter().any(|known| answer.text().contains(known));
    if answer.status >= 500 && !is_of_reference {
        return Err(finding(format!("{} is a fault of the server", answer.status)));
    }
    let body: Value = serde_json::from_slice(&answer.body).map_err(|error| finding(error.to_string()))?;
    if answer.status < 300 {
        let found = (body["apiVersion"].as_str().unwrap_or_default(), body["kind"].as_str().unwrap_or_default());
        // The response of a delete may be a Status.
        return if found == kind || found == ("v1", "Status") {
            Ok(body)
        } else {
            Err(finding(format!("{found:?} came")))
        };
    }
    let is_whole = (body["kind"] == "Status" && body["apiVersion"] == "v1" && body["status"] == "Failure")
        && body["code"] == json!(answer.status)
        && body["message"].as_str().is_some_and(|message| !message.is_empty())
        && body["reason"].as_str().is_some_and(|reason| !reason.is_empty())
        && body["metadata"].is_object();
    if is_whole || is_of_reference { Ok(body) } else { Err(finding("no whole Status".to_owned())) }
}

/// The sent requests, and the faults in their responses.
#[derive(Default)]
struct Report {
    sent: usize,
    findings: Vec<Finding>,
}

impl Report {
    /// Checks the invariants of a response. Returns the object if there is one.
    fn note(&mut self, request: &str, answer: &Answer, kind: (&str, &str)) -> Option<Value> {
        self.sent += 1;
        match check(request, answer, kind) {
            Ok(body) => (answer.status < 300).then_some(body),
            Err(finding) => {
                self.findings.push(finding);
                None
            }
        }
    }
}

/// A kind with a stored object.
pub(crate) struct Subject<'s> {
    raw: &'s Raw,
    pub(crate) stored: &'s Value,
    pub(crate) kind: (&'s str, &'s str),
    name: &'s str,
    /// The path of the collection.
    pub(crate) path: &'s str,
    pub(crate) schema: &'s Value,
}

impl<'s> Subject<'s> {
    /// `None` if the document has no schema of the kind.
    pub(crate) fn new(raw: &'s Raw, document: &'s Value, stored: &'s Value, path: &'s str) -> Option<Self> {
        let kind = (stored["apiVersion"].as_str()?, stored["kind"].as_str()?);
        let is_of_kind = |schema: &&Value| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| {
                kinds.len() == 1
                    && kinds[0]["kind"] == kind.1
                    && kind.0.ends_with(kinds[0]["version"].as_str().unwrap())
            })
        };
        let schema = document["components"]["schemas"].as_object()?.values().find(is_of_kind)?;
        Some(Self { raw, stored, kind, name: stored["metadata"]["name"].as_str()?, path, schema })
    }

    fn object_path(&self) -> String {
        format!("{}/{}", self.path, self.name)
    }

    /// Sends a create, an update and patches of each type.
    async fn write(&self, maker: &mut ValueGenerator<'s>, report: &mut Report) {
        let validation = ["", "&fieldValidation=Strict", "&fieldValidation=Ignore"][maker.dice.below(3)];
        let mut object = renamed(self.stored, "generated");
        maker.change(&mut object, self.schema);
        let create = format!("{}?dryRun=All{validation}", self.path);
        let answer = self.raw.post(create.as_str(), &object).await;
        report.note(&format!("POST {create} {object}"), &answer, self.kind);

        let mut whole = self.raw.get(self.object_path()).await.json();
        maker.change(&mut whole, self.schema);
        let update = format!("{}?dryRun=All{validation}", self.object_path());
        let answer = self.raw.put(update.as_str(), &whole).await;
        report.note(&format!("PUT {update} {whole}"), &answer, self.kind);

        let patch = maker.object(maker.resolved(self.schema), 4);
        for media_type in [MERGE, STRATEGIC] {
            let answer = self.raw.patch(update.as_str(), media_type, &patch).await;
            report.note(&format!("PATCH {update} as {media_type} {patch}"), &answer, self.kind);
        }
        let member = *maker.dice.one_of(&["spec", "metadata", "status", "data"]);
        let pointer = format!("/{member}/{}", maker.dice.one_of(&TEXTS));
        let operation = *maker.dice.one_of(&["add", "remove", "replace", "test", "move", "copy"]);
        let operations = json!([{ "op": operation, "path": pointer, "from": "/metadata", "value": maker.anything() }]);
        let answer = self.raw.patch(update.as_str(), JSON_PATCH, &operations).await;
        report.note(&format!("PATCH {update} as {JSON_PATCH} {operations}"), &answer, self.kind);
    }

    /// Sends an apply, and repeats it, which changes nothing.
    async fn apply(&self, maker: &mut ValueGenerator<'s>, report: &mut Report, is_dry: bool) {
        let mut applied = renamed(self.stored, self.name);
        maker.change(&mut applied, self.schema);
        // An apply needs the name of the path.
        if !applied["metadata"].is_object() {
            applied["metadata"] = json!({});
        }
        applied["metadata"]["name"] = json!(self.name);
        let dry = if is_dry { "&dryRun=All" } else { "" };
        let path = format!("{}?fieldManager=generated&force=true{dry}", self.object_path());
        let request = format!("PATCH {path} as {APPLY} {applied}");
        let first = self.raw.patch(path.as_str(), APPLY, &applied).await;
        let Some(first) = report.note(&request, &first, self.kind).filter(|_| !is_dry) else { return };
        let again = self.raw.patch(path.as_str(), APPLY, &applied).await;
        let second = report.note(&format!("again {request}"), &again, self.kind);
        // The server itself may write the status of flow schemas at any time.
        let counted = if self.kind.1 == "FlowSchema" { "generation" } else { "resourceVersion" };
        let revision = |object: &Value| object["metadata"][counted].clone();
        if second.as_ref().map(revision) != Some(revision(&first)) {
            let why = format!("a second apply changes the object: {first} {second:?}");
            report.findings.push(Finding { request, why });
        }
    }

    /// Sends a delete and a list with any options.
    async fn delete_and_list(&self, maker: &mut ValueGenerator<'s>, report: &mut Report) {
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"],
            "gracePeriodSeconds": maker.dice.one_of(&NUMBERS), "propagationPolicy": maker.dice.one_of(&TEXTS),
        });
        let answer = self.raw.call(Method::DELETE, self.object_path()).json(&options).await;
        report.note(&format!("DELETE {} {options}", self.object_path()), &answer, self.kind);

        let keys = ["limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector"];
        let (key, value) = (*maker.dice.one_of(&keys), *maker.dice.one_of(&TEXTS));
        let value = form_urlencoded(value);
        let list = format!("{}?{key}={value}", self.path);
        let answer = self.raw.get(list.as_str()).await;
        let of_list = format!("{}List", self.kind.1);
        report.note(&format!("GET {list}"), &answer, (self.kind.0, &of_list));
    }
}

pub(crate) fn form_urlencoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

pub(crate) fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// The document that describes a stored object, and the path of its collection. `None` if there is no document.
pub(crate) fn place<'d>(
    documents: &'d BTreeMap<String, Value>,
    api_version: &str,
    plural: &str,
    object: &Value,
) -> Option<(&'d Value, String)> {
    let page = if api_version.contains('/') { format!("apis/{api_version}") } else { format!("api/{api_version}") };
    let [in_namespace, in_none] = collections(api_version, plural);
    let path = if object["metadata"]["namespace"].is_string() { in_namespace } else { in_none };
    Some((documents.get(&page)?, path))
}

/// Starts a server to which only the test writes. Pods get no volume with a generated name.
pub(crate) async fn quiet_server() -> TestServer {
    let plugins = AdmissionPlugins::new(Vec::new(), vec!["ServiceAccount".to_owned()]).unwrap();
    let builder = TestServer::builder().every_version().configure(|config| {
        config.admission = plugins;
        config.controllers = Switches::parse(None).unwrap();
    });
    builder.start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_requests_get_well_formed_answers() {
    let server = quiet_server().await;
    let raw = server.raw();
    let stored = Stored::make(&raw).await;
    let documents: BTreeMap<String, Value> = documents(&raw).await;
    let (seed, rounds) = (setting("KEELSON_SEED", SEED), setting("KEELSON_ROUNDS", ROUNDS));
    let mut report = Report::default();
    for (api_version, plural, object) in stored.all() {
        let Some((document, path)) = place(&documents, api_version, plural, object) else { continue };
        let Some(subject) = Subject::new(&raw, document, object, &path) else { continue };
        let mut maker = ValueGenerator { document, dice: Dice::new(seed, plural) };
        for round in 0..rounds {
            subject.write(&mut maker, &mut report).await;
            subject.apply(&mut maker, &mut report, round % 2 == 0).await;
            subject.delete_and_list(&mut maker, &mut report).await;
        }
    }
    let Report { sent, findings } = report;
    assert!(sent as u64 > 300 * rounds, "{sent} requests");
    let shown: Vec<String> =
        findings.iter().take(MOST_FINDINGS).map(|Finding { request, why }| format!("{request}\n    {why}")).collect();
    assert!(findings.is_empty(), "seed {seed}: {} of {sent} answers are wrong:\n{}", findings.len(), shown.join("\n"));
}
