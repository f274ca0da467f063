//! Tests of every path in the discovery documents with every listed verb, for each source: built-in, a definition, an
//! aggregated server. Everything that is listed must be served.
//!
//! The test creates an object of each kind where possible, so that its subresources exist too.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use futures::stream;
use http::Method;
use keelson_testkit::{Raw, TestServer, UpstreamRequest, upstream_answer, upstream_echo};
use serde_json::{Value, json};

use super::AGGREGATED;
use super::example::Example;
use super::lab::Lab;
use super::until_of;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The name of the object in each request, if its kind allows it.
const NAME: &str = "probe";
/// The number of concurrent requests.
const AT_ONCE: usize = 16;
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// A request for one verb of the document.
struct Visit {
    source: &'static str,
    verb: String,
    path: String,
    /// The name of the object in the path.
    name: String,
    /// True if the object exists.
    is_there: bool,
}

/// Objects that the test can create, by resource and group.
struct Samples(BTreeMap<String, Value>);

impl Samples {
    /// One of each built-in kind.
    fn builtin() -> Self {
        let all: BTreeMap<String, Value> = serde_json::from_str(include_str!("../objects/kinds/objects.json")).unwrap();
        Self(all.into_iter().map(|(resource, mut sample)| (resource, sample["body"].take())).collect())
    }

    fn name(&self, resource: &str) -> &str {
        self.0.get(resource).and_then(|body| body["metadata"]["name"].as_str()).unwrap_or(NAME)
    }

    /// Creates the objects, each in the first version that supports it. Returns the resources that then have an object.
    async fn make(&self, raw: &Raw, visits: &[Visit]) -> Vec<String> {
        let mut made = Vec::new();
        for (resource, body) in &self.0 {
            let plural = resource.split('.').next().unwrap();
            let api = format!("/{}/", body["apiVersion"].as_str().unwrap());
            let is_create = |visit: &&Visit| {
                visit.verb == "create" && visit.path.contains(&api) && visit.path.ends_with(&format!("/{plural}"))
            };
            let create = visits.iter().find(is_create).unwrap_or_else(|| panic!("{resource} can't be made"));
            let mut body = body.clone();
            body["metadata"] = json!({ "name": self.name(resource) });
            raw.post(create.path.as_str(), &body).await.expect(201);
            made.push(resource.clone());
        }
        made
    }
}

/// The requests for everything that a document lists, in the namespace `default`.
fn visits(document: &Value, root: &str, samples: &Samples) -> Vec<Visit> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut visits = Vec::new();
    for group in list(&document["items"]) {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        let source = match name {
            "px.example.org" => "aggregated",
            "water.example.org" => "custom",
            _ => "built-in",
        };
        for version in list(&group["versions"]) {
            let parts = [root, name, version["version"].as_str().unwrap()];
            let path = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
            for resource in list(&version["resources"]) {
                let plural = resource["resource"].as_str().unwrap();
                let whole = if name.is_empty() { plural.to_owned() } else { format!("{plural}.{name}") };
                let (of, is_there) = (samples.name(&whole), samples.0.contains_key(&whole));
                let namespace = if resource["scope"] == "Namespaced" { "namespaces/default/" } else { "" };
                let collection = format!("/{path}/{namespace}{plural}");
                let mut visit = |verbs: &Value, below: &str| {
                    for verb in list(verbs) {
                        let verb = verb.as_str().unwrap().to_owned();
                        let of_collection =
                            below.is_empty() && ["list", "watch", "create", "deletecollection"].contains(&&*verb);
                        let path = if of_collection { collection.clone() } else { format!("{collection}/{of}{below}") };
                        visits.push(Visit { source, verb, path, name: of.to_owned(), is_there });
                    }
                };
                visit(&resource["verbs"], "");
                for part in list(&resource["subresources"]) {
                    visit(&part["verbs"], &format!("/{}", part["subresource"].as_str().unwrap()));
                }
            }
        }
    }
    visits
}

