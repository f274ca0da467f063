//! Tests of the events of all kinds of requests at the level RequestResponse: the target, the sent body, and the
//! response.
//!
//! kube-apiserver was recorded with the same requests. Objects appear in the form in which they were sent. A response
//! that is not an object does not appear.

use http::Method;
use keelson_testkit::{Answer, Raw};
use serde_json::{Value, json};

use super::{Audited, map};

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";
const ALL: &str = "/api/v1/namespaces/all";

/// A request, and the content of its events that does not follow from the response.
struct Case {
    verb: &'static str,
    method: Method,
    path: String,
    media: &'static str,
    sent: String,
    /// The target according to the path, or to the body if that has more fields.
    asked: Value,
    found: Value,
    /// The part of the body that is recorded.
    shown: Value,
    code: u16,
}

/// A request about `object` in the namespace, written as `GROUP/VERSION RESOURCE NAME SUBRESOURCE`. A part that is
/// absent is `-`.
fn case(verb: &'static str, method: Method, path: &str, object: &str, code: u16) -> Case {
    let path = path.replace('~', ALL);
    let parts: Vec<_> = object.split(' ').collect();
    let mut asked = json!({});
    if let [version, resource, name, subresource] = parts.as_slice() {
        let (group, version) = version.rsplit_once('/').unwrap_or(("-", version));
        let members = [
            ("resource", *resource),
            ("name", name),
            ("apiGroup", group),
            ("apiVersion", version),
            ("subresource", subresource),
        ];
        for (member, value) in members.into_iter().filter(|(_, value)| *value != "-") {
            asked[member] = json!(value);
        }
        if path.contains("/namespaces/all/") {
            asked["namespace"] = json!("all");
        }
    }
    let found = asked.clone();
    Case { verb, method, path, media: JSON, sent: String::new(), asked, found, shown: Value::Null, code }
}

fn get(path: &str, object: &str, code: u16) -> Case {
    case("get", Method::GET, path, object, code)
}

fn list(path: &str, object: &str, code: u16) -> Case {
    case("list", Method::GET, path, object, code)
}

fn create(path: &str, object: &str, code: u16, sent: &Value) -> Case {
    case("create", Method::POST, path, object, code).sends(sent)
}

impl Case {
    /// Sets the body of the request, which the event contains unchanged.
    fn sends(mut self, sent: &Value) -> Self {
        self.sent = sent.to_string();
        self.shown = sent.clone();
        if let Some(name) = sent["metadata"]["name"].as_str() {
            self.found["name"] = json!(name);
        }
        self
    }

    /// Sets a text of this media type as the body.
    fn says(mut self, media: &'static str, text: &str) -> Self {
        (self.media, self.sent) = (media, text.to_owned());
        self
    }

    fn shows(mut self, shown: Value) -> Self {
        self.shown = shown;
        self
    }

    fn finds(mut self, member: &str, value: &str) -> Self {
        self.found[member] = json!(value);
        self
    }

    /// Returns true if the client decides how long the response lasts. Its start then has an event too.
    fn is_session(&self) -> bool {
        self.asked["subresource"].as_str().is_some_and(|name| ["log", "exec", "proxy"].contains(&name))
    }

