//! Tests that an idle server uses almost no processor time, whatever its objects are.
//!
//! Each controller has objects whose desired state can't be reached. The processor time of the server process shows
//! whether a controller retries without a pause.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_testkit::{ProcessServer, Raw};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";
/// The duration of a measurement of the processor time.
const WINDOW: Duration = Duration::from_secs(10);
/// The longest time until the server is quiet, since backoffs grow to a minute.
const PATIENCE: Duration = Duration::from_secs(240);
/// The share of a core that a quiet server may use: 1%, or 3% without optimization.
const QUIET_SHARE: f64 = if cfg!(debug_assertions) { 0.03 } else { 0.01 };
/// The number of objects of each kind.
const EACH: usize = 20;

/// The processor time of a process according to the system.
fn used(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // After the name in parentheses, the fields 11 and 12 are the times in user mode and in the kernel.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    Duration::from_millis(10) * ticks
}

/// Waits for a measurement in which the server uses hardly any processor time.
async fn quiet(server: &ProcessServer, when: &str) {
    let pid = server.pid().unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (begun, before) = (Instant::now(), used(pid));
        tokio::time::sleep(WINDOW).await;
        let share = (used(pid) - before).as_secs_f64() / begun.elapsed().as_secs_f64();
        if share <= QUIET_SHARE {
            return;
        }
        if Instant::now() > deadline {
            let log = server.log();
            let last = log.char_indices().rev().nth(20_000).map_or(0, |(place, _)| place);
            panic!("{when}: {:.1}% of a core, and no rest; the end of its log:\n{}", share * 100.0, &log[last..]);
        }
    }
}

async fn create(raw: &Raw, path: &str, object: &Value) -> Value {
    raw.post(path, object).await.expect(201).json()
}

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

fn reference(of: &Value) -> Value {
    json!({ "apiVersion": of["apiVersion"], "kind": of["kind"], "name": of["metadata"]["name"], "uid": of["metadata"]["uid"],
        "blockOwnerDeletion": true })
}

async fn own(raw: &Raw, name: &str, owner: &Value) {
    let owned = json!({ "metadata": { "ownerReferences": [owner] } });
    raw.patch(format!("{CONFIG_MAPS}/{name}"), MERGE, &owned).await.expect(200);
}

/// Creates owners that own themselves or each other, wait forever, do not exist, or are in the wrong namespace.
async fn owners(raw: &Raw) {
    for number in 0..EACH {
        let name = format!("self-{number}");
        let of_itself = create(raw, CONFIG_MAPS, &named(&name)).await;
        own(raw, &name, &reference(&of_itself)).await;
        raw.delete(format!("{CONFIG_MAPS}/{name}?propagationPolicy=Foreground")).await.expect(200);

        let ring: Vec<String> = ["a", "b", "c"].iter().map(|place| format!("ring-{number}-{place}")).collect();
        let mut members = Vec::new();
        for name in &ring {
            members.push(create(raw, CONFIG_MAPS, &named(name)).await);
        }
        for (place, name) in ring.iter().enumerate() {
            own(raw, name, &reference(&members[(place + 1) % 3])).await;
        }
        let both = ring.iter().map(|name| raw.delete(format!("{CONFIG_MAPS}/{name}?propagationPolicy=Foreground")));
        futures::future::join_all(both.map(IntoFuture::into_future)).await;

        let owner = create(raw, CONFIG_MAPS, &named(&format!("owner-{number}"))).await;
        let held = json!({ "metadata": { "name": format!("held-{number}"), "ownerReferences": [reference(&owner)],
            "finalizers": ["example.com/never"] } });
        create(raw, CONFIG_MAPS, &held).await;
        raw.delete(format!("{CONFIG_MAPS}/owner-{number}?propagationPolicy=Foreground")).await.expect(200);

        let mut unknown = reference(&owner);
        (unknown["apiVersion"], unknown["kind"]) = (json!("gone.example.com/v1"), json!("Gone"));
        let dangling = json!({ "metadata": { "name": format!("dangling-{number}"), "ownerReferences": [unknown] } });
        create(raw, CONFIG_MAPS, &dangling).await;
        let node = json!({ "metadata": { "name": format!("n-{number}"), "ownerReferences": [reference(&owner)] } });
        create(raw, "/api/v1/nodes", &node).await;
    }
}

