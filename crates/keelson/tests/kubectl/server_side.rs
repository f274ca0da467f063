//! Tests of `kubectl apply --server-side`, `diff`, `--show-managed-fields`, and the commands for the last applied
//! configuration: they show the owner of each field.

use serde_json::Value;

use crate::Shell;

const SHOP: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {stage: test}}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - {name: web, image: 'web:1'}
";

/// The name and the operation of each field manager, in the server's order.
async fn owners(shell: &Shell) -> Vec<(String, String)> {
    let shop = shell.json("get deployment shop -o json --show-managed-fields").await;
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let entries = shop["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.iter().map(|entry| (text(entry, "manager"), text(entry, "operation"))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, operation)| ((*name).to_owned(), (*operation).to_owned())).collect()
}

#[tokio::test]
async fn applied_objects_are_created_changed_and_pruned() {
    let shell = Shell::start().await;
    assert_eq!(shell.feed("apply --server-side -f -", SHOP).await, "deployment.apps/shop serverside-applied\n");
    assert_eq!(owners(&shell).await, pairs(&[("kubectl", "Apply")]));
    let made = shell.json("get deployment shop -o json").await;
    shell.feed("apply --server-side -f -", SHOP).await;
    let again = shell.json("get deployment shop -o json").await;
    assert_eq!(made["metadata"]["resourceVersion"], again["metadata"]["resourceVersion"], "nothing was written");

    let next = SHOP.replace("stage: test", "tier: front").replace("web:1", "web:2");
    shell.feed("apply --server-side -f -", next).await;
    let changed = shell.json("get deployment shop -o json").await;
    assert_eq!(changed["metadata"]["labels"], serde_json::json!({"tier": "front"}));
    assert_eq!(changed["spec"]["template"]["spec"]["containers"][0]["image"], "web:2");
}

#[tokio::test]
async fn a_conflict_is_explained_and_force_ends_it() {
    let shell = Shell::start().await;
    shell.feed("apply --server-side -f -", SHOP).await;
    shell.ok("scale deployment shop --replicas=5").await;
    let refused = shell.kubectl("apply --server-side -f -").stdin(SHOP).await.refused();
    assert!(refused.contains("Apply failed with 1 conflict: conflict with \"kubectl\""), "{refused}");
    assert!(refused.contains("with subresource \"scale\" using apps/v1: .spec.replicas"), "{refused}");
    assert_eq!(shell.ok("get deployment shop -o jsonpath={.spec.replicas}").await, "5");
    shell.feed("apply --server-side --force-conflicts -f -", SHOP).await;
    assert_eq!(shell.ok("get deployment shop -o jsonpath={.spec.replicas}").await, "2");
    assert_eq!(owners(&shell).await, pairs(&[("kubectl", "Apply")]));
}

#[tokio::test]
async fn several_managers_share_an_object() {
    let shell = Shell::start().await;
    shell.feed("apply --server-side --field-manager=shape -f -", SHOP).await;
    let label = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop, labels: {team: red}}}";
    shell.feed("apply --server-side --field-manager=teams -f -", label).await;
    assert_eq!(owners(&shell).await, pairs(&[("shape", "Apply"), ("teams", "Apply")]));
    // A field that one manager omits remains with the other managers.
    shell.feed("apply --server-side --field-manager=shape -f -", SHOP.replace("  replicas: 2\n", "")).await;
    let shop = shell.json("get deployment shop -o json").await;
    assert_eq!(shop["metadata"]["labels"], serde_json::json!({"stage": "test", "team": "red"}));
    assert_eq!(shop["spec"]["replicas"], 1, "the default");
    assert!(shop["metadata"]["managedFields"].is_null(), "not shown unless asked for");
}

#[tokio::test]
async fn a_client_side_apply_continues_as_a_server_side_one() {
    let shell = Shell::start().await;
    shell.feed("apply -f -", SHOP).await;
    assert_eq!(owners(&shell).await, pairs(&[("kubectl-client-side-apply", "Update")]));
    let next = SHOP.replace("web:1", "web:2");
    shell.feed("apply --server-side -f -", next).await;
    let mut owners = owners(&shell).await;
    owners.sort();
    assert_eq!(owners, pairs(&[("kubectl", "Apply"), ("kubectl-last-applied", "Apply")]), "nothing is the old one's");
    let last: Value = serde_json::from_str(&shell.ok("apply view-last-applied deployment/shop -o json").await).unwrap();
    assert_eq!(last["spec"]["template"]["spec"]["containers"][0]["image"], "web:2", "the annotation goes along");
}

#[tokio::test]
async fn differences_are_shown_before_they_are_made() {
    for (apply, line) in [("apply -f -", "diff -f -"), ("apply --server-side -f -", "diff --server-side -f -")] {
        let shell = Shell::start().await;
        shell.feed(apply, SHOP).await;
        let same = shell.kubectl(line).stdin(SHOP).await;
        assert_eq!(same.status.code(), Some(0), "{line}: {same:?}");
        let other = shell.kubectl(line).stdin(SHOP.replace("replicas: 2", "replicas: 3")).await;
        assert_eq!(other.status.code(), Some(1), "{line}: {}", other.stderr);
        let shown = other.stdout;
        assert!(shown.contains("\n-  replicas: 2\n+  replicas: 3\n"), "{line}: {shown}");
        assert_eq!(shell.ok("get deployment shop -o jsonpath={.spec.replicas}").await, "2");
    }
}

#[tokio::test]
async fn the_last_applied_configuration_can_be_viewed_and_set() {
    let shell = Shell::start().await;
    shell.feed("apply -f -", SHOP).await;
    let shown = shell.ok("apply view-last-applied deployment/shop").await;
    assert!(shown.contains("replicas: 2"), "{shown}");
    let set = shell.feed("apply set-last-applied -f -", SHOP.replace("replicas: 2", "replicas: 4")).await;
    assert_eq!(set, "deployment.apps/shop configured\n");
    let shown = shell.ok("apply view-last-applied deployment/shop").await;
    assert!(shown.contains("replicas: 4"), "{shown}");
    assert_eq!(shell.ok("get deployment shop -o jsonpath={.spec.replicas}").await, "2", "the object stays");
}
