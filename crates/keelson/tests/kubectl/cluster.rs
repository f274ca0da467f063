//! Tests of kubectl's commands about the server itself: versions, resources, health, and the rights of the user.
//!
//! An operator runs them first on a new server.

use crate::{Shell, column};

#[tokio::test]
async fn version_and_cluster_info_describe_the_server() {
    let shell = Shell::start().await;
    let version = shell.json("version -o json").await;
    let server = &version["serverVersion"];
    assert_eq!((server["major"].as_str(), server["minor"].as_str()), (Some("1"), Some("37")));
    assert!(server["gitVersion"].as_str().unwrap().ends_with("+keelson"), "{server}");
    assert_eq!(shell.json("get --raw /version").await["gitVersion"], server["gitVersion"]);
    let info = shell.ok("cluster-info").await;
    assert!(info.starts_with(&format!("Kubernetes control plane is running at {}\n", shell.server.url())), "{info}");
}

#[tokio::test]
async fn groups_versions_and_resources_are_found() {
    let shell = Shell::start().await;
    let versions = shell.ok("api-versions").await;
    for expected in ["v1", "apps/v1", "batch/v1", "rbac.authorization.k8s.io/v1", "resource.k8s.io/v1"] {
        assert!(versions.lines().any(|version| version == expected), "{expected} of {versions}");
    }
    assert!(!versions.contains("resource.k8s.io/v1beta1"), "{versions}");
    let apps = "controllerrevisions.apps\ndaemonsets.apps\ndeployments.apps\nreplicasets.apps\nstatefulsets.apps\n";
    assert_eq!(shell.ok("api-resources --api-group=apps -o name").await, apps);
    let table = shell.ok("api-resources").await;
    assert!(table.starts_with("NAME  "), "{table}");
    let pods = table.lines().find(|line| line.starts_with("pods ")).unwrap();
    assert_eq!(pods.split_whitespace().collect::<Vec<_>>(), ["pods", "po", "v1", "true", "Pod"]);
    assert_eq!(column(&table, 0).len(), 72, "{table}");
    let wide = shell.ok("api-resources -o wide --namespaced=false").await;
    let nodes = wide.lines().find(|line| line.starts_with("nodes ")).unwrap();
    assert!(nodes.contains("create,delete,deletecollection,get,list,patch,update,watch"), "{nodes}");
}

#[tokio::test]
async fn every_resource_that_can_be_listed_can_be_listed() {
    let shell = Shell::start().await;
    let names = shell.ok("api-resources --verbs=list -o name").await;
    let every = names.lines().filter(|name| *name != "componentstatuses").collect::<Vec<_>>().join(",");
    let listed = shell.ok(&format!("get {every} -A -o name")).await;
    // A new server has only the objects that it creates itself, which include one of each of these kinds.
    for name in ["namespace/kube-system", "service/kubernetes", "clusterrole.rbac.authorization.k8s.io/admin"] {
        assert!(listed.lines().any(|line| line == name), "{name} in {listed}");
    }
    assert_eq!(listed.lines().filter(|name| name.starts_with("namespace/")).count(), 4, "{listed}");
    assert!(!listed.lines().any(|name| name.starts_with("pod/")), "{listed}");
}

#[tokio::test]
async fn health_is_reported_by_check() {
    let shell = Shell::start().await;
    for path in ["/readyz", "/livez", "/healthz"] {
        assert_eq!(shell.ok(&format!("get --raw {path}")).await, "ok");
    }
    let verbose = shell.ok("get --raw /readyz?verbose").await;
    assert!(verbose.starts_with("[+]ping ok\n") && verbose.ends_with("readyz check passed\n"), "{verbose}");
    let without = shell.ok("get --raw /readyz?verbose&exclude=etcd").await;
    assert!(without.contains("[+]etcd excluded: ok\n"), "{without}");
    // Clients request these checks by name on every server.
    let hooks = ["rbac/bootstrap-roles", "crd-informer-synced", "apiservice-registration-controller"];
    let hooks = hooks.map(|hook| format!("poststarthook/{hook}"));
    for check in ["ping", "log"].map(str::to_owned).iter().chain(&hooks) {
        for endpoint in ["healthz", "livez", "readyz"] {
            assert_eq!(shell.ok(&format!("get --raw /{endpoint}/{check}")).await, "ok");
        }
    }
    for check in ["etcd", "informer-sync", "autoregister-completion"] {
        assert_eq!(shell.ok(&format!("get --raw /readyz/{check}")).await, "ok");
    }
}

#[tokio::test]
async fn kubectl_prints_the_user_and_rights() {
    let shell = Shell::start().await;
    let table = shell.ok("auth whoami").await;
    assert_eq!(column(&table, 0), ["Username", "Groups", "Extra:"]);
    // The id of the user's credential, which audit events also contain.
    assert!(table.contains("authentication.kubernetes.io/credential-id"), "{table}");
    assert!(table.contains("system:masters") && table.contains("system:authenticated"), "{table}");
    for question in ["get pods", "delete namespaces", "'*' '*'", "get /metrics", "create deployments.apps -n team"] {
        assert_eq!(shell.ok(&format!("auth can-i {question}")).await, "yes\n", "{question}");
    }
    let list = shell.ok("auth can-i --list").await;
    assert!(list.lines().any(|line| line.starts_with("*.*")), "{list}");
}