    /// The expected events of the request with this response.
    fn events(&self, answer: &Answer) -> Vec<Value> {
        let event = |stage: &str, object: &Value| {
            let user =
                json!({ "username": "admin", "uid": "u-admin", "groups": ["system:masters", "system:authenticated"] });
            let mut event = json!({ "level": "RequestResponse", "stage": stage, "requestURI": self.path, "verb": self.verb, "user": user });
            if object != &json!({}) {
                event["objectRef"] = object.clone();
            }
            event
        };
        let mut last = event("ResponseComplete", &self.found);
        let told = serde_json::from_str::<Value>(&answer.text()).unwrap_or_default();
        last["responseStatus"] = match &told["kind"] {
            kind if kind == "Status" => {
                let mut status = told.clone();
                status.as_object_mut().unwrap().retain(|member, _| member != "kind" && member != "apiVersion");
                status
            }
            _ => json!({ "metadata": {} }),
        };
        last["responseStatus"]["code"] = json!(self.code);
        last["annotations"] = json!({ "authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "" });
        if !self.shown.is_null() {
            last["requestObject"] = self.shown.clone();
        }
        if !told["kind"].is_null() {
            last["responseObject"] = told;
        }
        let mut events = vec![event("RequestReceived", &self.asked)];
        if self.is_session() {
            let mut started = last.clone();
            started["stage"] = json!("ResponseStarted");
            events.push(started);
        }
        events.push(last);
        events
    }
}

async fn check(audited: &Audited, cases: Vec<Case>) {
    for case in cases {
        let ask = |raw: &Raw| {
            raw.call(case.method.clone(), &case.path).header("content-type", case.media).body(case.sent.clone())
        };
        let (answer, events) = audited.events("admin", ask).await;
        assert_eq!(answer.status, case.code, "{} {}: {}", case.method, case.path, answer.text());
        assert_eq!(events, case.events(&answer), "{} {}", case.method, case.path);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_show_the_decoded_part_of_the_request() {
    let audited = Audited::start().await;
    let maps = "~/configmaps";
    let kept = json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "yam" } });
    let stale =
        json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "yam", "resourceVersion": "1" } });
    let several = "v1 configmaps - -";
    let yam = "v1 configmaps yam -";
    check(
        &audited,
        vec![
            create(maps, several, 422, &map("Bad_Name")),
            create(maps, several, 400, &json!({})).says(JSON, "{").shows(Value::Null),
            create(maps, several, 201, &kept).says("application/yaml", "metadata: {name: yam}"),
            create(maps, several, 409, &kept),
            case("update", Method::PUT, "~/configmaps/yam", yam, 409).sends(&stale).finds("resourceVersion", "1"),
            case("patch", Method::PATCH, "~/configmaps/yam", yam, 415).says("text/plain", "{}"),
            case("update", Method::PUT, maps, several, 405).says(JSON, "{}"),
            get("~/configmaps/none", "v1 configmaps none -", 404),
            list("~/configmaps?labelSelector=%21%21", several, 400),
            list("~/nothings", "v1 nothings - -", 404),
            list("/apis/nope.example.org/v1/namespaces/all/things", "nope.example.org/v1 things - -", 404),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresources_are_distinguished_and_sessions_have_three_stages() {
    let audited = Audited::start().await;
    let container = json!([{ "name": "c", "image": "i" }]);
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": container } });
    let labels = json!({ "a": "b" });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": container } });
    let spec = json!({ "selector": { "matchLabels": labels }, "template": template });
    let deployment = json!({ "metadata": { "name": "d" }, "spec": spec });
    for (path, object) in
        [("/api/v1/namespaces/all/pods", pod), ("/apis/apps/v1/namespaces/all/deployments", deployment)]
    {
        audited.admin.post(path, &object).await.expect(201);
    }
    let running = json!({ "status": { "phase": "Running" } });
    let scale = json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": { "name": "d" }, "spec": { "replicas": 2 } });
    let target = json!({ "kind": "Node", "name": "n1" });
    let binding = json!({ "kind": "Binding", "apiVersion": "v1", "metadata": { "name": "p" }, "target": target });
    let eviction = json!({ "kind": "Eviction", "apiVersion": "policy/v1", "metadata": { "name": "p" } });
    check(
        &audited,
        vec![
            case("patch", Method::PATCH, "~/pods/p/status", "v1 pods p status", 200)
                .says(MERGE, &running.to_string())
                .shows(running),
            case(
                "update",
                Method::PUT,
                "/apis/apps/v1/namespaces/all/deployments/d/scale",
                "apps/v1 deployments d scale",
                200,
            )
            .sends(&scale)
            .shows(json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": { "name": "d" },
                "spec": { "replicas": 2 }, "status": { "replicas": 0 },
            })),
            get("~/pods/p/log", "v1 pods p log", 204),
            case("create", Method::POST, "~/pods/p/exec?command=ls", "v1 pods p exec", 400),
            create("~/pods/p/binding", "v1 pods p binding", 201, &binding),
            create("~/pods/p/eviction", "v1 pods p eviction", 201, &eviction),
            get("~/services/none/proxy/x", "v1 services none proxy", 404),
            get("/version", "", 200),
            get("/nonsense", "", 404),
            case("post", Method::POST, "/nonsense", "", 404),
        ],
    )
    .await;
}