/// Creates namespaces that can't be emptied, a full quota that blocks controllers, and pods that nothing ends.
async fn namespaces(raw: &Raw) {
    let held = |name: &str| json!({ "metadata": { "name": name, "finalizers": ["example.com/never"] } });
    for number in 0..EACH {
        let name = format!("ending-{number}");
        create(raw, "/api/v1/namespaces", &named(&name)).await;
        create(raw, &format!("/api/v1/namespaces/{name}/configmaps"), &held("held")).await;
        raw.delete(format!("/api/v1/namespaces/{name}")).await.expect(200);
    }
    create(raw, "/api/v1/namespaces", &named("full")).await;
    let hard = json!({ "configmaps": "0", "serviceaccounts": "0", "pods": "0", "count/serviceaccounts": "0" });
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
    raw.post("/api/v1/namespaces/full/resourcequotas", &quota).await;
    // Names of resources that no server has. The server must not look for them repeatedly.
    let unserved = (0..8_000).map(|number| (format!("count/x{number}.example.org"), json!("1")));
    let unserved: serde_json::Map<_, _> = unserved.collect();
    let wide = json!({ "metadata": { "name": "wide" }, "spec": { "hard": unserved } });
    create(raw, "/api/v1/namespaces/default/resourcequotas", &wide).await;
    for object in ["configmaps/kube-root-ca.crt", "serviceaccounts/default"] {
        raw.delete(format!("/api/v1/namespaces/full/{object}")).await;
    }
}

/// Creates roles that aggregate each other.
async fn roles(raw: &Raw) {
    for (name, of) in [("a", "b"), ("b", "c"), ("c", "a"), ("x", "y"), ("y", "x")] {
        let role = json!({
            "metadata": { "name": format!("ring-{name}"), "labels": { "ring": name } },
            "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "ring": of } }] },
            "rules": [{ "verbs": [name], "apiGroups": ["*"], "resources": ["*"] }],
        });
        create(raw, &format!("{RBAC}/clusterroles"), &role).await;
    }
}

fn definition(plural: &str, kind: &str, group: &str) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    json!({
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": { "group": group, "scope": "Namespaced", "names": { "plural": plural, "kind": kind },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }] },
    })
}

/// Creates definitions whose names are not accepted, whose deletion hangs, and whose objects can't be converted or
/// migrated.
async fn definitions(raw: &Raw, hanging: SocketAddr) {
    for (plural, kind) in [("firsts", "Same"), ("seconds", "Same"), ("thirds", "Same")] {
        create(raw, DEFINITIONS, &definition(plural, kind, "conflict.example.com")).await;
    }
    for (group, to) in [("refused.example.com", "127.0.0.1:1".to_owned()), ("hangs.example.com", hanging.to_string())] {
        create(raw, DEFINITIONS, &definition("things", "Thing", group)).await;
        let things = format!("/apis/{group}/v1/namespaces/default/things");
        let thing =
            |name: &str| json!({ "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": { "name": name } });
        let deadline = Instant::now() + PATIENCE;
        while raw.post(&things, &thing("first")).await.status != 201 {
            assert!(Instant::now() < deadline, "{things} are not served");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for number in 0..EACH {
            create(raw, &things, &thing(&format!("t-{number}"))).await;
        }
        let mut changed = definition("things", "Thing", group);
        let version = |name: &str, storage: bool| {
            let mut version = changed["spec"]["versions"][0].clone();
            (version["name"], version["storage"]) = (json!(name), json!(storage));
            version
        };
        let client = json!({ "url": format!("https://{to}/convert"), "caBundle": ca() });
        let spec = json!({
            "versions": [version("v1", false), version("v2", true)],
            "conversion": { "strategy": "Webhook",
                "webhook": { "conversionReviewVersions": ["v1"], "clientConfig": client } },
        });
        changed["spec"] = spec;
        raw.patch(format!("{DEFINITIONS}/things.{group}"), MERGE, &json!({ "spec": changed["spec"] }))
            .await
            .expect(200);
        let migration = json!({ "metadata": { "name": format!("of-{group}") },
            "spec": { "resource": { "group": group, "resource": "things" } } });
        raw.post("/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations", &migration).await;
    }
    create(raw, DEFINITIONS, &definition("ends", "End", "ends.example.com")).await;
    let ends = "/apis/ends.example.com/v1/namespaces/default/ends";
    let end = json!({ "apiVersion": "ends.example.com/v1", "kind": "End",
        "metadata": { "name": "held", "finalizers": ["example.com/never"] } });
    let deadline = Instant::now() + PATIENCE;
    let end = loop {
        let answer = raw.post(ends, &end).await;
        if answer.status == 201 {
            break answer.json();
        }
        assert!(Instant::now() < deadline, "{ends} are not served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let owned = json!({ "metadata": { "name": "of-end", "ownerReferences": [reference(&end)],
        "finalizers": ["example.com/never"] } });
    create(raw, CONFIG_MAPS, &owned).await;
    raw.delete(format!("{ends}/held?propagationPolicy=Foreground")).await.expect(200);
    raw.delete(format!("{DEFINITIONS}/ends.ends.example.com")).await.expect(200);
}

