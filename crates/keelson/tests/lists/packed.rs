//! Tests of lists, watches and writes whose objects are compressed in the cache, compared with a server on the same
//! store that compresses nothing.
//!
//! Both must send the same bytes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Enough for several blocks of a list, and for objects that are read while others are packed.
const OBJECTS: usize = 20_000;
/// One object in so many has a text that cannot be compressed.
const RANDOM: usize = 100;
const PATIENCE: Duration = Duration::from_mins(2);

const FORMS: [&str; 6] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;pretty=1",
];

/// Text without repetitions.
fn noise(seed: usize, length: usize) -> String {
    let mut state = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::new();
    while text.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Base 64 without its last two digits.
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789ABC";
        (0..8).for_each(|at| text.push(char::from(digits[(state >> (8 * at)) as usize % digits.len()])));
    }
    text
}

fn name(number: usize) -> String {
    format!("map-{number:05}")
}

/// The stored form of a config map.
fn stored(number: usize) -> String {
    let mut settings = String::new();
    for line in 0..6 {
        let value = number.wrapping_mul(line + 7919) % 10_007;
        write!(settings, "setting.number-{line} = {value}\\n").unwrap();
    }
    let text = if number.is_multiple_of(RANDOM) { noise(number, 2000) } else { format!("service-{}", number % 40) };
    format!(
        concat!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{}","namespace":"default","#,
            r#""uid":"7c1b2a5e-4b1f-4f57-9c7d-{:012x}","creationTimestamp":"2026-01-02T03:04:05Z","#,
            r#""labels":{{"app":"service-{}","part-of":"packed"}},"#,
            r#""managedFields":[{{"manager":"test","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","#,
            r#""fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{".":{{}},"f:settings":{{}},"f:text":{{}}}},"#,
            r#""f:metadata":{{"f:labels":{{".":{{}},"f:app":{{}},"f:part-of":{{}}}}}}}}}}]}},"#,
            r#""data":{{"settings":"{}","text":"{}"}}}}"#
        ),
        name(number),
        number.wrapping_mul(0x9E37_79B9) % 0xffff_ffff,
        number % 40,
        settings,
        text
    )
}

async fn server(store: &Arc<dyn Store>, certificates: &TempDir, id: &str, packs: bool) -> TestServer {
    let builder = TestServer::builder().shared_store(store.clone()).configure(|config| {
        config.data_dir = Some(certificates.path().to_owned());
        config.server_id = id.to_owned();
        config.packing.tick = Duration::from_millis(100);
        config.packing.after_ticks = 3;
        if !packs {
            config.packing.from_objects = usize::MAX;
        }
    });
    builder.start().await
}

