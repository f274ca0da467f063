//! A table of the writes that each admission plugin handles, by verb and subresource. The test compares it with the
//! metric that counts the calls of each plugin. The entries are upstream's.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use keelson_server::{AdmissionPlugins, Switches};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::kinds::samples;

const LAB: &str = "/api/v1/namespaces/lab";
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const METRIC: &str = "apiserver_admission_controller_admission_duration_seconds_count";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Plugins that handle every write of a namespaced object, or every write of an object that may have owners.
const EVERYWHERE: [&str; 2] = ["NamespaceExists", "OwnerReferencesPermissionEnforcement"];

/// Plugins that are off by default.
const OPTIONAL: [&str; 8] = [
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "ExtendedResourceToleration",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceExists",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodTolerationRestriction",
];

/// A write: its description, its request, and the plugins that handle it in addition to [`EVERYWHERE`].
struct Row {
    what: &'static str,
    method: Method,
    path: String,
    form: &'static str,
    body: Value,
    plugins: &'static [&'static str],
}

fn row(
    what: &'static str,
    method: Method,
    path: impl Into<String>,
    body: Value,
    plugins: &'static [&'static str],
) -> Row {
    let form = if method == Method::PATCH { MERGE } else { "application/json" };
    Row { what, method, path: path.into(), form, body, plugins }
}

/// The number of calls of each plugin so far.
async fn calls(raw: &Raw) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    let text = raw.get("/metrics").await.expect(200).text();
    for line in text.lines().filter(|line| line.starts_with(METRIC)) {
        let name = line.split("name=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        *calls.entry(name.to_owned()).or_default() += count as u64;
    }
    calls
}

async fn perform(raw: &Raw, row: &Row) {
    let call = match row.method {
        Method::POST => raw.post(row.path.as_str(), &row.body),
        Method::PUT => raw.put(row.path.as_str(), &row.body),
        Method::DELETE => raw.delete(row.path.as_str()),
        _ => raw.patch(row.path.as_str(), row.form, &row.body),
    };
    let answer = call.await;
    assert!((200..300).contains(&answer.status), "{}: {} {}", row.what, answer.status, answer.text());
}

fn label(name: &str) -> Value {
    json!({ "metadata": { "labels": { name: "x" } } })
}

fn of_pods() -> Vec<Row> {
    let container = json!({ "name": "c", "image": "i:1", "resources": { "requests": { "memory": "1Mi" } } });
    let pod = json!({ "metadata": { "name": "p", "finalizers": ["example.com/a"] },
        "spec": { "containers": [container], "terminationGracePeriodSeconds": 0 } });
    let resized =
        json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "memory": "2Mi" } } }] } });
    let ephemeral = json!({ "spec": { "ephemeralContainers": [{ "name": "e", "image": "i:1" }] } });
    let pods = format!("{LAB}/pods");
    let path = format!("{pods}/p");
    let at = |below: &str| format!("{path}/{below}");
    let updates = &[
        "AlwaysPullImages",
        "ExtendedResourceToleration",
        "LimitPodHardAntiAffinityTopology",
        "PodSecurity",
        "PodTolerationRestriction",
    ];
    let strategic = |row: Row| Row { form: STRATEGIC, ..row };
    vec![
        row(
            "a new pod",
            Method::POST,
            pods,
            pod,
            &[
                "AlwaysPullImages",
                "ExtendedResourceToleration",
                "LimitPodHardAntiAffinityTopology",
                "LimitRanger",
                "PodNodeSelector",
                "PodSecurity",
                "PodTolerationRestriction",
                "PodTopologyLabels",
                "RuntimeClass",
                "ServiceAccount",
            ],
        ),
        row("a changed pod", Method::PATCH, path.as_str(), label("a"), updates),
        row("the status of a pod", Method::PATCH, at("status"), json!({ "status": { "message": "m" } }), &[]),
        strategic(row(
            "a resized pod",
            Method::PATCH,
            at("resize"),
            resized,
            &["LimitRanger", "NodeDeclaredFeatureValidator", "PodResizeValidator", "PodSecurity"],
        )),
        strategic(row(
            "an ephemeral container",
            Method::PATCH,
            at("ephemeralcontainers"),
            ephemeral,
            &["PodSecurity", "ServiceAccount"],
        )),
        row(
            "a binding",
            Method::POST,
            at("binding"),
            json!({ "metadata": { "name": "p" }, "target": { "kind": "Node", "name": "n" } }),
            &[],
        ),
        row("an eviction", Method::POST, at("eviction"), json!({ "metadata": { "name": "p" } }), &[]),
        row(
            "a finalizer that goes",
            Method::PATCH,
            path.as_str(),
            json!({ "metadata": { "finalizers": null } }),
            updates,
        ),
    ]
}