/// Registers aggregated servers that are missing, refuse connections, or never answer.
async fn api_services(raw: &Raw) {
    create(raw, "/api/v1/namespaces", &named("agg")).await;
    for (number, name) in ["absent", "refuses", "hangs"].into_iter().enumerate() {
        let service = json!({
            "metadata": { "name": format!("v1.{name}.agg.example.com") },
            "spec": { "group": format!("{name}.agg.example.com"), "version": "v1", "groupPriorityMinimum": 1000 + number,
                "versionPriority": 10, "insecureSkipTLSVerify": true, "service": { "namespace": "agg", "name": name } },
        });
        create(raw, "/apis/apiregistration.k8s.io/v1/apiservices", &service).await;
    }
}

/// Creates certificate requests that nothing signs, the lease of a dead server, and a policy with errors.
async fn others(raw: &Raw) {
    for number in 0..EACH {
        let request = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = request.serialize_request(&key).unwrap().pem().unwrap();
        let csr = json!({ "metadata": { "name": format!("csr-{number}") }, "spec": { "request": BASE64.encode(pem),
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["server auth"], "expirationSeconds": 600 } });
        let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        let mut csr = create(raw, path, &csr).await;
        csr["status"] =
            json!({ "conditions": [{ "type": "Approved", "status": "True", "reason": "Yes", "message": "" }] });
        raw.put(format!("{path}/csr-{number}/approval"), &csr).await.expect(200);
    }
    let rules = json!([{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] }]);
    let policy = json!({ "metadata": { "name": "wrong" }, "spec": { "failurePolicy": "Ignore",
        "matchConstraints": { "resourceRules": rules }, "validations": [{ "expression": "object.spec.nowhere > 1" }] } });
    create(raw, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", &policy).await;
}

/// An authority that has signed nothing.
fn ca() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    BASE64.encode(rcgen::CertificateParams::new(Vec::<String>::new()).unwrap().self_signed(&key).unwrap().pem())
}

/// Configures webhooks for all writes, which refuse connections or never answer.
async fn webhooks(raw: &Raw, hanging: SocketAddr) {
    for (name, to) in [("refuses", "127.0.0.1:1".to_owned()), ("hangs", hanging.to_string())] {
        let rules = json!([{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"] }]);
        let webhook = json!({
            "name": format!("{name}.example.com"), "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"], "rules": rules,
            "clientConfig": { "url": format!("https://{to}/"), "caBundle": ca() },
        });
        for (kind, plural) in
            [("Validating", "validatingwebhookconfigurations"), ("Mutating", "mutatingwebhookconfigurations")]
        {
            let configuration = json!({ "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": format!("{kind}WebhookConfiguration"), "metadata": { "name": name }, "webhooks": [webhook] });
            create(raw, &format!("/apis/admissionregistration.k8s.io/v1/{plural}"), &configuration).await;
        }
    }
}

/// An address that accepts connections and never sends anything.
async fn silence() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            kept.push(connection);
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unprocessable_objects_cause_no_hot_loops() {
    let hanging = silence().await;
    let builder = ProcessServer::builder(KEELSON).env("KEELSON_CONTROLLERS", "*,pod-garbage-collector-controller");
    let routes = [format!("agg/hangs=https://{hanging}"), "agg/refuses=https://127.0.0.1:1".to_owned()];
    let routes = routes.iter().flat_map(|route| ["--service-route", route]);
    let mut server = builder.args(routes).start().await;
    let raw = server.raw();
    owners(&raw).await;
    namespaces(&raw).await;
    roles(&raw).await;
    definitions(&raw, hanging).await;
    api_services(&raw).await;
    others(&raw).await;
    quiet(&server, "with them").await;
    // The server still answers.
    raw.get(CONFIG_MAPS).await.expect(200);

    webhooks(&raw, hanging).await;
    quiet(&server, "with webhooks that fail").await;
    server.terminate().await;
    server.restart().await;
    quiet(&server, "after a restart").await;
    let kept = server.raw().get(format!("{CONFIG_MAPS}/self-0")).await.expect(200).json();
    assert!(kept["metadata"]["deletionTimestamp"].is_string());
    server.raw().get("/readyz").await.expect(200);
}
