//! Tests of sealed continue tokens: they reveal nothing, are valid only for their list and client, and survive a
//! rotation of keys.
//!
//! Forbidden uses are tried over the wire, as by a client that has found a token.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keelson_testkit::TestServer;
use serde_json::{Value, json};
use tempfile::TempDir;

const MAPS: &str = "/api/v1/namespaces/a/configmaps";
/// The longest wait for a changed file to be read.
const PATIENCE: Duration = Duration::from_secs(60);

fn write_keys(file: &Path, keys: &[u8]) {
    let lines: Vec<String> = keys.iter().map(|byte| STANDARD.encode([*byte; 32])).collect();
    fs::write(file, lines.join("\n")).unwrap();
}

async fn server(keys: &Path) -> TestServer {
    let (file, tokens) = (keys.to_owned(), keys.with_extension("csv"));
    fs::write(&tokens, "bob,bob,,system:masters\n").unwrap();
    let server = TestServer::builder().configure(move |config| {
        config.token_key_file = Some(file);
        config.token_file = Some(tokens);
    });
    let server = server.start().await;
    let admin = server.raw();
    for namespace in ["a", "b"] {
        admin.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.expect(201);
    }
    for name in ["one", "two", "three", "four", "five"] {
        admin.post(MAPS, &json!({"metadata": {"name": format!("secret-{name}")}})).await.expect(201);
    }
    server
}

fn token_of(list: &Value) -> String {
    list["metadata"]["continue"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealed_tokens_complete_a_list_only_for_their_user() {
    let files = TempDir::new().unwrap();
    let keys = files.path().join("keys");
    write_keys(&keys, &[1]);
    let server = server(&keys).await;
    let admin = server.raw();
    let whole = admin.get(MAPS).await.expect(200).json()["items"].as_array().unwrap().len();
    let (mut token, mut seen, mut first) = (String::new(), 0, String::new());
    loop {
        let page = admin.get(format!("{MAPS}?limit=2&continue={token}")).await.expect(200).json();
        seen += page["items"].as_array().unwrap().len();
        token = token_of(&page);
        if token.is_empty() {
            break;
        }
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("secret"), "a token shows a name");
        first = if first.is_empty() { token.clone() } else { first };
    }
    assert_eq!(seen, whole);

    // Tokens of queries too, which would reveal the values of their order.
    let sorted = format!("{MAPS}?keelson.io/sortBy=.metadata.name&limit=2");
    let query = token_of(&admin.get(sorted.as_str()).await.expect(200).json());
    let bytes = URL_SAFE_NO_PAD.decode(&query).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("secret"), "a token of a query shows a name");
    admin.get(format!("{sorted}&continue={query}")).await.expect(200);

    let refused = async |path: String, who: Option<&str>| {
        let raw = if who.is_some() { server.anonymous() } else { server.raw() };
        let call = raw.get(path);
        let call = if let Some(who) = who { call.header("authorization", format!("Bearer {who}")) } else { call };
        let told = call.await.expect(400).json()["message"].clone();
        assert!(told.as_str().unwrap().starts_with("invalid continue token: continue key is not valid"), "{told}");
    };
    refused(format!("{MAPS}?limit=2&continue={first}"), Some("bob")).await;
    refused(format!("{sorted}&continue={query}"), Some("bob")).await;
    refused(format!("{sorted}&continue={first}x"), None).await;
    refused(format!("/api/v1/namespaces/b/configmaps?limit=2&continue={first}"), None).await;
    refused(format!("/api/v1/configmaps?limit=2&continue={first}"), None).await;
    refused(format!("/api/v1/namespaces/a/secrets?limit=2&continue={first}"), None).await;
    let mut bytes = URL_SAFE_NO_PAD.decode(&first).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    refused(format!("{MAPS}?limit=2&continue={}", URL_SAFE_NO_PAD.encode(bytes)), None).await;
    refused(format!("{MAPS}?limit=2&continue=x%25"), None).await;
    admin.get(format!("{MAPS}?limit=2&continue={first}")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seal_keys_rotate_and_tokens_of_retired_keys_expire() {
    let files = TempDir::new().unwrap();
    let keys = files.path().join("keys");
    write_keys(&keys, &[1]);
    let server = server(&keys).await;
    let admin = server.raw();
    let old = token_of(&admin.get(format!("{MAPS}?limit=2")).await.expect(200).json());
    let key_of = |token: &str| URL_SAFE_NO_PAD.decode(token).unwrap()[..5].to_vec();
    let until_sealed_by_another = async |than: &str| {
        let begun = Instant::now();
        loop {
            let token = token_of(&admin.get(format!("{MAPS}?limit=2")).await.expect(200).json());
            if key_of(&token) != key_of(than) {
                return token;
            }
            assert!(begun.elapsed() < PATIENCE, "the keys are not read again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    write_keys(&keys, &[2, 1]);
    let new = until_sealed_by_another(&old).await;
    admin.get(format!("{MAPS}?limit=2&continue={old}")).await.expect(200);
    write_keys(&keys, &[3, 2, 4]);
    until_sealed_by_another(&new).await;
    admin.get(format!("{MAPS}?limit=2&continue={new}")).await.expect(200);
    let gone = admin.get(format!("{MAPS}?limit=2&continue={old}")).await.expect(410).json();
    assert_eq!((&gone["reason"], &gone["metadata"]["continue"]), (&json!("Expired"), &Value::Null));
    // Like a token from before keys were configured.
    let plain = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/x"}"#);
    admin.get(format!("{MAPS}?limit=2&continue={plain}")).await.expect(410);
}
