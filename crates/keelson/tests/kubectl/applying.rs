//! Tests of `kubectl apply`, `diff`, `set`, `rollout restart`, `scale` and `patch` without a type. They need strategic
//! merge patches and the scale of workloads.

use crate::Shell;

const SHOP: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {stage: test}}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - {name: web, image: 'web:1', ports: [{containerPort: 80}]}
      - {name: log, image: 'log:1'}
";

async fn shop() -> Shell {
    let shell = Shell::start().await;
    assert_eq!(shell.feed("apply -f -", SHOP).await, "deployment.apps/shop created\n");
    shell
}

#[tokio::test]
async fn a_second_apply_changes_only_the_edited_fields() {
    let shell = shop().await;
    shell.ok("label deployment shop seen=yes").await;
    let next = SHOP.replace("web:1", "web:2").replace("stage: test", "tier: front");
    assert_eq!(shell.feed("apply -f -", next.as_str()).await, "deployment.apps/shop configured\n");
    assert_eq!(shell.feed("apply -f -", next).await, "deployment.apps/shop unchanged\n");
    let shop = shell.json("get deployment shop -o json").await;
    let labels = shop["metadata"]["labels"].as_object().unwrap();
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["seen", "tier"]);
    let images: Vec<_> = shop["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|container| container["image"].as_str().unwrap())
        .collect();
    assert_eq!(images, ["web:2", "log:1"]);
}

#[tokio::test]
async fn one_container_is_patched_by_its_name() {
    let shell = shop().await;
    shell.ok("set image deployment/shop log=log:2").await;
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:3"}]}}}}"#;
    shell.ok(&format!("patch deployment shop -p '{patch}'")).await;
    let images = shell.ok("get deployment shop -o jsonpath={.spec.template.spec.containers[*].image}").await;
    assert_eq!(images, "web:3 log:2");
}

#[tokio::test]
async fn a_restart_marks_the_template() {
    let shell = shop().await;
    assert_eq!(shell.ok("rollout restart deployment/shop").await, "deployment.apps/shop restarted\n");
    let shop = shell.json("get deployment shop -o json").await;
    let annotations = &shop["spec"]["template"]["metadata"]["annotations"];
    assert!(annotations["kubectl.kubernetes.io/restartedAt"].is_string());
    assert_eq!(shop["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_workload_is_scaled_and_only_that_changes() {
    let shell = shop().await;
    assert_eq!(shell.ok("scale deployment shop --replicas=7").await, "deployment.apps/shop scaled\n");
    let scale = shell.json("get deployment shop --subresource=scale -o json").await;
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&"Scale".into(), &7.into()));
    assert_eq!(scale["status"]["selector"], "app=shop");
    let refused = shell.refused("scale deployment shop --replicas=5 --current-replicas=3").await;
    assert!(refused.contains("Expected replicas to be 3, was 7"), "{refused}");
    assert_eq!(shell.ok("get deployment shop -o jsonpath={.spec.replicas}").await, "7");
}
