//! Tests of three servers on one store: lists and watches that change between servers, restarts one after another, and
//! a store that is unavailable for a while. Invariants 1, 3, 5, 7, 11, 12, 15 and 19, with requests over TLS.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

mod access;
mod barrier;
mod changing;
mod cluster;
mod custom_fleets;
mod custom_migrations;
mod definitions;
mod engines;
mod etcd_members;
mod exchanged;
mod history;
mod identity;
mod keys;
mod killed;
mod linear;
mod lost_answers;
mod migration_attacks;
mod migrations;
mod mixed;
mod outages;
mod quotas;
mod roomless;
mod settings;
mod sizes;
mod storage_states;
mod storage_versions;
mod verbs;
mod verified;
mod walks;
mod watches;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keelson_testkit::{Raw, Stream};
use serde_json::{Value, json};

/// The path of the objects that the tests write.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The prefix of these objects in the store.
pub(crate) const STORED: &str = "/registry/configmaps/default/";

pub(crate) fn items(list: &Value) -> &[Value] {
    list["items"].as_array().unwrap()
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// The resourceVersion of an object or a list as a number.
pub(crate) fn revision(of: &Value) -> u64 {
    of["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

pub(crate) fn config_map(name: &str, number: u64) -> Value {
    json!({"metadata": {"name": name}, "data": {"number": number.to_string()}})
}

/// The next event of a watch about this object. The servers also have objects of their own.
pub(crate) async fn next_of(stream: &mut Stream, object: &str) -> Value {
    loop {
        let event = stream.next_json().await.expect("the watch lasts");
        assert_ne!(event["type"], "ERROR", "{event}");
        if name(&event["object"]) == object {
            return event;
        }
    }
}

/// Returns true for the name of a test's object.
pub(crate) fn is_ours(name: &str) -> bool {
    !name.starts_with("kube-")
}

/// The timeout, for a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Waits until a condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, done: impl Fn() -> F) {
    let wait = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what}: it did not happen"));
}

/// The state that writers and watchers share.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) done: AtomicBool,
    pub(crate) acknowledged: AtomicU64,
    /// The newest revision acknowledged to a client.
    pub(crate) newest: AtomicU64,
}

/// Creates, changes and deletes objects named `w<writer>-...` on any server that answers, until it is stopped. After a
/// failed request it sends another one at once: a client that lost its server does not wait for it.
pub(crate) async fn write(servers: &[Raw], progress: &Progress, writer: usize) {
    let mut number = 0;
    while !progress.done.load(Ordering::SeqCst) {
        number += 1;
        let raw = &servers[(writer + number) % servers.len()];
        // The names are spread over the whole key order.
        let name = format!("{:02}-w{writer}-{}", (number * 7) % 100, number / 3 % 40);
        let path = format!("{CONFIG_MAPS}/{name}");
        let map = config_map(&name, number as u64);
        let sent = match number % 4 {
            0 => raw.delete(path),
            1 => raw.patch(path, "application/merge-patch+json", &map),
            _ => raw.post(CONFIG_MAPS, &map),
        };
        match sent.try_send().await {
            Ok(answer) if answer.status < 300 => {
                progress.acknowledged.fetch_add(1, Ordering::SeqCst);
                let text = answer.json()["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                progress.newest.fetch_max(text.parse().unwrap_or(0), Ordering::SeqCst);
            }
            Ok(answer) => assert!([404, 409, 503, 504].contains(&answer.status), "{}", answer.text()),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
