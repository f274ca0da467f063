//! Rights to the parts of a ResourceClaim's status.
//!
//! Allocations are for schedulers, and device status is for drivers. Texts are upstream's.

use serde_json::{Value, json};

use super::{Lab, MERGE, message, rule};

const GROUP: &str = "resource.k8s.io";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/mine/resourceclaims";
const ACCOUNT: &str = "system:serviceaccount:mine:driver";

fn allocation(node: &str) -> Value {
    json!({
        "devices": { "results": [{ "request": "a", "driver": "gpu.example.org", "pool": "p", "device": "d0" }] },
        "nodeSelector": { "nodeSelectorTerms": [
            { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] },
        ] },
    })
}

fn device(data: u32) -> Value {
    json!({ "driver": "gpu.example.org", "pool": "p", "device": "d0", "data": { "n": data } })
}

impl Lab {
    async fn claim(&self, name: &str, status: Value) {
        let claim = json!({
            "metadata": { "name": name },
            "spec": { "devices": { "requests": [{ "name": "a", "exactly": { "deviceClassName": "gpu.example.org" } }] } },
        });
        self.admin.post(CLAIMS, &claim).await.expect(201);
        self.admin.patch(format!("{CLAIMS}/{name}/status"), MERGE, &json!({ "status": status })).await.expect(200);
    }

    /// Patches a status as a user: the code of the answer and its message.
    async fn report(&self, user: &str, node: Option<&str>, name: &str, status: Value) -> (u16, String) {
        let path = format!("{CLAIMS}/{name}/status");
        let mut call = self.admin.patch(path, MERGE, &json!({ "status": status })).header("impersonate-user", user);
        if let Some(node) = node {
            call = call.header("impersonate-extra-authentication.kubernetes.io%2fnode-name", node);
        }
        let answer = call.await;
        (answer.status, message(&answer))
    }
}

/// The response to a successful change.
fn done() -> (u16, String) {
    (200, String::new())
}

const BINDING: &str = "status: Forbidden: changing status.allocation or status.reservedFor requires \
                       resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is \
                       forbidden: User \"ann\" cannot patch resource \"resourceclaims/binding\" in API group \
                       \"resource.k8s.io\" at the cluster scope";

