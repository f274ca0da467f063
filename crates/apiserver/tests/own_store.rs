//! Tests of objects in a program's own store, or computed, for clients of the main server.
//!
//! The built-in stores are tested with the examples. These tests cover the mirror of another store: order, revisions,
//! refusals.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keelson_apiserver::{
    ApiServer, ApiServerBuilder, BoxStream, Computed, ObjectKey, ObjectStore, RunningApiServer, StoreFault,
    async_trait, conformance,
};
use keelson_testkit::TestServer;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::broadcast;

const BOOKS: &str = "/apis/library.example.com/v1/namespaces/default/books";
const MERGE: &str = "application/merge-patch+json";

/// A book.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "library.example.com", version = "v1", kind = "Book", namespaced)]
struct BookSpec {
    pages: u32,
}

/// The number of computations.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "library.example.com", version = "v1", kind = "Count")]
struct CountSpec {
    asked: u32,
}

/// A store of books.
#[derive(Clone)]
struct Shelf {
    books: Arc<Mutex<(u64, BTreeMap<ObjectKey, Book>)>>,
    changes: broadcast::Sender<ObjectKey>,
}

impl Shelf {
    fn new() -> Self {
        Self { books: Arc::default(), changes: broadcast::Sender::new(1000) }
    }

    /// Writes to the store directly, as another client of it.
    async fn write_beside(&self, name: &str, pages: u32) {
        let key = ObjectKey { namespace: Some("default".to_owned()), name: name.to_owned() };
        let version = self.get(&key).await.unwrap().and_then(|book| book.metadata.resource_version);
        self.write(&key, version.as_deref(), Some(&book(name, pages))).await.unwrap();
    }
}

fn book(name: &str, pages: u32) -> Book {
    let mut book = Book::new(name, BookSpec { pages });
    book.metadata.namespace = Some("default".to_owned());
    book
}

#[async_trait]
impl ObjectStore<Book> for Shelf {
    async fn get(&self, key: &ObjectKey) -> Result<Option<Book>, StoreFault> {
        Ok(self.books.lock().unwrap().1.get(key).cloned())
    }

    async fn list(&self) -> Result<Vec<Book>, StoreFault> {
        Ok(self.books.lock().unwrap().1.values().cloned().collect())
    }

    fn watch(&self) -> BoxStream<'static, ObjectKey> {
        let changes = self.changes.subscribe();
        Box::pin(futures::stream::unfold(
            changes,
            |mut changes| async move { Some((changes.recv().await.ok()?, changes)) },
        ))
    }

    async fn write(&self, key: &ObjectKey, expected: Option<&str>, new: Option<&Book>) -> Result<String, StoreFault> {
        let mut books = self.books.lock().unwrap();
        let current = books.1.get(key).and_then(|book| book.metadata.resource_version.as_deref());
        if current != expected {
            return Err(StoreFault::Conflict);
        }
        books.0 += 1;
        let version = books.0.to_string();
        match new.cloned() {
            Some(mut book) => {
                book.metadata.resource_version = Some(version.clone());
                books.1.insert(key.clone(), book);
            }
            None => drop(books.1.remove(key)),
        }
        drop(books);
        // The channel may have no receiver.
        let _ = self.changes.send(key.clone());
        Ok(version)
    }
}

/// An object with the number of its computations, which can be made to fail.
#[derive(Default)]
struct Counter(Arc<AtomicU32>);

#[async_trait]
impl Computed<Count> for Counter {
    async fn get(&self, key: &ObjectKey) -> Result<Option<Count>, StoreFault> {
        Ok(self.list().await?.into_iter().find(|count| count.metadata.name.as_ref() == Some(&key.name)))
    }

    async fn list(&self) -> Result<Vec<Count>, StoreFault> {
        match self.0.load(Ordering::Relaxed) {
            u32::MAX => Err(StoreFault::Unavailable("the counter is broken".to_owned())),
            _ => Ok(vec![Count::new("all", CountSpec { asked: self.0.fetch_add(1, Ordering::Relaxed) + 1 })]),
        }
    }
}