fn of_others() -> Vec<Row> {
    let node = "/api/v1/nodes/m";
    let claims = format!("{LAB}/persistentvolumeclaims");
    let claim = json!({ "metadata": { "name": "c" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } });
    let service = json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } });
    let services = format!("{LAB}/services");
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    let resizing = json!({ "status": { "conditions": [{ "type": "Resizing", "status": "True" }] } });
    let shared = json!({ "status": { "conditions": [{ "type": "Shared", "status": "True" }] } });
    vec![
        row(
            "a new node",
            Method::POST,
            "/api/v1/nodes",
            json!({ "metadata": { "name": "m" } }),
            &["TaintNodesByCondition"],
        ),
        row("a changed node", Method::PATCH, node, label("a"), &[]),
        row("the status of a node", Method::PATCH, format!("{node}/status"), ready, &[]),
        row("a node that goes", Method::DELETE, node, Value::Null, &[]),
        row("a new claim", Method::POST, claims.as_str(), claim, &["LimitRanger"]),
        row(
            "a changed claim",
            Method::PATCH,
            format!("{claims}/c"),
            label("a"),
            &["LimitRanger", "PersistentVolumeClaimResize"],
        ),
        row("the status of a claim", Method::PATCH, format!("{claims}/c/status"), resizing, &[]),
        row("a new service", Method::POST, services.as_str(), service, &["DenyServiceExternalIPs"]),
        row("a changed service", Method::PATCH, format!("{services}/s"), label("a"), &["DenyServiceExternalIPs"]),
        row("the status of a service", Method::PATCH, format!("{services}/s/status"), shared, &[]),
        row("a service that goes", Method::DELETE, format!("{services}/s"), Value::Null, &[]),
    ]
}

fn of_certificates(request: &Value) -> Vec<Row> {
    let condition =
        |kind: &str| json!({ "status": { "conditions": [{ "type": kind, "status": "True", "reason": "r" }] } });
    let path = format!("{CSRS}/minimal");
    vec![
        row("a new request for a certificate", Method::POST, CSRS, request.clone(), &["CertificateSubjectRestriction"]),
        row("a changed request", Method::PATCH, path.as_str(), label("a"), &[]),
        row("an approval", Method::PATCH, format!("{path}/approval"), condition("Approved"), &["CertificateApproval"]),
        row("the status of a request", Method::PATCH, format!("{path}/status"), label("b"), &["CertificateSigning"]),
        row("a request that goes", Method::DELETE, path.as_str(), Value::Null, &[]),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_plugin_handles_the_verbs_and_subresources_of_its_namesake() {
    let plugins = AdmissionPlugins::new(OPTIONAL.map(str::to_owned).to_vec(), Vec::new()).unwrap();
    // Without controllers only the test writes.
    let server = TestServer::builder()
        .configure(|config| {
            config.admission = plugins;
            config.controllers = Switches::parse(None).unwrap();
        })
        .start()
        .await;
    let raw = server.raw();
    let labels = json!({ "pod-security.kubernetes.io/enforce": "baseline" });
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "lab", "labels": labels } })).await.expect(201);
    raw.post(format!("{LAB}/serviceaccounts"), &json!({ "metadata": { "name": "default" } })).await.expect(201);
    raw.post("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await.expect(201);
    let limits = json!({ "metadata": { "name": "l" }, "spec": { "limits": [
        { "type": "Container", "max": { "memory": "1Gi" } }, { "type": "PersistentVolumeClaim", "max": { "storage": "1Ti" } }] } });
    raw.post(format!("{LAB}/limitranges"), &limits).await.expect(201);
    let mut request = samples()["certificatesigningrequests.certificates.k8s.io"].body.clone();
    request["metadata"] = json!({ "name": "minimal" });

    let rows = of_pods().into_iter().chain(of_others()).chain(of_certificates(&request));
    for row in rows {
        let before = calls(&raw).await;
        perform(&raw, &row).await;
        let after = calls(&raw).await;
        let called: BTreeSet<&str> = after
            .iter()
            .filter(|(name, count)| before.get(*name) != Some(count) && !name.is_empty())
            .map(|(name, _)| name.as_str())
            .filter(|name| !EVERYWHERE.contains(name))
            .collect();
        let expected: BTreeSet<&str> = row.plugins.iter().copied().collect();
        assert_eq!(called, expected, "{}", row.what);
    }
}
