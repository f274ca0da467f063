//! Tests of chunks for clients that may list only the objects of a selector (`--chunks-for-partial-rights`): the names
//! visible in their continue tokens, for each value of the flag.
//!
//! Rights to only some objects come from an authorization webhook, for example when labels assign objects to teams.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_server::{AuthorizationSource, PartialRights};
use keelson_testkit::{HookReply, HookServer, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

const MAPS: &str = "/api/v1/namespaces/a/configmaps";
/// No index covers it, so that objects are skipped.
const SELECTOR: &str = "labelSelector=team,team!%3Dred,team!%3Dblue";
const TEAMS: [&str; 3] = ["green", "red", "blue"];
const OBJECTS: usize = 12;

/// A server where bob may list only with a label selector, and ann anything.
struct Lab {
    server: TestServer,
    _hook: HookServer,
    _files: TempDir,
}

impl Lab {
    async fn start(rights: PartialRights) -> Self {
        let hook = HookServer::start(&["127.0.0.1"], |request| {
            let spec = &request.body["spec"];
            let selects = spec["resourceAttributes"]["labelSelector"]["requirements"].is_array();
            let allowed = spec["user"] == "ann" || (spec["user"] == "bob" && selects);
            std::future::ready(HookReply::Json(json!({ "status": { "allowed": allowed } })))
        })
        .await;
        let files = TempDir::new().unwrap();
        let file = |name: &str| files.path().join(name);
        let kubeconfig = json!({
            "current-context": "c", "contexts": [{ "name": "c", "context": { "cluster": "hook" } }],
            "clusters": [{ "name": "hook", "cluster": { "server": hook.url("/"), "certificate-authority-data": hook.ca_bundle() } }],
        });
        fs::write(file("hook"), kubeconfig.to_string()).unwrap();
        let connection = json!({ "type": "KubeConfigFile", "kubeConfigFile": file("hook") });
        let webhook = json!({
            "timeout": "30s", "subjectAccessReviewVersion": "v1", "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": "NoOpinion", "connectionInfo": connection,
        });
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
            "authorizers": [{ "type": "Webhook", "name": "hook", "webhook": webhook }, { "type": "RBAC", "name": "rbac" }],
        });
        fs::write(file("authorization.json"), configuration.to_string()).unwrap();
        fs::write(file("tokens.csv"), "ann,ann,\nbob,bob,\n").unwrap();
        let server = TestServer::builder().configure(|config| {
            config.token_file = Some(file("tokens.csv"));
            config.authorization = AuthorizationSource::File(file("authorization.json"));
            config.registry.partial_rights = rights;
            config.registry.bounds.scan = 2;
        });
        let server = server.start().await;
        let admin = server.raw();
        admin.post("/api/v1/namespaces", &json!({ "metadata": { "name": "a" } })).await.expect(201);
        for number in 0..OBJECTS {
            let team = TEAMS[number % TEAMS.len()];
            let map = json!({ "metadata": { "name": format!("{number:02}-{team}"), "labels": { "team": team } } });
            admin.post(MAPS, &map).await.expect(201);
        }
        Self { server, _hook: hook, _files: files }
    }

    async fn list(&self, user: &str, query: &str) -> Value {
        let call = self.server.anonymous().get(format!("{MAPS}?{query}"));
        call.header("authorization", format!("Bearer {user}")).await.expect(200).json()
    }

    /// The names of a list in chunks of one object, and those visible in its tokens.
    async fn walk(&self, user: &str) -> (Vec<String>, Vec<String>) {
        let (mut listed, mut shown, mut token) = (Vec::new(), Vec::new(), String::new());
        loop {
            let chunk = self.list(user, &format!("{SELECTOR}&limit=1&continue={token}")).await;
            listed.extend(
                chunk["items"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()),
            );
            token = chunk["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            assert!(shown.len() <= 2 * OBJECTS, "the walk ends");
            if token.is_empty() {
                return (listed, shown);
            }
            let told: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(&token).unwrap()).unwrap();
            let start = told["start"].as_str().unwrap().trim_end_matches('\0');
            shown.push(start.rsplit('/').next().unwrap().to_owned());
        }
    }
}

/// The names that match the selector.
fn chosen() -> Vec<String> {
    (0..OBJECTS).step_by(TEAMS.len()).map(|number| format!("{number:02}-green")).collect()
}

fn shows_others(shown: &[String]) -> bool {
    shown.iter().any(|name| !name.ends_with("-green"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn default_continue_tokens_show_names_of_skipped_objects() {
    let lab = Lab::start(PartialRights::AsOthers).await;
    let whole = lab.server.anonymous().get(format!("{MAPS}?limit=1")).header("authorization", "Bearer bob");
    whole.await.expect(403);
    for user in ["bob", "ann"] {
        let (listed, shown) = lab.walk(user).await;
        assert_eq!(listed, chosen());
        assert!(shows_others(&shown), "{user}: {shown:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_for_partial_rights_can_show_the_next_selected_name() {
    let lab = Lab::start(PartialRights::NextVisible).await;
    let (listed, shown) = lab.walk("bob").await;
    assert_eq!((&listed[..], &shown[..]), (&chosen()[..], &chosen()[1..]));
    let (listed, shown) = lab.walk("ann").await;
    assert_eq!(listed, chosen());
    assert!(shows_others(&shown), "a client that may list all gets ordinary tokens: {shown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_lists_can_be_whole() {
    let lab = Lab::start(PartialRights::Whole).await;
    assert_eq!(lab.walk("bob").await, (chosen(), Vec::new()));
    let chunk = lab.list("ann", &format!("{SELECTOR}&limit=1")).await;
    let token = chunk["metadata"]["continue"].as_str().unwrap();
    let whole = lab.list("bob", &format!("{SELECTOR}&limit=1&continue={token}")).await;
    assert_eq!(whole["items"].as_array().unwrap().len(), chosen().len(), "another client's token reveals nothing");
    let (listed, shown) = lab.walk("ann").await;
    assert!(listed == chosen() && shows_others(&shown), "{shown:?}");
}
