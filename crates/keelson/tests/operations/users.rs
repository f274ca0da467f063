//! Tests of `keelson user create`: the created user works, and requests beyond its rights are rejected.
//!
//! The command runs as a process, and the tests use its files as any client would.

use std::path::Path;
use std::process::Stdio;

use keelson_testkit::{Endpoint, TestServer};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

struct Said {
    ok: bool,
    out: String,
    err: String,
}

async fn user_create(kubeconfig: &Path, args: &[&str]) -> Said {
    keelson(&[&["user", "create"], args, &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat()).await
}

async fn keelson(args: &[&str]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_keelson")).args(args).stdin(Stdio::null()).output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { ok: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_created_kubeconfig_authenticates_with_the_bound_rights() {
    let server = TestServer::start().await;
    let admin = server.raw();
    for namespace in ["a", "b"] {
        admin.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await.expect(201);
    }
    let files = TempDir::new().unwrap();
    let out = files.path().join("ann.kubeconfig");
    let file = out.to_str().unwrap();
    let groups = ["--group", "devs", "--group", "night: shift"];
    let args = [&["ann@example.org"][..], &groups, &["--namespace", "a", "--role", "view", "--out", file]].concat();
    let said = user_create(server.kubeconfig(), &args).await;
    assert!(said.ok, "{}", said.err);
    assert!(said.out.contains("view in the namespace a"), "{}", said.out);

    let ann = Endpoint::from_kubeconfig(&out).await.unwrap();
    let ann = ann.raw();
    let review = ann.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await.expect(201).json();
    let user = &review["status"]["userInfo"];
    let expected = json!(["devs", "night: shift", "system:authenticated"]);
    assert_eq!((&user["username"], &user["groups"]), (&json!("ann@example.org"), &expected));
    ann.get("/api/v1/namespaces/a/pods").await.expect(200);
    ann.get("/api/v1/namespaces/a/secrets").await.expect(403);
    ann.get("/api/v1/namespaces/b/pods").await.expect(403);
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.contains("    namespace: a\n"), "{text}");
    // The signing request is deleted.
    let left = admin.get("/apis/certificates.k8s.io/v1/certificatesigningrequests").await.expect(200).json();
    assert_eq!(left["items"], json!([]));

    // A second call writes another file; the existing binding is reused.
    let second = files.path().join("second");
    let again = ["ann@example.org", "--namespace", "a", "--role", "view", "--out", second.to_str().unwrap()];
    let said = user_create(server.kubeconfig(), &again).await;
    assert!(said.ok, "{}", said.err);
    let exists = user_create(server.kubeconfig(), &again).await;
    assert!(!exists.ok && exists.err.contains("second exists"), "{}", exists.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_creates_leave_nothing_behind() {
    let server = TestServer::start().await;
    let files = TempDir::new().unwrap();
    let out = files.path().join("x");
    let check = async |args: &[&str], expected: &str| {
        let args = [args, &["--out", out.to_str().unwrap()]].concat();
        let said = user_create(server.kubeconfig(), &args).await;
        assert!(!said.ok && said.err.contains(expected), "{}", said.err);
        assert!(!out.exists());
    };
    check(&["ann", "--role", "nope"], r#"clusterroles.rbac.authorization.k8s.io "nope" not found"#).await;
    let masters = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    check(&["ann", "--group", "system:masters"], masters).await;
    check(&["ann", "--namespace", "nope", "--role", "view"], r#"namespaces "nope" not found"#).await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    assert_eq!(server.raw().get(requests).await.expect(200).json()["items"], json!([]));
}

/// The administrator's kubeconfig is in the data directory or in `KUBECONFIG`. The user may reach the server by another
/// name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_create_finds_the_server_and_its_external_name() {
    let server = TestServer::start().await;
    let files = TempDir::new().unwrap();
    let out = files.path().join("eve");
    let create = async |kubeconfig: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keelson"));
        command.current_dir(files.path()).env_remove("KEELSON_DATA_DIR").env("KUBECONFIG", kubeconfig);
        command.args(["user", "create", "eve", "--server", "https://api.example.org:6443", "--out"]).arg(&out);
        command.stdin(Stdio::null()).output().await.unwrap()
    };
    let nowhere = create(&files.path().join("nowhere")).await;
    let err = String::from_utf8(nowhere.stderr).unwrap();
    assert!(!nowhere.status.success() && err.contains("nowhere does not exist: name the data directory"), "{err}");
    let made = create(server.kubeconfig()).await;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.contains("server: https://api.example.org:6443\n"), "{text}");
}

/// The command prints a warning and still succeeds, so scripts continue to work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncovered_names_and_cluster_wide_roles_get_a_warning() {
    let builder = TestServer::builder().configure(|config| config.pki.extra_names = vec!["api.example.org".to_owned()]);
    let server = builder.start().await;
    let files = TempDir::new().unwrap();
    let create = async |name: &str, args: &[&str]| {
        let out = files.path().join(name);
        let said = user_create(server.kubeconfig(), &[&[name, "--out", out.to_str().unwrap()], args].concat()).await;
        assert!(said.ok, "{}", said.err);
        said
    };
    for held in ["https://api.example.org:6443", "api.example.org", "https://127.0.0.1"] {
        let name = format!("held-{}", held.len());
        assert_eq!(create(&name, &["--server", held]).await.err, "", "{held}");
    }
    for (number, other) in ["https://other.example.org:6443", "https://192.0.2.7:6443"].iter().enumerate() {
        let said = create(&format!("other-{number}"), &["--server", other]).await.err;
        let host = other.trim_start_matches("https://").trim_end_matches(":6443");
        assert!(said.contains(&format!("does not hold for {host}")), "{said}");
        assert!(said.contains("it holds for ") && said.contains("api.example.org"), "{said}");
        assert!(said.contains(&format!("--tls-san {host}")), "{said}");
    }
    let everywhere = create("everywhere", &["--role", "view"]).await;
    assert!(
        everywhere.err.contains("view is bound in all namespaces, as there is no --namespace; --all-namespaces"),
        "{}",
        everywhere.err
    );
    let meant = create("meant", &["--role", "view", "--all-namespaces", "--namespace", "default"]).await;
    assert!(meant.err.is_empty() && meant.out.contains("view in all namespaces"), "{} {}", meant.out, meant.err);
    let file = std::fs::read_to_string(files.path().join("meant")).unwrap();
    assert!(file.contains("    namespace: default\n"), "{file}");
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/meant:view";
    server.raw().get(bindings).await.expect(200);
    let out = files.path().join("bad");
    let bad = ["bad", "--server", "https://", "--out", out.to_str().unwrap()];
    let said = user_create(server.kubeconfig(), &bad).await;
    assert!(!said.ok && said.err.contains("reading --server") && !out.exists(), "{}", said.err);
}

