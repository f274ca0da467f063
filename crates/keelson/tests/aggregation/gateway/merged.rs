//! Lists over several sources: order, pages, counts, marks, tokens, and sources that are missing.
//!
//! The tokens of a user count at each source of these tests, unless a test says otherwise.

use std::collections::BTreeMap;
use std::time::Duration;

use keelson_gateway::SourceSettings;
use keelson_testkit::{Answer, TestServer};
use serde_json::{Value, json};

use super::lab::{Gateway, as_user, create_maps, names, source};
use super::rights::let_read;

const MAPS: &str = "/api/v1/namespaces/data/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const MISSING: &str = "keelson-missing-clusters";

fn all(query: &str) -> String {
    format!("/clusters/*{MAPS}{query}")
}

fn settings(name: &str, server: &TestServer) -> SourceSettings {
    let labels = BTreeMap::from([("env".to_owned(), if name == "two" { "test" } else { "live" }.to_owned())]);
    SourceSettings { labels, ..SourceSettings::new(name, server.kubeconfig()) }
}

/// The cluster and the name of each item.
fn marked(list: &Value) -> Vec<(String, String)> {
    let text = |item: &Value| item.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    let of =
        |item: &Value| (text(&item["metadata"]["annotations"]["keelson.io/cluster"]), text(&item["metadata"]["name"]));
    items.map(of).collect()
}

/// Walks through a list in chunks.
async fn walk(gateway: &Gateway, query: &str, limit: usize) -> Vec<(String, String)> {
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let page = gateway.get(all(&format!("?limit={limit}{query}{token}"))).await.expect(200).json();
        found.extend(marked(&page));
        let Some(next) = page["metadata"]["continue"].as_str() else { return found };
        token = format!("&continue={next}");
    }
}

