//! Tests of updates of missing objects: they create the object if the resource is declared so.
//!
//! For other resources they return 404, also for subresources.

use serde_json::{Value, json};

use super::{Lab, check};

#[tokio::test]
async fn a_put_creates_objects_where_the_resource_allows_it() {
    let lab = Lab::start().await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/lab/leases/l";
    let body = |holder: &str| json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": holder}});
    let made = lab.raw.put(lease, &body("a")).await.expect(201).json();
    assert!(made["metadata"]["uid"].is_string(), "{made}");
    let mut next = made.clone();
    next["spec"]["holderIdentity"] = json!("b");
    let renewed = lab.raw.put(lease, &next).await.expect(200).json();
    assert_eq!(
        (&renewed["spec"]["holderIdentity"], &renewed["metadata"]["uid"]),
        (&json!("b"), &made["metadata"]["uid"])
    );
    let tried = lab.raw.put(format!("{lease}2?dryRun=All"), &json!({"metadata": {"name": "l2"}, "spec": {}})).await;
    tried.expect(201);
    assert_eq!(lab.raw.get(format!("{lease}2")).await.status, 404);
    // An update of an existing object needs its resourceVersion.
    for unseen in [Value::Null, json!(""), json!("0")] {
        let mut next = renewed.clone();
        next["metadata"]["resourceVersion"] = unseen;
        let refused = lab.raw.put(lease, &next).await;
        let fault = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
        check(&refused, 422, "Invalid", &format!("leases.coordination.k8s.io \"l\" is invalid: {fault}"));
        assert_eq!(refused.json()["details"]["kind"], "leases");
    }
    assert_eq!(lab.raw.get(lease).await.expect(200).json(), renewed);
    // A deleted object is created again, unless the update has the old object's uid.
    lab.raw.delete(lease).await.expect(200);
    assert_eq!(lab.raw.put(lease, &renewed).await.status, 409);
    let mut any = renewed;
    any["metadata"]["uid"] = Value::Null;
    lab.raw.put(lease, &any).await.expect(201);
}

#[tokio::test]
async fn a_put_of_other_missing_objects_is_not_found() {
    let lab = Lab::start().await;
    let missing = lab.raw.put(format!("{}/configmaps/c", super::NAMESPACE), &json!({"metadata": {"name": "c"}})).await;
    check(&missing, 404, "NotFound", "configmaps \"c\" not found");
    let nowhere = "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases/l";
    let missing = lab.raw.put(nowhere, &json!({"metadata": {"name": "l"}, "spec": {}})).await;
    check(&missing, 404, "NotFound", "namespaces \"nowhere\" not found");
}
