//! Tests of the search over all resources: ranks and counts over several kinds, and the rights of its callers.
//!
//! Rights are roles of a user that the tests impersonate.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const SEARCH: &str = "/apis/keelson.io/search";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// A search reads this many objects through an index.
const INDEXED: usize = 3_000;

async fn start() -> (TestServer, Raw) {
    let server = TestServer::start().await;
    let raw = server.raw();
    for namespace in ["shop", "vault"] {
        raw.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.expect(201);
    }
    (server, raw)
}

async fn make(raw: &Raw, path: &str, name: &str, labels: Value) {
    raw.post(path, &json!({"metadata": {"name": name, "labels": labels}})).await.expect(201);
}

/// Lets lisa list a resource of the core group: in a namespace, or everywhere.
async fn permit(raw: &Raw, namespace: Option<&str>, resource: &str) {
    let (role, binding, path) = match namespace {
        Some(namespace) => ("Role", "rolebindings", format!("{RBAC}/namespaces/{namespace}")),
        None => ("ClusterRole", "clusterrolebindings", RBAC.to_owned()),
    };
    let name = format!("lisa-{resource}");
    let roles = if namespace.is_some() { "roles" } else { "clusterroles" };
    let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}]);
    raw.post(format!("{path}/{roles}"), &json!({"metadata": {"name": name}, "rules": rules})).await.expect(201);
    let bound = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": [{"kind": "User", "name": "lisa", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    raw.post(format!("{path}/{binding}"), &bound).await.expect(201);
}

/// The found objects as `resource/namespace/name`.
fn found(answer: &Value) -> Vec<String> {
    let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
    let items = answer["items"].as_array().unwrap().iter();
    items.map(|item| format!("{}/{}/{}", text(item, "resource"), text(item, "namespace"), text(item, "name"))).collect()
}

async fn as_lisa(raw: &Raw, query: &str) -> Value {
    raw.get(format!("{SEARCH}?{query}")).header("impersonate-user", "lisa").await.expect(200).json()
}