fn driver_refusal(user: &str, verbs: &str, verb: &str) -> String {
    format!(
        "ResourceClaim.resource.k8s.io \"c\" is invalid: status.devices: Forbidden: changing status.devices requires \
         resource=\"resourceclaims/driver\", verb=\"[{verbs}]\" permission: resourceclaims.resource.k8s.io \
         \"gpu.example.org\" is forbidden: User \"{user}\" cannot {verb} resource \"resourceclaims/driver\" in API group \
         \"resource.k8s.io\" in the namespace \"mine\""
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_an_allocation_require_the_right_to_bind_claims() {
    let lab = Lab::start().await;
    lab.give("ann", "status", Some("mine"), json!([rule(GROUP, &["resourceclaims", "resourceclaims/status"], &["*"])]))
        .await;
    lab.claim("c", json!({})).await;
    let refused = (422, format!("ResourceClaim.{GROUP} \"c\" is invalid: {BINDING}"));
    let allocated = json!({ "allocation": allocation("n") });
    let reserved = json!({ "reservedFor": [{ "resource": "pods", "name": "p", "uid": "u" }] });
    assert_eq!(lab.report("ann", None, "c", allocated.clone()).await, refused);
    // A right within a namespace does not suffice.
    lab.give("ann", "binds", Some("mine"), json!([rule(GROUP, &["resourceclaims/binding"], &["patch", "update"])]))
        .await;
    assert_eq!(lab.report("ann", None, "c", allocated.clone()).await, refused);
    lab.give("ann", "updates", None, json!([rule(GROUP, &["resourceclaims/binding"], &["update"])])).await;
    assert_eq!(lab.report("ann", None, "c", allocated.clone()).await, refused, "a patch takes the right to patch");
    let mut claim = lab.admin.get(format!("{CLAIMS}/c")).await.expect(200).json();
    claim["status"] = allocated;
    lab.asks("ann", "PUT", &format!("{CLAIMS}/c/status"), &claim).await.expect(200);

    assert_eq!(lab.report("ann", None, "c", reserved.clone()).await, refused);
    let (code, told) = lab.report("ann", None, "c", json!({ "allocation": allocation("other") })).await;
    assert_eq!(code, 422);
    assert!(told.contains(BINDING) && told.contains("immutable"), "{told}");
    lab.give("ann", "patches", None, json!([rule(GROUP, &["resourceclaims/binding"], &["patch"])])).await;
    assert_eq!(lab.report("ann", None, "c", reserved).await, done());
    assert_eq!(lab.report("ann", None, "c", json!({ "reservedFor": null })).await, done());

    // The removal of an allocation also removes the status of its devices, and needs no right for their driver.
    lab.admin
        .patch(format!("{CLAIMS}/c/status"), MERGE, &json!({ "status": { "devices": [device(1)] } }))
        .await
        .expect(200);
    assert_eq!(lab.report("ann", None, "c", json!({ "allocation": null })).await, done());
    let left = lab.admin.get(format!("{CLAIMS}/c")).await.expect(200).json();
    assert_eq!(left["status"], json!({}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_device_status_require_the_right_of_the_driver() {
    let lab = Lab::start().await;
    for user in ["ann", ACCOUNT] {
        let name = if user == "ann" { "ann" } else { "account" };
        lab.give(user, name, Some("mine"), json!([rule(GROUP, &["resourceclaims", "resourceclaims/status"], &["*"])]))
            .await;
    }
    lab.claim("c", json!({ "allocation": allocation("n") })).await;
    let said = |data: u32| json!({ "devices": [device(data)] });
    let refused = |user: &str| (422, driver_refusal(user, "arbitrary-node:patch", "arbitrary-node:patch"));
    let on_node = driver_refusal(ACCOUNT, "associated-node:patch arbitrary-node:patch", "associated-node:patch");
    assert_eq!(lab.report("ann", None, "c", said(1)).await, refused("ann"));
    assert_eq!(lab.report(ACCOUNT, Some("n"), "c", said(1)).await, (422, on_node));

    // A driver on a node may write the status of devices that are allocated on that node.
    let of = |driver: &str, verb: &str| json!([{ "apiGroups": [GROUP], "resources": ["resourceclaims/driver"], "resourceNames": [driver], "verbs": [verb] }]);
    lab.give(ACCOUNT, "associated", None, of("gpu.example.org", "associated-node:patch")).await;
    lab.give("ann", "associated-ann", None, of("gpu.example.org", "associated-node:patch")).await;
    assert_eq!(lab.report(ACCOUNT, Some("n"), "c", said(1)).await, done());
    assert_eq!(lab.report(ACCOUNT, Some("n"), "c", said(1)).await, done(), "nothing changes");
    assert_eq!(lab.report(ACCOUNT, Some("m"), "c", said(2)).await, refused(ACCOUNT));
    assert_eq!(lab.report(ACCOUNT, None, "c", said(2)).await, refused(ACCOUNT));
    assert_eq!(lab.report("ann", Some("n"), "c", said(2)).await, refused("ann"), "she is not a service account");
    assert_eq!(lab.report("ann", None, "c", json!({ "devices": null })).await, refused("ann"));

    lab.give("ann", "other", None, of("other.example.org", "arbitrary-node:patch")).await;
    assert_eq!(lab.report("ann", None, "c", said(2)).await, refused("ann"), "it is the right of another driver");
    lab.give("ann", "arbitrary", None, of("gpu.example.org", "arbitrary-node:patch")).await;
    assert_eq!(lab.report("ann", None, "c", said(2)).await, done());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocations_with_admin_access_require_an_admin_namespace() {
    let lab = Lab::start().await;
    lab.claim("c", json!({})).await;
    let mut allocated = allocation("n");
    allocated["devices"]["results"][0]["adminAccess"] = json!(true);
    let refused =
        lab.admin.patch(format!("{CLAIMS}/c/status"), MERGE, &json!({ "status": { "allocation": allocated } })).await;
    let fault = "status.allocation.devices.results[0].adminAccess: Forbidden: admin access to devices requires the \
                 `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    assert_eq!(refused.status, 422);
    assert!(message(&refused).contains(fault), "{}", refused.text());
    let label = json!({ "metadata": { "labels": { "resource.kubernetes.io/admin-access": "true" } } });
    lab.admin.patch("/api/v1/namespaces/mine", MERGE, &label).await.expect(200);
    lab.admin
        .patch(format!("{CLAIMS}/c/status"), MERGE, &json!({ "status": { "allocation": allocated } }))
        .await
        .expect(200);
}
