//! Tests of `pods/resize`: a change of CPU and memory of a running pod.
//!
//! All other fields remain unchanged, whatever the request contains.

use keelson_testkit::Answer;
use serde_json::{Value, json};

use super::{Lab, NAMESPACE, STRATEGIC, check};

impl Lab {
    async fn resize(&self, container: Value) -> Answer {
        let patch = json!({"metadata": {"labels": {"sneaked": "in"}}, "spec": {"containers": [container]}});
        self.raw.patch(format!("{NAMESPACE}/pods/p/resize"), STRATEGIC, &patch).await
    }

    async fn refused(&self, resources: Value, faults: &[&str]) {
        let answer = self.resize(json!({"name": "main", "resources": resources})).await;
        let faults = match faults {
            [one] => (*one).to_owned(),
            many => format!("[{}]", many.join(", ")),
        };
        check(&answer, 422, "Invalid", &format!("Pod \"p\" is invalid: {faults}"));
    }
}

const CLASS: &str = "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing";

#[tokio::test]
async fn only_the_size_changes() {
    let lab = Lab::start().await;
    let made = lab.pod("p", json!({})).await;
    let wanted = json!({"name": "main", "image": "other",
        "resources": {"requests": {"cpu": "150m"}, "limits": {"memory": "128Mi"}}});
    let resized = lab.resize(wanted).await.expect(200).json();
    let mut expected = made["spec"].clone();
    expected["containers"][0]["resources"] =
        json!({"limits": {"cpu": "200m", "memory": "128Mi"}, "requests": {"cpu": "150m", "memory": "64Mi"}});
    assert_eq!(resized["spec"], expected);
    assert_eq!(resized["metadata"]["labels"], made["metadata"]["labels"]);
    assert_eq!(resized["metadata"]["generation"], 2);
    assert_eq!(lab.get("pods/p/resize").await, resized);
}

#[tokio::test]
async fn resizes_without_a_change_of_resources_are_refused() {
    let lab = Lab::start().await;
    lab.pod("p", json!({})).await;
    let immutable = "spec: Forbidden: only cpu and memory resources are mutable";
    lab.refused(json!({"limits": {"ephemeral-storage": "1Gi"}}), &[immutable]).await;
    let removed = "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed";
    lab.refused(json!({"limits": {"cpu": null}}), &[removed]).await;
    let all = json!({"limits": {"cpu": "200m"}, "requests": {"cpu": "200m"}});
    lab.refused(all, &[CLASS]).await;
    let mut pod = lab.get("pods/p").await;
    pod["spec"]["containers"][0]["name"] = json!("renamed");
    let renamed = lab.raw.put(format!("{NAMESPACE}/pods/p/resize"), &pod).await;
    let fault = "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize";
    check(&renamed, 422, "Invalid", &format!("Pod \"p\" is invalid: {fault}"));
    let status = json!({"containerStatuses": [{"name": "main", "image": "web", "imageID": "", "ready": true,
        "restartCount": 0, "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}]});
    lab.report("p", status).await;
    let unable = "spec: Forbidden: Pod running on node without support for resize";
    lab.refused(json!({"limits": {"cpu": "300m"}}), &[unable]).await;
}
