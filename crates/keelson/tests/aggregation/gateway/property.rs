//! A property: the gateway gives a user what the source would give the same user, and never more.
//!
//! 50 users have generated rights at two sources. Each generated read is sent to the gateway and to the source with the
//! same token. Lists over all clusters and over the permitted namespaces must be the union of what the sources give.
//! `KEELSON_SEED` and `KEELSON_ROUNDS` select other rights and more reads.

use std::collections::BTreeSet;

use keelson_gateway::SourceSettings;
use keelson_meta::Random as _;
use keelson_meta::random::SeededRandom;
use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::lab::{Gateway, as_user, source_of};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const USERS: usize = 50;
const SPACES: [&str; 4] = ["red", "green", "blue", "grey"];
const RESOURCES: [&str; 3] = ["configmaps", "services", "serviceaccounts"];
/// The reads of each user, unless `KEELSON_ROUNDS` is set.
const ROUNDS: usize = 8;
/// Queries in the order of keys or with an order of their own, without a limit.
const QUERIES: [&str; 8] = [
    "",
    "resourceVersion=0",
    "keelson.io/count=true",
    "labelSelector=odd%3Dtrue",
    "keelson.io/search=x1",
    "keelson.io/sortBy=-metadata.name",
    "keelson.io/filter=metadata.name+%21%3D+'x2'",
    "keelson.io/where=object.metadata.name.size()+%3E+1",
];

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn below(random: &SeededRandom, bound: usize) -> usize {
    usize::try_from(random.u64() % bound as u64).unwrap()
}

fn user(number: usize) -> String {
    format!("u{number:02}")
}

/// A source with objects in each namespace, and rights of each user.
async fn generated(random: &SeededRandom) -> TestServer {
    let tokens: String = (0..USERS).map(|at| format!("{0}-token,{0},{0},team{1}\n", user(at), at % 7)).collect();
    let server = source_of(&format!("root-token,root,r,system:masters\n{tokens}")).start().await;
    let raw = server.raw();
    for space in SPACES {
        raw.post("/api/v1/namespaces", &json!({"metadata": {"name": space}})).await.expect(201);
        for resource in RESOURCES {
            for number in 0..4 {
                let labels = json!({"odd": (number % 2 == 1).to_string()});
                let mut object = json!({"metadata": {"name": format!("x{number}"), "labels": labels}});
                if resource == "services" {
                    object["spec"] = json!({"ports": [{"port": 80}]});
                }
                raw.post(format!("/api/v1/namespaces/{space}/{resource}"), &object).await.expect(201);
            }
        }
    }
    let group = "rbac.authorization.k8s.io";
    for resource in RESOURCES {
        for (name, verbs) in
            [("list", json!(["list"])), ("read", json!(["get", "list", "watch"])), ("get", json!(["get"]))]
        {
            let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": verbs}]);
            let role = json!({"metadata": {"name": format!("{name}-{resource}")}, "rules": rules});
            raw.post(format!("{RBAC}/clusterroles"), &role).await.expect(201);
        }
    }
    for at in 0..USERS {
        for turn in 0..below(random, 5) {
            let role = format!("{}-{}", ["list", "read", "get"][below(random, 3)], RESOURCES[below(random, 3)]);
            let subject = match below(random, 4) {
                0 => json!({"apiGroup": group, "kind": "Group", "name": format!("team{}", at % 7)}),
                _ => json!({"apiGroup": group, "kind": "User", "name": user(at)}),
            };
            let binding = json!({
                "metadata": {"name": format!("b{at}-{turn}")},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [subject],
            });
            // One in twelve is for all namespaces.
            let path = match below(random, 12) {
                0 => format!("{RBAC}/clusterrolebindings"),
                other => format!("{RBAC}/namespaces/{}/rolebindings", SPACES[other % SPACES.len()]),
            };
            raw.post(path, &binding).await.expect(201);
        }
    }
    server
}