/// The fault in the response to a request, if it has one.
async fn fault(raw: &Raw, visit: &Visit) -> Option<String> {
    let (method, query) = match &*visit.verb {
        "get" | "list" => (Method::GET, ""),
        "watch" => (Method::GET, "?watch=true&timeoutSeconds=1"),
        "create" => (Method::POST, "?dryRun=All"),
        "update" => (Method::PUT, "?dryRun=All"),
        "patch" => (Method::PATCH, "?dryRun=All"),
        "delete" | "deletecollection" => (Method::DELETE, "?dryRun=All"),
        other => return Some(format!("{}: nobody knows the verb {other}", visit.path)),
    };
    let target = format!("{}{query}", visit.path);
    let call = raw.call(method.clone(), target.clone());
    let call = match method {
        Method::GET | Method::DELETE => call,
        Method::PATCH => call.header("content-type", "application/merge-patch+json").body("{}"),
        _ => call.json(&json!({})),
    };
    if visit.verb == "watch" {
        let status = call.stream().await.status;
        return (status != 200).then(|| format!("{method} {target}: {status}"));
    }
    let answer = call.await;
    // If the object does not exist, its name in the error shows that the resource is served.
    let is_object = || !visit.is_there && answer.json()["details"]["name"] == *visit.name;
    let is_missing = answer.status == 405 || (answer.status == 404 && !is_object());
    is_missing.then(|| format!("{method} {target}: {} {}", answer.status, answer.text()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_of_every_path_is_answered_on_every_source() {
    let server = TestServer::builder().every_version().start().await;
    let lab = Lab::on(server, |request: UpstreamRequest| async move {
        if request.uri().path() != "/apis/px.example.org/v1" {
            return upstream_echo(request).await;
        }
        let resource = |name: &str, verbs: &[&str]| json!({ "name": name, "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": verbs });
        let resources = [resource("things", &VERBS), resource("things/status", &["get", "patch", "update"])];
        let list = json!({ "kind": "APIResourceList", "groupVersion": "px.example.org/v1", "resources": resources });
        upstream_answer(200, "application/json", list.to_string())
    })
    .await;
    let raw = &lab.raw;
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let scale = json!({ "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" });
    let definition = json!({
        "metadata": { "name": "boats.water.example.org" },
        "spec": { "group": "water.example.org", "scope": "Namespaced", "names": { "plural": "boats", "kind": "Boat" },
                  "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema,
                                 "subresources": { "status": {}, "scale": scale } }] },
    });
    raw.post(DEFINITIONS, &definition).await.expect(201);
    let groups = until_of(raw, "/apis", AGGREGATED, |found| {
        let text = found.to_string();
        text.contains(r#""things""#)
            && text.contains(r#""scale""#)
            && text.contains(r#""boats""#)
            && text.contains(r#""create""#)
    })
    .await;
    until_of(raw, &format!("{DEFINITIONS}/boats.water.example.org"), "application/json", |found| {
        found["status"]["conditions"].to_string().contains("Established")
    })
    .await;
    let core = raw.get("/api").header("accept", AGGREGATED).await.expect(200).json();
    let mut samples = Samples::builtin();
    let boat = json!({ "apiVersion": "water.example.org/v1", "kind": "Boat", "spec": { "replicas": 1 } });
    samples.0.insert("boats.water.example.org".to_owned(), boat);
    let visits: Vec<Visit> =
        visits(&core, "api", &samples).into_iter().chain(visits(&groups, "apis", &samples)).collect();
    let made = samples.make(raw, &visits).await;
    assert!(made.len() > 60, "only {} kinds have an object", made.len());
    for (source, least) in [("built-in", 400), ("custom", 8 + 5), ("aggregated", 8 + 3)] {
        let found = visits.iter().filter(|visit| visit.source == source).count();
        assert!(found >= least, "only {found} paths with verbs are {source}");
    }
    visit(raw, &visits).await;
}

/// An aggregated server that runs as a separate process and is written with the library.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_library_server_serves_every_verb_of_every_path() {
    let main = TestServer::builder().every_version().start().await;
    let (_flunders, _loads) = (Example::flunders(&main, |_| "memory:".to_owned()).await, Example::loads(&main).await);
    let raw = main.raw();
    let mut groups = until_of(&raw, "/apis", AGGREGATED, |found| {
        let text = found.to_string();
        text.contains(r#""flunders""#) && text.contains(r#""loads""#)
    })
    .await;
    let groups_of_all = groups["items"].as_array_mut().unwrap();
    groups_of_all.retain(|group| group["metadata"]["name"].as_str().unwrap().ends_with(".example.com"));
    let flunder =
        json!({ "apiVersion": "wardle.example.com/v1", "kind": "Flunder", "spec": { "colour": "red", "size": 3 } });
    let samples = Samples(BTreeMap::from([("flunders.wardle.example.com".to_owned(), flunder)]));
    let visits = visits(&groups, "apis", &samples);
    samples.make(&raw, &visits).await;
    assert!(visits.len() >= 8 + 3, "only {} verbs are named", visits.len());
    visit(&raw, &visits).await;
}

/// Sends all of these requests, and fails if a listed path is not served.
async fn visit(raw: &Raw, visits: &[Visit]) {
    let faults: Vec<String> = stream::iter(visits)
        .map(|visit| fault(raw, visit))
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
