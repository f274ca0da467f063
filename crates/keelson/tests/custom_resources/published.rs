//! Tests of published definitions of well-known projects, and of their objects: created in strict mode, and applied
//! twice without a change.
//!
//! The definitions are not in this repository: `cargo xtask test` downloads them, or reports that it can't.

use std::collections::HashMap;
use std::path::PathBuf;

use keelson_testkit::{Call, Raw, TestServer};
use serde_json::Value;

use super::{APPLY, DEFINITIONS, condition, until};

/// Names their directory; `cargo xtask definitions` prints it.
const VARIABLE: &str = "KEELSON_TEST_DEFINITIONS";
/// A non-structural definition, which is refused with kube-apiserver's causes.
const REFUSED: &str = "clusterworkflowtemplates.argoproj.io";
const STRICT: &str = "fieldValidation=Strict&fieldManager=m";

/// The manifests, one document each; `None` if they could not be fetched.
#[allow(clippy::print_stderr, reason = "reports the tests that did not run")]
fn manifests() -> Option<Vec<String>> {
    let Some(directory) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) else {
        eprintln!("NOT run: {VARIABLE} names no definitions (cargo xtask test fetches them)");
        return None;
    };
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    files.sort();
    let texts = files.iter().map(|path| std::fs::read_to_string(path).unwrap());
    let documents = texts.flat_map(|text| {
        let text = format!("\n{text}");
        let documents: Vec<String> = text.split("\n---").map(str::to_owned).collect();
        documents
    });
    Some(documents.filter(|document| top(document, "kind").is_some()).collect())
}

/// The value of a top-level field of a manifest.
fn top<'m>(manifest: &'m str, field: &str) -> Option<&'m str> {
    manifest.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::trim))
}

/// The value of a field of its metadata.
fn in_metadata<'m>(manifest: &'m str, field: &str) -> Option<&'m str> {
    let (_, metadata) = manifest.split_once("\nmetadata:\n")?;
    let own = metadata.lines().take_while(|line| line.starts_with("  "));
    own.filter_map(|line| line.strip_prefix("  "))
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .map(|value| value.trim().trim_matches('"'))
}

fn sent(call: Call, manifest: &str) -> Call {
    call.body(manifest.to_owned())
}

fn revision(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

/// Applies a manifest twice, and replaces the object by itself: nothing changes.
async fn check_unchanged(raw: &Raw, path: &str, manifest: &str) {
    let apply = async || {
        let call = raw.call("PATCH".parse().unwrap(), format!("{path}?{STRICT}&force=true"));
        sent(call.header("content-type", APPLY), manifest).await.expect(200).json()
    };
    let first = apply().await;
    let second = apply().await;
    assert_eq!(first, second, "{path}");
    let replaced = raw.put(format!("{path}?{STRICT}"), &second).await.expect(200).json();
    assert_eq!(revision(&second), revision(&replaced), "{path}: {second}\n{replaced}");
}

async fn create(raw: &Raw, path: &str, manifest: &str) -> Value {
    let call = raw.call("POST".parse().unwrap(), format!("{path}?{STRICT}"));
    sent(call.header("content-type", "application/yaml"), manifest).await.expect(201).json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_and_objects_of_the_field_apply_twice_without_a_change() {
    let Some(manifests) = manifests() else { return };
    let server = TestServer::start().await;
    let raw = server.raw();
    let (definitions, objects): (Vec<_>, Vec<_>) =
        manifests.into_iter().partition(|manifest| top(manifest, "kind") == Some("CustomResourceDefinition"));
    assert!(definitions.len() > 10 && objects.len() > 10, "{} and {}", definitions.len(), objects.len());
    let mut places = HashMap::new();
    for manifest in definitions.iter().filter(|manifest| in_metadata(manifest, "name") != Some(REFUSED)) {
        let made = create(&raw, DEFINITIONS, manifest).await;
        let path = format!("{DEFINITIONS}/{}", made["metadata"]["name"].as_str().unwrap());
        until(&raw, &path, |found| condition(found, "Established").0 == "True").await;
        check_unchanged(&raw, &path, manifest).await;
        let spec = &made["spec"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let kind = (text(&spec["group"]), text(&spec["names"]["kind"]));
        places.insert(kind, (text(&spec["names"]["plural"]), spec["scope"] == "Namespaced"));
    }
    for manifest in &objects {
        let (group, version) = top(manifest, "apiVersion").unwrap().split_once('/').unwrap();
        let kind = (group.to_owned(), top(manifest, "kind").unwrap().to_owned());
        let (plural, is_namespaced) = places.get(&kind).unwrap_or_else(|| panic!("{kind:?} is not defined"));
        let namespace = in_metadata(manifest, "namespace").unwrap_or("default");
        if namespace != "default" {
            let object = serde_json::json!({ "metadata": { "name": namespace } });
            let made = raw.post("/api/v1/namespaces", &object).await;
            assert!(matches!(made.status, 201 | 409), "{}", made.text());
        }
        let below = if *is_namespaced { format!("namespaces/{namespace}/") } else { String::new() };
        let place = format!("/apis/{group}/{version}/{below}{plural}");
        let made = create(&raw, &place, manifest).await;
        let path = format!("{place}/{}", made["metadata"]["name"].as_str().unwrap());
        check_unchanged(&raw, &path, manifest).await;
        raw.delete(&*path).await.expect(200);
        // Also when created by apply.
        let call = raw.call("PATCH".parse().unwrap(), format!("{path}?{STRICT}"));
        sent(call.header("content-type", APPLY), manifest).await.expect(201);
        check_unchanged(&raw, &path, manifest).await;
    }
}
