//! Tests of metrics under the names of kube-apiserver, which its dashboards and alerts use.
//!
//! The tests check names, labels and bucket limits, and that the values change.

use keelson_testkit::{Raw, TestServer};
use serde_json::json;

/// Labels of requests for config maps in a namespace.
const CONFIG_MAPS: &str = r#"group="",version="v1",resource="configmaps",subresource="""#;

pub(super) async fn metrics(raw: &Raw) -> String {
    raw.get("/metrics").await.expect(200).text()
}

/// The value of the first series of a family that has these labels and possibly others.
fn value(metrics: &str, family: &str, labels: &[&str]) -> Option<f64> {
    let of_family =
        metrics.lines().filter(|line| line.strip_prefix(family).is_some_and(|rest| rest.starts_with(['{', ' '])));
    let mut found = of_family.filter(|line| labels.iter().all(|label| line.contains(label)));
    found.next()?.rsplit(' ').next()?.parse().ok()
}

/// Checks that the value of a series is not below a number.
#[track_caller]
fn check_least(metrics: &str, least: f64, family: &str, labels: &[&str]) {
    let found = value(metrics, family, labels);
    assert!(found.is_some_and(|found| found >= least), "{family} {labels:?}: {found:?}\n{metrics}");
}

#[tokio::test]
async fn families_of_the_reference_server_are_there_with_its_names_and_labels() {
    let server = TestServer::builder().every_version().sqlite().start().await;
    let raw = server.raw();
    let path = "/api/v1/namespaces/default/configmaps";
    let map = json!({ "metadata": { "name": "measured" }, "data": { "a": "x".repeat(3000) } });
    raw.post(path, &map).await.expect(201);
    let mut watch = raw.get(format!("{path}?watch=true&resourceVersion=0")).stream().await;
    watch.next_json().await.unwrap();
    raw.get(path).await.expect(200);
    raw.get(format!("{path}/measured")).await.expect(200);
    raw.get("/apis/resource.k8s.io/v1beta1/deviceclasses").await.expect(200);
    raw.get(format!("{path}/measured")).header("impersonate-user", "ann").await.expect(403);
    let text = metrics(&raw).await;
    let at_least = |least: f64, family: &str, labels: &[&str]| check_least(&text, least, family, labels);
    let [get, post, list] = ["GET", "POST", "LIST"].map(|verb| format!(r#"verb="{verb}""#));
    at_least(1., "apiserver_request_sli_duration_seconds_count", &[CONFIG_MAPS, &post, r#"scope="resource""#]);
    at_least(1., "apiserver_request_sli_duration_seconds_bucket", &[CONFIG_MAPS, &post, r#"le="60""#]);
    at_least(3000., "apiserver_response_sizes_sum", &[CONFIG_MAPS, &get]);
    at_least(3000., "apiserver_response_sizes_sum", &[CONFIG_MAPS, &list, r#"scope="namespace""#]);
    at_least(1., "apiserver_watch_events_total", &[r#"group="",version="v1",resource="configmaps""#]);
    at_least(3000., "apiserver_watch_events_sizes_sum", &[r#"resource="configmaps""#]);
    at_least(1., "apiserver_longrunning_requests", &[CONFIG_MAPS, r#"verb="WATCH""#]);
    let removed = r#"resource="deviceclasses",subresource="",removed_release="1.38""#;
    at_least(1., "apiserver_requested_deprecated_apis", &[removed]);
    at_least(
        1.,
        "apiserver_flowcontrol_dispatched_requests_total",
        &[r#"priority_level="exempt",flow_schema="exempt""#],
    );
    at_least(1., "apiserver_flowcontrol_nominal_limit_seats", &[r#"priority_level="workload-low""#]);
    at_least(1., "apiserver_flowcontrol_request_wait_duration_seconds_bucket", &[r#"execute="true""#, r#"le="0.005""#]);
    at_least(1., "apiserver_flowcontrol_request_execution_seconds_count", &[r#"type="regular""#]);
    at_least(0., "apiserver_current_inqueue_requests", &[r#"request_kind="mutating""#]);
    at_least(1., "apiserver_resource_objects", &[r#"group="",resource="configmaps""#]);
    at_least(1., "apiserver_storage_size_bytes", &["storage_cluster_id="]);
    at_least(1., "etcd_requests_total", &[r#"operation="create",group="",resource="configmaps""#]);
    at_least(1., "etcd_request_duration_seconds_count", &[r#"operation="create",group="",resource="configmaps""#]);
    let maps = r#"group="",resource="configmaps""#;
    at_least(1., "apiserver_request_filter_duration_seconds_count", &[r#"filter="authentication""#]);
    at_least(1., "apiserver_request_filter_duration_seconds_count", &[r#"filter="impersonation""#]);
    at_least(1., "apiserver_watch_cache_events_received_total", &[maps]);
    at_least(1., "apiserver_watch_cache_initializations_total", &[maps]);
    at_least(1., "apiserver_watch_cache_resource_version", &[maps]);
    at_least(1., "apiserver_watch_cache_consistent_read_total", &[maps, r#"success="true",fallback="false""#]);
    at_least(1., "apiserver_storage_list_total", &[maps, r#"storage="watchcache""#]);
    at_least(1., "apiserver_cache_list_total", &[maps, "index="]);
    at_least(1., "apiserver_cache_list_returned_objects_total", &[maps]);
    at_least(1., "apiserver_request_body_size_bytes_count", &[maps, r#"verb="create""#]);
    at_least(1., "field_validation_request_duration_seconds_count", &["field_validation="]);
    at_least(1., "kubernetes_build_info", &[r#"major="1",minor="37""#]);
    at_least(1., "kubernetes_feature_enabled", &[r#"name="APIListChunking",stage="""#]);
    at_least(1., "apiserver_impersonation_attempts_total", &[r#"mode="user-info",decision="allowed""#]);
    at_least(1., "apiserver_impersonation_authorization_attempts_total", &[r#"mode="user-info",decision="allowed""#]);
}

#[tokio::test]
async fn checks_of_health_have_a_page_of_their_own() {
    let server = TestServer::start().await;
    let raw = server.raw();
    server.running().bootstrapped().await;
    for path in ["/readyz", "/readyz?verbose", "/livez"] {
        raw.get(path).await.expect(200);
    }
    let text = raw.get("/metrics/slis").await.expect(200).text();
    let at_least = |least: f64, family: &str, labels: &[&str]| check_least(&text, least, family, labels);
    at_least(1., "kubernetes_healthcheck", &[r#"name="ping",type="readyz""#]);
    at_least(2., "kubernetes_healthchecks_total", &[r#"name="ping",status="success",type="readyz""#]);
    at_least(1., "kubernetes_healthchecks_total", &[r#"name="etcd",status="success",type="readyz""#]);
    at_least(1., "kubernetes_healthchecks_total", &[r#"name="ping",status="success",type="livez""#]);
    assert!(!metrics(&raw).await.contains("kubernetes_healthcheck"));
    let open = raw.get("/metrics/slis").header("accept", "application/openmetrics-text").await.expect(200);
    assert!(
        open.header("content-type").starts_with("application/openmetrics-text") && open.text().ends_with("# EOF\n")
    );
    assert!(raw.get("/").await.expect(200).json()["paths"].as_array().unwrap().contains(&json!("/metrics/slis")));
    raw.get("/metrics/slis").header("impersonate-user", "ann").await.expect(403);
}

#[tokio::test]
async fn tokens_addresses_ports_and_comparisons_are_counted() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    raw.post(accounts, &json!({ "metadata": { "name": "counted" } })).await.expect(201);
    let request = json!({ "spec": { "expirationSeconds": 600 } });
    let token = raw.post(format!("{accounts}/counted/token"), &request).await.expect(201).json();
    let bearer = format!("Bearer {}", token["status"]["token"].as_str().unwrap());
    server.anonymous().get("/api").header("authorization", bearer).await.expect(200);
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, with: serde_json::Value| {
        let mut service =
            json!({ "metadata": { "name": name }, "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } });
        service["spec"].as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        service
    };
    let made = raw.post(services, &service("any", json!({}))).await.expect(201).json();
    let port = json!({ "ports": [{ "port": 80, "nodePort": made["spec"]["ports"][0]["nodePort"] }] });
    raw.post(services, &service("taken", port)).await.expect(422);
    let address = json!({ "clusterIP": made["spec"]["clusterIP"], "type": "ClusterIP" });
    raw.post(services, &service("taken", address)).await.expect(422);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "a": "b" } });
    let maps = "/api/v1/namespaces/default/configmaps/m?fieldManager=t";
    for _ in 0..2 {
        raw.patch(maps, "application/apply-patch+yaml", &map).await;
    }
    raw.patch(maps, "application/merge-patch+json", &json!({ "data": { "a": "c" } })).await.expect(200);
    let text = metrics(&raw).await;
    let at_least = |least: f64, family: &str, labels: &[&str]| check_least(&text, least, family, labels);
    at_least(1., "serviceaccount_valid_tokens_total", &[]);
    for family in ["legacy_tokens", "legacy_auto_token_uses", "legacy_manual_token_uses", "stale_tokens"] {
        at_least(0., &format!("serviceaccount_{family}_total"), &[]);
    }
    at_least(1., "kube_apiserver_clusterip_allocator_allocated_ips", &["cidr="]);
    at_least(200., "kube_apiserver_clusterip_allocator_available_ips", &["cidr="]);
    at_least(1., "kube_apiserver_clusterip_allocator_allocation_total", &["cidr=", r#"scope="dynamic""#]);
    at_least(1., "kube_apiserver_clusterip_allocator_allocation_errors_total", &["cidr=", r#"scope="static""#]);
    at_least(1., "kube_apiserver_nodeport_allocator_allocation_total", &[r#"scope="dynamic""#]);
    at_least(1., "apiserver_request_timestamp_comparison_time_count", &[r#"code_path="unequal_objects_fast""#]);
    at_least(1., "apiserver_request_timestamp_comparison_time_bucket", &[r#"le="0.0001""#]);
}

#[tokio::test]
async fn pod_security_decisions_are_counted() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "confined", "labels": labels } })).await.expect(201);
    let pod = json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "a", "image": "a" }] } });
    raw.post("/api/v1/namespaces/confined/pods", &pod).await.expect(403);
    let text = metrics(&raw).await;
    let counted = |decision: &str, level: &str| {
        let labels = [
            format!(r#"decision="{decision}""#),
            r#"mode="enforce""#.to_owned(),
            format!(r#"policy_level="{level}""#),
            r#"request_operation="create",resource="pod""#.to_owned(),
        ];
        value(&text, "pod_security_evaluations_total", &labels.each_ref().map(String::as_str))
    };
    assert_eq!((counted("deny", "restricted"), counted("allow", "restricted")), (Some(1.), None), "{text}");
}
