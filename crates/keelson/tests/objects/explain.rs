//! Tests of `kubectl explain` and of kubectl's validation, which use the OpenAPI documents of every kind.
//!
//! The crate `openapi` compares the documents themselves.

use futures::StreamExt as _;
use keelson_testkit::{Endpoint, TestServer};

/// The number of concurrent kubectls.
const PARALLEL: usize = 4;

/// A resource in one of its versions.
struct DiscoveredResource {
    api_version: String,
    plural: String,
    kind: String,
}

/// Every resource in every version, from discovery.
async fn everything(server: &Endpoint) -> Vec<DiscoveredResource> {
    let groups = server.raw().get("/apis").await.json();
    let groups = groups["groups"].as_array().expect("a list of groups");
    let versions = groups.iter().flat_map(|group| group["versions"].as_array().expect("a group has versions"));
    let paths = versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap_or_default()));
    let mut found = Vec::new();
    for path in paths.chain(["/api/v1".to_owned()]) {
        let list = server.raw().get(path).await.json();
        for resource in list["resources"].as_array().expect("a list of resources") {
            let text = |name: &str| resource[name].as_str().unwrap_or_default().to_owned();
            // A name with a slash is a subresource, which kubectl does not explain.
            if !text("name").contains('/') {
                let api_version = list["groupVersion"].as_str().expect("the list's group version").to_owned();
                found.push(DiscoveredResource { api_version, plural: text("name"), kind: text("kind") });
            }
        }
    }
    found
}

async fn explain(server: &Endpoint, args: &[&str]) -> String {
    server.kubectl([&["explain"], args].concat()).await.ok()
}

/// The value after a word at the start of a line, such as `KIND:`.
fn stated<'a>(text: &'a str, word: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_default().trim()
}

/// The text without line breaks and indentation, which depend on the width of the lines.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_resource_is_explained_in_every_version() {
    let server = TestServer::builder().every_version().start().await;
    let resources = everything(&server).await;
    assert!(resources.len() >= 90, "discovery names only {} resources", resources.len());
    let server = &server;
    let explained = futures::stream::iter(resources).map(|served| async move {
        let text = explain(server, &[&served.plural, "--api-version", &served.api_version]).await;
        (served, text)
    });
    let mut explained = explained.buffer_unordered(PARALLEL);
    while let Some((DiscoveredResource { api_version, plural, kind }, text)) = explained.next().await {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        let expected = (kind.as_str(), version, group);
        assert_eq!((stated(&text, "KIND:"), stated(&text, "VERSION:"), stated(&text, "GROUP:")), expected);
        assert!(!words(&text).contains("<empty>"), "{plural} in {api_version} has no description:\n{text}");
        assert!(text.contains("\n  apiVersion\t<string>\n"), "{plural} in {api_version} lacks a field:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_are_explained_from_both_versions_of_openapi() {
    let server = TestServer::start().await;
    for output in ["plaintext", "plaintext-openapiv2"] {
        let text = words(&explain(&server, &["pod.spec.containers", "--output", output]).await);
        assert!(text.contains("containers <[]"), "{text}");
        assert!(text.contains("A single application container that you want to run within a pod."), "{text}");
        assert!(text.contains("image <string>") && text.contains("name <string> -required-"), "{text}");
        let text = words(&explain(&server, &["service.spec.ports.targetPort", "--output", output]).await);
        assert!(text.contains("Number or name of the port to access on the pods"), "{text}");
        for kind in ["deployments", "customresourcedefinitions", "horizontalpodautoscalers", "secrets"] {
            let text = words(&explain(&server, &[kind, "--recursive", "--output", output]).await);
            assert!(text.contains("labels <map[string]string>"), "{kind} as {output}: {text}");
            assert!(text.contains("managedFields <[]"), "{kind} as {output}: {text}");
        }
    }
    for (field, values) in [
        ("pod.spec.restartPolicy", "ENUM: Always Never OnFailure DESCRIPTION"),
        ("ingress.spec.rules.http.paths.pathType", "ENUM: Exact ImplementationSpecific Prefix DESCRIPTION"),
        ("cronjob.spec.concurrencyPolicy", "ENUM: Allow Forbid Replace DESCRIPTION"),
    ] {
        let text = words(&explain(&server, &[field]).await);
        assert!(text.contains(values), "{field}: {text}");
    }
    let refused = server.kubectl(["explain", "pod.spec.nope"]).await.refused();
    assert!(refused.contains("field \"nope\" does not exist"), "{refused}");
}

/// A review, which can't be patched. kubectl does not detect the server's validation for it, and validates it itself
/// with OpenAPI v2.
const REVIEW: &str = r#"{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
    "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}"#;
const CONFIG: &str =
    r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"colour": "red"}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_create_and_apply_validate_fields() {
    let server = TestServer::start().await;
    let run = |verb: &'static str, text: String| {
        server.kubectl([verb, "--validate=true", "--dry-run=server", "-f", "-"]).stdin(text)
    };
    run("create", REVIEW.to_owned()).await.ok();
    let refused = run("create", REVIEW.replace("\"verb\"", "\"verbs\"")).await.refused();
    assert!(refused.contains("unknown field \"verbs\" in io.k8s.api.authorization.v1.ResourceAttributes"), "{refused}");

    run("create", CONFIG.to_owned()).await.ok();
    run("apply", CONFIG.to_owned()).await.ok();
    let refused = run("create", CONFIG.replace("\"data\"", "\"date\"")).await.refused();
    assert!(refused.contains("strict decoding error: unknown field \"date\""), "{refused}");
}