async fn fleet(one: &TestServer, two: &TestServer) -> Gateway {
    let gateway = Gateway::of(vec![settings("two", two), settings("one", one)]).await;
    gateway.loaded().await;
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_over_all_clusters_is_one_list() {
    let (one, two) = (source().start().await, source().start().await);
    create_maps(&one, "data", 30).await;
    create_maps(&two, "data", 20).await;
    let gateway = fleet(&one, &two).await;
    let whole = gateway.get(all("")).await.expect(200);
    assert_eq!((whole.header("keelson-total-count"), whole.header(MISSING)), ("50", ""));
    let whole = marked(&whole.json());
    let of = |cluster: &str, count: usize| {
        let cluster = cluster.to_owned();
        (0..count).map(move |number| (cluster.clone(), format!("m{number:04}")))
    };
    assert_eq!(whole, of("one", 30).chain(of("two", 20)).collect::<Vec<_>>());
    assert_eq!(walk(&gateway, "", 7).await, whole);

    // Sorted, filtered and searched lists have the objects of both in one order.
    let rank = |number: usize| (number * 7919) % 10_000;
    let mut sorted: Vec<_> = (0..30).map(|n| (rank(n), "one", n)).chain((0..20).map(|n| (rank(n), "two", n))).collect();
    sorted.sort_unstable();
    let sorted: Vec<_> = sorted.into_iter().map(|(_, cluster, n)| (cluster.to_owned(), format!("m{n:04}"))).collect();
    assert_eq!(walk(&gateway, "&keelson.io/sortBy=data.rank", 9).await, sorted);
    let page = gateway.get(all("?limit=12&keelson.io/page=3&keelson.io/sortBy=data.rank")).await.expect(200);
    assert_eq!(marked(&page.json()), sorted[24..36]);
    assert_eq!(page.json()["metadata"]["remainingItemCount"], 14);
    let last = gateway.get(all("?limit=12&keelson.io/page=9")).await.expect(200);
    assert_eq!((marked(&last.json()).len(), last.header("keelson-total-count")), (0, "50"));
    for query in [
        "labelSelector=third%3Dtrue&keelson.io/sortBy=-metadata.name",
        "keelson.io/search=m0007",
        "keelson.io/filter=data.rank+%3E+'5000'&keelson.io/sortBy=metadata.name",
        "keelson.io/where=object.data.text.endsWith('7')",
        "fieldSelector=metadata.name%3Dm0003",
    ] {
        let merged = marked(&gateway.get(all(&format!("?{query}"))).await.expect(200).json());
        let mut parts = Vec::new();
        for cluster in ["one", "two"] {
            let list = gateway.get(format!("/clusters/{cluster}{MAPS}?{query}")).await.expect(200).json();
            parts.extend(names(&list).into_iter().map(|name| (cluster.to_owned(), name)));
        }
        assert!(!parts.is_empty(), "{query}");
        let mut unordered = merged.clone();
        unordered.sort();
        parts.sort();
        assert_eq!(unordered, parts, "{query}");
        assert_eq!(walk(&gateway, &format!("&{query}"), 3).await, merged, "{query}");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_over_all_clusters_have_groups_tables_and_selections_of_clusters() {
    let (one, two) = (source().start().await, source().start().await);
    create_maps(&one, "data", 6).await;
    create_maps(&two, "data", 3).await;
    let gateway = fleet(&one, &two).await;
    let groups = gateway.get(all("?keelson.io/groupBy=.metadata.labels.third")).await.expect(200).json();
    assert_eq!(groups["values"], json!([{"value": "false", "count": 6}, {"value": "true", "count": 3}]));
    let by_cluster = all("?keelson.io/groupBy=.metadata.annotations['keelson.io/cluster']&labelSelector=third%3Dfalse");
    let groups = gateway.get(by_cluster).await.expect(200).json();
    assert_eq!(groups["values"], json!([{"value": "one", "count": 4}, {"value": "two", "count": 2}]));
    let table = gateway.get(all("?limit=8&keelson.io/sortBy=-metadata.name")).header("accept", TABLE).await;
    let table = table.expect(200).json();
    assert_eq!(
        (&table["columnDefinitions"][0]["name"], &table["columnDefinitions"][1]["name"]),
        (&json!("Cluster"), &json!("Name"))
    );
    let cells: Vec<_> =
        table["rows"].as_array().unwrap().iter().map(|row| (&row["cells"][0], &row["cells"][1])).collect();
    assert_eq!(cells.len(), 8);
    assert_eq!(
        cells[..4],
        [
            (&json!("one"), &json!("m0005")),
            (&json!("one"), &json!("m0004")),
            (&json!("one"), &json!("m0003")),
            (&json!("one"), &json!("m0002"))
        ]
    );
    assert_eq!(cells[4], (&json!("two"), &json!("m0002")));
    for (selector, expected) in
        [("env%3Dlive", "one"), ("env+in+(test)", "two"), ("kubernetes.io/metadata.name%3Dtwo", "two")]
    {
        let list = gateway.get(all(&format!("?keelson.io/clusterSelector={selector}"))).await.expect(200).json();
        assert!(marked(&list).iter().all(|(cluster, _)| cluster == expected), "{selector}");
    }
    gateway.get(all("?keelson.io/clusterSelector=env%3Dnone")).await.expect(400);
    let fields = gateway.get(all("?keelson.io/fields=data.rank&limit=1")).await.expect(200).json();
    assert!(fields["items"][0]["data"]["text"].is_null() && fields["items"][0]["data"]["rank"].is_string());
    // The name of the cluster is that of the gateway, whatever an object says.
    let spoofed = json!({"metadata": {"name": "spoofed", "annotations": {"keelson.io/cluster": "two", "a": "b"}}});
    one.raw().post(MAPS, &spoofed).await.expect(201);
    let list = gateway.get(all("?fieldSelector=metadata.name%3Dspoofed")).await.expect(200).json();
    assert_eq!(list["items"][0]["metadata"]["annotations"], json!({"keelson.io/cluster": "one", "a": "b"}));
    // A walk shows the state of its first page, and its resourceVersion leads to other pages of that state.
    let first = gateway.get(all("?limit=4")).await.expect(200).json();
    for server in [&one, &two] {
        server.raw().post(MAPS, &json!({"metadata": {"name": "a-late"}})).await.expect(201);
    }
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = gateway.get(all(&format!("?continue={token}"))).await.expect(200).json();
    assert!(marked(&rest).iter().all(|(_, name)| name != "a-late"));
    assert_eq!((marked(&rest).len(), marked(&gateway.get(all("")).await.expect(200).json()).len()), (6, 12));
    let at = first["metadata"]["resourceVersion"].as_str().unwrap();
    let page = all(&format!("?limit=4&keelson.io/page=2&resourceVersion={at}&resourceVersionMatch=Exact"));
    assert_eq!(marked(&gateway.get(page).await.expect(200).json()), marked(&rest)[..4]);
    for (call, code) in [
        (gateway.get(all("?watch=true")), 400),
        (gateway.get(all("/m0001")), 400),
        (as_user(gateway.raw().post(all(""), &json!({"metadata": {"name": "x"}})), "root"), 405),
        (as_user(gateway.raw().delete(all("")), "root"), 405),
        (gateway.get("/clusters/*/api/v1/nothings"), 404),
    ] {
        let answer = call.await;
        assert_eq!(answer.status, code, "{}", answer.text());
    }
    gateway.stop().await;
}

/// A text with another character at a place.
fn forged(token: &str, at: usize) -> String {
    let mut bytes = token.as_bytes().to_vec();
    bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_bound_to_its_user_list_and_clusters() {
    let (one, two) = (source().start().await, source().start().await);
    for server in [&one, &two] {
        create_maps(server, "data", 5).await;
        let_read(server, "ann", "data").await;
    }
    let gateway = fleet(&one, &two).await;
    let first = gateway.get_as("ann", all("?limit=2")).await.expect(200).json();
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let at = first["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    gateway.get_as("ann", all(&format!("?limit=9&continue={token}"))).await.expect(200);
    // A sealed text names no object, no cluster and no user.
    let readable = String::from_utf8_lossy(&base64_of(&token)).into_owned();
    assert!(!["m000", "one", "two", "ann"].iter().any(|word| readable.contains(word)), "{readable}");
    let refused = async |user: &str, path: String| {
        let answer = gateway.get_as(user, path.clone()).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        assert!(!answer.text().contains("m000"), "{}", answer.text());
    };
    for place in (0..token.len()).step_by(11) {
        refused("ann", all(&format!("?limit=2&continue={}", forged(&token, place)))).await;
    }
    refused("ann", all(&format!("?limit=2&continue={}", &token[..token.len() / 2]))).await;
    refused("root", all(&format!("?limit=2&continue={token}"))).await;
    refused("root", all(&format!("?resourceVersion={at}&resourceVersionMatch=Exact"))).await;
    refused("ann", all(&format!("?limit=2&labelSelector=a&continue={token}"))).await;
    refused("ann", all(&format!("?limit=2&keelson.io/sortBy=data.rank&continue={token}"))).await;
    refused("ann", all(&format!("?limit=2&keelson.io/clusterSelector=env&continue={token}"))).await;
    refused("ann", all(&format!("?limit=2&continue={at}"))).await;
    refused("ann", all(&format!("?resourceVersion={token}&resourceVersionMatch=Exact"))).await;
    refused("root", format!("/clusters/*/api/v1/configmaps?limit=2&continue={token}")).await;
    refused("root", format!("/clusters/one{MAPS}?limit=2&continue={token}")).await;
    // The token of one cluster is none of all.
    let own = gateway.get_as("ann", format!("/clusters/one{MAPS}?limit=2")).await.expect(200).json();
    let own = own["metadata"]["continue"].as_str().unwrap().to_owned();
    for unsealed in [own.as_str(), "eyJ4IjoxfQ"] {
        let foreign = gateway.get_as("ann", all(&format!("?limit=2&continue={unsealed}"))).await;
        assert!([400, 410].contains(&foreign.status), "{}", foreign.text());
    }
    // After a restart the mirrors have later states. The rest is that of the token's states, or is refused.
    let directory = gateway.stop().await;
    one.raw().delete(format!("{MAPS}/m0004")).await.expect(200);
    two.raw().delete(format!("{MAPS}/m0004")).await.expect(200);
    let gateway = Gateway::in_directory(directory, vec![settings("one", &one), settings("two", &two)]).await;
    gateway.loaded().await;
    gateway.get_as("ann", all("")).await.expect(200);
    let rest = gateway.get_as("ann", all(&format!("?limit=99&continue={token}"))).await;
    assert!(rest.status == 410 || rest.text().matches("\"m0004\"").count() == 2, "{}", rest.text());
    gateway.stop().await;
}

fn base64_of(token: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cluster_decides_about_its_own_objects_and_tokens() {
    let (one, two) = (source().start().await, source().start().await);
    create_maps(&one, "data", 3).await;
    create_maps(&two, "data", 5).await;
    let_read(&one, "ann", "data").await;
    let gateway = fleet(&one, &two).await;
    let only_one = |answer: Answer, reason: &str| {
        let answer = answer.expect(200);
        assert_eq!(answer.header("keelson-total-count"), "3");
        assert_eq!(answer.header(MISSING), format!("two={reason}"));
        assert!(answer.header("warning").contains("two"), "{}", answer.header("warning"));
        assert!(marked(&answer.json()).iter().all(|(cluster, _)| cluster == "one"));
    };
    only_one(gateway.get_as("ann", all("")).await, "forbidden");
    only_one(gateway.get_as("ann", all("?keelson.io/sortBy=-data.rank")).await, "forbidden");
    let groups = gateway.get_as("ann", all("?keelson.io/groupBy=metadata.name")).await.expect(200).json();
    assert_eq!(groups["totalValues"], 3);
    let complete = gateway.get_as("ann", all("?keelson.io/requireAll=true")).await;
    assert_eq!(complete.status, 503, "{}", complete.text());
    // A cluster gets the token that is meant for it, and no other.
    let own =
        |user: &str| gateway.raw().get(all("")).header("keelson-authorization-one", format!("Bearer {user}-token"));
    only_one(own("root").await, "unauthenticated");
    let both = own("root").also_header("keelson-authorization-two", "Bearer root-token").await.expect(200);
    assert_eq!(both.header("keelson-total-count"), "8");
    let mixed = own("root").also_header("keelson-authorization-two", "Bearer wrong").await;
    only_one(mixed, "unauthenticated");
    // A caller without rights gets no name, number or object.
    let nothing = |answer: Answer, codes: &[u16]| {
        assert!(codes.contains(&answer.status), "{} {}", answer.status, answer.text());
        for word in ["m000", "one", "two"] {
            assert!(!answer.text().contains(word), "{}", answer.text());
        }
        for header in ["keelson-total-count", MISSING, "keelson-lag", "warning"] {
            assert_eq!(answer.header(header), "", "{header}");
        }
    };
    nothing(gateway.raw().get(all("")).await, &[401]);
    nothing(gateway.raw().get(all("")).header("authorization", "Bearer wrong").await, &[401]);
    nothing(gateway.get_as("bob", all("")).await, &[403]);
    for (name, value) in [
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("impersonate-user", "root"),
        ("x-forwarded-user", "root"),
        ("keelson-authorization-", "Bearer root-token"),
    ] {
        nothing(as_user(gateway.raw().get(all("")), "bob").also_header(name, value).await, &[400, 403]);
    }
    for path in ["/clusters/*%2Fone/api", "/clusters/**/api/v1/configmaps", "/clusters/*api/v1/configmaps"] {
        let status = gateway.get(path).await.status;
        assert!([400, 401, 403, 404].contains(&status), "{path}: {status}");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_cluster_is_named_and_delays_no_request() {
    let (one, mut two) = (source().start().await, source().start().await);
    create_maps(&one, "data", 3).await;
    create_maps(&two, "data", 5).await;
    let gateway = fleet(&one, &two).await;
    let first = gateway.get(all("?limit=2")).await.expect(200).json();
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    two.stop().await;
    // While rights are known, the last state is shown as old.
    let stale = gateway.until(&all(""), |answer| answer.header("keelson-stale-clusters").contains("two=")).await;
    assert_eq!(stale.header("keelson-total-count"), "8");
    assert!(stale.header("warning").contains("two") && !stale.header("keelson-as-of").is_empty());
    // Rights that can't be known any more show nothing.
    let missing = gateway.until(&all(""), |answer| answer.header(MISSING).contains("two=")).await.expect(200);
    assert_eq!(missing.header("keelson-total-count"), "3");
    assert!(missing.header("warning").contains("two"));
    gateway.get(all("?keelson.io/requireAll=true")).await.expect(503);
    let rest = gateway.get(all(&format!("?limit=9&continue={token}"))).await.expect(200);
    assert!(rest.header(MISSING).contains("two=") && marked(&rest.json()).len() == 1);
    let begun = std::time::Instant::now();
    for _ in 0..10 {
        gateway.get(all("")).await.expect(200);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    gateway.stop().await;
}
