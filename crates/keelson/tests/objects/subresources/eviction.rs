//! Tests of `pods/eviction` and of disruption budgets.
//!
//! The budget's count decreases together with the start of the pod's deletion, also with concurrent evictions.

use keelson_testkit::Answer;
use serde_json::{Value, json};

use super::{Lab, MERGE, NAMESPACE, check, check_done};

const BUDGETS: &str = "/apis/policy/v1/namespaces/lab/poddisruptionbudgets";

impl Lab {
    /// A pod on a node, running and ready or not.
    async fn running(&self, name: &str, ready: bool) {
        self.pod(name, json!({"nodeName": "n", "terminationGracePeriodSeconds": 60})).await;
        let ready = if ready { "True" } else { "False" };
        self.report(name, json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]})).await;
    }

    /// A budget for all pods of the lab, with what its controller would count.
    async fn budget(&self, name: &str, spec: Value, status: Value) {
        let mut budget = json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        for (field, value) in spec.as_object().unwrap() {
            budget["spec"][field] = value.clone();
        }
        self.raw.post(BUDGETS, &budget).await.expect(201);
        let path = format!("{BUDGETS}/{name}/status");
        self.raw.patch(path, MERGE, &json!({ "status": status })).await.expect(200);
    }

    async fn evict(&self, pod: &str, options: Value) -> Answer {
        let mut eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
        if !options.is_null() {
            eviction["deleteOptions"] = options;
        }
        self.post(&format!("pods/{pod}/eviction"), eviction).await
    }

    async fn is_leaving(&self, pod: &str) -> bool {
        !self.get(&format!("pods/{pod}")).await["metadata"]["deletionTimestamp"].is_null()
    }
}

fn counted(allowed: i64) -> Value {
    json!({"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1,
        "expectedPods": 2})
}

const VIOLATED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

#[tokio::test]
async fn a_budget_allows_its_number_of_disruptions() {
    let lab = Lab::start().await;
    lab.running("a", true).await;
    lab.running("b", true).await;
    lab.budget("guard", json!({"minAvailable": 1}), counted(1)).await;
    check_done(&lab.evict("a", json!(null)).await);
    let pod = lab.get("pods/a").await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 60);
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!((&target["reason"], &target["status"]), (&json!("EvictionByEvictionAPI"), &json!("True")));
    let budget = lab.raw.get(format!("{BUDGETS}/guard")).await.expect(200).json();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["a"].is_string(), "{budget}");
    let condition = &budget["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("DisruptionAllowed"), &json!("InsufficientPods")));
    let refused = lab.evict("b", json!(null)).await;
    check(&refused, 429, "TooManyRequests", VIOLATED);
    let cause = "The disruption budget guard does not allow evicting pods currently";
    assert_eq!(refused.json()["details"], json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]}));
    assert!(refused.header("retry-after").is_empty());
    assert!(!lab.is_leaving("b").await);
    check_done(&lab.evict("a", json!(null)).await);
}

#[tokio::test]
async fn an_uncounted_budget_refuses_evictions() {
    let lab = Lab::start().await;
    lab.running("a", true).await;
    lab.budget("guard", json!({"minAvailable": 1}), json!({"observedGeneration": 0, "disruptionsAllowed": 5})).await;
    let refused = lab.evict("a", json!(null)).await;
    check(&refused, 429, "TooManyRequests", VIOLATED);
    assert_eq!(refused.header("retry-after"), "10");
    let cause = "The disruption budget guard is still being processed by the server.";
    let details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}], "retryAfterSeconds": 10});
    assert_eq!(refused.json()["details"], details);
}

