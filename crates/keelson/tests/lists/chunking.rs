//! Tests of chunked lists (KEP-365) over the wire, through the Rust client where it supports the request.
//!
//! The registry tests the invariants with generated histories. These tests cover the responses to clients.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::PodTemplate;
use keelson_testkit::{Endpoint, ProcessServer, Raw, TestServer};
use kube::api::{ListParams, ObjectList, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

const TEMPLATES: usize = 400;
const CHUNK: usize = 17;
/// The longest wait for the end of a window of one second.
const PATIENCE: Duration = Duration::from_secs(60);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates pod templates; every fifth is labelled.
async fn templates(server: &Endpoint) -> Api<PodTemplate> {
    let api: Api<PodTemplate> = Api::namespaced(server.client(), "default");
    let created = stream::iter(0..TEMPLATES).map(|number| {
        let labels = json!({"fifth": (number % 5 == 0).to_string()});
        let template = json!({
            "metadata": {"name": format!("template-{number:04}"), "labels": labels},
            "template": {"spec": {"containers": [{"name": "main", "image": "main"}]}},
        });
        let (api, template) = (api.clone(), serde_json::from_value(template).unwrap());
        async move { api.create(&PostParams::default(), &template).await.unwrap() }
    });
    assert_eq!(created.buffer_unordered(16).count().await, TEMPLATES);
    api
}

/// Reads a list in chunks and passes each to `check`, with the number of objects before it.
async fn walk(
    api: &Api<PodTemplate>,
    params: ListParams,
    mut check: impl FnMut(&ObjectList<PodTemplate>, usize),
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut params = params;
    let mut revision = None;
    loop {
        let page = api.list(&params).await.unwrap();
        let pinned = revision.get_or_insert_with(|| page.metadata.resource_version.clone());
        assert_eq!(*pinned, page.metadata.resource_version, "every chunk is at the revision of the first");
        assert!(params.limit.is_none_or(|limit| page.items.len() <= limit as usize));
        check(&page, found.len());
        found.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return found,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_hundred_pod_templates_by_seventeen_and_by_label() {
    let server = TestServer::start().await;
    let api = templates(&server).await;
    let everything: Vec<String> = (0..TEMPLATES).map(|number| format!("template-{number:04}")).collect();

    let found = walk(&api, ListParams::default().limit(CHUNK as u32), |page, found| {
        let remaining = page.metadata.remaining_item_count.unwrap_or(0);
        assert_eq!(remaining as usize + page.items.len() + found, TEMPLATES);
        assert_eq!(remaining > 0, page.metadata.continue_.is_some());
    })
    .await;
    assert_eq!(found, everything);
    // The list without chunks is equal.
    assert_eq!(
        walk(&api, ListParams::default(), |page, _| assert!(page.metadata.continue_.is_none())).await,
        everything
    );

    let labelled = ListParams::default().labels("fifth=true").limit(CHUNK as u32);
    let found = walk(&api, labelled, |page, _| {
        assert_eq!(page.metadata.remaining_item_count, None, "the rest of a selection is not counted");
    })
    .await;
    assert_eq!(found, everything.iter().step_by(5).cloned().collect::<Vec<_>>());

    // With resourceVersion 0 and no resourceVersionMatch the limit is ignored: informers send one and rely on this.
    let path = format!("/api/v1/namespaces/default/podtemplates?resourceVersion=0&limit={CHUNK}");
    let page = server.raw().get(path).await.expect(200).json();
    assert_eq!(page["items"].as_array().unwrap().len(), TEMPLATES);
    assert!(page["metadata"].get("continue").is_none(), "{}", page["metadata"]);
}

#[tokio::test]
async fn a_chunked_list_shows_the_objects_of_its_revision() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create(&raw, CONFIG_MAPS, 0..12).await;
    let whole = raw.get(CONFIG_MAPS).await.expect(200).json();
    let (mut found, mut path) = (Vec::new(), format!("{CONFIG_MAPS}?limit=5"));
    for round in 0.. {
        let page = raw.get(path).await.expect(200).json();
        found.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(token) = page["metadata"]["continue"].as_str() else { break };
        path = format!("{CONFIG_MAPS}?limit=5&continue={token}");
        raw.delete(format!("{CONFIG_MAPS}/object-{:02}", 11 - round)).await.expect(200);
        raw.patch(
            format!("{CONFIG_MAPS}/object-05"),
            "application/merge-patch+json",
            &json!({"data": {"round": round.to_string()}}),
        )
        .await
        .expect(200);
        create(&raw, CONFIG_MAPS, 90 + round..91 + round).await;
    }
    assert_eq!(found, *whole["items"].as_array().unwrap());
}

/// In kube-apiserver such a list loses some objects and repeats others.
#[tokio::test]
async fn a_namespace_selected_over_all_namespaces_is_walked_whole() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let namespaces = ["aaa", "mmm", "zzz"];
    for namespace in namespaces {
        raw.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.expect(201);
        create(&raw, &format!("/api/v1/namespaces/{namespace}/configmaps"), 0..5).await;
    }
    for namespace in namespaces {
        let selected = format!("/api/v1/configmaps?fieldSelector=metadata.namespace%3D{namespace}");
        let pages = pages(&raw, &format!("{selected}&limit=2")).await;
        assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        let whole = raw.get(selected).await.expect(200).json();
        assert_eq!(pages.concat(), *whole["items"].as_array().unwrap());
    }
}

/// Waits until a token is too old, and returns the error.
async fn until_expired(raw: &Raw, token: &str) -> Value {
    let expired = async {
        loop {
            let answer = raw.get(format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
            match answer.status {
                200 => tokio::time::sleep(Duration::from_millis(20)).await,
                _ => break answer.expect(410).json(),
            }
        }
    };
    let gone = tokio::time::timeout(PATIENCE, expired).await.expect("a token ends with the window");
    assert_eq!(gone["reason"], "Expired");
    gone
}

#[tokio::test]
async fn expired_lists_continue_with_the_token_of_the_error() {
    let server = TestServer::builder().history(Duration::from_secs(1)).start().await;
    let raw = server.raw();
    create(&raw, CONFIG_MAPS, 0..6).await;
    let first = raw.get(format!("{CONFIG_MAPS}?limit=2")).await.expect(200).json();
    let old = first["metadata"]["continue"].as_str().unwrap().to_owned();
    raw.delete(format!("{CONFIG_MAPS}/object-03")).await.expect(200);
    let gone = until_expired(&raw, &old).await;
    let token = gone["metadata"]["continue"].as_str().unwrap();
    let rest = pages(&raw, &format!("{CONFIG_MAPS}?limit=2&continue={token}")).await.concat();
    let names: Vec<&str> = rest.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["object-02", "object-04", "object-05"], "from the same key on, as it is now");
}

/// A revision expires by age, even without a change since, so that clients do not rely on more. But a watch from that
/// revision misses nothing.
async fn check_window_without_changes(server: TestServer) {
    let raw = server.raw();
    create(&raw, CONFIG_MAPS, 0..6).await;
    let first = raw.get(format!("{CONFIG_MAPS}?limit=2")).await.expect(200).json();
    let old = first["metadata"]["continue"].as_str().unwrap();
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    // A write elsewhere advances the revision.
    let secret = json!({"metadata": {"name": "elsewhere"}});
    raw.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    let gone = until_expired(&raw, old).await;
    let exact = raw.get(format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")).await;
    assert_eq!(exact.expect(410).json()["reason"], "Expired");
    let token = gone["metadata"]["continue"].as_str().unwrap();
    let rest = pages(&raw, &format!("{CONFIG_MAPS}?limit=2&continue={token}")).await.concat();
    assert_eq!(rest.len(), 4);
    let mut watch = raw.get(format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}")).stream().await;
    create(&raw, CONFIG_MAPS, 6..7).await;
    assert_eq!(watch.next_json().await.unwrap()["type"], "ADDED");
}

#[tokio::test]
async fn a_walk_ends_with_the_window_though_nothing_has_changed() {
    let builder = || TestServer::builder().history(Duration::from_secs(1));
    check_window_without_changes(builder().start().await).await;
    check_window_without_changes(builder().sqlite().start().await).await;
}

/// A collection with 6 objects at one revision and 9 at the next.
struct Two {
    raw: Raw,
    old: String,
    new: String,
}

#[tokio::test]
async fn list_options_in_all_combinations() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create(&raw, CONFIG_MAPS, 0..6).await;
    let old = resource_version(&raw).await;
    create(&raw, CONFIG_MAPS, 6..9).await;
    let new = resource_version(&raw).await;
    let two = Two { raw, old, new };
    for version in [None, Some("0"), Some(&*two.old), Some(&*two.new)] {
        for rule in [None, Some("NotOlderThan"), Some("Exact")] {
            for (limit, selected) in [(None, false), (Some(4), false), (None, true), (Some(4), true)] {
                two.check(version, rule, limit, selected).await;
            }
        }
    }
}

impl Two {
    /// Checks the revision of a list, and if it is limited (Kubernetes API concepts, "resource versions").
    async fn check(&self, version: Option<&str>, rule: Option<&str>, limit: Option<usize>, selected: bool) {
        let mut query = version.map(|version| format!("&resourceVersion={version}")).unwrap_or_default();
        query += &rule.map(|rule| format!("&resourceVersionMatch={rule}")).unwrap_or_default();
        query += &limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
        query += if selected { "&labelSelector=even%3Dtrue" } else { "" };
        let answer = self.raw.get(format!("{CONFIG_MAPS}?{query}")).await;
        if (version, rule) == (Some("0"), Some("Exact")) || version.is_none() && rule.is_some() {
            answer.expect(422);
            return;
        }
        // Before resourceVersionMatch existed, a limited list at a revision meant exactly that one.
        let exact = rule == Some("Exact") || rule.is_none() && limit.is_some();
        let (at, objects) = if exact && version == Some(&self.old) { (&self.old, 6) } else { (&self.new, 9usize) };
        let total = if selected { objects.div_ceil(2) } else { objects };
        let cut = limit.filter(|limit| *limit < total && (version, rule) != (Some("0"), None));
        let page = answer.expect(200).json();
        assert_eq!(page["metadata"]["resourceVersion"], **at, "{query}");
        assert_eq!(page["items"].as_array().unwrap().len(), cut.unwrap_or(total), "{query}");
        assert_eq!(page["metadata"]["continue"].is_string(), cut.is_some(), "{query}");
        let remaining = cut.filter(|_| !selected).map(|limit| (total - limit) as u64);
        assert_eq!(page["metadata"]["remainingItemCount"].as_u64(), remaining, "{query}");
    }
}

async fn resource_version(raw: &Raw) -> String {
    let list = raw.get(CONFIG_MAPS).await.expect(200).json();
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

async fn with_flag(flag: &str) -> ProcessServer {
    ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).arg("--store").arg("memory:").arg(flag).start().await
}

#[tokio::test]
async fn the_feature_gate_turns_chunks_off_everywhere() {
    let server = with_flag("--feature-gates=APIListChunking=false").await;
    let raw = server.raw();
    create(&raw, CONFIG_MAPS, 0..6).await;
    let whole = raw.get(CONFIG_MAPS).await.expect(200).json();
    // The last token is valid but belongs to another list, the other one is invalid.
    let sound = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIvb2JqZWN0LTAyXHUwMDAwIn0";
    for query in ["limit=2", "limit=2&continue=nonsense", &format!("continue={sound}")] {
        let answer = raw.get(format!("{CONFIG_MAPS}?{query}")).await.expect(200).json();
        assert_eq!(answer, whole, "{query}");
    }
}

#[tokio::test]
async fn named_resources_are_never_chunked_and_others_are() {
    let server = with_flag("--no-chunking=secrets,roles.rbac.authorization.k8s.io").await;
    let raw = server.raw();
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    for (path, chunked) in [("/api/v1/namespaces/default/secrets", false), (roles, false), (CONFIG_MAPS, true)] {
        create(&raw, path, 0..5).await;
        let page = raw.get(format!("{path}?limit=2")).await.expect(200).json();
        assert_eq!(page["items"].as_array().unwrap().len(), if chunked { 2 } else { 5 }, "{path}");
        assert_eq!(page["metadata"]["continue"].is_string(), chunked, "{path}");
        assert_eq!(page["metadata"]["remainingItemCount"].is_u64(), chunked, "{path}");
        let paths: BTreeSet<usize> = pages(&raw, &format!("{path}?limit=2")).await.iter().map(Vec::len).collect();
        assert_eq!(paths, if chunked { [1, 2].into() } else { [5].into() }, "{path}");
    }
}

#[tokio::test]
async fn a_collection_is_deleted_by_chunks() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create(&raw, CONFIG_MAPS, 0..5).await;
    let dry = raw.delete(format!("{CONFIG_MAPS}?limit=2&dryRun=All")).await.expect(200).json();
    let deleted = raw.delete(format!("{CONFIG_MAPS}?limit=2")).await.expect(200).json();
    for page in [&dry, &deleted] {
        assert_eq!(page["items"].as_array().unwrap().len(), 2, "{page}");
        assert_eq!(page["metadata"]["remainingItemCount"], 3, "{page}");
    }
    // The remaining objects start at the token.
    let token = deleted["metadata"]["continue"].as_str().unwrap();
    let left = raw.get(format!("{CONFIG_MAPS}?continue={token}")).await.expect(200).json();
    assert_eq!(left["items"], raw.get(CONFIG_MAPS).await.expect(200).json()["items"]);
    let rest = raw.delete(CONFIG_MAPS).await.expect(200).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 3);
    assert_eq!(rest["metadata"].get("continue"), None, "{rest}");
}

async fn create(raw: &Raw, path: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let labels = json!({"even": (number % 2 == 0).to_string()});
        raw.post(path, &json!({"metadata": {"name": format!("object-{number:02}"), "labels": labels}}))
            .await
            .expect(201);
    }
}

/// The objects of each chunk of a list.
async fn pages(raw: &Raw, path: &str) -> Vec<Vec<Value>> {
    let base = path.split("&continue=").next().unwrap();
    let (mut pages, mut next) = (Vec::new(), path.to_owned());
    loop {
        let page = raw.get(next).await.expect(200).json();
        pages.push(page["items"].as_array().unwrap().clone());
        match page["metadata"]["continue"].as_str() {
            Some(token) => next = format!("{base}&continue={token}"),
            None => return pages,
        }
    }
}
