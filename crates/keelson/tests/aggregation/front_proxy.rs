//! Tests of the headers and certificates with which front proxies name the user to aggregated servers.
//!
//! An aggregated server trusts only these. So the main server must remove the same headers from a client's request.

use std::sync::Arc;
use std::time::Duration;

use keelson_server::Config;
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{Endpoint, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::made_peers::claimed;

const TOLD: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const PROXY_CA: &str = "requestheader-client-ca-file";
/// The timeout for background work of the server.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the config map is as expected.
async fn until(raw: &Raw, expected: impl Fn(&Value) -> bool) -> Value {
    let wait = async {
        loop {
            let answer = raw.get(TOLD).await;
            if answer.status == 200 && expected(&answer.json()["data"]) {
                return answer.json();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the config map never is as it should be")
}

fn certificates(text: &Value) -> usize {
    text.as_str().map_or(0, |text| text.matches("BEGIN CERTIFICATE").count())
}

#[tokio::test]
async fn aggregated_servers_read_the_front_proxy_settings() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let body = raw.get(TOLD).await.expect(200).json();
    let data = &body["data"];
    let text = |value: &str| json!(value);
    assert_eq!(data["requestheader-allowed-names"], text(r#"["front-proxy-client"]"#));
    assert_eq!(data["requestheader-username-headers"], text(r#"["X-Remote-User"]"#));
    assert_eq!(data["requestheader-uid-headers"], text(r#"["X-Remote-Uid"]"#));
    assert_eq!(data["requestheader-group-headers"], text(r#"["X-Remote-Group"]"#));
    assert_eq!(data["requestheader-extra-headers-prefix"], text(r#"["X-Remote-Extra-"]"#));
    let pki = server.running().pki();
    assert_eq!(data["client-ca-file"], text(&pki.client_ca_pem));
    assert_eq!(data[PROXY_CA], text(&pki.front_proxy.ca_pem));
    assert_eq!(data.as_object().unwrap().len(), 7);
    let role =
        "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/extension-apiserver-authentication-reader";
    assert_eq!(
        raw.get(role).await.expect(200).json()["rules"][0]["resourceNames"],
        json!(["extension-apiserver-authentication"])
    );
}

#[tokio::test]
async fn deleted_authentication_info_is_restored() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let before = raw.get(TOLD).await.expect(200).json();
    raw.delete(TOLD).await.expect(200);
    let again = until(&raw, |data| *data == before["data"]).await;
    assert_ne!(again["metadata"]["uid"], before["metadata"]["uid"]);
    let damage = json!({"data": {PROXY_CA: "gone", "requestheader-username-headers": "{", "more": "1"}});
    raw.patch(TOLD, "application/merge-patch+json", &damage).await.expect(200);
    until(&raw, |data| *data == before["data"]).await;
}

#[tokio::test]
async fn servers_publish_all_their_different_authorities() {
    let store = MemoryStore::new();
    let server = |id: &'static str| {
        TestServer::builder().shared_store(Arc::new(store.clone())).configure(move |config| {
            config.server_id = id.to_owned();
            config.allow_other_keys = true;
        })
    };
    let one = server("one").start().await;
    let first = one.raw().get(TOLD).await.expect(200).json();
    assert_eq!(certificates(&first["data"][PROXY_CA]), 1);
    let mut other = server("other").start().await;
    let both = until(&other.raw(), |data| certificates(&data[PROXY_CA]) == 2).await;
    assert_eq!(certificates(&both["data"]["client-ca-file"]), 2);
    assert_eq!(both["data"]["requestheader-allowed-names"], first["data"]["requestheader-allowed-names"]);
    for running in [&one, &other] {
        assert!(both["data"][PROXY_CA].as_str().unwrap().contains(running.running().pki().front_proxy.ca_pem.trim()));
    }
    // After a restart the server finds its own entry.
    other.restart().await;
    let now = other.raw().get(TOLD).await.expect(200).json();
    assert_eq!(now["metadata"]["resourceVersion"], both["metadata"]["resourceVersion"]);
}

/// Without allowed names, every certificate of the authority is accepted, as in kube-apiserver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_the_given_authority_act_as_front_proxies() {
    let other = TestServer::start().await;
    let files = TempDir::new().unwrap();
    let authority = files.path().join("front-proxy-ca.crt");
    std::fs::write(&authority, &other.running().pki().ca_pem).unwrap();
    let with = |names: &[&str]| {
        let (authority, names) = (authority.clone(), names.iter().map(ToString::to_string).collect());
        TestServer::builder().configure(move |config: &mut Config| {
            config.pki.front_proxy.client_ca = Some(authority);
            config.pki.front_proxy.headers.allowed_names = names;
        })
    };
    for (names, believed) in [(&[][..], true), (&["keelson-admin"], true), (&["somebody-else"], false)] {
        let server = with(names).start().await;
        let mut pki = server.running().pki().clone();
        pki.admin = other.running().pki().admin.clone();
        let kubeconfig = files.path().join("proxy.kubeconfig");
        std::fs::write(&kubeconfig, pki.kubeconfig(&server.url())).unwrap();
        let proxy = Endpoint::from_kubeconfig(kubeconfig).await.unwrap();
        let asked = claimed(&proxy, Some("ann")).await.unwrap();
        if believed {
            assert_eq!(asked, (201, json!("ann")), "{names:?}");
        } else {
            assert_eq!(asked.0, 401, "{names:?}");
        }
        assert_eq!(claimed(&proxy, None).await.unwrap().0, 401, "by itself it is nobody");
        assert_eq!(claimed(&server, Some("ann")).await, Ok((201, json!("keelson-admin"))), "a client is who it is");
    }
    // Otherwise every client with a certificate could impersonate other users.
    let shared = with(&[]).configure(|config| config.pki.client_ca = config.pki.front_proxy.client_ca.clone());
    let refused = shared.try_start().await.err().expect("it does not start");
    assert!(refused.contains("give --requestheader-allowed-names"), "{refused}");
}
