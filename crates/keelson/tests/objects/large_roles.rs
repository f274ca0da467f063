//! Tests of roles with thousands of rules, and of users with thousands of bindings. Meanwhile the server answers
//! requests of these users and of others in time.

use std::fs;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::rights::binding;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The longest time for a request, in a build without optimization and with other tests on the machine.
const PATIENCE: Duration = Duration::from_secs(2);

async fn start() -> (TestServer, TempDir) {
    let files = TempDir::new().unwrap();
    let tokens = files.path().join("tokens.csv");
    fs::write(&tokens, "t-ann,ann,u-ann\n").unwrap();
    let server = TestServer::builder().configure(move |config| config.token_file = Some(tokens)).start().await;
    (server, files)
}

/// A role with many rules that differ only in their names.
fn large(name: &str, labels: &Value, rules: usize) -> Value {
    let rule = |number: usize| json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [format!("{name}{number}")] });
    let rules: Vec<_> = (0..rules).map(rule).collect();
    json!({ "metadata": { "name": name, "labels": labels }, "rules": rules })
}

/// A binding of a cluster role that names ann 50 times.
fn bound(name: &str, role: &str) -> Value {
    let mut binding = binding(name, &format!("cluster:{role}"), ("User", "ann"));
    let subjects = vec![binding["subjects"][0].clone(); 50];
    binding["subjects"] = json!(subjects);
    binding
}

/// The code of a response to ann, and its time.
async fn get(raw: &Raw, path: &str) -> (u16, Duration) {
    let begun = Instant::now();
    let answer = raw.get(path).header("authorization", "Bearer t-ann").await;
    (answer.status, begun.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_many_large_roles_gets_answers_in_time() {
    let (server, _files) = start().await;
    let (admin, raw) = (server.raw(), server.anonymous());
    for number in 0..5 {
        let name = format!("large-{number}");
        admin.post(format!("{RBAC}/clusterroles"), &large(&name, &json!({}), 10_000)).await.expect(201);
    }
    let bind = async |number: usize| {
        let binding = bound(&format!("b{number}"), &format!("large-{}", number % 5));
        admin.post(format!("{RBAC}/namespaces/default/rolebindings"), &binding).await.expect(201);
    };
    stream::iter(0..300).for_each_concurrent(4, bind).await;
    // The first request reads the roles into the authorizer.
    get(&raw, &format!("{MAPS}/other")).await;
    for _ in 0..5 {
        for (name, expected) in [("large-49999", 404), ("large-4x", 403), ("other", 403)] {
            let (status, took) = get(&raw, &format!("{MAPS}/{name}")).await;
            assert_eq!(status, expected, "{name}");
            assert!(took < PATIENCE, "{name}: {took:?}");
        }
    }
    // The review lists the rules of each role once, although many bindings refer to it.
    let review = json!({ "spec": { "namespace": "default" } });
    let review = raw
        .post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review)
        .header("authorization", "Bearer t-ann")
        .await
        .expect(201)
        .json();
    let rules = review["status"]["resourceRules"].as_array().unwrap().len();
    assert!((50_000..51_000).contains(&rules), "{rules}");
}

/// An aggregated role that is too large for the store does not delay other aggregated roles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oversized_aggregated_role_delays_no_other() {
    let server = TestServer::start().await;
    let admin = server.raw();
    let roles = format!("{RBAC}/clusterroles");
    let sum = |name: &str| {
        json!({
            "metadata": { "name": name },
            "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "to": name } }] },
            "rules": [],
        })
    };
    for name in ["a-sum", "b-sum"] {
        admin.post(&roles, &sum(name)).await.expect(201);
    }
    for name in ["one", "two"] {
        admin.post(&roles, &large(name, &json!({ "to": "a-sum" }), 10_000)).await.expect(201);
    }
    admin.post(&roles, &large("small", &json!({ "to": "b-sum" }), 3)).await.expect(201);
    let filled = async {
        let rules = async || {
            let sum = admin.get(format!("{roles}/b-sum")).await.expect(200).json();
            sum["rules"].as_array().map_or(0, Vec::len)
        };
        while rules().await != 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), filled).await.expect("the other sum is filled");
}
