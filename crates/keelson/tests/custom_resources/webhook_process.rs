//! Tests of a conversion webhook in a process of its own, which dies during a list, is gone, hangs, returns invalid
//! data, and recovers. Only requests that need it fail; in each state everything else still works.

use keelson_testkit::{HookProcess, HookReply, HookRequest, Raw, TestServer, hook_process};
use serde_json::{Value, json};

use super::webhooks::{GROUP, converted, place, with_field};
use super::{DEFINITIONS, MERGE, condition, definition, establish, version};

/// More than two pages: one of them is converted before a list starts.
const HOSTS: usize = 1_100;
/// The number of clients that create them.
const MAKING: usize = 8;

/// Runs the webhook, if this program was started as its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_converts() {
    hook_process(answer).await;
}

/// Converts reviews. For reviews with one object, the current order sets the result: `hangs at h1099`, `lies at h0500`.
fn answer(mood: &str, request: &HookRequest) -> HookReply {
    let mut review = converted(&request.body);
    let objects = review["response"]["convertedObjects"].as_array_mut().unwrap();
    let (mood, name) = mood.split_once(" at ").unwrap_or_default();
    if let Some(object) = objects.iter_mut().find(|object| object["metadata"]["name"] == name) {
        match mood {
            "hangs" => return HookReply::Hangs,
            "lies" => object["metadata"]["name"] = json!("other"),
            _ => {}
        }
    }
    HookReply::Json(review)
}

struct Hosts {
    server: TestServer,
    raw: Raw,
    hook: HookProcess,
    /// The current number of objects.
    count: usize,
}

impl Hosts {
    async fn open() -> Self {
        let hook = HookProcess::start("webhook_process::the_process_that_converts").await;
        let server = TestServer::builder().sqlite().start().await;
        let raw = server.raw().http2();
        let text = json!({ "type": "string" });
        let versions = json!([
            with_field("v1", true, json!({ "host": text })),
            with_field("v2", false, json!({ "address": text })),
        ]);
        let mut hosts = definition(GROUP, "hosts", "Host", versions);
        let client = json!({ "url": hook.url("/convert"), "caBundle": hook.ca_bundle() });
        let webhook = json!({ "clientConfig": client, "conversionReviewVersions": ["v1"] });
        hosts["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": webhook });
        establish(&raw, &hosts).await;
        let making = (0..MAKING).map(|first| {
            let raw = raw.clone();
            async move {
                for number in (first..HOSTS).step_by(MAKING) {
                    raw.post(place("v1"), &host(&format!("h{number:04}"))).await.expect(201);
                }
            }
        });
        futures::future::join_all(making).await;
        Self { server, raw, hook, count: HOSTS }
    }

    /// Checks everything that needs no conversion in the webhook's current state: reads, writes and watches of the
    /// stored version, other resources, new definitions, discovery, readyz.
    async fn others_are_not_delayed(&mut self, when: &str) {
        let raw = &self.raw;
        let list = raw.get(place("v1")).await.expect(200).json();
        assert_eq!(list["items"].as_array().unwrap().len(), self.count);
        let since = list["metadata"]["resourceVersion"].as_str().unwrap();
        let mut watch = raw.get(format!("{}?watch=1&resourceVersion={since}", place("v1"))).stream().await;
        let name = format!("new-{when}");
        raw.post(place("v1"), &host(&name)).await.expect(201);
        let event = watch.next_json().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
        let path = format!("{}/{name}", place("v1"));
        raw.patch(&*path, MERGE, &json!({ "spec": { "host": "changed" } })).await.expect(200);
        assert_eq!(watch.next_json().await.unwrap()["object"]["spec"]["host"], "changed");
        self.count += 1;

        raw.get("/readyz").await.expect(200);
        raw.get("/api/v1/namespaces").await.expect(200);
        let other = definition(&format!("{when}.example.com"), "things", "Thing", json!([version("v1", true)]));
        let made = establish(raw, &other).await;
        assert_eq!(condition(&made, "Established").0, "True");
        let things = format!("/apis/{when}.example.com/v1/namespaces/default/things");
        raw.post(&*things, &json!({ "metadata": { "name": "t" } })).await.expect(201);
        let groups = raw.get("/apis").await.expect(200).text();
        assert!(groups.contains(GROUP) && groups.contains(&format!("{when}.example.com")), "{groups}");
    }

    /// The error for an object without a cached conversion in the other version.
    async fn refusal(&self, name: &str) -> String {
        let status = self.raw.get(format!("{}/{name}", place("v2"))).await.expect(500).json();
        status["message"].as_str().unwrap().to_owned()
    }

    /// Checks that the list in the other version is complete.
    async fn all_in_the_other_version(&self) {
        let list = self.raw.get(place("v2")).await.expect(200).json();
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), self.count);
        assert!(items.iter().all(|item| item["spec"]["address"].is_string() && item["spec"]["host"].is_null()));
    }
}

fn host(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "host": name } })
}

