//! Tests of fifty manifests of many kinds in one command, as in the installation of a chart. They are created, applied
//! repeatedly by both kinds of apply, described and deleted.

use keelson_testkit::TestController;

use crate::Shell;

const SHOP: &str = include_str!("manifests/shop.yaml");
const CLUSTER: &str = include_str!("manifests/cluster.yaml");
const OBJECTS: usize = 52;
/// For each object of both files, in this order: its name, and a line from `kubectl describe` with blanks collapsed.
const DESCRIBED: &str = include_str!("manifests/described.txt");

/// The objects for which a client-side apply always sends a part that the server stores differently. kubectl prints
/// `configured` for them on any server. There are four such parts:
/// - a quantity in another form (`1024Mi`),
/// - a list without merge keys, to which the server adds defaults,
/// - a value that is always replaced as a whole (the selector of a budget),
/// - a value that is never read back (`stringData`).
const ALWAYS_SENT: [&str; 15] = [
    "networkpolicy.networking.k8s.io/web-in",
    "resourcequota/compute",
    "limitrange/sizes",
    "poddisruptionbudget.policy/web",
    "poddisruptionbudget.policy/db",
    "secret/db-password",
    "persistentvolumeclaim/uploads",
    "clusterrolebinding.rbac.authorization.k8s.io/shop-nodes",
    "endpoints/legacy",
    "endpointslice.discovery.k8s.io/legacy-1",
    "pod/smoke",
    "deployment.apps/web",
    "statefulset.apps/db",
    "job.batch/index",
    "validatingwebhookconfiguration.admissionregistration.k8s.io/shop",
];

async fn apply(shell: &Shell, line: &str) -> Vec<(String, String)> {
    let printed = shell.feed(line, SHOP).await;
    let words = |line: &str| line.split_once(' ').map(|(name, done)| (name.to_owned(), done.to_owned())).unwrap();
    printed.lines().map(words).collect()
}

/// The name and the revision of each object.
async fn revisions(shell: &Shell) -> Vec<(String, String)> {
    let read = shell.kubectl("get -f - -o json").stdin(SHOP).await.json();
    let items = read["items"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let name = |item: &serde_json::Value| format!("{} {}", text(&item["kind"]), text(&item["metadata"]["name"]));
    items.iter().map(|item| (name(item), text(&item["metadata"]["resourceVersion"]))).collect()
}

#[tokio::test]
async fn a_chart_is_installed_applied_again_and_removed() {
    let shell = Shell::start().await;
    let created = apply(&shell, "apply -f -").await;
    assert_eq!(created.len(), OBJECTS);
    assert!(created.iter().all(|(_, done)| done == "created"), "{created:?}");
    let made = revisions(&shell).await;
    assert_eq!(made.len(), OBJECTS);

    let again = apply(&shell, "apply -f -").await;
    let sent: Vec<&str> =
        again.iter().filter(|(_, done)| done == "configured").map(|(name, _)| name.as_str()).collect();
    assert_eq!(sent, ALWAYS_SENT);
    assert!(again.iter().all(|(_, done)| ["configured", "unchanged"].contains(&done.as_str())), "{again:?}");
    assert_eq!(revisions(&shell).await, made, "nothing was written");
    assert_eq!(shell.kubectl("diff -f -").stdin(SHOP).await.ok(), "");

    let owned = apply(&shell, "apply --server-side --force-conflicts -f -").await;
    assert!(owned.iter().all(|(_, done)| done == "serverside-applied"), "{owned:?}");
    let made = revisions(&shell).await;
    assert_eq!(apply(&shell, "apply --server-side -f -").await, owned, "without a conflict");
    assert_eq!(revisions(&shell).await, made, "nothing was written");
    assert_eq!(shell.kubectl("diff --server-side -f -").stdin(SHOP).await.ok(), "");

    let _controller = TestController::start(&shell.server);
    // The namespaces are deleted first, and with them the objects that the command deletes later.
    shell.feed("delete -f - --ignore-not-found --timeout=60s", SHOP).await;
    assert_eq!(shell.feed("get -f - -o name --ignore-not-found", SHOP).await, "");
}

#[tokio::test]
async fn a_chart_is_installed_by_the_server_and_worked_on() {
    let shell = Shell::start().await;
    let _controller = TestController::start(&shell.server);
    let applied = apply(&shell, "apply --server-side -f -").await;
    assert_eq!(applied.len(), OBJECTS);
    shell.ok("rollout status deployment/web -n shop --timeout=60s").await;
    shell.ok("wait pod/smoke -n shop --for=condition=Ready --timeout=60s").await;
    // Other managers own counts and conditions, so the same manifests still apply without a conflict.
    apply(&shell, "apply --server-side -f -").await;
    let upgrade = SHOP.replace("image: web:1.2\n", "image: web:1.3\n");
    shell.feed("apply --server-side -f -", upgrade).await;
    shell.ok("rollout status deployment/web -n shop --timeout=60s").await;
    let image = "get pods -n shop -l app=web -o jsonpath={.items[*].spec.containers[0].image}";
    assert_eq!(shell.ok(image).await, "web:1.3 web:1.3 web:1.3");
}

#[tokio::test]
async fn objects_that_a_set_no_longer_names_are_pruned() {
    let shell = Shell::start().await;
    let map = |name: &str, part: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{part: {part}}}}}}}\n---\n")
    };
    let line = "apply -f - --prune -l part=shop --prune-allowlist=core/v1/ConfigMap";
    shell.feed("apply -f -", map("other", "elsewhere")).await;
    shell.feed(line, map("one", "shop") + &map("two", "shop")).await;
    assert_eq!(shell.feed(line, map("one", "shop")).await, "configmap/one unchanged\nconfigmap/two pruned\n");
    assert_eq!(shell.ok("get configmaps -o name").await, "configmap/one\nconfigmap/other\n");
}

#[tokio::test]
async fn every_kind_is_described() {
    let shell = Shell::start().await;
    let mut described = String::new();
    for manifests in [SHOP, CLUSTER] {
        shell.feed("apply -f -", manifests).await;
    }
    for manifests in [SHOP, CLUSTER] {
        described += "\n\n\n";
        described += &shell.feed("describe -f -", manifests).await;
    }
    let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    // Data may contain empty lines, so an object begins only where a name follows.
    let shown: Vec<Vec<String>> =
        described.split("\n\n\nName:").skip(1).map(|object| object.lines().map(plain).collect()).collect();
    assert_eq!(shown.len(), DESCRIBED.lines().count(), "{described}");
    for (object, expected) in shown.iter().zip(DESCRIBED.lines()) {
        let (name, line) = expected.split_once(" | ").unwrap();
        assert_eq!(object[0], name);
        assert!(object.iter().any(|shown| shown == line), "{name}: {line} is not in {object:#?}");
    }
}
