//! Tests of a kind whose versions differ in their fields and need a converter, which may wait, fail, return wrong data,
//! or never answer. The error texts are those of kube-apiserver for conversion webhooks.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use keelson_meta::{GroupVersionKind, Object};
use keelson_registry::{ConversionBatch, Converter, ConverterError, ResourceRegistration};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::schemas::schema;
use super::{GROUP, resource};

const STORED: &str = "/apis/harbour.example.org/v1/namespaces/default/berths";
const OTHER: &str = "/apis/harbour.example.org/v2/namespaces/default/berths";
const MERGE: &str = "application/merge-patch+json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Converts `host` and `port` to one `address` and back, or behaves as the test sets.
#[derive(Debug, Default)]
pub(super) struct Pilot {
    mood: Mutex<Mood>,
    /// The number of objects in each call.
    calls: Mutex<Vec<usize>>,
    waiting: AtomicUsize,
}

#[derive(Clone, Debug, Default)]
enum Mood {
    #[default]
    Willing,
    /// Waits for a permit before each response.
    Waits(Arc<Semaphore>),
    Fails,
    /// Fails at the object with this name.
    FailsAt(&'static str),
    /// Changes the name of every object.
    Lies,
}

impl Pilot {
    fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    fn take_calls(&self) -> Vec<usize> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

#[async_trait]
impl Converter for Pilot {
    async fn convert(&self, batch: ConversionBatch<'_>) -> Result<Vec<Object>, ConverterError> {
        self.calls.lock().unwrap().push(batch.objects.len());
        let mood = self.mood.lock().unwrap().clone();
        let mut converted: Vec<Object> = batch.objects.iter().map(|object| moored(object, batch.to)).collect();
        match mood {
            Mood::Willing => {}
            Mood::Waits(permits) => {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                permits.acquire().await.unwrap().forget();
            }
            Mood::Fails => return Err(ConverterError::Call("cannot convert: too odd".to_owned())),
            Mood::FailsAt(name) => {
                if let Some(place) = batch.objects.iter().position(|object| object.name() == name) {
                    return Err(ConverterError::Object(place, "too odd".to_owned()));
                }
            }
            Mood::Lies => converted.iter_mut().for_each(|object| object.set_meta("name", "other")),
        }
        Ok(converted)
    }
}

/// The form of an object in a version.
fn moored(object: &Object, to: &GroupVersionKind) -> Object {
    let mut moored = object.clone();
    moored.set_type(to);
    let spec = match to.version.as_str() {
        "v2" => {
            let host = object.get(&["spec", "host"]).and_then(|host| host.as_str()).unwrap_or_default();
            let port = object.get(&["spec", "port"]).and_then(keelson_meta::json::Value::as_i64).unwrap_or_default();
            keelson_meta::json::json!({ "address": format!("{host}:{port}") })
        }
        _ => {
            let address = object.get(&["spec", "address"]).and_then(|address| address.as_str()).unwrap_or_default();
            let (host, port) = address.split_once(':').unwrap_or((address, "0"));
            keelson_meta::json::json!({ "host": host, "port": port.parse::<i64>().unwrap_or_default() })
        }
    };
    moored.0.insert("spec", spec);
    moored
}

async fn harbour() -> (TestServer, Raw, Arc<Pilot>) {
    let server = TestServer::start().await;
    let pilot = Arc::new(Pilot::default());
    let converter: Arc<dyn Converter> = pilot.clone();
    let berths = ResourceRegistration::new(resource("berths", "Berth", &["v1", "v2"])).converted_by(&converter);
    server.running().registry().surfaces().put(vec![berths]).await.expect("it can be served");
    let raw = server.raw().http2();
    (server, raw, pilot)
}

async fn fill(raw: &Raw, from: usize, to: usize) {
    for number in from..to {
        let metadata = json!({ "name": format!("b{number:04}"), "labels": { "even": (number % 2 == 0).to_string() } });
        raw.post(STORED, &json!({ "metadata": metadata, "spec": { "host": "h", "port": number } })).await.expect(201);
    }
}

fn addresses(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["spec"]["address"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_have_the_defaults_of_the_newest_schema() {
    let (server, raw, pilot) = harbour().await;
    let permits = Arc::new(Semaphore::new(0));
    pilot.be(Mood::Waits(permits.clone()));
    let sent = json!({ "metadata": { "name": "a" }, "spec": { "address": "h1:80" } });
    let write = tokio::spawn(raw.post(OTHER, &sent).into_future());
    while pilot.waiting.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let fields = json!({
        "host": { "type": "string" }, "port": { "type": "integer" },
        "kind": { "type": "string", "default": "dry" },
    });
    let converter: Arc<dyn Converter> = pilot.clone();
    let defaulted = ResourceRegistration::new(resource("berths", "Berth", &["v1", "v2"]))
        .with_schema("v1", &schema("v1", fields))
        .converted_by(&converter);
    server.running().registry().surfaces().put(vec![defaulted]).await.expect("it can be served");
    pilot.be(Mood::Willing);
    permits.add_permits(2);
    write.await.unwrap().expect(201);
    let read = raw.get(format!("{STORED}/a")).await.expect(200).json();
    assert_eq!(read["spec"], json!({ "host": "h1", "port": 80, "kind": "dry" }));
}

/// The message of an error, which must be a 500 without a reason.
async fn refusal(call: keelson_testkit::Call) -> String {
    let status = call.await.expect(500).json();
    assert_eq!(status["reason"], Value::Null, "{status}");
    status["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_shows_and_takes_the_version_that_was_requested() {
    let (_server, raw, pilot) = harbour().await;
    let made = json!({ "metadata": { "name": "a", "labels": { "even": "yes" } }, "spec": { "address": "h1:80" } });
    let made = raw.post(OTHER, &made).await.expect(201).json();
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!(format!("{GROUP}/v2")), &json!({ "address": "h1:80" })));
    pilot.take_calls();
    let stored = raw.get(format!("{STORED}/a")).await.expect(200).json();
    assert_eq!(stored["spec"], json!({ "host": "h1", "port": 80 }));
    assert_eq!(pilot.take_calls(), Vec::<usize>::new(), "nobody is asked for the version that is stored");
    assert_eq!(raw.get(format!("{OTHER}/a")).await.expect(200).json()["spec"], json!({ "address": "h1:80" }));

    let revision = stored["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = raw.get(format!("{OTHER}?watch=1&resourceVersion={revision}")).stream().await;
    let mut next = made.clone();
    next["spec"]["address"] = json!("h2:81");
    let updated = raw.put(format!("{OTHER}/a"), &next).await.expect(200).json();
    assert_eq!((&updated["spec"]["address"], &updated["metadata"]["generation"]), (&json!("h2:81"), &json!(2)));
    let patched = raw.patch(format!("{OTHER}/a"), MERGE, &json!({ "spec": { "address": "h3:82" } })).await.expect(200);
    assert_eq!(patched.json()["spec"], json!({ "address": "h3:82" }));
    let same = raw.patch(format!("{OTHER}/a"), MERGE, &json!({ "spec": { "address": "h3:82" } })).await.expect(200);
    assert_eq!(same.json()["metadata"], patched.json()["metadata"], "a write that changes nothing writes nothing");
    let status = json!({ "spec": { "address": "no:1" }, "status": { "full": true } });
    let status = raw.patch(format!("{OTHER}/a/status"), MERGE, &status).await.expect(200).json();
    assert_eq!((&status["spec"]["address"], &status["status"]["full"]), (&json!("h3:82"), &json!(true)));
    raw.delete(format!("{OTHER}/a")).await.expect(200);
    for (kind, address) in [("MODIFIED", "h2:81"), ("MODIFIED", "h3:82"), ("MODIFIED", "h3:82"), ("DELETED", "h3:82")] {
        let event = watch.next_json().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["spec"]["address"]), (&json!(kind), &json!(address)), "{event}");
        assert_eq!(event["object"]["apiVersion"], format!("{GROUP}/v2"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_convert_only_the_objects_of_a_page() {
    let (_server, raw, pilot) = harbour().await;
    fill(&raw, 0, 1_100).await;
    let expected: Vec<String> = (0..1_100).map(|number| format!("h:{number}")).collect();
    let selected = raw.get(format!("{OTHER}?labelSelector=even%3Dtrue&limit=10")).await.expect(200).json();
    assert_eq!((addresses(&selected).len(), pilot.take_calls()), (10, vec![10]), "only what is shown is asked for");
    let chunk = raw.get(format!("{OTHER}?limit=400")).await.expect(200).json();
    assert_eq!(pilot.take_calls(), [390], "one call for a chunk, for what was not told before");
    assert_eq!(chunk["metadata"]["remainingItemCount"], 700);
    let token = chunk["metadata"]["continue"].as_str().unwrap();
    let next = raw.get(format!("{OTHER}?limit=400&continue={token}")).await.expect(200).json();
    assert_eq!([addresses(&chunk), addresses(&next)].concat(), expected[..800]);
    assert_eq!(pilot.take_calls(), [400]);
    let all = raw.get(OTHER).await.expect(200).json();
    assert_eq!(addresses(&all), expected);
    assert_eq!(pilot.take_calls().iter().sum::<usize>(), 300);

    let table = raw.get(OTHER).header("accept", TABLE).await.expect(200).json();
    assert_eq!(table["rows"].as_array().unwrap().len(), 1_100);
    let bare = raw.get(OTHER).header("accept", METADATA).await.expect(200).json();
    assert_eq!(bare["items"][7]["metadata"]["name"], "b0007");
    let yaml = raw.get(OTHER).header("accept", "application/yaml").await.expect(200).text();
    assert_eq!(yaml.matches("address: h:").count(), 1_100);
    let gzip = raw.get(OTHER).header("accept-encoding", "gzip").await.expect(200);
    let mut plain = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&gzip.body[..]), &mut plain).unwrap();
    assert_eq!(addresses(&serde_json::from_str(&plain).unwrap()), expected);

    pilot.take_calls();
    let stored = raw.get(STORED).await.expect(200).json();
    assert_eq!((stored["items"].as_array().unwrap().len(), pilot.take_calls()), (1_100, vec![]));
    let initial =
        format!("{OTHER}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1");
    let mut watch = raw.get(initial).stream().await;
    for address in &expected {
        let event = watch.next_json().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["spec"]["address"]), (&json!("ADDED"), &json!(address)));
    }
    assert_eq!(watch.next_json().await.unwrap()["type"], "BOOKMARK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_conversions_show_and_write_nothing() {
    let (_server, raw, pilot) = harbour().await;
    fill(&raw, 0, 2).await;
    let one = format!("{OTHER}/b0000");
    // Cached conversions are served, whatever the converter does now.
    let mut current = raw.get(format!("{STORED}/b0000")).await.expect(200).json();
    current["apiVersion"] = json!(format!("{GROUP}/v2"));
    current["spec"] = json!({ "address": "h:0" });
    let listed = raw.get(STORED).await.expect(200).json();
    let revision = listed["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = raw.get(format!("{OTHER}?watch=1&resourceVersion={revision}")).stream().await;
    let fresh = json!({ "metadata": { "name": "new" }, "spec": { "address": "x:1" } });
    let change = json!({ "spec": { "address": "x:1" } });

    let told = |version: &str, what: &str| format!("conversion webhook for {GROUP}/{version}, Kind=Berth {what}");
    let odd = "failed: cannot convert: too odd";
    let lie = |from: &str| format!("returned invalid object: must have the same name: {from} != other");
    for (mood, shown, taken, made) in [
        (Mood::Fails, odd.to_owned(), odd.to_owned(), odd.to_owned()),
        (Mood::Lies, lie("b0000"), lie("b0000"), lie("new")),
    ] {
        pilot.be(mood);
        assert_eq!(refusal(raw.get(&*one)).await, told("v1", &shown));
        assert_eq!(refusal(raw.post(OTHER, &fresh)).await, told("v2", &made));
        assert_eq!(refusal(raw.put(&*one, &current)).await, told("v1", &taken));
        assert_eq!(refusal(raw.patch(&*one, MERGE, &change)).await, told("v1", &taken));
        assert_eq!(refusal(raw.patch(format!("{one}/status"), MERGE, &change)).await, told("v1", &taken));
        assert_eq!(refusal(raw.delete(&*one)).await, told("v1", &taken));
        let list = refusal(raw.get(OTHER)).await;
        assert!(list.starts_with(&format!("conversion webhook for {GROUP}/v1, Kind=Berth ")), "{list}");
        refusal(raw.get(format!("{OTHER}?limit=1"))).await;
        refusal(raw.delete(OTHER)).await;
        refusal(raw.get(OTHER).header("accept", TABLE)).await;
        refusal(raw.get(OTHER).header("accept", METADATA)).await;
        assert_eq!(raw.get(STORED).await.expect(200).json()["items"].as_array().unwrap().len(), 2, "nothing happened");
    }

    // The storage version needs no converter. A change in it ends the watches of the other version with an error.
    raw.patch(format!("{STORED}/b0001"), MERGE, &json!({ "spec": { "port": 7 } })).await.expect(200);
    let event = watch.next_json().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(500)), "{event}");
    assert_eq!(event["object"]["reason"], "InternalError");
    let message = told("v1", "returned invalid object: must have the same name: b0001 != other");
    assert_eq!(event["object"]["message"], format!("Internal error occurred: {message}"));
    assert_eq!(watch.next_json().await, None, "nothing follows an error");

    pilot.be(Mood::FailsAt("b0001"));
    assert_eq!(refusal(raw.get(OTHER)).await, told("v1", "failed: \"default/b0001\": too odd"));
    assert_eq!(addresses(&raw.get(format!("{OTHER}?limit=1")).await.expect(200).json()), ["h:0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_has_begun_is_broken_off_and_never_seems_whole() {
    let (server, raw, pilot) = harbour().await;
    fill(&raw, 0, 1_100).await;
    pilot.be(Mood::FailsAt("b0499"));
    assert_eq!(raw.get(OTHER).await.status, 500, "what fails in the first block can be told");
    pilot.be(Mood::FailsAt("b1099"));
    for raw in [raw, server.raw()] {
        assert!(raw.get(OTHER).try_send().await.is_err(), "the body ends early");
        assert!(raw.get(OTHER).header("accept-encoding", "gzip").try_send().await.is_err(), "the body ends early");
    }
}

/// A chunk of usual size is held in memory until all of its objects are converted, but only within the memory limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cache_of_conversions_is_limited() {
    let (_server, raw, pilot) = harbour().await;
    for number in 0..28 {
        let spec = json!({ "host": "h".repeat(700_000), "port": number });
        raw.post(STORED, &json!({ "metadata": { "name": format!("b{number:04}") }, "spec": spec })).await.expect(201);
    }
    let list = raw.get(format!("{OTHER}?limit=500")).await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 28);
    for name in ["b0000", "b0027"] {
        raw.patch(format!("{STORED}/{name}"), MERGE, &json!({ "spec": { "port": 99 } })).await.expect(200);
    }
    pilot.be(Mood::FailsAt("b0000"));
    raw.get(OTHER).await.expect(500);
    pilot.be(Mood::FailsAt("b0027"));
    assert!(raw.get(OTHER).try_send().await.is_err(), "the list had begun when it failed");

    pilot.be(Mood::Willing);
    let measured = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let status = raw.get(OTHER).header("accept", measured).await;
    assert_eq!(status.status, 413, "a list that is measured would have to be kept");
    let chunk = raw.get(format!("{OTHER}?limit=5")).header("accept", measured).await.expect(200);
    assert!(chunk.body.starts_with(b"k8s\0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cached_conversion_needs_no_further_call() {
    let (server, raw, pilot) = harbour().await;
    fill(&raw, 0, 700).await;
    let all = raw.get(OTHER).await.expect(200).json();
    assert_eq!(pilot.take_calls().iter().sum::<usize>(), 700);
    assert_eq!(raw.get(OTHER).await.expect(200).json(), all);
    let initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
    let mut watch = raw.get(format!("{OTHER}?{initial}")).stream().await;
    for _ in 0..700 {
        assert_eq!(watch.next_json().await.unwrap()["type"], "ADDED");
    }
    assert_eq!(pilot.take_calls(), Vec::<usize>::new());
    // A read of one object shows the converter's current result.
    raw.get(format!("{OTHER}/b0007")).await.expect(200);
    assert_eq!(pilot.take_calls(), [1]);

    // Watches of one version share the conversion of an event, and lists use it too.
    let revision = all["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(raw.get(format!("{OTHER}?watch=1&resourceVersion={revision}")).stream().await);
    }
    raw.patch(format!("{STORED}/b0007"), MERGE, &json!({ "spec": { "port": 7000 } })).await.expect(200);
    for watch in &mut watches {
        assert_eq!(watch.next_json().await.unwrap()["object"]["spec"]["address"], "h:7000");
    }
    assert_eq!(addresses(&raw.get(OTHER).await.expect(200).json())[7], "h:7000");
    assert_eq!(pilot.take_calls(), [1]);
    let metrics = raw.get("/metrics").await.expect(200).text();
    assert!(metrics.lines().any(|line| line == "keelson_conversion_webhook_objects_total 702.0"), "{metrics}");

    // A new converter is called again for all objects.
    let converter: Arc<dyn Converter> = pilot.clone();
    let berths = ResourceRegistration::new(resource("berths", "Berth", &["v1", "v2"])).converted_by(&converter);
    server.running().registry().surfaces().put(vec![berths]).await.unwrap();
    raw.get(format!("{OTHER}/b0007")).await.expect(200);
    assert_eq!(pilot.take_calls(), [1]);
}

/// A list whose client does not read makes no progress. The conversions that it has requested still complete for
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_reading_delays_no_others() {
    let (server, raw, pilot) = harbour().await;
    fill(&raw, 0, 1).await;
    // The cache has the objects when a read shows them.
    raw.get(format!("{STORED}/b0000")).await.expect(200);
    let permits = Arc::new(Semaphore::new(0));
    pilot.be(Mood::Waits(permits.clone()));
    let target = server.running().registry().surface().lookup(GROUP, "v2", "berths").unwrap();
    let stored = target.collection().unwrap().get("default/b0000").unwrap();
    let view = target.view();
    let object = stored.pinned_object();
    let mut asks = Box::pin(view.show(&object));
    assert!(futures::poll!(&mut asks).is_pending());
    while pilot.waiting.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    permits.add_permits(1);
    assert_eq!(addresses(&raw.get(OTHER).await.expect(200).json()), ["h:0"]);
    assert_eq!(pilot.take_calls(), [1]);

    // If a client disconnects, the other waiting clients still get the conversion.
    raw.patch(format!("{STORED}/b0000"), MERGE, &json!({ "spec": { "port": 1 } })).await.expect(200);
    let stored = target.collection().unwrap().get("default/b0000").unwrap();
    let object = stored.pinned_object();
    let mut asks = Box::pin(view.show(&object));
    assert!(futures::poll!(&mut asks).is_pending());
    while pilot.waiting.load(Ordering::SeqCst) == 1 {
        tokio::task::yield_now().await;
    }
    let mut waits = Box::pin(view.show(&object));
    assert!(futures::poll!(&mut waits).is_pending());
    drop(asks);
    permits.add_permits(2);
    assert!(waits.await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_webhook_delays_only_its_requests() {
    let (_server, raw, pilot) = harbour().await;
    fill(&raw, 0, 3).await;
    let permits = Arc::new(Semaphore::new(0));
    pilot.be(Mood::Waits(permits.clone()));
    let waits = tokio::spawn({
        let raw = raw.clone();
        async move { raw.get(OTHER).await.expect(200).json() }
    });
    while pilot.waiting.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(raw.get(STORED).await.expect(200).json()["items"].as_array().unwrap().len(), 3);
    raw.patch(format!("{STORED}/b0001"), MERGE, &json!({ "spec": { "port": 7 } })).await.expect(200);
    raw.get("/readyz").await.expect(200);
    raw.get(format!("{OTHER}/b0000?timeout=1s")).await.expect(504);
    let late = raw.patch(format!("{OTHER}/b0000?timeout=1s"), MERGE, &json!({ "spec": { "address": "x:1" } }));
    late.await.expect(504);
    assert_eq!(raw.get(format!("{STORED}/b0000")).await.expect(200).json()["spec"], json!({ "host": "h", "port": 0 }));
    let initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let mut watch = raw.get(format!("{OTHER}?{initial}")).stream().await;
    assert_eq!(watch.next_json().await, None, "a watch ends in time, whoever it waits for");
    permits.add_permits(100);
    assert_eq!(addresses(&waits.await.unwrap()), ["h:0", "h:1", "h:2"], "as it was when it was read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_never_served_under_a_wrong_version() {
    let server = TestServer::start().await;
    let (raw, surfaces) = (server.raw(), server.running().registry().surfaces());
    let berths = |versions: &[&str]| vec![ResourceRegistration::new(resource("berths", "Berth", versions))];
    surfaces.put(berths(&["v1"])).await.unwrap();
    fill(&raw, 0, 1).await;
    // A kind with one version may still have stored objects of another version.
    for versions in [&["v2"][..], &["v2", "v3"]] {
        surfaces.put(berths(versions)).await.unwrap();
        let (one, chunk) = (format!("{OTHER}/b0000"), format!("{OTHER}?limit=5"));
        let ways = [one.as_str(), OTHER, &chunk].map(|path| raw.get(path));
        let forms = ["application/yaml", TABLE, METADATA].map(|form| raw.get(OTHER).header("accept", form));
        let write = raw.patch(&*one, MERGE, &json!({ "spec": { "host": "x" } }));
        for call in ways.into_iter().chain(forms).chain([write]) {
            let told = call.await.expect(500).text();
            assert!(told.contains("b0000") && told.contains(&format!("{GROUP}/v1")), "{versions:?}: {told}");
        }
        let mut watch = raw.get(format!("{OTHER}?watch=1&resourceVersion=0")).stream().await;
        let event = watch.next_json().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(500)), "{event}");
    }
    surfaces.put(berths(&["v2", "v1"])).await.unwrap();
    assert_eq!(raw.get(OTHER).await.expect(200).json()["items"][0]["spec"]["host"], "h");
}