/// Starts a server behind a main one, and registers it there.
async fn start(main: &TestServer, server: ApiServerBuilder) -> RunningApiServer {
    let server = server
        .main_server(main.client())
        .serving_name("library.default.svc")
        .listen(SocketAddr::from(([127, 0, 0, 1], 0)))
        .start()
        .await
        .unwrap();
    let raw = main.raw();
    let service =
        json!({ "metadata": { "name": "library" }, "spec": { "type": "ExternalName", "externalName": "localhost" } });
    raw.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    let registered = json!({
        "metadata": { "name": "v1.library.example.com" },
        "spec": {
            "group": "library.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": { "namespace": "default", "name": "library", "port": server.addr().port() },
            "insecureSkipTLSVerify": true,
        },
    });
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    raw.post(services, &registered).await.expect(201);
    until(main, "/apis/library.example.com/v1", |found| found["kind"] == "APIResourceList").await;
    server
}

/// Waits until the value at a path is as expected.
async fn until(main: &TestServer, path: &str, done: impl Fn(&Value) -> bool) -> Value {
    let waiting = async {
        loop {
            let found: Value = serde_json::from_str(&main.raw().get(path).await.text()).unwrap_or_default();
            if done(&found) {
                break found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("{path} does not become so"))
}

#[tokio::test]
async fn a_store_of_a_programs_own_passes_the_conformance_tests() {
    conformance::check(&Shelf::new(), |name| book(name, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_clients_and_of_the_program_share_one_store() {
    let main = TestServer::start().await;
    let shelf = Shelf::new();
    shelf.write_beside("old", 10).await;
    let server = start(&main, ApiServer::builder().resource_in::<Book>(shelf.clone())).await;
    let raw = main.raw();
    let old = raw.get(format!("{BOOKS}/old")).await.expect(200).json();
    assert_eq!(old["spec"]["pages"], 10);
    let sent = json!({ "metadata": { "name": "new" }, "spec": { "pages": 20 } });
    raw.post(BOOKS, &sent).await.expect(201);
    let key = ObjectKey { namespace: Some("default".to_owned()), name: "new".to_owned() };
    assert_eq!(shelf.get(&key).await.unwrap().unwrap().spec.pages, 20);
    // Another client writes to the store: the server's copy follows, and a patch never undoes it.
    for pages in 30..40 {
        shelf.write_beside("new", pages).await;
        let label = json!({ "metadata": { "labels": { "seen": pages.to_string() } } });
        let patched = raw.patch(format!("{BOOKS}/new"), MERGE, &label).await.expect(200).json();
        assert_eq!(patched["spec"]["pages"], pages);
    }
    shelf.write_beside("beside", 1).await;
    until(&main, &format!("{BOOKS}/beside"), |found| found["spec"]["pages"] == 1).await;
    let stale = raw.put(
        format!("{BOOKS}/new"),
        &json!({
            "apiVersion": "library.example.com/v1", "kind": "Book", "spec": { "pages": 1 },
            "metadata": { "name": "new", "resourceVersion": old["metadata"]["resourceVersion"] },
        }),
    );
    stale.await.expect(409);
    raw.delete(format!("{BOOKS}/new")).await.expect(200);
    assert!(shelf.get(&key).await.unwrap().is_none());
    let first = raw.get(format!("{BOOKS}?limit=1")).await.expect(200).json();
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn computed_objects_are_fresh_and_read_only() {
    let main = TestServer::start().await;
    let asked = Arc::<AtomicU32>::default();
    let server = start(&main, ApiServer::builder().computed::<Count>(Counter(asked.clone()))).await;
    let (raw, counts) = (main.raw(), "/apis/library.example.com/v1/counts");
    let asked_in = |found: &Value| found["spec"]["asked"].as_u64().unwrap();
    let first = raw.get(format!("{counts}/all")).await.expect(200).json();
    let second = raw.get(format!("{counts}/all")).await.expect(200).json();
    assert_eq!(asked_in(&second), asked_in(&first) + 1);
    assert_eq!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let listed = raw.get(counts).await.expect(200).json();
    assert_eq!(asked_in(&listed["items"][0]), asked_in(&second) + 1);
    raw.get(format!("{counts}/none")).await.expect(404);
    raw.post(counts, &json!({ "metadata": { "name": "b" }, "spec": { "asked": 1 } })).await.expect(405);
    let mut watch = raw.get(format!("{counts}?watch=1&resourceVersion=0")).stream().await;
    let shown = watch.next_json().await.unwrap();
    assert_eq!(shown["type"], "ADDED");
    let next = watch.next_json().await.unwrap();
    assert_eq!(next["type"], "MODIFIED");
    assert!(asked_in(&next["object"]) > asked_in(&shown["object"]));
    asked.store(u32::MAX, Ordering::Relaxed);
    let broken = raw.get(counts).await.expect(503).json();
    assert_eq!(broken["message"], "the counter is broken");
    server.shutdown().await;
}