/// A server knows no user before a request with its certificate, so only the record has them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn created_users_are_listed_with_their_rights() {
    let server = TestServer::start().await;
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let list = async || keelson(&["user", "list", "--kubeconfig", kubeconfig]).await;
    let none = list().await;
    assert!(none.ok && none.out.lines().count() == 1, "{} {}", none.out, none.err);
    let files = TempDir::new().unwrap();
    let create = async |name: &str, args: &[&str]| {
        let out = files.path().join(name);
        user_create(server.kubeconfig(), &[&[name, "--out", out.to_str().unwrap()], args].concat()).await
    };
    assert!(create("ann", &["--group", "devs", "--namespace", "default", "--role", "view"]).await.ok);
    assert!(create("bob", &["--valid-for", "1h"]).await.ok);
    let listed = list().await.out;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines.len() == 3 && lines[1].starts_with("ann ") && lines[1].contains("devs"), "{listed}");
    assert!(
        lines[1].ends_with("view in default") && lines[2].starts_with("bob ") && lines[2].ends_with(" -"),
        "{listed}"
    );
    for hidden in ["a\u{1b}[2Jb", "a\u{202e}b", "a\nb"] {
        let said = create(hidden, &[]).await;
        assert!(!said.ok && said.err.contains("it has control characters"), "{}", said.err);
        let acts = |character| keelson_meta::control_characters::acts(character) && character != '\n';
        assert!(!said.err.contains(acts), "{:?}", said.err);
    }
}

#[tokio::test]
async fn keys_for_a_rotation_are_made_in_new_files() {
    let files = TempDir::new().unwrap();
    let stem = files.path().join("next");
    for (kind, public) in [("service-account", "next.pub"), ("authority", "next.crt")] {
        let args = ["keys", kind, "--out", stem.to_str().unwrap()];
        let made = keelson(&args).await;
        assert!(made.ok && made.out.contains("next.key"), "{}", made.err);
        let again = keelson(&args).await;
        assert!(!again.ok && again.err.contains("exists"), "{}", again.err);
        let key = std::fs::read_to_string(files.path().join("next.key")).unwrap();
        assert!(key.contains("PRIVATE KEY") && files.path().join(public).exists());
        std::fs::remove_file(files.path().join("next.key")).unwrap();
        std::fs::remove_file(files.path().join(public)).unwrap();
    }
    assert_eq!(keelson(&["keys", "token-seal"]).await.out.trim().len(), 44);
}
