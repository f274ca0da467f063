//! Tests of servers with different keys. A server whose keys running servers would reject does not start, and reports
//! the remedy. Keys can be replaced on one server after the other without an effect on clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{ProcessServer, Raw, TestServer, TestServerBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::engines::{Engine, on_engine};
use crate::{CONFIG_MAPS, config_map};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/web/token";
/// The files that servers share according to the documentation.
const SHARED: [&str; 4] = ["ca.crt", "ca.key", "sa.key", "sa.pub"];

on_engine!(postgres, postgres:
    a_second_server_is_told_what_to_copy,
    a_server_that_accepts_other_clients_says_so_in_its_log,
    a_server_that_another_replaces_ends_and_says_why);

fn pki(data: &TempDir) -> PathBuf {
    data.path().join("pki")
}

fn copy_keys(from: &TempDir, to: &TempDir) {
    fs::create_dir_all(pki(to)).unwrap();
    for name in SHARED {
        fs::copy(pki(from).join(name), pki(to).join(name)).unwrap();
    }
}

fn process(store: &str, data: &Path, id: &str) -> keelson_testkit::ProcessServerBuilder {
    ProcessServer::builder(KEELSON).data_dir(data).arg("--store").arg(store).arg("--server-id").arg(id)
}

/// A server in this process. It renews its lease often, so that other servers soon see that it is alive.
fn server(store: &MemoryStore, id: &str, data: &TempDir) -> TestServerBuilder {
    TestServer::builder().shared_store(Arc::new(store.clone())).configure(|config| {
        config.server_id = id.to_owned();
        config.data_dir = Some(data.path().to_owned());
        config.identity_interval = Duration::from_millis(200);
    })
}

async fn token(raw: &Raw) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let _ = raw.post(accounts, &json!({"metadata": {"name": "web"}})).await;
    let token = raw.post(TOKENS, &json!({"spec": {}})).await.expect(201).json();
    token["status"]["token"].as_str().unwrap().to_owned()
}

async fn accepts(raw: &Raw, token: &str) -> bool {
    let review = json!({"spec": {"token": token}});
    let answer = raw.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.expect(201).json();
    answer["status"]["authenticated"] == true
}