/// The namespaces and names in a list.
fn objects(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| format!("{}/{}", item["metadata"]["namespace"], item["metadata"]["name"])).collect()
}

/// The objects that a source gives a user; `None` if it refuses.
async fn given(server: &TestServer, user: &str, path: &str) -> Option<Vec<String>> {
    let answer = as_user(server.anonymous().get(path), user).await;
    assert!([200, 403].contains(&answer.status), "{path}: {}", answer.text());
    (answer.status == 200).then(|| objects(&answer.json()))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_user_gets_more_than_the_source_would_give() {
    let random = SeededRandom::new(number("KEELSON_SEED", 44) as u64);
    let sources = [("one", generated(&random).await), ("two", generated(&random).await)];
    let settings = sources.iter().map(|(name, server)| SourceSettings::new(*name, server.kubeconfig()));
    let gateway = Gateway::of(settings.collect()).await;
    gateway.loaded().await;
    let (mut allowed, mut refused) = (0, 0);
    for at in 0..USERS {
        let user = user(at);
        for _ in 0..number("KEELSON_ROUNDS", ROUNDS) {
            let resource = RESOURCES[below(&random, RESOURCES.len())];
            let query = QUERIES[below(&random, QUERIES.len())];
            let whole = format!("/api/v1/{resource}?{query}");
            let path = match below(&random, SPACES.len() + 1) {
                all if all == SPACES.len() => whole.clone(),
                space => format!("/api/v1/namespaces/{}/{resource}?{query}", SPACES[space]),
            };
            let mut union = Vec::new();
            for (name, server) in &sources {
                let direct = given(server, &user, &path).await;
                let answer = gateway.get_as(&user, format!("/clusters/{name}{path}")).await;
                let here = (answer.status == 200).then(|| objects(&answer.json()));
                assert_eq!(here, direct, "{user} {name} {path}: {}", answer.text());
                *(if direct.is_some() { &mut allowed } else { &mut refused }) += 1;
                union.extend(direct.into_iter().flatten().map(|object| format!("{name} {object}")));
            }
            let merged = gateway.get_as(&user, format!("/clusters/*{path}")).await;
            check(&merged, union, &format!("{user} {path}"));
            // Over the permitted namespaces: all that the source gives for any of them.
            let (name, server) = &sources[below(&random, sources.len())];
            let mut permitted = BTreeSet::new();
            for space in SPACES.iter().chain(&["default", "kube-system", "kube-public", "kube-node-lease"]) {
                let path = format!("/api/v1/namespaces/{space}/{resource}?{query}");
                permitted.extend(given(server, &user, &path).await.into_iter().flatten());
            }
            let path = format!("/clusters/{name}{whole}&keelson.io/permittedNamespaces=true");
            let answer = gateway.get_as(&user, path.clone()).await;
            let here = if answer.status == 200 { objects(&answer.json()) } else { Vec::new() };
            assert_eq!(here.iter().cloned().collect::<BTreeSet<_>>(), permitted, "{user} {path}: {}", answer.text());
            assert_eq!(here.len(), permitted.len(), "{user} {path}");
        }
    }
    assert!(allowed > 50 && refused > 50, "{allowed} {refused}");
    gateway.stop().await;
}

/// Checks that a merged list has exactly these objects, each with its cluster.
fn check(merged: &keelson_testkit::Answer, mut union: Vec<String>, what: &str) {
    let mut here = Vec::new();
    if merged.status == 200 {
        let list = merged.json();
        let items = list["items"].as_array().unwrap().iter();
        let clusters = items.map(|item| item["metadata"]["annotations"]["keelson.io/cluster"].as_str().unwrap());
        here = clusters.zip(objects(&list)).map(|(cluster, object)| format!("{cluster} {object}")).collect();
    }
    here.sort();
    union.sort();
    assert_eq!(here, union, "{what}: {}", merged.text());
}
