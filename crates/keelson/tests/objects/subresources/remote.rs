//! Tests of subresources that kubelets, pods and services answer, as far as the server itself responds.
//!
//! The tests in `tests/nodes` have a kubelet.

use serde_json::json;

use super::{Lab, NAMESPACE, check};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/lab";

/// A websocket begins with a GET.
#[tokio::test]
async fn sessions_with_a_pod_require_create_for_get_requests_too() {
    let lab = Lab::start().await;
    lab.pod("p", json!({})).await;
    let resources = ["exec", "attach", "portforward", "log", "proxy"].map(|below| format!("pods/{below}"));
    let role = |verbs: &[&str]| json!({ "metadata": { "name": "sessions" }, "rules": [{ "apiGroups": [""], "resources": resources, "verbs": verbs }] });
    lab.raw.post(format!("{RBAC}/roles"), &role(&["get", "list", "watch"])).await.expect(201);
    let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve" });
    let role_ref = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sessions" });
    let binding = json!({ "metadata": { "name": "sessions" }, "roleRef": role_ref, "subjects": [subject] });
    lab.raw.post(format!("{RBAC}/rolebindings"), &binding).await.expect(201);
    let sessions = ["exec?command=ls&stdout=true", "attach?stdout=true", "portforward?ports=80"];
    let begun = |path: &str| lab.raw.get(format!("{NAMESPACE}/pods/p/{path}")).header("impersonate-user", "eve");
    for path in sessions {
        let below = path.split('?').next().unwrap();
        let refusal = format!(
            "pods \"p\" is forbidden: User \"eve\" cannot create resource \"pods/{below}\" in API group \"\" in the \
             namespace \"lab\""
        );
        check(&begun(path).await, 403, "Forbidden", &refusal);
    }
    // Logs and proxied requests need only the right to `get`, as in upstream.
    assert_eq!(begun("log").await.status, 204);
    check(&begun("proxy/").await, 400, "BadRequest", "address not allowed");
    lab.raw.put(format!("{RBAC}/roles/sessions"), &role(&["get", "create"])).await.expect(200);
    for path in sessions {
        check(&begun(path).await, 400, "BadRequest", "pod p does not have a host assigned");
    }
}

#[tokio::test]
async fn a_pod_without_a_node_has_no_logs_and_takes_no_commands() {
    let lab = Lab::start().await;
    lab.pod("p", json!({})).await;
    let logs = lab.raw.get(format!("{NAMESPACE}/pods/p/log")).await;
    assert_eq!((logs.status, logs.text().as_str()), (204, ""));
    for path in ["exec?command=ls&stdout=true", "attach?stdout=true", "portforward?ports=80"] {
        let refused = lab.raw.get(format!("{NAMESPACE}/pods/p/{path}")).await;
        check(&refused, 400, "BadRequest", "pod p does not have a host assigned");
    }
    let refused = lab.raw.get(format!("{NAMESPACE}/pods/p/log?container=x")).await;
    check(&refused, 400, "BadRequest", "container x is not valid for pod p");
    let refused = lab.raw.get(format!("{NAMESPACE}/pods/q/log")).await;
    check(&refused, 404, "NotFound", "pods \"q\" not found");
    let refused = lab.raw.get(format!("{NAMESPACE}/pods/p:80/proxy/metrics")).await;
    check(&refused, 400, "BadRequest", "address not allowed");
}

#[tokio::test]
async fn a_node_without_an_address_is_not_reached() {
    let lab = Lab::start().await;
    lab.node("n").await;
    lab.pod("p", json!({"nodeName": "n"})).await;
    lab.pod("lost", json!({"nodeName": "gone"})).await;
    lab.raw
        .post(format!("{NAMESPACE}/services"), &json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}))
        .await
        .expect(201);
    for path in [
        format!("{NAMESPACE}/pods/p/log"),
        format!("{NAMESPACE}/pods/p/exec?command=ls"),
        "/api/v1/nodes/n/proxy/metrics".to_owned(),
    ] {
        check(&lab.raw.get(path).await, 500, "", "no preferred addresses found; known addresses: []");
    }
    let none = lab.raw.get(format!("{NAMESPACE}/services/http:s:80/proxy/a/b")).await;
    check(&none, 503, "ServiceUnavailable", "no endpoints available for service \"s\"");
    let lost = lab.raw.get(format!("{NAMESPACE}/pods/lost/log")).await;
    check(&lost, 404, "NotFound", "pods \"gone\" not found");
    let missing = lab.raw.get(format!("{NAMESPACE}/services/t/proxy/")).await;
    check(&missing, 404, "NotFound", "services \"t\" not found");
}
