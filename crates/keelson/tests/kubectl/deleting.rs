//! Tests of `kubectl delete` and `kubectl wait`.
//!
//! kubectl waits with a watch, which must send the event of the deletion.

use crate::Shell;

async fn shell() -> Shell {
    let shell = Shell::start().await;
    for (name, label) in [("apple", "fruit"), ("pear", "fruit"), ("leek", "vegetable"), ("salt", "mineral")] {
        shell.ok(&format!("create configmap {name}")).await;
        shell.ok(&format!("label configmap {name} is={label}")).await;
    }
    shell
}

#[tokio::test]
async fn objects_are_deleted_by_name_selector_and_all() {
    let shell = shell().await;
    let deleted = |names: &[&str]| -> String {
        names.iter().map(|name| format!("configmap \"{name}\" deleted from default namespace\n")).collect()
    };
    let session = [
        (
            "delete configmap apple --dry-run=server",
            "configmap \"apple\" deleted from default namespace (server dry run)\n".to_owned(),
        ),
        ("delete configmap salt", deleted(&["salt"])),
        ("delete configmap salt --ignore-not-found", String::new()),
        ("delete configmaps -l is=fruit", deleted(&["apple", "pear"])),
        ("get configmaps -o name", "configmap/leek\n".to_owned()),
        ("create configmap onion", "configmap/onion created\n".to_owned()),
        ("delete configmaps --field-selector metadata.name=onion", deleted(&["onion"])),
        ("create configmap onion", "configmap/onion created\n".to_owned()),
        ("delete configmaps --all", deleted(&["leek", "onion"])),
        ("get configmaps -o name", String::new()),
        ("wait --for=delete configmap/onion --timeout=20s", String::new()),
    ];
    for (line, printed) in session {
        assert_eq!(shell.ok(line).await, printed, "kubectl {line}");
    }
    let missing = shell.refused("delete configmap salt").await;
    assert_eq!(missing, "Error from server (NotFound): configmaps \"salt\" not found\n");
}

#[tokio::test]
async fn a_namespace_is_deleted_with_its_content() {
    let shell = shell().await;
    shell.ok("create namespace team").await;
    shell.ok("create configmap settings -n team").await;
    shell.ok("create deployment web --image=web -n team").await;
    shell.ok("run shell --image=tool -n team").await;
    assert_eq!(shell.ok("delete namespace team --wait --timeout=60s").await, "namespace \"team\" deleted\n");
    assert_eq!(
        shell.refused("get namespace team").await,
        "Error from server (NotFound): namespaces \"team\" not found\n"
    );
    assert_eq!(shell.ok("get configmaps,deployments,pods -n team -o name").await, "");
    assert_eq!(shell.ok("get configmaps -A -o name").await.lines().count(), 6, "other namespaces keep theirs");
    assert_eq!(shell.ok("create namespace team").await, "namespace/team created\n");
    assert_eq!(
        shell.ok("wait namespace/team --for=jsonpath={.status.phase}=Active").await,
        "namespace/team condition met\n"
    );
}

#[tokio::test]
async fn namespaces_that_clients_count_on_stay() {
    let shell = Shell::start().await;
    for name in ["default", "kube-system", "kube-public"] {
        assert_eq!(
            shell.refused(&format!("delete namespace {name}")).await,
            format!(
                "Error from server (Forbidden): namespaces \"{name}\" is forbidden: this namespace may not be deleted\n"
            )
        );
    }
    shell.ok("delete namespace kube-node-lease").await;
}

#[tokio::test]
async fn a_finalizer_holds_an_object_until_it_is_taken_off() {
    let shell = shell().await;
    let patch = |finalizers: &str| {
        format!("patch configmap leek --type=merge -p '{{\"metadata\":{{\"finalizers\":{finalizers}}}}}'")
    };
    shell.ok(&patch(r#"["example.com/held"]"#)).await;
    let said = "configmap \"leek\" deleted from default namespace\n";
    assert_eq!(shell.ok("delete configmap leek --wait=false").await, said);
    let held = shell.json("get configmap leek -o json").await;
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
    // This command waits, and ends when the object is gone.
    let waiting = shell.kubectl("delete configmap leek --timeout=60s");
    let release = async { shell.ok(&patch("null")).await };
    let (waited, _) = tokio::join!(waiting, release);
    // The other command may have started too late to find the object.
    let waited = format!("{}{}", waited.stdout, waited.stderr);
    assert!(waited == said || waited == "Error from server (NotFound): configmaps \"leek\" not found\n", "{waited}");
    assert_eq!(shell.ok("get configmap leek --ignore-not-found").await, "");
}
