//! Lists over the namespaces that a caller may see.
//!
//! The gateway's own account is an administrator's, so that an object of another namespace would show.

use std::time::Duration;

use keelson_gateway::SourceSettings;
use serde_json::{Value, json};

use super::lab::{Gateway, create_maps, names, source};
use super::rights::let_read;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/configmaps?keelson.io/permittedNamespaces=true";

fn spaces(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["namespace"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_exactly_the_permitted_namespaces() {
    let source = source().start().await;
    for (namespace, count) in [("a", 4), ("b", 5), ("secret-space", 6)] {
        create_maps(&source, namespace, count).await;
    }
    let_read(&source, "ann", "a").await;
    let_read(&source, "ann", "b").await;
    let gateway = Gateway::before(&source).await;
    gateway.get_as("ann", "/api/v1/configmaps").await.expect(403);
    let list = gateway.get_as("ann", MAPS).await.expect(200);
    assert_eq!(list.header("keelson-total-count"), "9");
    assert_eq!(spaces(&list.json()), [vec!["a"; 4], vec!["b"; 5]].concat());
    assert!(list.json()["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().is_ok());
    let groups =
        gateway.get_as("ann", format!("{MAPS}&keelson.io/groupBy=metadata.namespace")).await.expect(200).json();
    assert_eq!(groups["values"], json!([{"value": "b", "count": 5}, {"value": "a", "count": 4}]));
    let sorted = format!("{MAPS}&keelson.io/sortBy=-data.rank,metadata.namespace&limit=4");
    let page = gateway.get_as("ann", format!("{sorted}&keelson.io/page=2")).await.expect(200);
    let (mut walked, mut token) = (Vec::new(), String::new());
    loop {
        let page = gateway.get_as("ann", format!("{sorted}{token}")).await.expect(200).json();
        let found = page["items"].as_array().unwrap().iter();
        walked.extend(found.map(|item| (item["data"]["rank"].to_string(), item["metadata"]["namespace"].to_string())));
        let Some(next) = page["metadata"]["continue"].as_str() else { break };
        token = format!("&continue={next}");
    }
    assert_eq!((walked.len(), page.header("keelson-total-count")), (9, "9"));
    let mut expected = walked.clone();
    expected.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
    assert_eq!(walked, expected);
    // Nothing of another namespace crosses, for any query.
    for query in [
        "keelson.io/search=word5",
        "labelSelector=third%3Dtrue",
        "fieldSelector=metadata.namespace%3Dsecret-space",
        "keelson.io/filter=metadata.namespace+%3D%3D+'secret-space'",
    ] {
        let answer = gateway.get_as("ann", format!("{MAPS}&{query}")).await;
        assert!(!answer.text().contains("secret-space"), "{query}: {}", answer.text());
    }
    let refused = gateway.get_as("bob", MAPS).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(
        !["secret-space", "\\\"a\\\"", "m000"].iter().any(|word| refused.text().contains(word)),
        "{}",
        refused.text()
    );
    gateway.raw().get(MAPS).await.expect(401);
    let whole = gateway.get(MAPS).await.expect(200);
    assert_eq!(
        whole.header("keelson-total-count"),
        gateway.get("/api/v1/configmaps?keelson.io/count=true").await.header("keelson-total-count")
    );
    let own = gateway.get_as("ann", "/api/v1/namespaces/a/configmaps?keelson.io/permittedNamespaces=true").await;
    assert_eq!(own.status, 400, "{}", own.text());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_change_during_a_walk_change_its_rest() {
    let source = source().start().await;
    for namespace in ["a", "b"] {
        create_maps(&source, namespace, 4).await;
        let_read(&source, "ann", namespace).await;
    }
    let gateway = Gateway::before(&source).await;
    let first = gateway.get_as("ann", format!("{MAPS}&limit=2")).await.expect(200).json();
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let next = format!("{MAPS}&limit=9&continue={token}");
    gateway.get_as("bob", next.clone()).await.expect(403);
    gateway.get(next.clone()).await.expect(400);
    assert_eq!(names(&gateway.get_as("ann", next.clone()).await.expect(200).json()).len(), 6);
    source.raw().delete(format!("{RBAC}/namespaces/b/rolebindings/reader")).await.expect(200);
    let begun = std::time::Instant::now();
    loop {
        let rest = spaces(&gateway.get_as("ann", next.clone()).await.expect(200).json());
        if rest == ["a", "a"] {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{rest:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_large_cluster_namespaces_are_found_by_role_bindings() {
    let (source, other) = (source().start().await, source().start().await);
    for number in 0..70 {
        let namespace = json!({"metadata": {"name": format!("n{number:02}")}});
        source.raw().post("/api/v1/namespaces", &namespace).await.expect(201);
    }
    for namespace in ["n03", "n60"] {
        create_maps(&source, namespace, 2).await;
        let_read(&source, "ann", namespace).await;
    }
    create_maps(&source, "n10", 2).await;
    create_maps(&other, "x", 1).await;
    let_read(&other, "ann", "x").await;
    let of = |name: &str, server: &keelson_testkit::TestServer| SourceSettings::new(name, server.kubeconfig());
    let gateway = Gateway::of(vec![of("big", &source), of("small", &other)]).await;
    gateway.loaded().await;
    let list = gateway.get_as("ann", format!("/clusters/big{MAPS}")).await.expect(200);
    assert_eq!(spaces(&list.json()), ["n03", "n03", "n60", "n60"]);
    assert!(list.header("warning").contains("RoleBinding"), "{}", list.header("warning"));
    let both = gateway.get_as("ann", format!("/clusters/*{MAPS}")).await.expect(200);
    assert_eq!((spaces(&both.json()).len(), both.header("keelson-missing-clusters")), (5, ""));
    gateway.stop().await;
}
