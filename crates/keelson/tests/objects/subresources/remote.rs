//! Subresources that only kubelets, pods and services can answer.
//!
//! There are none of them here, and the server says so as upstream does when it can't reach one.

use serde_json::json;

use super::{Lab, NAMESPACE, check};

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
async fn the_server_says_that_it_connects_to_nobody() {
    let lab = Lab::start().await;
    lab.node("n").await;
    lab.pod("p", json!({"nodeName": "n"})).await;
    lab.pod("lost", json!({"nodeName": "gone"})).await;
    lab.raw
        .post(format!("{NAMESPACE}/services"), &json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}))
        .await
        .expect(201);
    lab.report("p", json!({"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]})).await;
    let told = |what: &str| {
        format!("this server cannot pass on {what}: it stores objects and connects to no kubelets, pods or services")
    };
    for (path, what) in [
        (format!("{NAMESPACE}/pods/p/log"), "the logs of pod \"p\" on node \"n\""),
        (format!("{NAMESPACE}/pods/p/exec?command=ls"), "commands to a container of pod \"p\" on node \"n\""),
        (format!("{NAMESPACE}/pods/p/proxy/"), "requests to pod \"p\""),
        (format!("{NAMESPACE}/services/http:s:80/proxy/a/b"), "requests to service \"s\""),
        ("/api/v1/nodes/n/proxy/metrics".to_owned(), "requests to node \"n\""),
    ] {
        check(&lab.raw.get(path).await, 503, "ServiceUnavailable", &told(what));
    }
    let lost = lab.raw.get(format!("{NAMESPACE}/pods/lost/log")).await;
    check(&lost, 404, "NotFound", "pods \"gone\" not found");
    let missing = lab.raw.get(format!("{NAMESPACE}/services/t/proxy/")).await;
    check(&missing, 404, "NotFound", "services \"t\" not found");
}