#[tokio::test]
async fn objects_of_all_kinds_are_found_and_the_best_come_first() {
    let (_server, raw) = start().await;
    make(&raw, "/api/v1/namespaces/shop/configmaps", "lighthouse-settings", json!({})).await;
    make(&raw, "/api/v1/namespaces/vault/secrets", "lighthouse", json!({})).await;
    make(&raw, "/api/v1/namespaces/shop/serviceaccounts", "robot", json!({"app": "lighthouse"})).await;
    make(&raw, "/api/v1/namespaces/shop/configmaps", "other", json!({})).await;
    let answer = raw.get(format!("{SEARCH}?q=lighthouse")).await.expect(200).json();
    assert_eq!(answer["kind"], "ObjectSearch");
    let expected = ["secrets/vault/lighthouse", "serviceaccounts/shop/robot", "configmaps/shop/lighthouse-settings"];
    let mut all = found(&answer);
    assert_eq!(all[0], expected[0]);
    all.sort();
    assert_eq!(all, {
        let mut sorted = expected;
        sorted.sort_unstable();
        sorted
    });
    assert_eq!(
        answer["items"][0],
        json!({
            "group": "", "version": "v1", "resource": "secrets", "kind": "Secret", "namespace": "vault",
            "name": "lighthouse", "score": 300, "isSimilar": false,
        })
    );
    // Words with typing errors are marked, and a limit leaves the counts.
    let similar = raw.get(format!("{SEARCH}?q=lightbouse&limit=1")).await.expect(200).json();
    assert_eq!((similar["items"].as_array().unwrap().len(), &similar["items"][0]["isSimilar"]), (1, &json!(true)));
    assert_eq!(similar["counts"].as_array().unwrap().len(), 3);
    // Resources may be left out, and the announcement names the path.
    let rest = raw.get(format!("{SEARCH}?q=lighthouse&except=secrets,configmaps")).await.expect(200).json();
    assert_eq!(found(&rest), ["serviceaccounts/shop/robot"]);
    assert_eq!(raw.get("/apis/keelson.io/v1alpha1").await.expect(200).json()["search"], SEARCH);
    // Custom resources are searched as soon as they are served.
    let definition = json!({
        "metadata": {"name": "gadgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    raw.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    let gadget = json!({"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": {"name": "lighthouse-lamp"}});
    raw.post("/apis/example.org/v1/namespaces/shop/gadgets", &gadget).await.expect(201);
    let answer = raw.get(format!("{SEARCH}?q=lamp")).await.expect(200).json();
    assert_eq!(found(&answer), ["gadgets/shop/lighthouse-lamp"]);
}

#[tokio::test]
async fn nothing_that_the_caller_may_not_list_is_in_results_counts_or_durations() {
    let (_server, raw) = start().await;
    for namespace in ["shop", "vault"] {
        make(&raw, &format!("/api/v1/namespaces/{namespace}/configmaps"), "lighthouse", json!({})).await;
        make(&raw, &format!("/api/v1/namespaces/{namespace}/secrets"), "lighthouse", json!({})).await;
        make(&raw, &format!("/api/v1/namespaces/{namespace}/serviceaccounts"), "lighthouse", json!({})).await;
    }
    // Without any right, the answer is that of an empty cluster, whatever is requested.
    let nothing = as_lisa(&raw, "q=lighthouse").await;
    assert_eq!((&nothing["items"], &nothing["counts"], &nothing["unfinished"]), (&json!([]), &json!([]), &json!([])));
    assert_eq!(as_lisa(&raw, "q=lighthouse&namespaces=shop,vault,nowhere").await, nothing);
    assert_eq!(as_lisa(&raw, "q=nosuchword&namespaces=shop,vault").await, nothing);

    permit(&raw, Some("shop"), "configmaps").await;
    permit(&raw, None, "serviceaccounts").await;
    let own = as_lisa(&raw, "q=lighthouse&namespaces=shop,vault").await;
    let mut all = found(&own);
    all.sort();
    assert_eq!(
        all,
        ["configmaps/shop/lighthouse", "serviceaccounts/shop/lighthouse", "serviceaccounts/vault/lighthouse"]
    );
    assert_eq!(
        own["counts"],
        json!([
            {"group": "", "version": "v1", "resource": "serviceaccounts", "count": 2},
            {"group": "", "version": "v1", "resource": "configmaps", "namespace": "shop", "count": 1},
        ])
    );
    assert_eq!(found(&as_lisa(&raw, "q=lighthouse&namespaces=vault&except=serviceaccounts").await), [""; 0]);
    // A user without credentials has no search.
    let server = raw.get(format!("{SEARCH}?q=a")).header("impersonate-user", "system:anonymous");
    server.header("impersonate-group", "system:unauthenticated").await.expect(403);
    raw.post(SEARCH, &json!({})).await.expect(405);
    let refused = raw.get(format!("{SEARCH}?q=a&limit=1000")).await.expect(400).json();
    assert_eq!(refused["message"], "limit: a number from 1 to 100 is expected");
}

#[tokio::test]
async fn a_search_without_rights_builds_no_index_of_the_forbidden_objects() {
    let (_server, raw) = start().await;
    for number in 0..INDEXED {
        make(&raw, "/api/v1/namespaces/vault/secrets", &format!("lighthouse-{number}"), json!({})).await;
    }
    for _ in 0..3 {
        as_lisa(&raw, "q=lighthouse&namespaces=vault").await;
    }
    // The first search of an administrator still reads every object. The next one finds the index.
    let looked = async |query: &str| -> usize {
        let list = raw.get(format!("/api/v1/secrets?keelson.io/search={query}&limit=1")).await.expect(200);
        list.header("keelson-looked-at").parse().unwrap()
    };
    let first = looked("lighthouse").await;
    assert!(first >= INDEXED, "{first}");
    assert!(looked("houses").await < INDEXED, "an index was built");
}
