//! Tests of the Rust client: typed objects, informers in both modes, and their metrics.
//!
//! Most programs in Rust use this client.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::time::Duration;

use flate2::read::{GzDecoder, MultiGzDecoder};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, PodTemplate};
use keelson_testkit::{Raw, TestServer};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, VersionMatch, WatchEvent, WatchParams,
};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// The longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(60);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str, tier: &str) -> ConfigMap {
    typed(json!({"metadata": {"name": name, "labels": {"tier": tier}}, "data": {"tier": tier}}))
}

fn pod(name: &str, node: &str) -> Pod {
    typed(
        json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "main", "image": "a"}]}}),
    )
}

fn typed<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn names<'a, K: ResourceExt + 'a>(objects: impl IntoIterator<Item = &'a K>) -> Vec<String> {
    objects.into_iter().map(ResourceExt::name_any).collect()
}

/// Code and message of a refused request.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.reason),
        other => panic!("no answer of the server: {other}"),
    }
}

#[tokio::test]
async fn typed_objects_are_created_read_replaced_patched_and_deleted() {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let created = api.create(&PostParams::default(), &config_map("settings", "web")).await.unwrap();
    assert_eq!(api.get("settings").await.unwrap(), created);
    assert!(created.metadata.uid.is_some() && created.metadata.creation_timestamp.is_some());
    assert_eq!(
        refusal(api.create(&PostParams::default(), &config_map("settings", "db")).await),
        (409, "AlreadyExists".to_owned())
    );

    let mut next = created.clone();
    next.data = Some(BTreeMap::from([("colour".to_owned(), "red".to_owned())]));
    let replaced = api.replace("settings", &PostParams::default(), &next).await.unwrap();
    assert_eq!(replaced.data, next.data);
    assert_ne!(replaced.resource_version(), created.resource_version());
    assert_eq!(refusal(api.replace("settings", &PostParams::default(), &next).await), (409, "Conflict".to_owned()));

    let merge = Patch::Merge(json!({"data": {"size": "1"}}));
    let patched = api.patch("settings", &PatchParams::default(), &merge).await.unwrap();
    assert_eq!(patched.data.unwrap().len(), 2);
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    api.patch("settings", &dry, &Patch::Merge(json!({"data": null}))).await.unwrap();
    assert_eq!(api.get("settings").await.unwrap().data.unwrap().len(), 2);

    let stale = Preconditions { uid: created.uid(), resource_version: created.resource_version() };
    assert_eq!(
        refusal(api.delete("settings", &DeleteParams::default().preconditions(stale)).await),
        (409, "Conflict".to_owned())
    );
    let current = Preconditions { uid: created.uid(), resource_version: None };
    let status = api.delete("settings", &DeleteParams::default().preconditions(current)).await.unwrap().unwrap_right();
    assert!(status.is_success(), "{status:?}");
    assert_eq!(refusal(api.get("settings").await), (404, "NotFound".to_owned()));
    assert_eq!(api.get_opt("settings").await.unwrap(), None);
}

