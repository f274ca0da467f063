//! Tests of `kubectl auth`: it reconciles rights from a file, checks and lists them, and shows the user.
//!
//! `objects/rights.rs` tests rights with plain requests.

use serde_json::{Value, json};

use crate::Shell;

/// A role with this name and these verbs for pods, and its binding to ann.
fn reader(verbs: &[&str]) -> String {
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "reader", "namespace": "default"},
        "rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}],
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "reader", "namespace": "default"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "ann"}],
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [role, binding]}).to_string()
}

#[tokio::test]
async fn rights_are_reconciled_and_reviewed() {
    let shell = Shell::start().await;
    let told = shell.feed("auth reconcile -f -", reader(&["get", "list"])).await;
    for kind in ["role", "rolebinding"] {
        assert!(told.contains(&format!("{kind}.rbac.authorization.k8s.io/reader reconciled")), "{told}");
    }
    shell.check(&[("auth can-i list pods --as ann", "yes\n"), ("auth can-i '*' '*'", "yes\n")]).await;
    for line in ["auth can-i delete pods --as ann", "auth can-i list pods --as ann -n kube-system"] {
        shell.refused(&format!("{line} --quiet")).await;
    }
    // Other rules remain unless the command is to remove them.
    shell.feed("auth reconcile -f -", reader(&["delete"])).await;
    shell.check(&[("auth can-i delete pods --as ann", "yes\n"), ("auth can-i get pods --as ann", "yes\n")]).await;
    shell.feed("auth reconcile -f - --remove-extra-permissions", reader(&["delete"])).await;
    shell.check(&[("auth can-i delete pods --as ann", "yes\n")]).await;
    shell.refused("auth can-i get pods --as ann --quiet").await;
}

#[tokio::test]
async fn kubectl_lists_rights_and_whoami() {
    let shell = Shell::start().await;
    shell.feed("auth reconcile -f -", reader(&["get", "list"])).await;
    let table = shell.ok("auth can-i --list --as ann --as-group devs").await;
    let rights = |table: &str, resource: &str| {
        let row = table.lines().find(|row| row.split_whitespace().next() == Some(resource)).map(str::to_owned);
        row.and_then(|row| Some(row[row.rfind('[')?..].to_owned()))
    };
    assert_eq!(rights(&table, "pods").as_deref(), Some("[get list]"), "{table}");
    assert_eq!(rights(&table, "selfsubjectreviews.authentication.k8s.io").as_deref(), Some("[create]"), "{table}");
    assert!(table.contains("[/healthz]"), "{table}");
    assert_eq!(rights(&table, "secrets"), None, "{table}");
    let all = shell.ok("auth can-i --list").await;
    assert_eq!(rights(&all, "*.*").as_deref(), Some("[*]"), "{all}");

    let user: Value = shell.json("auth whoami -o json --as ann --as-group devs").await["status"]["userInfo"].clone();
    assert_eq!((&user["username"], &user["groups"]), (&json!("ann"), &json!(["devs", "system:authenticated"])));
    let admin = shell.ok("auth whoami").await;
    assert!(admin.contains("keelson-admin") && admin.contains("X509SHA256="), "{admin}");
}
