//! Tests of writes while a definition changes, on two servers that share a store. The changes concern its schema,
//! storage version, converter and selectable fields, and its scope when it is recreated. Afterwards both servers must
//! show the same as a server that has just read everything from the store. No request fails except with documented
//! errors.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{HookReply, HookRequest, HookServer, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{items, until};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/elms.changing.example.com";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// The number of sequences of changes. Each has its own servers.
const SEEDS: u64 = 2;
/// The number of changes of a definition. After each one the servers are compared with a newly started one.
const CHANGES: usize = 8;
const WRITERS: u64 = 4;
/// The number of writes of each writer while a definition changes.
const WRITES: usize = 30;
/// The number of polls, one every 100 ms, of a server that does not have the newest definition yet.
const LOOKS: usize = 600;
/// The number of object names: few, so that writers conflict.
const NAMES: u64 = 6;

/// Random numbers that depend only on the seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The content of a definition.
#[derive(Clone, Copy, Debug)]
struct Shape {
    stored: &'static str,
    converted: bool,
    selectable: bool,
    namespaced: bool,
    /// The field with a default, and the value of the default.
    default: (u64, u64),
    /// The other declared field. All further fields are pruned.
    field: u64,
}

impl Shape {
    /// The content with one random change.
    fn changed(mut self, dice: &mut Dice) -> Self {
        match dice.roll(6) {
            0 => self.stored = if self.stored == "v1" { "v2" } else { "v1" },
            1 => self.converted = !self.converted,
            2 => self.selectable = !self.selectable,
            3 => self.namespaced = !self.namespaced,
            4 => self.default = (dice.roll(2), self.default.1 + 1),
            _ => self.field = (self.field + 1) % 3,
        }
        self
    }

    fn spec(self, hook: &HookServer) -> Value {
        let version = |name: &str| {
            let mut fields = json!({ "a": { "type": "string" }, "b": { "type": "string" } });
            fields[format!("extra{}", self.field)] = json!({ "type": "string" });
            let (place, value) = self.default;
            fields[format!("default{place}")] = json!({ "type": "string", "default": format!("{name}-{value}") });
            let spec = json!({ "type": "object", "default": {}, "properties": fields });
            let schema = json!({ "type": "object", "properties": { "spec": spec } });
            let selectable = if self.selectable { json!([{ "jsonPath": ".spec.a" }]) } else { Value::Null };
            json!({
                "name": name, "served": true, "storage": name == self.stored,
                "schema": { "openAPIV3Schema": schema }, "selectableFields": selectable,
            })
        };
        let client = json!({ "url": hook.url("/convert"), "caBundle": hook.ca_bundle() });
        let conversion = if self.converted {
            let webhook = json!({ "clientConfig": client, "conversionReviewVersions": ["v1"] });
            json!({ "strategy": "Webhook", "webhook": webhook })
        } else {
            json!({ "strategy": "None", "webhook": null })
        };
        json!({
            "group": "changing.example.com",
            "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
            "names": { "plural": "elms", "kind": "Elm" },
            "versions": [version("v1"), version("v2")],
            "conversion": conversion,
        })
    }
}

fn place(version: &str, namespaced: bool) -> String {
    let namespace = if namespaced { "namespaces/default/" } else { "" };
    format!("/apis/changing.example.com/{version}/{namespace}elms")
}

/// Converts objects: `a` in the first version is `b` in the second.
fn converted(request: &HookRequest) -> HookReply {
    let review = &request.body;
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap();
    let (from, to) = if wanted.ends_with("v2") { ("a", "b") } else { ("b", "a") };
    let moved = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = json!(wanted);
        if let Some(spec) = object["spec"].as_object_mut()
            && let Some(value) = spec.remove(from)
        {
            spec.insert(to.to_owned(), value);
        }
        object
    };
    let objects: Vec<Value> = review["request"]["objects"].as_array().unwrap().iter().map(moved).collect();
    let response = json!({
        "uid": review["request"]["uid"], "convertedObjects": objects, "result": { "status": "Success" },
    });
    HookReply::Json(json!({ "kind": review["kind"], "apiVersion": review["apiVersion"], "response": response }))
}

struct Changing {
    store: Arc<dyn Store>,
    servers: Vec<TestServer>,
    hook: HookServer,
    certificates: TempDir,
    /// The number of servers that the test has started.
    started: usize,
    shape: Shape,
}

impl Changing {
    async fn open() -> Self {
        let hook = HookServer::start(&["127.0.0.1"], |request| std::future::ready(converted(&request))).await;
        let shape =
            Shape { stored: "v1", converted: false, selectable: false, namespaced: true, default: (0, 0), field: 0 };
        let certificates = TempDir::new().unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut changing = Self { store, servers: Vec::new(), hook, certificates, started: 0, shape };
        for _ in 0..2 {
            let server = changing.start().await;
            changing.servers.push(server);
        }
        changing.define().await;
        changing
    }

    async fn start(&mut self) -> TestServer {
        self.started += 1;
        let (directory, id) = (self.certificates.path().to_owned(), format!("server-{}", self.started));
        TestServer::builder()
            .shared_store(self.store.clone())
            .configure(|config| {
                (config.data_dir, config.server_id) = (Some(directory), id);
                config.shutdown_grace = Duration::from_secs(1);
            })
            .start()
            .await
    }

