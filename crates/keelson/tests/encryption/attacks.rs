//! Tests of stored values that an attacker with access to the store has changed, and of configuration secrets that must
//! not leak.
//!
//! Each value is written to the store as a client of etcd could write it.

use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store as _, StoreKey, Transaction};
use keelson_testkit::ProcessServer;
use tempfile::TempDir;
use tokio::process::Command;

use crate::common::{SECRETS, configuration, create, metrics, provider, rule, secret, server, stored, until};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_truncated_and_huge_values_are_errors_of_their_own_object_alone() {
    for kind in ["secretbox", "aesgcm", "aescbc"] {
        let store = MemoryStore::new();
        let text = configuration(&[rule("secrets", &provider(kind, &[("key1", b'1')]))]);
        let server = server(&store, &text).await;
        create(&server, "whole").await;
        let whole = stored(&store, "whole").await;
        let prefix = format!("k8s:enc:{kind}:v1:key1:");
        let put = async |name: &str, value: Bytes| {
            let key = StoreKey::new(format!("/registry/secrets/default/{name}"));
            store.commit(Transaction::default().put(key, value)).await.unwrap();
        };
        let mut flipped = whole.to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        put("flipped", flipped.into()).await;
        for length in [prefix.len(), prefix.len() + 1, prefix.len() + 12, prefix.len() + 16, prefix.len() + 40] {
            put(&format!("cut{length}"), whole.slice(..length)).await;
        }
        put("huge", [prefix.as_bytes(), &vec![7; 8 << 20]].concat().into()).await;
        put("empty", Bytes::new()).await;
        put("prefix-alone", Bytes::from_static(b"k8s:enc:")).await;
        put("other-provider", Bytes::from_static(b"k8s:enc:rot13:v1:key1:abc")).await;
        put(
            "plain",
            Bytes::from_static(b"{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"plain\"}}"),
        )
        .await;
        for name in ["flipped", "huge", "empty", "prefix-alone", "other-provider", "plain"] {
            server.raw().get(format!("{SECRETS}/{name}")).await.expect(500);
        }
        for length in [prefix.len(), prefix.len() + 40] {
            server.raw().get(format!("{SECRETS}/cut{length}")).await.expect(500);
        }
        server.raw().get(format!("{SECRETS}/whole")).await.expect(200);
        server.raw().get("/readyz").await.expect(200);
        let text = metrics(&server).await;
        assert!(text.contains("status=\"unknown-non-grpc\""), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_of_the_configuration_are_in_no_log_page_or_metric() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("encryption.yaml");
    let text = configuration(&[rule("secrets", &provider("aesgcm", &[("key1", b'K'), ("key2", b'L')]))]);
    std::fs::write(&file, &text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let builder = ProcessServer::builder(KEELSON).env("KEELSON_LOG", "trace").arg("--encryption-provider-config");
    let server = builder.arg(&file).arg("--encryption-provider-config-automatic-reload").start().await;
    let raw = server.raw();
    raw.post(SECRETS, &serde_json::json!({"metadata": {"name": "a"}})).await.expect(201);
    std::fs::write(&file, text.replace("aesgcm", "aesgcmx")).unwrap();
    let refused = "the encryption configuration is invalid; the previous one stays in use";
    until("the file is read again", async || server.log().contains(refused)).await;
    let mut shown = server.log();
    assert!(shown.contains("chmod 600"), "others may read the file");
    for page in ["/metrics", "/configz", "/flagz", "/statusz", "/readyz?verbose", "/debug/pprof/"] {
        shown.push_str(&raw.get(page).await.text());
    }
    shown.push_str(&raw.get("/apis/coordination.k8s.io/v1/leases").await.expect(200).text());
    for key in [b'K', b'L'] {
        let text = secret(key);
        assert!(!shown.contains(&text[..16]) && !shown.contains(&String::from_utf8(vec![key; 16]).unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_file_ends_the_start_in_upstreams_words() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("encryption.yaml");
    let start = async |arguments: &[&str]| {
        let data = directory.path().join("data");
        let mut command = Command::new(KEELSON);
        command.args(["serve", "--bind", "127.0.0.1:0", "--data-dir"]).arg(&data).args(arguments);
        let output = command.output().await.unwrap();
        assert!(!output.status.success() && !data.join("pki").exists());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let path = file.to_string_lossy().into_owned();
    let missing = start(&["--encryption-provider-config", &path]).await;
    assert!(missing.contains("error while parsing file: error while loading file:"), "{missing}");
    let short = provider("aescbc", &[("k", b'1')]).replace(&secret(b'1'), "MDEyMzQ1Njc4OQ==");
    std::fs::write(&file, configuration(&[rule("secrets", &short)])).unwrap();
    let short = start(&["--encryption-provider-config", &path]).await;
    let expected = "resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, \
                    got 10, expected one of [16 24 32]";
    assert!(short.contains(expected) && !short.contains("MDEy"), "{short}");
    let alone = start(&["--encryption-provider-config-automatic-reload"]).await;
    let expected = "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config";
    assert!(alone.contains(expected), "{alone}");
}