async fn a_second_server_is_told_what_to_copy(engine: Engine) {
    let (url, first_data, second_data) = (engine.url(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let first = process(url, first_data.path(), "first").start().await;
    let data = second_data.path().to_str().unwrap();
    let serve = ["serve", "--bind", "127.0.0.1:0", "--data-dir", data, "--store", url, "--server-id", "second"];
    let Output { status, stderr, .. } = Command::new(KEELSON).args(serve).output().await.unwrap();
    let told = String::from_utf8(stderr).unwrap();
    let sentence = told.lines().find(|line| line.starts_with("keelson: this server (second) and the server first at "));
    let sentence = sentence.unwrap_or_else(|| panic!("{told}"));
    assert!(!status.success());
    assert!(!pki(&second_data).exists(), "keys that nobody accepts are left behind");
    let both = "do not agree on client certificates, serving certificates, tokens of service accounts";
    let way = format!("copy ca.crt, ca.key, sa.key and sa.pub from pki in that server's data directory to {data}/pki");
    for part in [both, way.as_str(), "start with --allow-other-keys"] {
        assert!(sentence.contains(part), "{part} in {sentence}");
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    first.raw().get(format!("{leases}/second")).await.expect(404);
    // The reported remedy works.
    copy_keys(&first_data, &second_data);
    let second = process(url, second_data.path(), "second").start().await;
    for (signs, reads) in [(&first, &second), (&second, &first)] {
        assert!(accepts(&reads.raw(), &token(&signs.raw()).await).await);
    }
    // With the flag the server starts anyway.
    let own_data = TempDir::new().unwrap();
    let third = process(url, own_data.path(), "third").arg("--allow-other-keys").start().await;
    assert!(!accepts(&third.raw(), &token(&first.raw()).await).await);
}

async fn a_server_that_accepts_other_clients_says_so_in_its_log(engine: Engine) {
    let (url, [one, two, others]) = (engine.url(), [(); 3].map(|()| TempDir::new().unwrap()));
    server(&MemoryStore::new(), "alone", &others).start().await.stop().await;
    let first = process(url, one.path(), "first").start().await;
    for (id, differs) in [("same", false), ("second", true)] {
        copy_keys(&one, &two);
        let mut builder = process(url, two.path(), id);
        if differs {
            builder = builder.arg("--client-ca-file").arg(pki(&others).join("ca.crt"));
        }
        let mut server = builder.start().await;
        let log = server.log();
        let told =
            log.lines().find(|line| line.contains("does not accept client certificates of the same authorities"));
        assert_eq!(
            told.is_some_and(|line| line.contains("first") && line.contains("--client-ca-file")),
            differs,
            "{log}"
        );
        server.terminate().await;
    }
    first.raw().get("/readyz").await.expect(200);
}

async fn a_server_that_another_replaces_ends_and_says_why(engine: Engine) {
    let (url, data, other_data) = (engine.url(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut server = process(url, data.path(), "one").start().await;
    // A restart after a crash waits for no expiry.
    server.kill().await;
    let begun = Instant::now();
    server.restart().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
    server.raw().post(CONFIG_MAPS, &config_map("before", 1)).await.expect(201);
    copy_keys(&data, &other_data);
    let other = process(url, other_data.path(), "one").start().await;
    assert!(!server.ended().await.success());
    let log = server.log();
    let sentence = "keelson: another process has started as the server one and takes its place: give each server on a store \
                    a --server-id of its own, or a --data-dir from which one follows";
    assert!(log.lines().any(|line| line == sentence), "{log}");
    other.raw().get("/readyz").await.expect(200);
    other.raw().post(CONFIG_MAPS, &config_map("after", 1)).await.expect(201);
}

/// Sets the keys of a server for a step of the replacement: the keys that sign, and further keys that are accepted.
fn set_keys(data: &TempDir, signs: &TempDir, accepts: &[&TempDir]) {
    let read = |of: &TempDir, name: &str| fs::read_to_string(pki(of).join(name)).unwrap();
    for (signing, public) in [("ca.key", "ca.crt"), ("sa.key", "sa.pub")] {
        let all: String = [signs].iter().chain(accepts).map(|of| read(of, public)).collect();
        fs::write(pki(data).join(public), all).unwrap();
        fs::copy(pki(signs).join(signing), pki(data).join(signing)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_changed_one_server_after_the_other() {
    let store = MemoryStore::new();
    let [old, new, one, two] = [(); 4].map(|()| TempDir::new().unwrap());
    for keys in [&old, &new] {
        let alone = MemoryStore::new();
        server(&alone, "alone", keys).start().await.stop().await;
    }
    copy_keys(&old, &one);
    copy_keys(&old, &two);
    let mut servers = [server(&store, "one", &one).start().await, server(&store, "two", &two).start().await];
    let first_token = token(&servers[0].raw()).await;
    let steps: [(&TempDir, &[&TempDir]); 3] = [(&old, &[&new]), (&new, &[&old]), (&new, &[])];
    for (step, (signs, also)) in steps.into_iter().enumerate() {
        for number in 0..2 {
            set_keys([&one, &two][number], signs, also);
            servers[number].restart().await;
            for (signs, reads) in [(0, 1), (1, 0)] {
                let token = token(&servers[signs].raw()).await;
                assert!(accepts(&servers[reads].raw(), &token).await, "step {step}, server {number}");
            }
            assert_eq!(accepts(&servers[number].raw(), &first_token).await, step < 2);
        }
        // A server that the replacement has missed.
        let behind = TempDir::new().unwrap();
        copy_keys(&old, &behind);
        let started = server(&store, "behind", &behind).try_start().await;
        assert_eq!(started.is_ok(), step < 1, "step {step}");
    }
}

/// Writes the keys of continue tokens. The first one seals.
fn write_token_keys(data: &TempDir, keys: &[u8]) {
    let mut lines: Vec<String> = keys.iter().map(|byte| STANDARD.encode([*byte; 32])).collect();
    // Consecutive files differ in length, so that the server notices each.
    lines.push("#".repeat(keys[0].into()));
    fs::write(data.path().join("token-keys"), lines.join("\n")).unwrap();
}

/// The token after the first object, and the key that seals it.
async fn sealed(raw: &Raw) -> (String, Vec<u8>) {
    let page = raw.get(format!("{CONFIG_MAPS}?limit=1")).await.expect(200).json();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let key = URL_SAFE_NO_PAD.decode(&token).unwrap()[..5].to_vec();
    (token, key)
}

/// Continues a list with a token until the response has this status.
async fn until_answered(raw: &Raw, token: &str, status: u16) {
    let begun = Instant::now();
    while raw.get(format!("{CONFIG_MAPS}?limit=1&continue={token}")).await.status != status {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not {status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_continue_tokens_are_changed_while_walks_continue_at_other_servers() {
    let store = MemoryStore::new();
    let [one, two] = [(); 2].map(|()| TempDir::new().unwrap());
    for data in [&one, &two] {
        write_token_keys(data, &[1]);
    }
    let with_keys = |id: &str, data: &TempDir| {
        let file = data.path().join("token-keys");
        server(&store, id, data).configure(|config| config.token_key_file = Some(file))
    };
    let first = with_keys("one", &one).start().await;
    copy_keys(&one, &two);
    let second = with_keys("two", &two).start().await;
    let servers = [first.raw(), second.raw()];
    for name in ["a", "b", "c"] {
        servers[0].post(CONFIG_MAPS, &config_map(name, 0)).await.expect(201);
    }
    let (old, old_key) = sealed(&servers[0]).await;
    // All servers accept the new key before the first of them seals with it.
    for data in [&one, &two] {
        write_token_keys(data, &[1, 2]);
    }
    for (number, data) in [&one, &two].into_iter().enumerate() {
        write_token_keys(data, &[2, 1]);
        let begun = Instant::now();
        let (new, _) = loop {
            let (token, key) = sealed(&servers[number]).await;
            if key != old_key {
                break (token, key);
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "the keys are not read again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        for raw in &servers {
            until_answered(raw, &new, 200).await;
            let walk = raw.get(format!("{CONFIG_MAPS}?limit=1&continue={old}")).await;
            assert_eq!(walk.status, 200, "walks that have begun go on");
        }
    }
    let (new, _) = sealed(&servers[0]).await;
    for (data, raw) in [&one, &two].into_iter().zip(&servers) {
        write_token_keys(data, &[2]);
        until_answered(raw, &old, 410).await;
        until_answered(raw, &new, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_with_different_issuers_are_reported() {
    let (store, keys) = (MemoryStore::new(), TempDir::new().unwrap());
    let _first = server(&store, "first", &keys).start().await;
    let issuer = |builder: TestServerBuilder| {
        builder.configure(|config| config.service_account_issuer = "https://other.example.org".to_owned())
    };
    let refused = issuer(server(&store, "second", &keys)).try_start().await.err().unwrap();
    let message = "do not agree on the issuers of service account tokens: give both the same --service-account-issuer, or start \
                with --allow-other-keys";
    assert!(refused.contains(message), "{refused}");
}

/// Neither server finds the other at its first check. It would be wrong if both stayed, and also if both ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_with_other_keys_that_start_at_once_one_stays() {
    for round in 0..5 {
        let (store, keys) = (MemoryStore::new(), [(); 2].map(|()| TempDir::new().unwrap()));
        let (one, two) =
            tokio::join!(server(&store, "one", &keys[0]).try_start(), server(&store, "two", &keys[1]).try_start());
        assert_ne!(one.is_ok(), two.is_ok(), "round {round}");
        let refused_keys = if one.is_ok() { &keys[1] } else { &keys[0] };
        assert_eq!(fs::read_dir(refused_keys).unwrap().count(), 0, "keys that nobody accepts are left behind");
        let refused = one.as_ref().err().or(two.as_ref().err()).unwrap();
        assert!(refused.contains("do not agree on client certificates"), "{refused}");
        let stays = one.or(two).ok().unwrap();
        let leases =
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=apiserver.kubernetes.io/identity";
        assert_eq!(stays.raw().get(leases).await.expect(200).json()["items"].as_array().unwrap().len(), 1);
    }
}

/// All servers of a directory use one set of keys, whichever server wrote it first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_starts_in_one_directory_create_one_set_of_keys() {
    for round in 0..5 {
        let (store, keys) = (MemoryStore::new(), TempDir::new().unwrap());
        let (one, two) =
            tokio::join!(server(&store, "one", &keys).try_start(), server(&store, "two", &keys).try_start());
        assert!(one.is_ok() || two.is_ok(), "round {round}");
        for refused in [&one, &two].into_iter().filter_map(|started| started.as_ref().err()) {
            let (late, later) = ("another server has just created keys in ", "do not agree on client certificates");
            assert!(refused.contains(late) || refused.contains(later), "round {round}: {refused}");
        }
        let authority = fs::read_to_string(pki(&keys).join("ca.crt")).unwrap();
        for server in [one, two].into_iter().flatten() {
            assert_eq!(server.running().pki().ca_pem, authority, "round {round}");
        }
    }
}

/// Two servers agree and one does not. The one that has to end keeps neither of the others from starting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_concurrent_starts_those_with_matching_keys_stay() {
    let [one_keys, other_keys, two_keys] = [(); 3].map(|()| TempDir::new().unwrap());
    server(&MemoryStore::new(), "alone", &one_keys).start().await.stop().await;
    copy_keys(&one_keys, &two_keys);
    for round in 0..5 {
        let store = MemoryStore::new();
        let (one, other, two) = tokio::join!(
            server(&store, "one", &one_keys).try_start(),
            server(&store, "other", &other_keys).try_start(),
            server(&store, "two", &two_keys).try_start()
        );
        let started = [one.is_ok(), other.is_ok(), two.is_ok()];
        assert!([[true, false, true], [false, true, false]].contains(&started), "round {round}: {started:?}");
    }
}

/// Only running servers count: a dead one prevents no start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_other_keys_than_a_dead_one_starts() {
    let (store, keys, others) = (MemoryStore::new(), TempDir::new().unwrap(), TempDir::new().unwrap());
    // The server is dropped without a stop, as if it were killed.
    drop(server(&store, "dead", &keys).start().await);
    let server = server(&store, "living", &others).start().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let leases: Value = server.raw().get(leases).await.expect(200).json();
    assert!(leases["items"].as_array().unwrap().iter().any(|lease| lease["metadata"]["name"] == "dead"));
}