fn failed(what: &str) -> String {
    format!("conversion webhook for {GROUP}/v1, Kind=Host {what}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_conversion_webhook_fails_the_list_until_it_is_back() {
    let mut hosts = Hosts::open().await;
    hosts.hook.be("hangs at h1099").await;
    let mut list = hosts.raw.get(place("v2")).stream().await;
    assert_eq!(list.status, 200);
    let mut read = list.next_chunk().await.unwrap().expect("the first page was converted").len();
    for _page in 0..3 {
        hosts.hook.asked().await;
    }
    let waits = tokio::spawn({
        let raw = hosts.raw.clone();
        async move { raw.get(format!("{}/h1099", place("v2"))).await }
    });
    hosts.hook.kill().await;
    let broken = loop {
        match list.next_chunk().await {
            Ok(Some(more)) => read += more.len(),
            end => break end,
        }
    };
    assert!(broken.is_err(), "a list that is not whole seems to be: {read} bytes");
    waits.await.unwrap().expect(500);

    // Requests that need it fail at once, and no write that needs a conversion is stored.
    let refused =
        format!(": dial tcp {}: connect: connection refused", hosts.hook.url("").trim_start_matches("https://"));
    let told = hosts.refusal("h1098").await;
    assert!(told.starts_with(&failed("failed: Post ")) && told.ends_with(&refused), "{told}");
    let made = json!({ "metadata": { "name": "never" }, "spec": { "address": "x" } });
    hosts.raw.post(place("v2"), &made).await.expect(500);
    hosts.raw.get(format!("{}/never", place("v1"))).await.expect(404);
    assert!(hosts.refusal("h0000").await.ends_with(&refused), "a get reads the current object");
    let kept = hosts.raw.get(format!("{}?limit=1", place("v2"))).await.expect(200).json();
    assert_eq!(kept["items"][0]["spec"]["address"], "h0000", "lists use cached conversions");
    hosts.others_are_not_delayed("gone").await;

    // A server starts and loads all objects without it.
    hosts.server.restart().await;
    hosts.raw = hosts.server.raw().http2();
    assert!(hosts.refusal("h0000").await.ends_with(&refused));
    hosts.others_are_not_delayed("loaded").await;

    hosts.hook.restart().await;
    hosts.all_in_the_other_version().await;
    hosts.raw.post(place("v2"), &made).await.expect(201);
    let stored = hosts.raw.get(format!("{}/never", place("v1"))).await.expect(200).json();
    assert_eq!(stored["spec"], json!({ "host": "x" }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_conversion_webhook_delays_only_its_requests() {
    let mut hosts = Hosts::open().await;
    let list = hosts.raw.get(format!("{}?limit=1", place("v2"))).await.expect(200).json();
    let since = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = hosts.raw.get(format!("{}?watch=1&resourceVersion={since}", place("v2"))).stream().await;
    hosts.hook.signal("-STOP").await;
    let waits = tokio::spawn({
        let raw = hosts.raw.clone();
        async move { raw.get(format!("{}/h0700", place("v2"))).await }
    });
    hosts.raw.get(format!("{}/h0701?timeout=1s", place("v2"))).await.expect(504);
    hosts.raw.get(format!("{}?timeout=1s", place("v2"))).await.expect(504);
    hosts.others_are_not_delayed("stopped").await;
    assert!(!waits.is_finished(), "a request that needs it waits");
    hosts.hook.signal("-CONT").await;
    let shown = waits.await.unwrap().expect(200).json();
    assert_eq!(shown["spec"]["address"], "h0700");
    hosts.all_in_the_other_version().await;
    for (kind, address) in [("ADDED", "new-stopped"), ("MODIFIED", "changed")] {
        let event = watch.next_json().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["spec"]["address"]), (&json!(kind), &json!(address)));
    }

    // A watch ends with an error if its events can't be converted.
    hosts.hook.kill().await;
    hosts.raw.post(place("v1"), &host("last")).await.expect(201);
    let event = watch.next_json().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(500)), "{event}");
    assert_eq!(watch.next_json().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_conversion_within_a_list_fails_the_whole_list() {
    let mut hosts = Hosts::open().await;
    let lie =
        |what: &str, name: &str| failed(&format!("returned invalid {what}: must have the same name: {name} != other"));
    hosts.hook.be("lies at h1000").await;
    assert_eq!(hosts.refusal("h1000").await, lie("object", "h1000"));
    assert!(hosts.raw.get(place("v2")).try_send().await.is_err(), "a list that is not whole seems to be");
    let status = hosts.raw.get(format!("{}?labelSelector=last", place("v2"))).await.expect(200).json();
    assert_eq!(status["items"], json!([]), "an empty selection calls no webhook");
    hosts.others_are_not_delayed("lying").await;
    let change = json!({ "spec": { "address": "changed" } });
    hosts.raw.patch(format!("{}/h1000", place("v2")), MERGE, &change).await.expect(500);
    let stored = hosts.raw.get(format!("{}/h1000", place("v1"))).await.expect(200).json();
    assert_eq!((&stored["spec"]["host"], &stored["metadata"]["generation"]), (&json!("h1000"), &json!(1)));
    hosts.hook.be("lies at h0400").await;
    hosts.server.restart().await;
    hosts.raw = hosts.server.raw().http2();
    let body = hosts.raw.get(place("v2")).await.expect(500).json();
    assert_eq!(body["message"], lie("converted object at index 400 (\"default/h0400\")", "h0400"));
    hosts.hook.be("converts").await;
    hosts.all_in_the_other_version().await;
    let known = hosts.raw.get(format!("{DEFINITIONS}/hosts.{GROUP}")).await.expect(200).json();
    assert_eq!(condition(&known, "Established").0, "True");
}
