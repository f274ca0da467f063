//! Tests of `kubectl rollout`, `wait`, `scale`, `autoscale` and `drain` in a working cluster: a [`TestController`]
//! creates and runs the pods of the objects.

use keelson_testkit::{BROKEN_IMAGE, TestController};

use crate::Shell;

/// Starts a cluster with a deployment of three running pods.
async fn cluster() -> (Shell, TestController) {
    let shell = Shell::start().await;
    let controller = TestController::start(&shell.server);
    shell.feed("apply -f -", web("1")).await;
    shell.ok("rollout status deployment/web --timeout=60s").await;
    (shell, controller)
}

/// The deployment at a version, which is part of its image and of its change cause.
fn web(version: &str) -> String {
    format!(
        r#"{{"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {{"name": "web", "annotations": {{"kubernetes.io/change-cause": "version {version}"}}}},
        "spec": {{"replicas": 3, "selector": {{"matchLabels": {{"app": "web"}}}}, "template": {{
            "metadata": {{"labels": {{"app": "web"}}}}, "spec": {{"containers": [{{"name": "web", "image": "web:{version}"}}]}}}}}}}}"#
    )
}

/// The words of each row without the name and the age.
fn cells(table: &str) -> Vec<Vec<&str>> {
    let row = |line| str::split_whitespace(line).skip(1).collect::<Vec<_>>();
    table.lines().map(row).map(|cells| cells[..cells.len() - 1].to_vec()).collect()
}

async fn images(shell: &Shell) -> String {
    shell.ok("get pods -l app=web -o jsonpath={.items[*].spec.containers[*].image}").await
}

#[tokio::test]
async fn a_deployment_rolls_out_and_kubectl_wait_returns() {
    let (shell, _controller) = cluster().await;
    let session = [
        ("rollout status deployment/web", "deployment \"web\" successfully rolled out\n"),
        ("wait deployment/web --for=condition=Available --timeout=60s", "deployment.apps/web condition met\n"),
        ("wait deployment/web --for=condition=Progressing --timeout=60s", "deployment.apps/web condition met\n"),
        ("wait pods -l app=nobody --for=delete --timeout=60s", ""),
    ];
    shell.check(&session).await;
    let ready = shell.ok("wait pods -l app=web --for=condition=Ready --timeout=60s").await;
    assert_eq!(ready.lines().filter(|line| line.ends_with(" condition met")).count(), 3, "{ready}");
    assert_eq!(cells(&shell.ok("get deployments --no-headers").await), [["3/3", "3", "3"]]);
    assert_eq!(cells(&shell.ok("get replicasets --no-headers").await), [["3", "3", "3"]]);
    assert_eq!(cells(&shell.ok("get pods --no-headers").await), [["1/1", "Running", "0"]; 3]);
    let described = shell.ok("describe deployment web").await;
    for line in ["3 desired | 3 updated | 3 total | 3 available | 0 unavailable", "(3/3 replicas created)"] {
        assert!(described.contains(line), "{line}: {described}");
    }
    let described = shell.ok("describe pods -l app=web").await;
    assert_eq!(described.matches("Controlled By:  ReplicaSet/web-").count(), 3, "{described}");
}

#[tokio::test]
async fn versions_are_listed_shown_and_gone_back_to() {
    let (shell, _controller) = cluster().await;
    shell.feed("apply -f -", web("2")).await;
    shell.ok("rollout status deployment/web --timeout=60s").await;
    assert_eq!(images(&shell).await, "web:2 web:2 web:2");
    let history = |lines: &[&str]| format!("deployment.apps/web \nREVISION  CHANGE-CAUSE\n{}\n", lines.concat());
    assert_eq!(
        shell.ok("rollout history deployment/web").await,
        history(&["1         version 1\n", "2         version 2\n"])
    );
    let first = shell.ok("rollout history deployment/web --revision=1").await;
    assert!(first.starts_with("deployment.apps/web with revision #1\n") && first.contains("web:1"), "{first}");

    assert_eq!(shell.ok("rollout undo deployment/web").await, "deployment.apps/web rolled back\n");
    shell.ok("rollout status deployment/web --timeout=60s").await;
    assert_eq!(images(&shell).await, "web:1 web:1 web:1");
    shell.ok("rollout undo deployment/web --to-revision=2").await;
    shell.ok("rollout status deployment/web --timeout=60s").await;
    assert_eq!(images(&shell).await, "web:2 web:2 web:2");
    assert_eq!(
        shell.ok("rollout history deployment/web").await,
        history(&["3         version 1\n", "4         version 2\n"])
    );
    assert_eq!(shell.ok("get replicasets -o name").await.lines().count(), 2, "a version has one set, however often");
    let unknown = shell.refused("rollout undo deployment/web --to-revision=99").await;
    assert!(unknown.ends_with("error: unable to find specified revision 99 in history\n"), "{unknown}");
}

