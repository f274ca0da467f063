//! Tests of the number of objects scanned by a query. Views and indexes catch up with writes in every namespace, so it
//! includes objects that the client may not list.

use keelson_testkit::TestServer;
use serde_json::json;

/// The header with the number of scanned objects, and its deprecated name.
const NAMES: [&str; 2] = ["keelson-objects-scanned", "keelson-looked-at"];

#[tokio::test]
async fn scanned_objects_are_reported_only_with_full_list_rights() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let secrets = "/api/v1/namespaces/default/secrets";
    raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await.expect(201);
    let secret = |name: &str| json!({"metadata": {"name": name}});
    raw.post(secrets, &secret("own")).await.expect(201);
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]);
    let (user, group) =
        (json!({"kind": "User", "name": "lisa", "apiGroup": "rbac.authorization.k8s.io"}), "rbac.authorization.k8s.io");
    let binding = |kind: &str| {
        let role = json!({"apiGroup": group, "kind": kind, "name": "lister"});
        json!({"metadata": {"name": "lister"}, "roleRef": role, "subjects": [user]})
    };
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "lister"}, "rules": rules});
    raw.post(format!("{rbac}/namespaces/default/roles"), &role).await.expect(201);
    raw.post(format!("{rbac}/namespaces/default/rolebindings"), &binding("Role")).await.expect(201);
    let queries = [
        "keelson.io/sortBy=.type",
        "keelson.io/groupBy=.type",
        "keelson.io/search=own",
        "keelson.io/search=own&keelson.io/matches=true",
    ];
    let asks =
        async |query: &str| raw.get(format!("{secrets}?{query}")).header("impersonate-user", "lisa").await.expect(200);
    for round in 0..2 {
        for query in queries {
            let told = asks(query).await;
            assert!(NAMES.iter().all(|name| !told.headers.contains_key(*name)), "{query}");
            assert_eq!(told.headers.contains_key("keelson-total-count"), !query.contains("groupBy"), "{query}");
            let administrators = raw.get(format!("{secrets}?{query}")).await.expect(200);
            assert!(NAMES.iter().all(|name| administrators.headers.contains_key(*name)), "{query}");
        }
        raw.post("/api/v1/namespaces/other/secrets", &secret(&format!("hidden-{round}"))).await.expect(201);
    }
    raw.post(format!("{rbac}/clusterroles"), &role).await.expect(201);
    raw.post(format!("{rbac}/clusterrolebindings"), &binding("ClusterRole")).await.expect(201);
    for query in queries {
        let answer = asks(query).await;
        assert!(NAMES.iter().all(|name| answer.headers.contains_key(*name)), "{query}");
    }
}