    async fn define(&self) {
        let raw = self.servers[0].raw();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "elms.changing.example.com" }, "spec": self.shape.spec(&self.hook),
        });
        raw.post(DEFINITIONS, &definition).await.expect(201);
    }

    /// Writes this definition through one of the servers.
    async fn change(&mut self, shape: Shape, server: usize) {
        let before = std::mem::replace(&mut self.shape, shape);
        let raw = self.servers[server].raw();
        if before.namespaced == shape.namespaced {
            let change = json!({ "spec": shape.spec(&self.hook) });
            until("the definition changes", || async {
                let answer = raw.patch(DEFINITION, MERGE, &change).await;
                assert!([200, 409].contains(&answer.status), "{}", answer.text());
                answer.status == 200
            })
            .await;
        } else {
            raw.delete(DEFINITION).await.expect(200);
            until("the definition goes", || async { raw.get(DEFINITION).await.status == 404 }).await;
            self.define().await;
        }
    }

    /// Checks that both servers show the same as a server that reads everything from the store.
    async fn compare(&mut self, when: &str) {
        let raw = self.servers[0].raw();
        until("the definition is established", || async {
            let definition = raw.get(DEFINITION).await.json();
            let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        })
        .await;
        let mut fresh = self.start().await;
        let shape = self.shape;
        for version in ["v1", "v2"] {
            let path = place(version, shape.namespaced);
            fresh.raw().get(&*path).await.expect(200);
            let expected = responses(&fresh.raw(), &path, shape.selectable).await;
            for server in &self.servers {
                let raw = server.raw();
                let mut found = responses(&raw, &path, shape.selectable).await;
                // The other server may not have the newest definition yet.
                for _ in 0..LOOKS {
                    if found == expected {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    found = responses(&raw, &path, shape.selectable).await;
                }
                assert_eq!(found, expected, "{when}: {shape:?}, {path}: a server and one that has just started");
            }
        }
        fresh.stop().await;
    }
}

/// The list, each single object, and the objects that a field selector finds.
async fn responses(raw: &Raw, path: &str, selectable: bool) -> Vec<Value> {
    let answer = raw.get(path).await;
    if answer.status != 200 {
        return vec![answer.json()];
    }
    let mut shown = items(&answer.json()).to_vec();
    for object in shown.clone() {
        let name = object["metadata"]["name"].as_str().unwrap();
        shown.push(raw.get(format!("{path}/{name}")).await.json());
    }
    for value in ["one", "two"].into_iter().filter(|_| selectable) {
        let selected = raw.get(format!("{path}?fieldSelector=spec.a%3D{value}")).await;
        shown.push(selected.json()["items"].clone());
    }
    shown
}

/// Writes without regard to the changes. Returns the undocumented errors.
async fn write(servers: Vec<Raw>, mut dice: Dice) -> BTreeSet<String> {
    let mut faults = BTreeSet::new();
    for _ in 0..WRITES {
        let raw = &servers[usize::try_from(dice.roll(2)).unwrap()];
        let version = ["v1", "v2"][usize::try_from(dice.roll(2)).unwrap()];
        let path = place(version, dice.roll(2) == 0);
        let name = format!("e{}", dice.roll(NAMES));
        let object = format!("{path}/{name}");
        let text = ["one", "two"][usize::try_from(dice.roll(2)).unwrap()];
        let mut spec = json!({ "a": text });
        spec[format!("extra{}", dice.roll(3))] = json!("x");
        let kind = dice.roll(7);
        let answer = match kind {
            0 | 1 => raw.post(&*path, &json!({ "metadata": { "name": name }, "spec": spec })).await,
            2 => raw.patch(&*object, MERGE, &json!({ "spec": spec })).await,
            3 => {
                let mut seen = raw.get(&*object).await;
                if seen.status == 200 {
                    let mut current = seen.json();
                    current["spec"] = spec;
                    seen = raw.put(&*object, &current).await;
                }
                seen
            }
            4 => {
                let whole = json!({
                    "apiVersion": format!("changing.example.com/{version}"), "kind": "Elm",
                    "metadata": { "name": name }, "spec": spec,
                });
                raw.patch(format!("{object}?fieldManager=m{}&force=true", dice.roll(2)), APPLY, &whole).await
            }
            5 => raw.get(format!("{path}?fieldSelector=spec.a%3Done")).await,
            _ => raw.delete(&*object).await,
        };
        let documented = match answer.status {
            200 | 201 | 403 | 404 | 405 | 409 => true,
            // A selector with a field that is not selectable.
            400 => kind == 5,
            // As in kube-apiserver, an apply of fields that the schema does not declare is an internal error.
            500 => kind == 4 && answer.text().contains("field not declared in schema"),
            // A server writes only versions that it has published.
            503 => !answer.header("retry-after").is_empty(),
            _ => false,
        };
        if !documented {
            faults.insert(format!("{} {kind} {}", answer.status, answer.text()));
        }
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_during_a_definition_change_leave_caches_as_after_a_start() {
    for seed in 1..=SEEDS {
        let mut dice = Dice(seed);
        let mut changing = Changing::open().await;
        for step in 0..CHANGES {
            let raws: Vec<Raw> = changing.servers.iter().map(|server| server.raw()).collect();
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| tokio::spawn(write(raws.clone(), Dice(dice.roll(1 << 30) + writer))))
                .collect();
            let shape = changing.shape.changed(&mut dice);
            let server = usize::try_from(dice.roll(2)).unwrap();
            changing.change(shape, server).await;
            for writer in writers {
                let faults = writer.await.unwrap();
                assert!(faults.is_empty(), "seed {seed}, step {step}, {shape:?}: {faults:#?}");
            }
            changing.compare(&format!("seed {seed}, step {step}")).await;
        }
    }
}