#[tokio::test]
async fn an_update_that_does_not_work_stops_and_harms_no_others() {
    let (shell, _controller) = cluster().await;
    shell.ok(&format!("set image deployment/web web={BROKEN_IMAGE}:1")).await;
    shell.ok("wait deployment/web --for=jsonpath={.status.unavailableReplicas}=1 --timeout=60s").await;
    let status = shell.ok("rollout status deployment/web --watch=false").await;
    assert_eq!(
        status,
        "Waiting for deployment \"web\" rollout to finish: 1 out of 3 new replicas have been updated...\n"
    );
    assert_eq!(cells(&shell.ok("get deployments --no-headers").await), [["3/3", "1", "3"]]);
    let pods = shell.ok("get pods --no-headers").await;
    assert!(cells(&pods).contains(&vec!["0/1", "ImagePullBackOff", "0"]), "{pods}");
    shell.ok("rollout undo deployment/web").await;
    shell.ok("rollout status deployment/web --timeout=60s").await;
    assert_eq!(images(&shell).await, "web:1 web:1 web:1");
}

#[tokio::test]
async fn a_paused_rollout_changes_once_when_resumed() {
    let (shell, _controller) = cluster().await;
    let session = [
        ("rollout pause deployment/web", "deployment.apps/web paused\n"),
        ("set image deployment/web web=web:2", "deployment.apps/web image updated\n"),
        ("set env deployment/web MODE=test", "deployment.apps/web env updated\n"),
        ("set resources deployment/web --limits=cpu=1", "deployment.apps/web resource requirements updated\n"),
        (
            "wait deployment/web --for=jsonpath={.status.observedGeneration}=5 --timeout=60s",
            "deployment.apps/web condition met\n",
        ),
    ];
    shell.check(&session).await;
    assert_eq!(images(&shell).await, "web:1 web:1 web:1");
    assert!(shell.refused("rollout pause deployment/web").await.contains("is already paused"));
    assert!(shell.refused("rollout restart deployment/web").await.contains("can't restart paused deployment"));
    assert_eq!(shell.ok("rollout resume deployment/web").await, "deployment.apps/web resumed\n");
    shell.ok("rollout status deployment/web --timeout=60s").await;
    assert_eq!(images(&shell).await, "web:2 web:2 web:2");
    assert_eq!(shell.ok("get replicasets -o name").await.lines().count(), 2);
}

#[tokio::test]
async fn a_restart_replaces_every_pod() {
    let (shell, _controller) = cluster().await;
    let before = shell.ok("get pods -o name").await;
    shell
        .ok("patch deployment web -p '{\"spec\":{\"strategy\":{\"type\":\"Recreate\",\"rollingUpdate\":null}}}'")
        .await;
    shell.ok("rollout restart deployment/web").await;
    shell.ok("rollout status deployment/web --timeout=60s").await;
    let after = shell.ok("get pods -o name").await;
    assert_eq!(after.lines().count(), 3, "{after}");
    assert!(before.lines().all(|pod| !after.contains(pod)), "{before}{after}");
}