#[tokio::test]
async fn a_status_and_the_rest_of_an_object_are_written_apart() {
    let server = TestServer::start().await;
    let api: Api<Pod> = Api::default_namespaced(server.client());
    api.create(&PostParams::default(), &pod("one", "node-1")).await.unwrap();
    let running = Patch::Merge(json!({"status": {"phase": "Running"}, "spec": {"nodeName": "ignored"}}));
    let patched = api.patch_status("one", &PatchParams::default(), &running).await.unwrap();
    assert_eq!(patched.status.unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(patched.spec.unwrap().node_name.as_deref(), Some("node-1"));
    assert_eq!(names(&api.list(&ListParams::default().fields("status.phase=Running")).await.unwrap()), ["one"]);
    assert_eq!(names(&api.list(&ListParams::default().fields("spec.nodeName=node-2")).await.unwrap()), [""; 0]);
}

#[tokio::test]
async fn chunks_are_walked_at_one_revision_and_a_version_can_be_requested() {
    let server = TestServer::start().await;
    let api: Api<PodTemplate> = Api::namespaced(server.client(), "default");
    for number in 0..20 {
        let template = typed(
            json!({"metadata": {"name": format!("template-{number:02}")}, "template": {"spec": {"containers": [{"name": "main", "image": "a"}]}}}),
        );
        api.create(&PostParams::default(), &template).await.unwrap();
    }
    let first = api.list(&ListParams::default().limit(8)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(12));
    let revision = first.metadata.resource_version.clone().unwrap();
    api.delete("template-19", &DeleteParams::default()).await.unwrap();
    let token = first.metadata.continue_.clone().unwrap();
    let rest = api.list(&ListParams::default().limit(100).continue_token(&token)).await.unwrap();
    assert_eq!((rest.items.len(), rest.metadata.resource_version.as_ref()), (12, Some(&revision)));

    let then = ListParams::default().at(&revision).matching(VersionMatch::Exact);
    assert_eq!(api.list(&then).await.unwrap().items.len(), 20);
    let since = ListParams::default().at(&revision).matching(VersionMatch::NotOlderThan).limit(5);
    assert_eq!(api.list(&since).await.unwrap().metadata.remaining_item_count, Some(14));
    let any = api.list(&ListParams::default().match_any().limit(5)).await.unwrap();
    assert_eq!((any.items.len(), any.metadata.remaining_item_count), (5, Some(14)), "a stated match honours the limit");
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    for (name, tier) in [("a", "web"), ("b", "db"), ("c", "web")] {
        api.create(&PostParams::default(), &config_map(name, tier)).await.unwrap();
    }
    let selected = ListParams::default().labels("tier=web");
    api.delete_collection(&DeleteParams::default(), &selected).await.unwrap();
    assert_eq!(names(&api.list(&ListParams::default()).await.unwrap()), ["b"]);
}

/// An informer with its state.
struct Informer {
    events: BoxStream<'static, watcher::Result<Event<ConfigMap>>>,
    known: BTreeMap<String, ConfigMap>,
    relists: usize,
}

impl Informer {
    fn start(client: Client, config: watcher::Config) -> Self {
        let events = watcher::watcher(Api::namespaced(client, "default"), config).boxed();
        Self { events, known: BTreeMap::new(), relists: 0 }
    }

    /// Follows the events until the state is as expected: names and tiers.
    async fn expect(&mut self, expected: &[(&str, &str)]) {
        let expected: BTreeSet<(String, String)> =
            expected.iter().map(|(name, tier)| ((*name).to_owned(), (*tier).to_owned())).collect();
        let reached = tokio::time::timeout(PATIENCE, async {
            while self.tiers() != expected {
                let event = self.events.next().await.expect("an informer never ends");
                self.apply(event);
            }
        });
        let timely = reached.await.is_ok();
        assert!(timely, "expected {expected:?}, known {:?}", self.tiers());
    }

    fn apply(&mut self, event: watcher::Result<Event<ConfigMap>>) {
        match event {
            Ok(Event::Init) => {
                self.relists += 1;
                self.known.clear();
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => _ = self.known.insert(object.name_any(), object),
            Ok(Event::Delete(object)) => _ = self.known.remove(&object.name_any()),
            // The informer retries a failed request.
            Ok(Event::InitDone) | Err(_) => {}
        }
    }

    fn tiers(&self) -> BTreeSet<(String, String)> {
        self.known.iter().map(|(name, object)| (name.clone(), object.labels()["tier"].clone())).collect()
    }
}

async fn check_informer(config: watcher::Config) {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &config_map(name, "web")).await.unwrap();
    }
    let mut informer = Informer::start(server.client(), config);
    informer.expect(&[("a", "web"), ("b", "web"), ("c", "web")]).await;
    api.create(&PostParams::default(), &config_map("d", "web")).await.unwrap();
    let label = |tier: &str| Patch::Merge(json!({"metadata": {"labels": {"tier": tier}}}));
    api.patch("a", &PatchParams::default(), &label("db")).await.unwrap();
    api.delete("b", &DeleteParams::default()).await.unwrap();
    informer.expect(&[("a", "db"), ("c", "web"), ("d", "web")]).await;
    assert_eq!(informer.relists, 1);
}

#[tokio::test]
async fn an_informer_that_lists_in_chunks_sees_every_change() {
    check_informer(watcher::Config::default().page_size(2)).await;
}

#[tokio::test]
async fn an_informer_that_lists_at_any_version_sees_every_change() {
    check_informer(watcher::Config::default().any_semantic()).await;
}

