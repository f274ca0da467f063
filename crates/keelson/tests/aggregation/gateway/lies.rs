//! Sources that lie or do not answer: others notice nothing.
//!
//! The lying source is a server of the test, beside a keelson server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keelson_gateway::SourceSettings;
use keelson_testkit::{HookReply, HookRequest, HookServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::lab::{Gateway, PATIENCE, as_user, create_maps, source};

const MAPS: &str = "/api/v1/namespaces/data/configmaps";
const MISSING: &str = "keelson-missing-clusters";

/// A source whose answers are the test's, with its kubeconfig.
struct Liar {
    _hook: HookServer,
    directory: TempDir,
    asked: Arc<Mutex<Vec<HookRequest>>>,
}

impl Liar {
    /// Starts a source. `lie` answers first, and the rest is what a small server would say: it knows each token
    /// `NAME-token`, and allows everything.
    async fn start(lie: impl Fn(&HookRequest) -> Option<HookReply> + Send + Sync + 'static) -> Self {
        let asked = Arc::<Mutex<Vec<HookRequest>>>::default();
        let record = asked.clone();
        let hook = HookServer::start(&["127.0.0.1"], move |request: HookRequest| {
            record.lock().unwrap().push(request.clone());
            std::future::ready(lie(&request).unwrap_or_else(|| honest(&request)))
        });
        let hook = hook.await;
        let directory = TempDir::new().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://127.0.0.1:{}", hook.addr().port()),
                "certificate-authority-data": hook.ca_bundle(),
            }}],
            "users": [{"name": "u", "user": {"token": "of-the-gateway"}}],
        });
        std::fs::write(directory.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { _hook: hook, directory, asked }
    }

    fn settings(&self) -> SourceSettings {
        SourceSettings::new("liar", self.directory.path().join("kubeconfig"))
    }
}

fn reply(code: u16, document: &Value) -> HookReply {
    HookReply::Other(code, vec![("content-type", "application/json".to_owned())], document.to_string())
}

fn map(name: &str, revision: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "data", "resourceVersion": revision}, "data": {"at": revision}})
}

fn list(kind: &str, items: &Value) -> HookReply {
    reply(200, &json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items}))
}

/// The user of a TokenReview.
fn user_in(review: &Value) -> String {
    let token = review["spec"]["token"].as_str().and_then(|token| token.strip_suffix("-token"));
    token.unwrap_or_default().to_owned()
}

fn honest(request: &HookRequest) -> HookReply {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let resource = |plural: &str, kind: &str, scope: &str| {
        json!({
            "resource": plural, "responseKind": {"group": "", "version": "v1", "kind": kind}, "scope": scope,
            "singularResource": plural, "verbs": ["get", "list", "watch"],
        })
    };
    let discovery = |items: Value| {
        json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
        })
    };
    match path {
        "/version" => reply(200, &json!({"gitVersion": "v1.36.0"})),
        "/apis" => reply(200, &discovery(json!([]))),
        "/api" => {
            let resources =
                [resource("configmaps", "ConfigMap", "Namespaced"), resource("namespaces", "Namespace", "Cluster")];
            reply(200, &discovery(json!([{"metadata": {}, "versions": [{"version": "v1", "resources": resources}]}])))
        }
        _ if query.contains("sendInitialEvents") => reply(422, &json!({"kind": "Status", "code": 422})),
        _ if query.contains("watch=") => HookReply::Drips(Duration::from_secs(30)),
        "/api/v1/configmaps" => list("ConfigMapList", &json!([map("a", "3")])),
        "/api/v1/namespaces" => {
            list("NamespaceList", &json!([{"metadata": {"name": "data", "uid": "u", "resourceVersion": "2"}}]))
        }
        path if path.ends_with("/tokenreviews") => {
            let name = user_in(&request.body);
            let status = json!({"authenticated": !name.is_empty(), "user": {"username": name}});
            reply(201, &json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "status": status}))
        }
        path if path.ends_with("/subjectaccessreviews") => {
            let kind = "SubjectAccessReview";
            let status = json!({"allowed": true});
            reply(201, &json!({"kind": kind, "apiVersion": "authorization.k8s.io/v1", "spec": {}, "status": status}))
        }
        _ => reply(404, &json!({"kind": "Status", "code": 404})),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_listed_twice_is_shown_once() {
    let liar = Liar::start(|request| {
        let is_list = request.path.starts_with("/api/v1/configmaps?") && !request.path.contains("watch=");
        let next = request.path.contains("continue=");
        is_list.then(|| {
            // The old state of an object comes again on a later page.
            let items =
                if next { json!([map("a", "3"), map("b", "4")]) } else { json!([map("a", "5"), map("a", "3")]) };
            let metadata =
                if next { json!({"resourceVersion": "9"}) } else { json!({"resourceVersion": "9", "continue": "x"}) };
            reply(200, &json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}))
        })
    })
    .await;
    let one = source().start().await;
    create_maps(&one, "data", 3).await;
    let gateway = Gateway::of(vec![SourceSettings::new("one", one.kubeconfig()), liar.settings()]).await;
    gateway.loaded().await;
    let list = gateway.get(format!("/clusters/*{MAPS}")).await.expect(200);
    assert_eq!((list.header("keelson-total-count"), list.header(MISSING)), ("5", ""));
    let shown = gateway.get(format!("/clusters/liar{MAPS}")).await.expect(200).json();
    let states: Vec<_> = shown["items"].as_array().unwrap().iter().map(|item| item["data"]["at"].clone()).collect();
    assert_eq!(states, ["5", "4"]);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_source_gets_the_token_for_another() {
    let liar = Liar::start(|_| None).await;
    let one = source().start().await;
    let gateway = Gateway::of(vec![SourceSettings::new("one", one.kubeconfig()), liar.settings()]).await;
    gateway.loaded().await;
    for path in ["/clusters/liar/api/v1/pods", "/clusters/liar/version", "/clusters/*/api/v1/configmaps"] {
        let call = as_user(gateway.raw().get(path), "root");
        let call = call.also_header("keelson-authorization-one", "Bearer secret");
        call.also_header("keelson_authorization-one", "Bearer secret").await;
    }
    let asked = liar.asked.lock().unwrap().clone();
    assert!(asked.iter().any(|request| request.path.starts_with("/api/v1/pods")));
    for request in asked {
        let told = format!("{:?} {}", request.headers, request.body);
        assert!(!told.contains("secret"), "{}: {told}", request.path);
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_discovery_does_not_keep_the_others_from_being_ready() {
    let liar = Liar::start(|request| request.path.starts_with("/api").then_some(HookReply::Closes)).await;
    let one = source().start().await;
    create_maps(&one, "data", 3).await;
    let gateway = Gateway::of(vec![SourceSettings::new("one", one.kubeconfig()), liar.settings()]).await;
    let ready = async {
        while gateway.raw().get("/readyz").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.expect("the gateway is ready");
    let list = gateway.until(&format!("/clusters/*{MAPS}"), |answer| answer.header("keelson-total-count") == "3").await;
    assert_eq!(list.header(MISSING), "liar=unavailable");
    gateway.stop().await;
}