async fn metric(raw: &Raw, name: &str) -> f64 {
    let text = raw.get("/metrics").await.expect(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing")).parse().unwrap()
}

/// Waits until a server has packed all objects that can be.
async fn packed(raw: &Raw) {
    let wanted = (OBJECTS - OBJECTS / RANDOM) as f64 * 0.98;
    let begun = Instant::now();
    while metric(raw, "keelson_cache_packed_objects").await < wanted {
        assert!(begun.elapsed() < PATIENCE, "{} are packed", metric(raw, "keelson_cache_packed_objects").await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

struct Servers {
    packs: TestServer,
    plain: TestServer,
    _certificates: TempDir,
}

impl Servers {
    async fn start() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        for first in (0..OBJECTS).step_by(500) {
            let put = |transaction: Transaction, number| {
                transaction.put(StoreKey::new(format!("/registry/configmaps/default/{}", name(number))), stored(number))
            };
            store.commit((first..first + 500).fold(Transaction::default(), put)).await.unwrap();
        }
        let certificates = TempDir::new().unwrap();
        let packs = server(&store, &certificates, "packs", true).await;
        let plain = server(&store, &certificates, "plain", false).await;
        packed(&packs.raw()).await;
        assert_eq!(metric(&plain.raw(), "keelson_cache_packed_objects").await, 0.0);
        Self { packs, plain, _certificates: certificates }
    }

    /// Sends a request to both servers, and compares their answers.
    async fn compare(&self, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
        let answer = async |server: &TestServer| {
            let call = server.raw().get(path);
            let call = headers.iter().fold(call, |call, (name, value)| call.header(name, *value));
            let answer = call.await.expect(200);
            (answer.header("content-encoding").to_owned(), answer.body.to_vec())
        };
        let (packs, plain) = (answer(&self.packs).await, answer(&self.plain).await);
        assert_eq!(packs.0, plain.0, "{path} {headers:?}");
        assert!(!packs.1.is_empty() && without_ages(&packs.1) == without_ages(&plain.1), "{path} {headers:?} differs");
        packs.1
    }

    /// Waits until both servers have a write.
    async fn follow(&self, revision: &str) {
        for server in [&self.packs, &self.plain] {
            server.raw().get(format!("{MAPS}?limit=1&resourceVersion={revision}")).await.expect(200);
        }
    }
}

/// The body, without the age in the rows of a table.
fn without_ages(body: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(body) {
        Ok(mut table) if table["kind"] == "Table" => {
            for row in table["rows"].as_array_mut().unwrap() {
                *row["cells"].as_array_mut().unwrap().last_mut().unwrap() = Value::Null;
            }
            table.to_string().into_bytes()
        }
        _ => body.to_vec(),
    }
}

fn revision(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_objects_are_served_as_plain_ones() {
    // SIZE: one story on one pair of servers, since filling them takes long.
    let servers = Servers::start().await;
    let raw = servers.packs.raw().http2();
    let before = metric(&raw, "keelson_cache_packed_bytes").await;
    let all = raw.get(format!("{MAPS}?limit=1")).await.expect(200).json();
    let at = format!("resourceVersion={}&resourceVersionMatch=Exact", revision(&all));

    // Whole lists in all forms, and compressed. One scan leaves the objects packed.
    for form in FORMS {
        let body = servers.compare(&format!("{MAPS}?{at}"), &[("accept", form)]).await;
        assert!(body.len() > OBJECTS * 50, "{form}");
    }
    let zipped = servers.compare(&format!("{MAPS}?{at}"), &[("accept-encoding", "gzip")]).await;
    assert_eq!(servers.compare(&format!("{MAPS}?{at}"), &[("accept-encoding", "gzip")]).await, zipped);
    packed(&raw).await;

    // Chunks, selections, queries, single objects.
    let chunks = async |server: &TestServer| {
        let (mut items, mut token) = (Vec::new(), String::new());
        loop {
            let page = server.raw().get(format!("{MAPS}?limit=3000&continue={token}")).await.expect(200).json();
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            match page["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => next.clone_into(&mut token),
                _ => return items,
            }
        }
    };
    let (packs, plain) = (chunks(&servers.packs).await, chunks(&servers.plain).await);
    assert!(packs.len() == OBJECTS && packs == plain, "{} objects", packs.len());
    for query in [
        "labelSelector=app%3Dservice-7",
        "fieldSelector=metadata.name%3Dmap-00100",
        "keelson.io/filter=data.text='service-3'&keelson.io/sortBy=-metadata.name",
        "keelson.io/groupBy=data.text&limit=50",
    ] {
        servers.compare(&format!("{MAPS}?{query}&{at}"), &[]).await;
    }
    for number in (0..OBJECTS).step_by(997) {
        servers.compare(&format!("{MAPS}/{}", name(number)), &[]).await;
        servers.compare(&format!("{MAPS}/{}", name(number)), &[("accept", FORMS[2])]).await;
    }

    // Writes of packed objects.
    packed(&raw).await;
    let mut last = String::new();
    for number in (0..OBJECTS).step_by(401) {
        let path = format!("{MAPS}/{}", name(number));
        let mut object = raw.get(&path).await.expect(200).json();
        object["data"]["added"] = json!(format!("value {number}"));
        raw.put(&path, &object).await.expect(200);
        let patch = json!({"metadata": {"annotations": {"patched": "yes"}}, "data": {"text": "other"}});
        last = revision(&raw.patch(&path, "application/merge-patch+json", &patch).await.expect(200).json());
        if number % 3 == 0 {
            raw.delete(&path).await.expect(200);
        }
    }
    servers.follow(&last).await;
    servers.compare(&format!("{MAPS}/{}", name(401)), &[]).await;

    // The history is packed too: watches from before the writes get the same events.
    packed(&raw).await;
    let watch = format!("{MAPS}?watch=true&timeoutSeconds=3&resourceVersion={}", revision(&all));
    let events = servers.compare(&watch, &[]).await;
    assert_eq!(events.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 50 * 2 + 17);
    let at = format!("resourceVersion={last}&resourceVersionMatch=Exact");
    servers.compare(&format!("{MAPS}?{at}"), &[]).await;
    servers.compare(&format!("{MAPS}?{at}"), &[("accept", FORMS[2])]).await;

    packed(&raw).await;
    let after = metric(&raw, "keelson_cache_packed_bytes").await;
    assert!(after < before * 1.5, "the packed objects grew from {before} to {after} bytes");
    assert!(metric(&raw, "keelson_cache_dictionaries").await <= 4.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_cannot_be_compressed_stay_plain_and_cost_one_attempt() {
    const ATTACK: usize = 2000;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let certificates = TempDir::new().unwrap();
    let server = server(&store, &certificates, "packs", true).await;
    for round in 0..3 {
        for first in (0..ATTACK).step_by(500) {
            let put = |transaction: Transaction, number: usize| {
                let text = noise(number + round * ATTACK, 4000);
                let value = format!(
                    r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{0}","namespace":"default","uid":"{0}"}},"data":{{"text":"{text}"}}}}"#,
                    name(number)
                );
                transaction.put(StoreKey::new(format!("/registry/configmaps/default/{}", name(number))), value)
            };
            store.commit((first..first + 500).fold(Transaction::default(), put)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let raw = server.raw();
    let list = raw.get(MAPS).await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), ATTACK);
    let (plain, packed) =
        (metric(&raw, "keelson_cache_plain_bytes").await, metric(&raw, "keelson_cache_packed_bytes").await);
    // The newest objects, and the versions in the history.
    assert!(plain + packed < 3.2 * (ATTACK * 4200) as f64, "{plain} bytes are plain and {packed} packed");
    assert!(metric(&raw, "keelson_cache_dictionary_trainings_total").await <= 3.0);
}