#[tokio::test]
async fn workloads_grow_and_shrink() {
    let (shell, _controller) = cluster().await;
    let session = [
        ("scale deployment/web --replicas=5", "deployment.apps/web scaled\n"),
        (
            "wait deployment/web --for=jsonpath={.status.readyReplicas}=5 --timeout=60s",
            "deployment.apps/web condition met\n",
        ),
        ("scale deployment/web --replicas=1 --current-replicas=5 --timeout=60s", "deployment.apps/web scaled\n"),
        (
            "wait deployment/web --for=jsonpath={.status.replicas}=1 --timeout=60s",
            "deployment.apps/web condition met\n",
        ),
        ("autoscale deployment web --min=1 --max=4 --cpu=70%", "horizontalpodautoscaler.autoscaling/web autoscaled\n"),
        ("get hpa web -o jsonpath='{.spec.scaleTargetRef.name} {.spec.maxReplicas}'", "web 4"),
        ("expose deployment web --port=80 --target-port=8080", "service/web exposed\n"),
        ("get service web -o jsonpath='{.spec.selector.app} {.spec.ports[0].targetPort}'", "web 8080"),
    ];
    shell.check(&session).await;
    assert_eq!(cells(&shell.ok("get pods --no-headers").await).len(), 1);
    let sets = shell.ok("get replicasets -o name").await;
    shell.ok(&format!("scale {} --replicas=2", sets.trim())).await;
    // The owner of the replica set resets the number.
    shell.ok(&format!("wait {} --for=jsonpath={{.spec.replicas}}=1 --timeout=60s", sets.trim())).await;
}

#[tokio::test]
async fn a_node_is_emptied_as_fast_as_the_budget_lets_pods_move() {
    let shell = Shell::start().await;
    for name in ["a", "b"] {
        let node = format!(r#"{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "{name}"}}}}"#);
        shell.feed("create -f -", node).await;
    }
    let _controller = TestController::start(&shell.server);
    shell.feed("apply -f -", web("1")).await;
    shell.ok("create pdb web --selector=app=web --min-available=2").await;
    shell.ok("rollout status deployment/web --timeout=60s").await;
    shell.ok("scale deployment/web --replicas=4").await;
    shell.ok("wait pdb/web --for=jsonpath={.status.disruptionsAllowed}=2 --timeout=60s").await;
    let on = async |node: &str| {
        shell.ok(&format!("get pods --field-selector spec.nodeName={node} -o name")).await.lines().count()
    };
    assert_eq!((on("a").await, on("b").await), (2, 2));
    let drained = shell.ok("drain a --timeout=60s").await;
    assert_eq!(drained.matches("evicting pod default/web-").count(), 2, "{drained}");
    assert!(drained.ends_with("node/a drained\n"), "{drained}");
    shell.ok("rollout status deployment/web --timeout=60s").await;
    assert_eq!((on("a").await, on("b").await), (0, 4));
    shell.ok("uncordon a").await;
    shell.ok("scale deployment/web --replicas=8").await;
    shell.ok("rollout status deployment/web --timeout=60s").await;
    assert_eq!((on("a").await, on("b").await), (4, 4));
}

#[tokio::test]
async fn dependents_are_deleted_or_orphaned() {
    let (shell, _controller) = cluster().await;
    let left = async || shell.ok("get deployments,replicasets,pods -o name").await.lines().count();
    assert_eq!(left().await, 5);
    assert_eq!(
        shell.ok("delete deployment web --cascade=orphan").await,
        "deployment.apps \"web\" deleted from default namespace\n"
    );
    assert_eq!(left().await, 4);
    assert_eq!(shell.ok("get replicasets -o jsonpath={.items[*].metadata.ownerReferences}").await, "");
    // This command returns when the pods are gone.
    shell.ok("delete replicasets --all --cascade=foreground --timeout=60s").await;
    assert_eq!(left().await, 0);

    shell.feed("apply -f -", web("2")).await;
    shell.ok("rollout status deployment/web --timeout=60s").await;
    shell.ok("delete deployment web --cascade=background").await;
    shell.ok("wait replicasets,pods --all --for=delete --timeout=60s").await;
    assert_eq!(left().await, 0);
}