#[tokio::test]
async fn an_informer_that_streams_its_list_sees_every_change() {
    check_informer(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn informers_drop_objects_that_leave_their_selector() {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        for (name, tier) in [("a", "web"), ("b", "db")] {
            api.create(&PostParams::default(), &config_map(name, tier)).await.unwrap();
        }
        let mut informer = Informer::start(server.client(), config.labels("tier=web"));
        informer.expect(&[("a", "web")]).await;
        let label = |tier: &str| Patch::Merge(json!({"metadata": {"labels": {"tier": tier}}}));
        api.patch("b", &PatchParams::default(), &label("web")).await.unwrap();
        informer.expect(&[("a", "web"), ("b", "web")]).await;
        api.patch("a", &PatchParams::default(), &label("db")).await.unwrap();
        informer.expect(&[("b", "web")]).await;
        api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn informers_list_again_after_their_revision_is_compacted() {
    let mut server = TestServer::builder().history(Duration::from_millis(500)).sqlite().start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    api.create(&PostParams::default(), &config_map("a", "web")).await.unwrap();
    let mut informer = Informer::start(server.client(), watcher::Config::default().disable_bookmarks());
    informer.expect(&[("a", "web")]).await;
    // While the informer pauses, its watch ends and its revision is compacted.
    let seen = api.get("a").await.unwrap().resource_version().unwrap();
    server.restart().await;
    let raw = server.raw();
    raw.post(CONFIG_MAPS, &json!({"metadata": {"name": "b", "labels": {"tier": "db"}}})).await.expect(201);
    raw.delete(format!("{CONFIG_MAPS}/a")).await.expect(200);
    until_expired(&raw, &seen).await;
    informer.expect(&[("b", "db")]).await;
    assert_eq!(informer.relists, 2);
}

/// Waits until a watch from a revision is refused.
async fn until_expired(raw: &Raw, revision: &str) {
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1&resourceVersion={revision}");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        // A watch without history reports that in an event, or in its status if known beforehand.
        let mut watch = raw.get(&path).stream().await;
        match watch.next_json().await {
            Some(event) if event["object"]["code"] == 410 || event["code"] == 410 => return,
            _ => assert!(tokio::time::Instant::now() < deadline, "revision {revision} can still be watched"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_watch_of_one_node_sees_the_pods_of_that_node() {
    let server = TestServer::start().await;
    let api: Api<Pod> = Api::default_namespaced(server.client());
    let params = WatchParams::default().fields("spec.nodeName=node-1").disable_bookmarks().timeout(60);
    let revision = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut watch = api.watch(&params, &revision).await.unwrap().boxed();
    for (name, node) in [("a", "node-2"), ("b", "node-1"), ("c", "node-2")] {
        api.create(&PostParams::default(), &pod(name, node)).await.unwrap();
    }
    api.delete("c", &DeleteParams::default()).await.unwrap();
    // There is no kubelet to end it.
    api.delete("b", &DeleteParams::default().grace_period(0)).await.unwrap();
    let mut seen = Vec::new();
    while seen.last() != Some(&"DELETED b".to_owned()) {
        let next = tokio::time::timeout(PATIENCE, watch.try_next()).await.unwrap().unwrap();
        match next.expect("the watch continues") {
            WatchEvent::Added(pod) => seen.push(format!("ADDED {}", pod.name_any())),
            WatchEvent::Deleted(pod) => seen.push(format!("DELETED {}", pod.name_any())),
            WatchEvent::Modified(_) => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!(seen, ["ADDED b", "DELETED b"]);
}

#[tokio::test]
async fn a_quiet_watch_gets_bookmarks() {
    let server = TestServer::builder()
        .configure(|config| config.registry.bookmark_interval = Duration::from_millis(50))
        .start()
        .await;
    let api: Api<Pod> = Api::default_namespaced(server.client());
    let mut watch = api.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let written = maps.create(&PostParams::default(), &config_map("elsewhere", "web")).await.unwrap();
    let written: u64 = written.resource_version().unwrap().parse().unwrap();
    loop {
        let next = tokio::time::timeout(PATIENCE, watch.try_next()).await.unwrap().unwrap();
        let WatchEvent::Bookmark(bookmark) = next.expect("the watch continues") else { panic!("there are no pods") };
        if bookmark.metadata.resource_version.parse::<u64>().unwrap() >= written {
            break;
        }
    }
}

#[tokio::test]
async fn lists_that_end_in_410_are_counted() {
    let server = TestServer::builder().history(Duration::from_millis(300)).start().await;
    let raw = server.raw();
    for number in 0..3 {
        raw.post(CONFIG_MAPS, &json!({"metadata": {"name": format!("map-{number}")}})).await.expect(201);
    }
    let first = raw.get(format!("{CONFIG_MAPS}?limit=1")).await.expect(200).json();
    let path = format!("{CONFIG_MAPS}?limit=1&continue={}", first["metadata"]["continue"].as_str().unwrap());
    raw.delete(format!("{CONFIG_MAPS}/map-2")).await.expect(200);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while raw.get(&path).await.status != 410 {
        assert!(tokio::time::Instant::now() < deadline, "the token never ends");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    raw.get(&path).await.expect(410);
    let metrics = raw.get("/metrics").await.expect(200).text();
    let line =
        metrics.lines().find(|line| line.starts_with("apiserver_request_total{") && line.contains("code=\"410\""));
    let line = line.unwrap_or_else(|| panic!("no 410 in:\n{metrics}"));
    for label in ["verb=\"LIST\"", "resource=\"configmaps\"", "scope=\"namespace\"", "version=\"v1\""] {
        assert!(line.contains(label), "{label} of {line}");
    }
    assert!(line.ends_with(" 2"), "{line}");
}

#[tokio::test]
async fn large_responses_are_one_gzip_member_and_small_ones_plain() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let small = raw.get(CONFIG_MAPS).header("accept-encoding", "gzip").await.expect(200);
    assert_eq!(small.header("content-encoding"), "");
    for number in 0..40 {
        let body = json!({"metadata": {"name": format!("map-{number:02}")}, "data": {"text": "keel ".repeat(1000)}});
        raw.post(CONFIG_MAPS, &body).await.expect(201);
    }
    let plain = raw.get(CONFIG_MAPS).await.expect(200);
    assert!(plain.body.len() > 128 * 1024);
    for raw in [server.raw(), server.raw().http2()] {
        for query in ["", "?limit=40", "?limit=35", "?labelSelector=!none"] {
            let path = format!("{CONFIG_MAPS}{query}");
            let packed = raw.get(&path).header("accept-encoding", "gzip").await.expect(200);
            assert_eq!(packed.header("content-encoding"), "gzip", "{path}");
            let (mut first, mut all) = (Vec::new(), Vec::new());
            GzDecoder::new(&packed.body[..]).read_to_end(&mut first).unwrap();
            MultiGzDecoder::new(&packed.body[..]).read_to_end(&mut all).unwrap();
            assert_eq!(first, all, "{path}: more than one member");
            let identity = raw.get(&path).await.expect(200);
            assert_eq!(identity.header("content-encoding"), "");
            // Tokens hold nothing that differs between two requests at one revision.
            assert!(first == identity.body, "{path}: other bytes than without compression");
        }
    }
}

#[tokio::test]
async fn both_protocols_carry_many_requests_at_once() {
    let server = TestServer::start().await;
    for (protocol, raw) in [("http1", server.raw()), ("http2", server.raw().http2())] {
        let create = |number: usize| {
            let raw = raw.clone();
            let body = json!({"metadata": {"name": format!("{protocol}-{number}")}});
            async move { raw.post(CONFIG_MAPS, &body).await.expect(201).json() }
        };
        let created: Vec<Value> = futures::future::join_all((0..20).map(create)).await;
        let revisions: BTreeSet<&str> =
            created.iter().map(|object| object["metadata"]["resourceVersion"].as_str().unwrap()).collect();
        assert_eq!(revisions.len(), 20, "each write has a revision of its own");
    }
    let listed = server.raw().http2().get(CONFIG_MAPS).await.expect(200).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 40);
}

#[tokio::test]
async fn a_stopping_server_ends_watches_and_comes_back_with_everything() {
    let mut server = TestServer::builder().sqlite().start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    api.create(&PostParams::default(), &config_map("kept", "web")).await.unwrap();
    let mut watch = server.raw().get(format!("{CONFIG_MAPS}?watch=true&resourceVersion=0")).stream().await;
    assert_eq!(watch.next_json().await.unwrap()["type"], "ADDED");
    let ((), end) = tokio::join!(server.restart(), watch.next_chunk());
    assert_eq!(end.expect("the stream is ended, not broken"), None);
    assert_eq!(api.get("kept").await.unwrap().data.unwrap()["tier"], "web");
    assert_eq!(server.raw().get("/readyz").await.expect(200).text(), "ok");
}

#[tokio::test]
async fn a_namespace_lives_until_its_content_is_gone() {
    let server = TestServer::start().await;
    let namespaces: Api<Namespace> = Api::all(server.client());
    namespaces.create(&PostParams::default(), &typed(json!({"metadata": {"name": "team"}}))).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "team");
    let mut held = config_map("held", "web");
    held.metadata.finalizers = Some(vec!["example.com/held".to_owned()]);
    maps.create(&PostParams::default(), &held).await.unwrap();
    let deleted = namespaces.delete("team", &DeleteParams::default()).await.unwrap().unwrap_left();
    assert_eq!(deleted.status.unwrap().phase.as_deref(), Some("Terminating"));
    let late = maps.create(&PostParams::default(), &config_map("late", "web")).await;
    assert_eq!(refusal(late), (403, "Forbidden".to_owned()));
    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &released).await.unwrap();
    let gone = async {
        while namespaces.get_opt("team").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}