#[tokio::test]
async fn a_refusal_states_its_cause() {
    let lab = Lab::start().await;
    lab.running("a", true).await;
    lab.budget("guard", json!({"minAvailable": 1}), counted(0)).await;
    let status = async |status: Value| {
        lab.raw.patch(format!("{BUDGETS}/guard/status"), MERGE, &json!({"status": status})).await.expect(200);
    };
    let causes = async |code: u16, cause: &str| {
        let refused = lab.evict("a", json!(null)).await.expect(code).json();
        let message = format!("The disruption budget guard {cause}");
        assert_eq!(refused["details"]["causes"], json!([{"reason": "DisruptionBudget", "message": message}]));
        refused["message"].as_str().unwrap().to_owned()
    };
    let condition = |reason: &str, message: &str| {
        json!({"conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
    };
    let blocked = "does not allow evicting pods currently";
    causes(429, blocked).await;
    status(condition("SyncFailed", "")).await;
    causes(429, blocked).await;
    status(condition("InsufficientPods", "wait")).await;
    causes(429, &format!("{blocked} (InsufficientPods): wait")).await;
    status(json!({"currentHealthy": 1})).await;
    causes(429, "needs 1 healthy pods and has 1 currently").await;
    status(condition("SyncFailed", "found no controllers")).await;
    causes(429, &format!("{blocked} because it failed sync: found no controllers")).await;
    let forbidden = "poddisruptionbudget.policy \"guard\" is forbidden: ";
    let disrupted: serde_json::Map<_, _> =
        (0..2001).map(|number| (format!("p{number}"), json!("2026-01-01T00:00:00Z"))).collect();
    status(json!({"disruptionsAllowed": 1, "disruptedPods": disrupted})).await;
    let pending = "too many pending evictions not confirmed by PDB controller";
    let message = causes(403, &format!("{blocked}: {pending}")).await;
    let full = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
    assert_eq!(message, format!("{forbidden}{full}"));
}

#[tokio::test]
async fn of_two_budgets_none_counts() {
    let lab = Lab::start().await;
    lab.running("a", true).await;
    lab.budget("one", json!({"minAvailable": 0}), counted(2)).await;
    lab.budget("two", json!({"minAvailable": 0}), counted(2)).await;
    let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    check(&lab.evict("a", json!(null)).await, 500, "", message);
    assert!(!lab.is_leaving("a").await);
}

#[tokio::test]
async fn unready_pods_are_evicted_despite_budgets() {
    let lab = Lab::start().await;
    lab.budget("guard", json!({"minAvailable": 1}), counted(0)).await;
    lab.pod("waiting", json!({})).await;
    lab.pod("done", json!({"nodeName": "n"})).await;
    lab.report("done", json!({"phase": "Succeeded"})).await;
    for pod in ["waiting", "done"] {
        check_done(&lab.evict(pod, json!(null)).await);
        assert_eq!(lab.raw.get(format!("{NAMESPACE}/pods/{pod}")).await.status, 404, "{pod} has nothing to stop");
    }
    check(&lab.evict("done", json!(null)).await, 404, "NotFound", "pods \"done\" not found");
}

#[tokio::test]
async fn an_unready_pod_goes_when_the_others_suffice_or_always() {
    let lab = Lab::start().await;
    lab.running("a", false).await;
    lab.running("b", false).await;
    lab.budget("guard", json!({"minAvailable": 1}), counted(0)).await;
    check_done(&lab.evict("a", json!(null)).await);
    let counts = json!({"status": {"currentHealthy": 0}});
    lab.raw.patch(format!("{BUDGETS}/guard/status"), MERGE, &counts).await.expect(200);
    check(&lab.evict("b", json!(null)).await, 429, "TooManyRequests", VIOLATED);
    let current = lab.raw.get(format!("{BUDGETS}/guard")).await.json();
    let always = json!({"metadata": {"resourceVersion": current["metadata"]["resourceVersion"]},
        "spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    lab.raw.patch(format!("{BUDGETS}/guard"), MERGE, &always).await.expect(200);
    check_done(&lab.evict("b", json!(null)).await);
    let budget = lab.raw.get(format!("{BUDGETS}/guard")).await.json();
    assert!(budget["status"]["disruptedPods"].is_null(), "they were not counted as available: {budget}");
}

#[tokio::test]
async fn evictions_check_preconditions_names_and_dry_run() {
    let lab = Lab::start().await;
    lab.running("a", true).await;
    let other = lab.evict("a", json!({"preconditions": {"uid": "another"}})).await;
    assert_eq!((other.status, &other.json()["reason"]), (409, &json!("Conflict")));
    check_done(&lab.evict("a", json!({"dryRun": ["All"]})).await);
    let named = json!({"metadata": {"name": "b"}});
    let misnamed = lab.post("pods/a/eviction", named).await;
    check(&misnamed, 400, "BadRequest", "name in URL does not match name in Eviction object");
    assert!(!lab.is_leaving("a").await);
    let older = json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "a"},
        "deleteOptions": {"gracePeriodSeconds": 5}});
    check_done(&lab.post("pods/a/eviction", older).await);
    assert_eq!(lab.get("pods/a").await["metadata"]["deletionGracePeriodSeconds"], 5);
}

/// Clients repeat evictions, and several drain a node at the same time.
#[tokio::test]
async fn repeated_evictions_of_a_pod_use_one_disruption() {
    let lab = Lab::start().await;
    for name in ["a", "b", "c"] {
        lab.running(name, true).await;
    }
    lab.budget("guard", json!({"minAvailable": 1}), counted(2)).await;
    // The time of an eviction has whole seconds, and is compared with the creation.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let evictions = (0..20).map(|number| {
        let raw = lab.raw.clone();
        let name = if number % 2 == 0 { "a" } else { "b" };
        async move {
            let eviction = json!({"metadata": {"name": name}});
            raw.post(format!("{NAMESPACE}/pods/{name}/eviction"), &eviction).await.status
        }
    });
    assert_eq!(futures::future::join_all(evictions).await, [201; 20]);
    assert!(lab.is_leaving("a").await && lab.is_leaving("b").await);
    check(&lab.evict("c", json!(null)).await, 429, "TooManyRequests", VIOLATED);
    // A place of an earlier pod is none of a later one.
    let earlier = json!({"status": {"disruptedPods": {"c": "2020-01-01T00:00:00Z"}}});
    lab.raw.patch(format!("{BUDGETS}/guard/status"), MERGE, &earlier).await.expect(200);
    check(&lab.evict("c", json!(null)).await, 429, "TooManyRequests", VIOLATED);
}

