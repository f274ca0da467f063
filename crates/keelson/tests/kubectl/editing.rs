//! Tests of `kubectl edit`, `set`, `expose`, `taint` and `replace --subresource`. Each command changes one field.
//!
//! The editor is a program that the test sets.

use crate::Shell;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: 'web:1'}, {name: log, image: 'log:1'}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
";

async fn shell() -> Shell {
    let shell = Shell::start().await;
    shell.feed("create -f -", WEB).await;
    shell
}

#[tokio::test]
async fn an_object_is_edited_as_text() {
    let shell = shell().await;
    let edit = |line: &str, script: &str| shell.kubectl(line).env("KUBE_EDITOR", &format!("sed -i '{script}'"));
    let images = edit("edit deployment web", "s/web:1/web:2/; s/log:1/log:2/");
    assert_eq!(images.await.ok(), "deployment.apps/web edited\n");
    let images = "get deployment web -o jsonpath={.spec.template.spec.containers[*].image}";
    assert_eq!(shell.ok(images).await, "web:2 log:2");
    let unchanged = edit("edit deployment web", "s/nothing/else/").await;
    assert_eq!(unchanged.stderr, "Edit cancelled, no changes made.\n");
    let several = edit(
        "edit service/web configmap/settings",
        "s/^      app: web$/      app: other/; s/colour: red/colour: blue/",
    );
    assert_eq!(several.await.ok(), "service/web edited\nconfigmap/settings edited\n");
    assert_eq!(shell.ok("get service web -o jsonpath={.spec.selector.app}").await, "other");
    let scaled = edit("edit deployment web --subresource=status", "s/^status: {}$/status: {observedGeneration: 1}/");
    assert_eq!(scaled.await.ok(), "deployment.apps/web edited\n");
    assert_eq!(shell.ok("get deployment web -o jsonpath={.status.observedGeneration}").await, "1");
}

#[tokio::test]
async fn an_edit_that_is_refused_is_kept_for_another_try() {
    let shell = shell().await;
    // kubectl starts the editor again, with the errors at the head of the text, until the editor changes nothing.
    let refused = shell.kubectl("edit deployment web").env("KUBE_EDITOR", "sed -i 's/  replicas: 1/  replicas: -1/'");
    let said = refused.await.refused();
    assert!(said.starts_with("error: deployments.apps \"web\" is invalid\n"), "{said}");
    assert!(said.contains("A copy of your changes has been stored to"), "{said}");
    assert_eq!(shell.ok("get deployment web -o jsonpath={.spec.replicas}").await, "1");
}

