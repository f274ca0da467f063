//! Tests of deleting a namespace that has content on a server that does not answer.
//!
//! The other content is deleted meanwhile, and the conditions of the namespace state the reason of the delay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_controllers::{Content, NamespaceDeletion, RemainingObjects};
use keelson_meta::json::{Value, json};
use keelson_meta::options::{DeleteOptions, GetOptions};
use keelson_meta::{ApiError, GroupResource};
use keelson_registry::{Caller, Registry, Target};
use keelson_storage::memory::MemoryStore;
use tokio_util::sync::CancellationToken;

use crate::setup::{PATIENCE, config_maps, create, registry, target};

/// Content on a server that does not answer until the flag is set.
struct Remote(Arc<AtomicBool>);

impl Content for Remote {
    fn resource(&self) -> GroupResource {
        GroupResource { group: "example.org".to_owned(), resource: "gadgets".to_owned() }
    }

    fn empty<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<RemainingObjects, ApiError>> {
        let message = "nobody answers for gadgets".to_owned();
        let failure = ApiError::ServiceUnavailable { message, retry_after_seconds: None };
        let answer = if self.0.load(Ordering::SeqCst) { Ok(RemainingObjects::default()) } else { Err(failure) };
        Box::pin(std::future::ready(answer))
    }
}

/// Waits until the object is as expected. The function gets `None` for a deleted object.
async fn until(registry: &Registry, target: &Target, name: &str, expected: impl Fn(Option<Value>) -> bool) {
    let wait = async {
        loop {
            let found = registry.get(target, name, &Caller::server(), &GetOptions::default()).await.ok();
            if expected(found.map(|entry| serde_json::from_str(entry.object().text().as_ref()).unwrap())) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{name} is never as expected"));
}

#[tokio::test]
async fn unreachable_servers_are_reported_and_block_only_their_objects() {
    let registry = registry(Arc::new(MemoryStore::new())).await;
    let namespaces = target("", "namespaces", None);
    create(&registry, &namespaces, "team", json!({})).await;
    create(&registry, &config_maps("team"), "content", json!({})).await;
    let reachable = Arc::new(AtomicBool::new(false));
    let controller = NamespaceDeletion::new(registry.clone()).unwrap().also(Box::new(Remote(reachable.clone())));
    let stopping = CancellationToken::new();
    let running = tokio::spawn(controller.run(stopping.clone()));
    registry.delete(&namespaces, "team", &Caller::server(), &DeleteOptions::default()).await.unwrap();
    until(&registry, &config_maps("team"), "content", |content| content.is_none()).await;
    let failure = json!("Failed to delete all resource types, 1 remaining: nobody answers for gadgets");
    until(&registry, &namespaces, "team", |namespace| {
        let conditions = namespace.expect("it has to wait")["status"]["conditions"].clone();
        let failed = |condition: &Value| {
            condition["type"] == "NamespaceDeletionContentFailure" && condition["message"] == failure
        };
        conditions.as_array().into_iter().flatten().any(failed)
    })
    .await;
    reachable.store(true, Ordering::SeqCst);
    until(&registry, &namespaces, "team", |namespace| namespace.is_none()).await;
    stopping.cancel();
    running.await.unwrap();
}