/// Otherwise a user could use up the budgets of others with evictions of pods that do not exist.
#[tokio::test]
async fn evictions_without_a_deletion_use_no_disruption() {
    let lab = Lab::start().await;
    lab.running("a", true).await;
    lab.budget("guard", json!({"minAvailable": 1}), counted(1)).await;
    let version = json!({"preconditions": {"resourceVersion": "1"}});
    for options in [json!({"preconditions": {"uid": "another"}}), version, json!({"dryRun": ["All"]})] {
        let code = if options["dryRun"].is_null() { 409 } else { 201 };
        assert_eq!(lab.evict("a", options).await.status, code);
    }
    for options in [json!({"dryRun": ["Some"]}), json!({"gracePeriodSeconds": "x"})] {
        let refused = lab.evict("a", options).await;
        assert!((400..500).contains(&refused.status), "{}", refused.text());
    }
    assert_eq!(lab.evict("b", json!(null)).await.status, 404);
    let budget = lab.raw.get(format!("{BUDGETS}/guard")).await.expect(200).json();
    assert_eq!(budget["status"], counted(1));
    check_done(&lab.evict("a", json!(null)).await);
}

/// A budget whose selector cannot be read guards no pod, and does not keep others from guarding theirs.
#[tokio::test]
async fn budgets_of_any_number_and_selector_leave_the_guarding_one_in_force() {
    let lab = Lab::start().await;
    lab.running("a", true).await;
    for number in 0..300 {
        let other = json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web", "x"]}]});
        let budget = json!({"metadata": {"name": format!("other-{number}")}, "spec": {"selector": other}});
        lab.raw.post(BUDGETS, &budget).await.expect(201);
    }
    for broken in [
        json!({"matchExpressions": [{"key": "app", "operator": "In"}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "Odd", "values": ["web"]}]}),
        json!({"matchLabels": {"app": "not a label/"}}),
    ] {
        let budget = json!({"metadata": {"name": "broken"}, "spec": {"selector": broken}});
        lab.raw.post(BUDGETS, &budget).await.expect(422);
    }
    // A budget without a selector guards nothing.
    lab.raw.post(BUDGETS, &json!({"metadata": {"name": "none"}, "spec": {"minAvailable": 1}})).await.expect(201);
    lab.budget("guard", json!({"minAvailable": 1}), counted(0)).await;
    check(&lab.evict("a", json!(null)).await, 429, "TooManyRequests", VIOLATED);
    lab.raw.delete(format!("{BUDGETS}/guard")).await.expect(200);
    check_done(&lab.evict("a", json!(null)).await);
}

#[tokio::test]
async fn concurrent_evictions_never_share_a_disruption() {
    let lab = Lab::start().await;
    let names: Vec<String> = (0..8).map(|number| format!("p{number}")).collect();
    for name in &names {
        lab.running(name, true).await;
    }
    lab.budget("guard", json!({"minAvailable": 1}), counted(3)).await;
    let evictions = names.iter().map(|name| {
        let raw = lab.raw.clone();
        async move {
            let eviction = json!({"metadata": {"name": name}});
            raw.post(format!("{NAMESPACE}/pods/{name}/eviction"), &eviction).await.status
        }
    });
    let mut answers = futures::future::join_all(evictions).await;
    answers.sort_unstable();
    assert_eq!(answers, [201, 201, 201, 429, 429, 429, 429, 429]);
}