#[tokio::test]
async fn kubectl_set_commands_change_single_fields() {
    let shell = shell().await;
    shell.ok("create rolebinding readers --clusterrole=view --user=jane").await;
    let container = |path: &str| format!("get deployment web -o jsonpath={{.spec.template.spec.containers[0].{path}}}");
    let session = [
        ("set image deployment/web '*=tool:1'", "deployment.apps/web image updated\n"),
        ("set env deployment/web -c web MODE=test LEVEL=2", "deployment.apps/web env updated\n"),
        ("set env deployment/web -c web LEVEL-", "deployment.apps/web env updated\n"),
        ("set env deployment/web -c web --from=configmap/settings", "deployment.apps/web env updated\n"),
        (
            "set env deployment/web -c web --list",
            "# Deployment web, container web\nMODE=test\n# COLOUR from configmap settings, key colour\n",
        ),
        (
            "set resources deployment web -c web --limits=cpu=0.5,memory=64Mi --requests=cpu=100m",
            "deployment.apps/web resource requirements updated\n",
        ),
        (&container("resources"), r#"{"limits":{"cpu":"500m","memory":"64Mi"},"requests":{"cpu":"100m"}}"#),
        ("set serviceaccount deployment web robot", "deployment.apps/web serviceaccount updated\n"),
        ("get deployment web -o jsonpath={.spec.template.spec.serviceAccountName}", "robot"),
        ("set selector service web app=other,tier=front", "service/web selector updated\n"),
        ("get service web -o jsonpath={.spec.selector}", r#"{"app":"other","tier":"front"}"#),
        (
            "set subject rolebinding readers --group=team --serviceaccount=default:robot",
            "rolebinding.rbac.authorization.k8s.io/readers subjects updated\n",
        ),
        ("get rolebinding readers -o jsonpath={.subjects[*].name}", "jane team robot"),
        ("set image deployment/web web=tool:1", ""),
    ];
    shell.check(&session).await;
    assert_eq!(
        shell.ok("get deployment web -o jsonpath={.spec.template.spec.containers[*].image}").await,
        "tool:1 tool:1"
    );
    let unknown = shell.refused("set image deployment/web nobody=tool:2").await;
    assert_eq!(unknown, "error: unable to find container named \"nobody\"\n");
}

#[tokio::test]
async fn kubectl_expose_makes_services_for_pods_and_workloads() {
    let shell = shell().await;
    shell.ok("run shell --image=tool --port=8080 --labels=app=shell --expose").await;
    let session = [
        ("expose deployment web --name=front --port=80 --type=LoadBalancer", "service/front exposed\n"),
        ("expose pod shell --name=more --port=81 --target-port=http --type=NodePort", "service/more exposed\n"),
        (
            "expose service web --name=again --port=82 --protocol=UDP --session-affinity=ClientIP",
            "service/again exposed\n",
        ),
        ("expose deployment web --name=bare --port=83 --cluster-ip=None", "service/bare exposed\n"),
        ("get services -l app=shell -o name", "service/more\nservice/shell\n"),
        ("get service shell -o jsonpath={.spec.ports[0].port}{.spec.selector}", r#"8080{"app":"shell"}"#),
        ("get services front more again -o jsonpath={.items[*].spec.type}", "LoadBalancer NodePort ClusterIP"),
        ("get service bare -o jsonpath={.spec.clusterIP}", "None"),
        (
            "get service again -o jsonpath='{.spec.ports[0].protocol} {.spec.sessionAffinityConfig.clientIP.timeoutSeconds}'",
            "UDP 10800",
        ),
    ];
    shell.check(&session).await;
    let refused = shell.refused("expose deployment web --port=80 --name=web").await;
    assert!(refused.ends_with("services \"web\" already exists\n"), "{refused}");
    let refused = shell.refused("expose deployment web --name=odd --port=80 --cluster-ip=192.0.2.1").await;
    assert!(refused.contains("failed to allocate IP 192.0.2.1"), "{refused}");
}

#[tokio::test]
async fn nodes_are_tainted() {
    let shell = Shell::start().await;
    shell.feed("create -f -", r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {}}"#).await;
    let session = [
        ("taint node n node.kubernetes.io/not-ready-", "node/n untainted\n"),
        ("taint node n use=shop:NoSchedule use=shop:NoExecute", "node/n tainted\n"),
        ("taint node n use=lab:NoSchedule --overwrite", "node/n modified\n"),
        ("taint node n use:NoExecute-", "node/n untainted\n"),
        ("get node n -o jsonpath={.spec.taints}", r#"[{"effect":"NoSchedule","key":"use","value":"lab"}]"#),
        ("taint node --all use-", "node/n untainted\n"),
        ("get node n -o jsonpath={.spec.taints}", ""),
    ];
    shell.check(&session).await;
}

#[tokio::test]
async fn a_scale_and_a_status_are_changed_alone() {
    let shell = shell().await;
    let patch = r#"patch deployment web --subresource=scale --type=merge -p '{"spec":{"replicas":6}}'"#;
    assert_eq!(shell.ok(patch).await, "scale.autoscaling/web patched\n");
    let mut web = shell.json("get deployment web -o json").await;
    assert_eq!(web["spec"]["replicas"], 6);
    web["spec"]["replicas"] = 9.into();
    web["status"]["replicas"] = 2.into();
    let replaced = shell.feed("replace --subresource=status -f -", web.to_string()).await;
    assert_eq!(replaced, "deployment.apps/web replaced\n");
    assert_eq!(shell.ok("get deployment web -o jsonpath='{.spec.replicas} {.status.replicas}'").await, "6 2");
}
