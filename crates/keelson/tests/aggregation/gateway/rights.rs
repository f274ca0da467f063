//! Rights: every caller has those of the source, for reads from mirrors and for requests that are passed through.
//!
//! The gateway's own account is an administrator's, so that any use of it for a caller would show.

use std::time::Duration;

use keelson_gateway::SourceSettings;
use keelson_testkit::TestServer;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use super::lab::{Gateway, as_user, certificate, create_maps, names, source};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The time for which an answer of the source is valid.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// Lets a user read config maps in a namespace.
pub(crate) async fn let_read(source: &TestServer, user: &str, namespace: &str) {
    let raw = source.raw();
    let of = |kind: &str| format!("{RBAC}/namespaces/{namespace}/{kind}");
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]);
    raw.post(of("roles"), &json!({"metadata": {"name": "reader"}, "rules": rules})).await.expect(201);
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    raw.post(of("rolebindings"), &binding).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn users_read_only_objects_that_the_source_allows() {
    let source = source().start().await;
    create_maps(&source, "mine", 4).await;
    create_maps(&source, "theirs", 4).await;
    let_read(&source, "ann", "mine").await;
    let gateway = Gateway::before(&source).await;
    let own = gateway.get_as("ann", "/api/v1/namespaces/mine/configmaps").await.expect(200);
    assert!(!own.header("keelson-lag").is_empty());
    assert_eq!(names(&own.json()).len(), 4);
    gateway.get_as("ann", "/api/v1/namespaces/mine/configmaps/m0001?resourceVersion=0").await.expect(200);
    // Nothing of another namespace is read, counted, searched, grouped, sorted or watched.
    let queries = [
        "",
        "?resourceVersion=0",
        "?limit=1",
        "?watch=1&resourceVersion=0",
        "?watch=1",
        "?keelson.io/search=word1",
        "?limit=1&keelson.io/sortBy=data.rank",
        "?keelson.io/groupBy=metadata.namespace",
        "?labelSelector=third%3Dtrue",
        "?fieldSelector=metadata.namespace%3Dmine",
        "?keelson.io/filter=data.rank+%3D+1",
        "?keelson.io/search=word1&keelson.io/matches=true",
        "?limit=1&keelson.io/page=2",
    ];
    let denied = [
        "/api/v1/namespaces/theirs/configmaps",
        "/api/v1/configmaps",
        "/api/v1/namespaces/mine/pods",
        "/api/v1/namespaces//configmaps",
    ];
    for path in denied {
        for query in queries {
            let answer = gateway.get_as("ann", format!("{path}{query}")).await;
            assert_eq!(answer.status, 403, "{path}{query}: {}", answer.text());
            assert!(!answer.text().contains("m000"), "{}", answer.text());
            for header in ["keelson-total-count", "keelson-objects-scanned", "keelson-looked-at", "keelson-lag"] {
                assert_eq!(answer.header(header), "", "{path}{query}");
            }
        }
    }
    for path in [
        "/api/v1/namespaces/theirs/configmaps/m0001",
        "/api/v1/namespaces/theirs/configmaps/m0001?resourceVersion=0",
        "/api/v1/secrets",
    ] {
        assert_eq!(gateway.get_as("ann", path).await.status, 403, "{path}");
    }
    // A token of another range reads nothing beyond the URL.
    let chunk = gateway.get("/api/v1/namespaces/theirs/configmaps?limit=1").await.expect(200).json();
    let token = chunk["metadata"]["continue"].as_str().unwrap();
    let page = gateway.get_as("ann", format!("/api/v1/namespaces/mine/configmaps?limit=9&continue={token}")).await;
    if page.status == 200 {
        let spaces = page.json()["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["namespace"].clone())
            .collect::<Vec<_>>();
        assert!(spaces.iter().all(|space| space == "mine"), "{spaces:?}");
    }
    gateway.stop().await;
}

/// The gateway's own credentials are those of an administrator here, so that any use of them for a caller would show.
#[tokio::test(flavor = "multi_thread")]
async fn no_request_of_a_caller_gets_the_rights_of_the_gateway() {
    let source = source().start().await;
    create_maps(&source, "theirs", 2).await;
    let gateway = Gateway::before(&source).await;
    let (maps, map) = ("/api/v1/namespaces/theirs/configmaps", json!({"metadata": {"name": "forged"}}));
    let denied = async |answer: keelson_testkit::Call, user: &str| {
        let answer = answer.await;
        assert_eq!(answer.status, 403, "{}", answer.text());
        assert!(answer.text().contains(&format!("User \\\"{user}\\\"")), "{}", answer.text());
    };
    let raw = gateway.raw();
    denied(raw.post(maps, &map), "system:anonymous").await;
    denied(raw.get(maps), "system:anonymous").await;
    denied(raw.get(format!("{maps}/m0001")), "system:anonymous").await;
    denied(as_user(raw.post(maps, &map), "bob"), "bob").await;
    denied(as_user(raw.delete(format!("{maps}/m0001")), "bob"), "bob").await;
    let forged = [
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("x_remote_user", "root"),
        ("x-forwarded-user", "root"),
        ("x-kubernetes-peer-proxied", "true"),
        ("connection", "authorization"),
    ];
    for (name, value) in forged {
        for call in [raw.get(maps), raw.post(maps, &map)] {
            let answer =
                as_user(call, "bob").also_header("x-remote-group", "system:masters").also_header(name, value).await;
            assert!(answer.status == 403 || answer.status == 400, "{name}: {} {}", answer.status, answer.text());
        }
    }
    // Impersonation needs the caller's own right, in both ways.
    for call in [raw.get(maps), raw.post(maps, &map)] {
        let answer =
            as_user(call, "bob").header("impersonate-user", "root").header("impersonate-group", "system:masters").await;
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    let acting = as_user(raw.get(maps), "root").header("impersonate-user", "ann").await;
    assert_eq!(acting.status, 403, "{}", acting.text());
    let wrong = |call: keelson_testkit::Call| call.header("authorization", "Bearer wrong");
    for call in [raw.get(maps), raw.post(maps, &map), raw.get("/api")] {
        assert_eq!(wrong(call).await.status, 401);
    }
    let administrator = source.raw();
    let left: Value = administrator.get(maps).await.expect(200).json();
    assert_eq!(names(&left), ["m0000", "m0001"]);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_taken_away_ends_within_seconds() {
    let source = source().start().await;
    create_maps(&source, "mine", 2).await;
    let gateway = Gateway::before(&source).await;
    let maps = "/api/v1/namespaces/mine/configmaps";
    gateway.get_as("ann", maps).await.expect(403);
    let_read(&source, "ann", "mine").await;
    let allowed = async |expected: u16| {
        let begun = std::time::Instant::now();
        while gateway.get_as("ann", maps).await.status != expected {
            assert!(begun.elapsed() < 2 * KEPT_FOR + Duration::from_secs(20), "the answer stays");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    allowed(200).await;
    source.raw().delete(format!("{RBAC}/namespaces/mine/rolebindings/reader")).await.expect(200);
    allowed(403).await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_read_mirrors_and_pass_only_by_impersonation() {
    let source = source().start().await;
    create_maps(&source, "mine", 2).await;
    create_maps(&source, "theirs", 2).await;
    let_read(&source, "carol", "mine").await;
    let pem = certificate(&source, "carol").await;
    let (own, others) = ("/api/v1/namespaces/mine/configmaps", "/api/v1/namespaces/theirs/configmaps");
    let map = json!({"metadata": {"name": "new"}});
    for impersonates in [false, true] {
        let settings = SourceSettings { impersonates, ..SourceSettings::new("one", source.kubeconfig()) };
        let gateway = Gateway::of(vec![settings]).await;
        gateway.loaded().await;
        let carol = gateway.raw().presenting(&pem);
        // The authorities of the source are read in the background.
        let begun = std::time::Instant::now();
        while carol.clone().get(own).await.status != 200 {
            assert!(begun.elapsed() < super::lab::PATIENCE, "the certificate never counts");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(!carol.get(own).await.expect(200).header("keelson-lag").is_empty());
        carol.get(others).await.expect(403);
        let written = carol.post(own, &map).await;
        if !impersonates {
            assert_eq!(written.status, 401);
            assert!(written.text().contains("client certificate"), "{}", written.text());
            gateway.stop().await;
            continue;
        }
        // The gateway is an administrator, and the caller is not.
        assert_eq!(written.status, 403);
        assert!(written.text().contains("User \\\"carol\\\""), "{}", written.text());
        carol.get(format!("{own}/m0001")).await.expect(200);
        carol.get(format!("{others}/m0001")).await.expect(403);
        let forged = [
            ("impersonate-user", "root"),
            ("impersonate-group", "system:masters"),
            ("impersonate_group", "system:masters"),
            ("impersonate-extra-a", "b"),
        ];
        for (name, value) in forged {
            assert_eq!(carol.get("/api/v1/secrets").header(name, value).await.status, 403, "{name}");
            assert_eq!(carol.post(others, &map).header(name, value).await.status, 403, "{name}");
        }
        for (name, value) in
            [("x-remote-group", "system:masters"), ("connection", "impersonate-user, impersonate-group")]
        {
            let answer = carol.post(others, &map).header(name, value).await;
            assert!([400, 403].contains(&answer.status), "{name}: {}", answer.text());
        }
        // A token counts before the certificate, as at the source.
        let answer = as_user(carol.post(own, &map), "bob").await;
        assert!(answer.text().contains("User \\\"bob\\\""), "{}", answer.text());
        // A certificate of another authority is worth nothing.
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "carol");
        let other = format!("{}{}", params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        for path in [own.to_owned(), format!("{own}/m0001")] {
            let status = gateway.raw().presenting(&other).get(path).await.status;
            assert!([401, 403].contains(&status), "{status}");
        }
        gateway.stop().await;
    }
}
