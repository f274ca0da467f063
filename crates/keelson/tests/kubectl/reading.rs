//! Tests of `kubectl get` with its output formats.
//!
//! Tables are compared as users see them. The crate `tables` tests the cells of each kind.

use futures::{StreamExt as _, stream};
use serde_json::json;

use crate::{Shell, column};

/// A ConfigMap that exists in each cluster.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

const OBJECTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: apple, labels: {tier: web, env: prod}}
data: {colour: red}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: pear, labels: {tier: db}}
data: {colour: green, 'yes': 'no', size: '1'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plum, namespace: team, labels: {tier: web}}
---
apiVersion: v1
kind: Pod
metadata: {name: here, labels: {tier: web}}
spec: {nodeName: node-1, containers: [{name: main, image: main}]}
---
apiVersion: v1
kind: Pod
metadata: {name: there, namespace: team}
spec: {nodeName: node-2, containers: [{name: main, image: main}]}
";

async fn shell() -> Shell {
    let shell = Shell::start().await;
    shell.feed("create -f -", OBJECTS).await;
    shell
}

#[tokio::test]
async fn every_output_form_shows_the_same_object() {
    let shell = shell().await;
    let apple = shell.json("get configmap apple -o json").await;
    let [uid, revision, created] =
        ["uid", "resourceVersion", "creationTimestamp"].map(|field| apple["metadata"][field].as_str().unwrap());
    let yaml = format!(
        "apiVersion: v1\ndata:\n  colour: red\nkind: ConfigMap\nmetadata:\n  creationTimestamp: \"{created}\"\n  labels:\n    \
         env: prod\n    tier: web\n  name: apple\n  namespace: default\n  resourceVersion: \"{revision}\"\n  uid: {uid}\n"
    );
    assert_eq!(shell.ok("get configmap apple -o yaml").await, yaml);
    let session = [
        ("get configmap apple -o name", "configmap/apple\n"),
        ("get cm/apple -o jsonpath={.data.colour}", "red"),
        ("get cm -o custom-columns=NAME:.metadata.name,SIZE:.data.size", "NAME    SIZE\napple   <none>\npear    1\n"),
        ("get cm -o go-template='{{range .items}}{{.metadata.name}};{{end}}'", "apple;pear;"),
        ("get cm --sort-by=.metadata.creationTimestamp -o name", "configmap/apple\nconfigmap/pear\n"),
        ("get configmap pear -o jsonpath='{.data.yes} {.data.size}'", "no 1"),
    ];
    shell.check(&session).await;
    let list = shell.json("get configmaps -o json").await;
    assert_eq!(list["items"][0], apple);
    // kubectl builds one list from the objects that it read, so it does not show the revision.
    assert_eq!((&list["kind"], &list["metadata"]), (&json!("List"), &json!({"resourceVersion": ""})));
}

#[tokio::test]
async fn tables_list_the_existing_objects() {
    let shell = shell().await;
    let table = shell.ok("get configmaps").await;
    assert!(table.starts_with("NAME "), "{table}");
    assert_eq!(column(&table, 0), ["apple", "pear"]);
    let table = shell.ok("get configmaps -A").await;
    assert_eq!(column(&table, 0), ["default", "default", "kube-system", "kube-system", "team"]);
    assert_eq!(column(&table, 1), ["apple", "pear", "extension-apiserver-authentication", TRACKING, "plum"]);
    let table = shell.ok("get configmaps --show-labels").await;
    assert!(table.contains("env=prod,tier=web"), "{table}");
    let table = shell.ok("get configmaps -L env --no-headers").await;
    assert!(table.lines().next().unwrap().ends_with("prod"), "{table}");
    assert_eq!(column(&shell.ok("get pods -o wide").await, 0), ["here"]);
    assert_eq!(
        column(&shell.ok("get namespaces").await, 0),
        ["default", "kube-node-lease", "kube-public", "kube-system", "team"]
    );
}

#[tokio::test]
async fn selectors_choose_by_label_and_by_field() {
    let shell = shell().await;
    let others = format!("configmap/pear\nconfigmap/extension-apiserver-authentication\nconfigmap/{TRACKING}\n");
    let (others, outside) = (others.as_str(), format!("configmap/apple\n{others}"));
    let session = [
        ("get cm -A -l tier=web -o name", "configmap/apple\nconfigmap/plum\n"),
        ("get cm -A -l tier!=web -o name", others),
        ("get cm -A -l 'tier in (web,db),!env' -o name", "configmap/pear\nconfigmap/plum\n"),
        ("get cm -A -l 'tier notin (web)' -o name", others),
        ("get cm -A -l env -o name", "configmap/apple\n"),
        ("get cm -A --field-selector metadata.name=plum -o name", "configmap/plum\n"),
        ("get cm -A --field-selector metadata.namespace!=team -o name", &outside),
        ("get cm -A --field-selector metadata.namespace=team --chunk-size=1 -o name", "configmap/plum\n"),
        ("get pods -A --field-selector spec.nodeName=node-2 -o name", "pod/there\n"),
        ("get pods -A --field-selector spec.nodeName!=node-2 -l tier=web -o name", "pod/here\n"),
        ("get pods -A --field-selector spec.nodeName=node-3 -o name", ""),
    ];
    shell.check(&session).await;
}

#[tokio::test]
async fn resources_are_found_by_all_their_names() {
    let shell = shell().await;
    shell.ok("create deployment web --image=web").await;
    let session = [
        ("get deployments.v1.apps -o name", "deployment.apps/web\n"),
        ("get deploy,cm -o name", "deployment.apps/web\nconfigmap/apple\nconfigmap/pear\n"),
        ("get cm/apple pod/here -o name", "configmap/apple\npod/here\n"),
        ("get configmap apple pear -o name", "configmap/apple\nconfigmap/pear\n"),
        ("get all -o name", "pod/here\nservice/kubernetes\ndeployment.apps/web\n"),
    ];
    shell.check(&session).await;
    let raw = shell.json("get --raw /api/v1/namespaces/default/configmaps/apple").await;
    assert_eq!(raw["metadata"]["uid"], shell.json("get configmap apple -o json").await["metadata"]["uid"]);
}

#[tokio::test]
async fn a_list_in_chunks_is_the_list_in_one() {
    let shell = Shell::start().await;
    let raw = shell.server.raw();
    stream::iter(0..400)
        .for_each_concurrent(8, |number| {
            let body = json!({"metadata": {"name": format!("map-{number:03}")}, "data": {"n": number.to_string()}});
            let create = raw.post("/api/v1/namespaces/default/configmaps", &body);
            async move { _ = create.await.expect(201) }
        })
        .await;
    let whole = shell.json("get configmaps --chunk-size=0 -o json").await;
    assert_eq!(whole["items"].as_array().unwrap().len(), 400);
    let before = lists(&shell).await;
    assert_eq!(shell.json("get configmaps --chunk-size=17 -o json").await, whole);
    assert_eq!(lists(&shell).await - before, 400_usize.div_ceil(17));
    assert_eq!(column(&shell.ok("get configmaps --chunk-size=17").await, 0).len(), 400);
}

/// The number of lists of config maps that the server has answered.
async fn lists(shell: &Shell) -> usize {
    let metrics = shell.ok("get --raw /metrics").await;
    let counted = metrics.lines().find(|line| {
        line.starts_with("apiserver_request_total{verb=\"LIST\"") && line.contains("resource=\"configmaps\"")
    });
    counted.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
}
