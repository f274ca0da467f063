//! Tests of `kubectl cordon`, `uncordon` and `drain`, and of pods that no kubelet runs.
//!
//! Disruption budgets limit evictions. Other tests check their rules with plain requests.

use crate::Shell;

const BUDGET: &str = r#"{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}"#;

fn node(name: &str) -> String {
    format!(r#"{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "{name}"}}}}"#)
}

fn pod(name: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}", "labels": {{"app": "web"}}}},
            "spec": {{"nodeName": "n", "containers": [{{"name": "main", "image": "web"}}]}}}}"#
    )
}

async fn shell() -> Shell {
    let shell = Shell::start().await;
    shell.kubectl("create serviceaccount default").await;
    shell.feed("create -f -", node("n")).await;
    shell
}

async fn report(shell: &Shell, pod: &str) {
    let status = r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#;
    shell.ok(&format!("patch pod {pod} --subresource=status --type=merge -p '{status}'")).await;
}

async fn count(shell: &Shell, allowed: u8) {
    let status = format!(
        r#"{{"status":{{"observedGeneration":1,"disruptionsAllowed":{allowed},"currentHealthy":1,"desiredHealthy":1}}}}"#
    );
    shell.ok(&format!("patch pdb guard --subresource=status --type=merge -p '{status}'")).await;
}

#[tokio::test]
async fn a_node_is_drained_as_far_as_budgets_let_it() {
    let shell = shell().await;
    assert_eq!(shell.ok("cordon n").await, "node/n cordoned\n");
    assert_eq!(shell.ok("uncordon n").await, "node/n uncordoned\n");
    shell.feed("create -f -", pod("p")).await;
    report(&shell, "p").await;
    shell.feed("create -f -", BUDGET).await;
    count(&shell, 0).await;
    let refused = shell.refused("drain n --force --timeout=2s").await;
    let violated = "Cannot evict pod as it would violate the pod's disruption budget.";
    assert!(refused.contains(violated), "{refused}");
    count(&shell, 1).await;
    // Only the test ends the pod; in a cluster a kubelet would.
    let drain = shell.kubectl("drain n --force --timeout=60s");
    let kubelet = async {
        shell.ok("wait pod/p --for=jsonpath={.metadata.deletionGracePeriodSeconds}=30 --timeout=60s").await;
        shell.ok("delete pod p --grace-period=0 --force").await
    };
    let (drained, _) = tokio::join!(drain, kubelet);
    let drained = drained.ok();
    assert!(drained.contains("evicting pod default/p\n"), "{drained}");
    assert!(drained.ends_with("node/n drained\n"), "{drained}");
    assert_eq!(shell.json("get node n -o json").await["spec"]["unschedulable"], true);
}

#[tokio::test]
async fn a_pod_is_given_time_or_none() {
    let shell = shell().await;
    shell.feed("create -f -", pod("p")).await;
    let deleted = "pod \"p\" deleted from default namespace\n";
    assert_eq!(shell.ok("delete pod p --grace-period=7 --wait=false").await, deleted);
    let held = shell.json("get pod p -o json").await;
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 7);
    let forced = shell.ok("delete pod p --force --grace-period=0").await;
    assert!(forced.contains("pod \"p\" force deleted from default namespace\n"), "{forced}");
    assert_eq!(shell.ok("get pods -o name").await, "");
}

#[tokio::test]
async fn logs_and_commands_are_refused_with_a_reason() {
    let shell = shell().await;
    shell.feed("create -f -", pod("p")).await;
    // The node's status has no address of its kubelet.
    let message = "no preferred addresses found; known addresses: []";
    assert_eq!(shell.refused("logs p").await, format!("Error from server: {message}\n"));
    let refused = shell.refused("exec p -- ls").await;
    assert!(refused.contains(message), "{refused}");
    shell.ok("run unbound --image=web").await;
    assert_eq!(shell.ok("logs unbound").await, "");
    let refused = shell.refused("exec unbound -- ls").await;
    assert!(refused.contains("pod unbound does not have a host assigned"), "{refused}");
}

#[tokio::test]
async fn a_debugger_is_added_to_a_pod() {
    let shell = shell().await;
    shell.feed("create -f -", pod("p")).await;
    let said = shell.kubectl("debug p --image=tool --container=look --attach=false --profile=general").await;
    assert!(said.status.success(), "{}", said.stderr);
    let found = shell.ok("get pod p -o jsonpath={.spec.ephemeralContainers[*].name}").await;
    assert_eq!(found, "look");
}
