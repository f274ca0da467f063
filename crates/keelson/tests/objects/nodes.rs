//! Tests of the rights of kubelets: the node authorizer and node restriction.
//!
//! The texts are those of kube-apiserver.

use std::fs;
use std::time::{Duration, Instant};

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::certificates::named as certificate_of;

const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/a/pods";
const NO_RELATION: &str = ": no relationship found between node 'n1' and this object";
/// The longest time until the authorizer has a write.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with the nodes n1 and n2, a pod on each of them, and the objects that the pods use.
struct Cluster {
    server: TestServer,
    admin: Raw,
    /// The uid of n1, and the uid of its pod.
    node_uid: String,
    pod_uid: String,
    _files: TempDir,
}

/// The user, the request, and its result: a code, and the end of the message.
type Case<'c> = (&'c str, &'c str, &'c str, Value, u16, &'c str);

impl Cluster {
    async fn start() -> Self {
        let files = TempDir::new().unwrap();
        let tokens = files.path().join("tokens.csv");
        let lines = [
            "n1,system:node:n1,,system:nodes",
            "n3,system:node:n3,,system:nodes",
            "lone,system:node:n1,",
            "nameless,kubelet,,system:nodes",
        ];
        fs::write(&tokens, lines.join("\n")).unwrap();
        let server = TestServer::builder().configure(move |config| config.token_file = Some(tokens)).start().await;
        let admin = server.raw();
        let create = async |path: &str, object: Value| admin.post(path, &object).await.expect(201).json();
        create("/api/v1/namespaces", named("a", json!({}))).await;
        let labels = json!({"metadata": {"name": "n1", "labels": {"node-restriction.kubernetes.io/kept": "x"}}});
        let node = create("/api/v1/nodes", labels).await;
        create("/api/v1/nodes", named("n2", json!({}))).await;
        for secret in ["vol", "two", "unused", "mount"] {
            create("/api/v1/namespaces/a/secrets", named(secret, json!({}))).await;
        }
        create("/api/v1/namespaces/a/configmaps", named("map", json!({}))).await;
        create("/api/v1/namespaces/a/serviceaccounts", named("app", json!({}))).await;
        let size = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        for claim in ["used", "unused"] {
            create("/api/v1/namespaces/a/persistentvolumeclaims", named(claim, json!({ "spec": size }))).await;
        }
        let csi = json!({"driver": "d.example.org", "volumeHandle": "h", "nodeStageSecretRef": {"name": "mount", "namespace": "a"}});
        for (volume, claim) in [("pv1", "used"), ("pv2", "unused")] {
            let claim = json!({"name": claim, "namespace": "a"});
            let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim, "csi": csi});
            create("/api/v1/persistentvolumes", named(volume, json!({ "spec": spec }))).await;
        }
        let token = json!({"serviceAccountToken": {"path": "t", "audience": "vault"}});
        let volumes = json!([
            {"name": "s", "secret": {"secretName": "vol"}}, {"name": "m", "configMap": {"name": "map"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "used"}}, {"name": "t", "projected": {"sources": [token]}},
        ]);
        let pod = create(PODS, pod("p1", "n1", json!({"serviceAccountName": "app", "volumes": volumes}))).await;
        let volumes = json!([{"name": "s", "secret": {"secretName": "two"}}]);
        create(PODS, self::pod("p2", "n2", json!({ "volumes": volumes }))).await;
        let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
        let (node_uid, pod_uid) = (uid(&node), uid(&pod));
        Self { server, admin, node_uid, pod_uid, _files: files }
    }

    async fn ask(&self, (user, method, path, body, ..): &Case<'_>) -> (u16, String) {
        let raw = self.server.anonymous();
        let call = match *method {
            "POST" => raw.post(*path, body),
            "PUT" => raw.put(*path, body),
            "PATCH" => raw.patch(*path, MERGE, body),
            "DELETE" => raw.delete(*path),
            _ => raw.get(*path),
        };
        let answer = call.header("authorization", format!("Bearer {user}")).await;
        let message = if answer.status < 400 { Value::Null } else { answer.json()["message"].clone() };
        (answer.status, message.as_str().unwrap_or_default().to_owned())
    }

    async fn check(&self, cases: &[Case<'_>]) {
        for case in cases {
            let (status, message) = self.ask(case).await;
            assert!(status == case.4 && message.ends_with(case.5), "{case:?}: {status} {message}");
        }
    }

    /// Checks the metric of changes of the graph.
    async fn check_changes_are_counted(&self) {
        let metrics = self.admin.get("/metrics").await.expect(200).text();
        for change in ["AddPod", "DeletePod", "AddPV"] {
            let series = format!("node_authorizer_graph_actions_duration_seconds_count{{operation=\"{change}\"}} ");
            let count = metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse::<f64>().ok());
            assert!(count.is_some_and(|count| count >= 1.), "{change}: {count:?}");
        }
    }

    async fn until(&self, case: Case<'_>) {
        let begun = Instant::now();
        loop {
            let (status, message) = self.ask(&case).await;
            if status == case.4 && message.ends_with(case.5) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{case:?}: {status} {message}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn named(name: &str, mut object: Value) -> Value {
    object["metadata"] = json!({ "name": name });
    object
}

#[allow(clippy::needless_pass_by_value, reason = "callers write the objects where they need them")]
fn pod(name: &str, node: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}], "nodeName": node});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    named(name, json!({ "spec": spec }))
}

fn get<'c>(user: &'c str, path: &'c str, status: u16, message: &'c str) -> Case<'c> {
    (user, "GET", path, Value::Null, status, message)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_reads_only_objects_that_its_pods_use() {
    let cluster = Cluster::start().await;
    let secrets = "/api/v1/namespaces/a/secrets";
    let of = |plural: &str, name: &str| format!("/api/v1/namespaces/a/{plural}/{name}");
    cluster.until(get("n1", &of("secrets", "vol"), 200, "")).await;
    for path in [
        of("secrets", "mount"),
        of("configmaps", "map"),
        of("persistentvolumeclaims", "used"),
        of("serviceaccounts", "app"),
        of("pods", "p1"),
        "/api/v1/persistentvolumes/pv1".to_owned(),
        format!("{secrets}?fieldSelector=metadata.name%3Dvol"),
        "/api/v1/nodes/n1".to_owned(),
        "/api/v1/nodes?fieldSelector=metadata.name%3Dn1".to_owned(),
        "/api/v1/pods?fieldSelector=spec.nodeName%3D%3Dn1,status.phase%3DPending".to_owned(),
        "/api/v1/services".to_owned(),
        "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Dn1".to_owned(),
        "/apis/node.k8s.io/v1/runtimeclasses".to_owned(),
        "/apis".to_owned(),
    ] {
        cluster.check(&[get("n1", &path, 200, "")]).await;
    }
    for path in [
        of("secrets", "two"),
        of("secrets", "unused"),
        of("secrets", "none"),
        of("persistentvolumeclaims", "unused"),
        of("serviceaccounts", "other"),
        of("pods", "p2"),
        "/api/v1/persistentvolumes/pv2".to_owned(),
        "/apis/storage.k8s.io/v1/volumeattachments/va".to_owned(),
        "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/rc".to_owned(),
        format!("{secrets}?fieldSelector=metadata.name%3Dtwo"),
    ] {
        cluster.check(&[get("n1", &path, 403, NO_RELATION)]).await;
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let only_name = ": can only access node lease with the same name as the requesting node";
    let (other_lease, vol) = (format!("{leases}/n2"), of("secrets", "vol"));
    let refused = [
        get("n1", secrets, 403, r#""a": No Object name found"#),
        get("n1", "/api/v1/secrets", 403, ": can only read namespaced object of this type"),
        get("n1", "/api/v1/persistentvolumes", 403, ": can only get individual resources of this type"),
        get("n1", "/api/v1/nodes", 403, ": node 'n1' cannot read all nodes, only its own Node object"),
        get("n1", "/api/v1/nodes/n2", 403, ": node 'n1' cannot read 'n2', only its own Node object"),
        get("n1", "/api/v1/pods", 403, ": can only list/watch pods with spec.nodeName field selector"),
        get("n1", "/api/v1/pods?fieldSelector=spec.nodeName%21%3Dn2", 403, "with spec.nodeName field selector"),
        get("n1", &other_lease, 403, only_name),
        get("n1", leases, 403, ": can only get, create, update, patch, or delete a node lease"),
        get("n1", "/apis/storage.k8s.io/v1/csinodes/n2", 403, "CSINode with the same name as the requesting node"),
        get("n1", "/apis/rbac.authorization.k8s.io/v1/roles", 403, "at the cluster scope"),
        get("n1", "/metrics", 403, r#"cannot get path "/metrics""#),
        // A user that has only the group or only the name of a node has no rights of a node.
        get("lone", &vol, 403, r#"in the namespace "a""#),
        get("nameless", &vol, 403, r#"in the namespace "a""#),
        get("n3", &vol, 403, ": no relationship found between node 'n3' and this object"),
    ];
    cluster.check(&refused).await;
    // The rights follow the pods of the node.
    let volumes = json!({"volumes": [{"name": "s", "secret": {"secretName": "unused"}}]});
    cluster.admin.post(PODS, &pod("later", "n1", volumes)).await.expect(201);
    cluster.until(get("n1", &of("secrets", "unused"), 200, "")).await;
    cluster.admin.delete(format!("{PODS}/later?gracePeriodSeconds=0")).await.expect(200);
    cluster.until(get("n1", &of("secrets", "unused"), 403, NO_RELATION)).await;
    cluster.check_changes_are_counted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_reads_its_attachments_and_the_claims_of_its_pods() {
    let cluster = Cluster::start().await;
    let create = async |path: &str, object: Value| cluster.admin.post(path, &object).await.expect(201);
    let attachments = "/apis/storage.k8s.io/v1/volumeattachments";
    for (name, node, volume) in [("va1", "n1", "pv1"), ("va2", "n2", "pv2")] {
        let source = json!({"persistentVolumeName": volume});
        let spec = json!({"attacher": "d.example.org", "nodeName": node, "source": source});
        create(attachments, named(name, json!({ "spec": spec }))).await;
    }
    let claims = "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims";
    for claim in ["rc1", "rc2", "made"] {
        create(claims, named(claim, json!({"spec": {"devices": {}}}))).await;
    }
    let claimed = json!({"resourceClaims": [
        {"name": "r", "resourceClaimName": "rc1"}, {"name": "t", "resourceClaimTemplateName": "template"},
    ]});
    create(PODS, pod("p3", "n1", claimed)).await;
    create(PODS, pod("p4", "n2", json!({"resourceClaims": [{"name": "r", "resourceClaimName": "rc2"}]}))).await;
    let at = |path: &str, name: &str| format!("{path}/{name}");
    cluster.until(get("n1", &at(claims, "rc1"), 200, "")).await;
    cluster.until(get("n1", &at(attachments, "va1"), 200, "")).await;
    for path in [at(attachments, "va2"), at(claims, "rc2"), at(claims, "made")] {
        cluster.check(&[get("n1", &path, 403, NO_RELATION)]).await;
    }
    // The status names the objects created from a template.
    let status = json!({"status": {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "made"}]}});
    cluster.admin.patch(format!("{PODS}/p3/status"), MERGE, &status).await.expect(200);
    cluster.until(get("n1", &at(claims, "made"), 200, "")).await;
    // A deleted object gives no rights, and the error does not reveal its deletion.
    cluster.admin.delete(at(attachments, "va1")).await.expect(200);
    cluster.until(get("n1", &at(attachments, "va1"), 403, NO_RELATION)).await;
    cluster.admin.delete(format!("{PODS}/p3?gracePeriodSeconds=0")).await.expect(200);
    cluster.until(get("n1", &at(claims, "rc1"), 403, NO_RELATION)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_requests_certificates_of_nodes_in_its_own_name() {
    use base64::Engine as _;
    let cluster = Cluster::start().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = |name: &str, subject: (&str, &str), signer: &str, usage: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let asked = certificate_of(subject.0, subject.1).serialize_request(&key).unwrap().pem().unwrap();
        let asked = base64::engine::general_purpose::STANDARD.encode(asked);
        named(name, json!({"spec": {"request": asked, "signerName": signer, "usages": ["digital signature", usage]}}))
    };
    let [one, two] = [("system:node:n1", "system:nodes"), ("system:node:n2", "system:nodes")];
    let (client, serving) = ("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving");
    let only = "can only create a node CSR with CN=system:node:n1";
    let (own, approval) = (format!("{requests}/c1"), format!("{requests}/c1/approval"));
    let cases = [
        ("n1", "POST", requests, request("c1", one, client, "client auth"), 201, ""),
        ("n1", "POST", requests, request("c2", two, client, "client auth"), 403, only),
        ("n1", "POST", requests, request("c3", one, serving, "server auth"), 201, ""),
        ("n1", "POST", requests, request("c4", two, serving, "server auth"), 403, only),
        ("n1", "POST", requests, request("c5", ("anyone", ""), "example.org/x", "client auth"), 201, ""),
        get("n1", &own, 200, ""),
        get("n1", requests, 200, ""),
        (
            "n1",
            "PUT",
            &approval,
            json!({}),
            403,
            r#"cannot update resource "certificatesigningrequests/approval" in API group "certificates.k8s.io" at the cluster scope"#,
        ),
        (
            "n1",
            "DELETE",
            &own,
            Value::Null,
            403,
            r#"cannot delete resource "certificatesigningrequests" in API group "certificates.k8s.io" at the cluster scope"#,
        ),
    ];
    cluster.check(&cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_updates_itself_except_taints_and_restricted_labels() {
    let cluster = Cluster::start().await;
    cluster.until(get("n1", "/api/v1/namespaces/a/secrets/vol", 200, "")).await;
    let nodes = "/api/v1/nodes";
    let (one, two) = ("/api/v1/nodes/n1", "/api/v1/nodes/n2");
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let forbidden =
        json!({"metadata": {"name": "n3", "labels": {"k8s.io/b": "v", "k8s.io/a": "v", "example.org/a": "v"}}});
    let own = json!({"metadata": {"name": "n3", "labels": {"kubernetes.io/hostname": "n3", "example.org/a": "v"}}});
    let taints = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let owners = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}]}});
    let cases = [
        ("n1", "POST", nodes, named("n9", json!({})), 403, r#"node "n1" is not allowed to modify node "n9""#),
        (
            "n3",
            "POST",
            nodes,
            forbidden,
            403,
            r#"node "n3" is not allowed to set the following labels: k8s.io/a, k8s.io/b"#,
        ),
        ("n3", "POST", nodes, own, 201, ""),
        ("n1", "PATCH", one, labels(json!({"example.org/a": "b"})), 200, ""),
        (
            "n1",
            "PATCH",
            one,
            labels(json!({"foo.kubernetes.io/a": "b", "node-role.kubernetes.io/worker": ""})),
            403,
            "is not allowed to modify labels: foo.kubernetes.io/a, node-role.kubernetes.io/worker",
        ),
        (
            "n1",
            "PATCH",
            one,
            labels(json!({"node-restriction.kubernetes.io/kept": null})),
            403,
            "is not allowed to modify labels: node-restriction.kubernetes.io/kept",
        ),
        ("n1", "PATCH", one, taints, 403, r#"node "n1" is not allowed to modify taints"#),
        ("n1", "PATCH", one, owners, 403, r#"node "n1" is not allowed to modify ownerReferences"#),
        ("n1", "PATCH", one, json!({"spec": {"unschedulable": true}}), 200, ""),
        ("n1", "PATCH", two, labels(json!({"example.org/a": "b"})), 403, r#"is not allowed to modify node "n2""#),
        ("n1", "PATCH", "/api/v1/nodes/n1/status", conditions_of_node(), 200, ""),
        (
            "n1",
            "DELETE",
            one,
            Value::Null,
            403,
            r#"cannot delete resource "nodes" in API group "" at the cluster scope"#,
        ),
    ];
    cluster.check(&cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_writes_its_lease_slices_and_claim_status() {
    let cluster = Cluster::start().await;
    cluster.until(get("n1", "/api/v1/namespaces/a/secrets/vol", 200, "")).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let same_name = "can only access node lease with the same name as the requesting node";
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    let slice = |node: &str| {
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
        named(
            node,
            json!({"spec": {"driver": "d.example.org", "pool": pool, "nodeName": node, "devices": [{"name": "d0"}]}}),
        )
    };
    let claim = "/api/v1/namespaces/a/persistentvolumeclaims/used/status";
    let conditions = json!({"status": {"conditions": [{"type": "Resizing", "status": "True"}]}});
    let cases = [
        ("n1", "POST", leases, named("n1", json!({})), 201, ""),
        ("n1", "POST", leases, named("n2", json!({})), 403, same_name),
        ("n1", "DELETE", &format!("{leases}/n1"), Value::Null, 200, ""),
        ("n1", "POST", "/apis/storage.k8s.io/v1/csinodes", named("n1", json!({"spec": {"drivers": []}})), 201, ""),
        ("n1", "POST", slices, slice("n1"), 201, ""),
        ("n1", "POST", slices, slice("n2"), 403, "ResourceSlice with the same NodeName as the requesting node"),
        ("n1", "DELETE", slices, Value::Null, 403, "resourceslices with nodeName field selector"),
        ("n1", "DELETE", &format!("{slices}?fieldSelector=spec.nodeName%3Dn1"), Value::Null, 200, ""),
        ("n1", "PATCH", claim, conditions, 200, ""),
        (
            "n1",
            "PATCH",
            claim,
            json!({"status": {"phase": "Lost"}}),
            403,
            "- status.phase: \"Pending\"\n+ status.phase: \"Lost\"\n",
        ),
        (
            "n1",
            "PATCH",
            "/api/v1/namespaces/a/persistentvolumeclaims/unused/status",
            json!({"status": {}}),
            403,
            NO_RELATION,
        ),
    ];
    cluster.check(&cases).await;
}

fn conditions_of_node() -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_shows_its_own_pods_and_gets_nothing_by_them() {
    let cluster = Cluster::start().await;
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": cluster.node_uid, "controller": true});
    let mirror = |name: &str, node: &str, owners: Value, more: Value| {
        let mut mirror = pod(name, node, more);
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        mirror["metadata"]["ownerReferences"] = owners;
        mirror
    };
    let owned_by = |change: (&str, Value)| {
        let mut owner = owner.clone();
        owner[change.0] = change.1;
        json!([owner])
    };
    let other = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "other", "controller": false});
    let two_owners = json!([owner, other]);
    let own = |name: &str, more: Value| mirror(name, "n1", json!([owner]), more);
    let volumes = |source: Value| json!({ "volumes": [source] });
    let mismatch = format!("node n1 UID mismatch: expected other got {}", cluster.node_uid);
    let plain = pod("m2", "n1", json!({}));
    let cannot = |what: &str| format!(r#"node "n1" can not create pods that reference {what}"#);
    let can = |what: &str| format!(r#"node "n1" can only create pods with {what} set to itself"#);
    let none = || json!({});
    let refused = [
        (plain, r#"annotation, node "n1" can only create mirror pods"#.to_owned()),
        (mirror("m3", "n2", json!([owner]), none()), can("spec.nodeName")),
        (mirror("m4", "n1", json!([]), none()), can("an owner reference")),
        (mirror("m5", "n1", two_owners, none()), can("a single owner reference")),
        (mirror("m6", "n1", owned_by(("kind", json!("Pod"))), none()), can("an owner reference")),
        (mirror("m7", "n1", owned_by(("controller", json!(false))), none()), can("a controller owner reference")),
        (mirror("m8", "n1", owned_by(("uid", json!("other"))), none()), mismatch),
        (own("m9", json!({"serviceAccountName": "app"})), cannot("serviceaccounts")),
        (own("m10", json!({"imagePullSecrets": [{"name": "vol"}]})), cannot("secrets")),
        (own("m11", volumes(json!({"name": "v", "configMap": {"name": "map"}}))), cannot("configmaps")),
        (
            own("m12", volumes(json!({"name": "v", "persistentVolumeClaim": {"claimName": "used"}}))),
            cannot("persistentvolumeclaims"),
        ),
    ];
    for (object, message) in &refused {
        cluster.until(("n1", "POST", PODS, object.clone(), 403, message)).await;
    }
    let shown = own("m1", volumes(json!({"name": "v", "hostPath": {"path": "/x"}})));
    cluster.check(&[("n1", "POST", PODS, shown, 201, "")]).await;
    let gone = format!("{PODS}/m1?gracePeriodSeconds=0");
    cluster.until(("n1", "DELETE", &gone, Value::Null, 200, "")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_reports_its_own_pods_and_ends_no_others() {
    let cluster = Cluster::start().await;
    cluster.until(get("n1", "/api/v1/namespaces/a/pods/p1", 200, "")).await;
    let path = |rest: &str| format!("{PODS}/{rest}");
    let running = json!({"status": {"phase": "Running"}});
    let eviction = |name: &str| named(name, json!({"apiVersion": "policy/v1", "kind": "Eviction"}));
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let not_its_own = r#"node "n1" can only update pod status for pods with spec.nodeName set to itself"#;
    let cases: [Case<'_>; 9] = [
        ("n1", "PATCH", &path("p1/status"), running.clone(), 200, ""),
        ("n1", "PATCH", &path("p1/status"), label, 403, r#"node "n1" cannot update labels through pod status"#),
        ("n1", "PATCH", &path("p2/status"), running.clone(), 403, not_its_own),
        ("n1", "PATCH", &path("none/status"), running, 404, r#"pods "none" not found"#),
        (
            "n1",
            "PATCH",
            &path("p1"),
            json!({}),
            403,
            r#"cannot patch resource "pods" in API group "" in the namespace "a""#,
        ),
        (
            "n1",
            "POST",
            &path("p2/eviction"),
            eviction("p2"),
            403,
            "node n1 can only evict pods with spec.nodeName set to itself",
        ),
        ("n1", "POST", &path("none/eviction"), eviction("none"), 404, r#"pod "none" not found"#),
        (
            "n1",
            "DELETE",
            &path("p2"),
            Value::Null,
            403,
            r#"node "n1" can only delete pods with spec.nodeName set to itself"#,
        ),
        ("n1", "DELETE", &path("none"), Value::Null, 404, r#"pods "none" not found"#),
    ];
    cluster.check(&cases).await;
    cluster.until(("n1", "POST", &path("p1/eviction?dryRun=All"), eviction("p1"), 201, "")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_requests_tokens_of_its_pods_for_their_audiences() {
    let cluster = Cluster::start().await;
    let tokens = "/api/v1/namespaces/a/serviceaccounts/app/token";
    let request = |spec: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let bound = |name: &str, uid: &str, audiences: Value| {
        let reference = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
        request(json!({"boundObjectRef": reference, "audiences": audiences}))
    };
    let own = |audiences: Value| bound("p1", &cluster.pod_uid, audiences);
    cluster.until(("n1", "POST", tokens, own(json!(["vault"])), 201, "")).await;
    let elsewhere = "system:node:n1 is not authorized to request tokens for this audience";
    let cases = [
        ("n1", "POST", tokens, request(json!({})), 403, "node requested token not bound to a pod"),
        (
            "n1",
            "POST",
            tokens,
            bound("p1", "", json!([])),
            403,
            "node requested token with a pod binding without a uid",
        ),
        (
            "n1",
            "POST",
            tokens,
            bound("p1", "u", json!([])),
            403,
            "The object might have been deleted and then recreated",
        ),
        ("n1", "POST", tokens, bound("none", "u", json!([])), 404, r#"pod "none" not found"#),
        ("n1", "POST", tokens, own(json!(["vault", "b"])), 403, "node may only request 0 or 1 audiences"),
        (
            "n1",
            "POST",
            tokens,
            own(json!(["elsewhere"])),
            403,
            r#"error validating audience "elsewhere": persistentvolume "" not found"#,
        ),
        ("n1", "POST", "/api/v1/namespaces/a/serviceaccounts/default/token", own(json!(["vault"])), 403, NO_RELATION),
    ];
    cluster.check(&cases).await;
    // The audiences of the volume's CSI driver are allowed too, and those that a role allows.
    let claim = "/api/v1/namespaces/a/persistentvolumeclaims/used";
    cluster.admin.patch(claim, MERGE, &json!({"spec": {"volumeName": "pv1"}})).await.expect(200);
    let driver = named("d.example.org", json!({"spec": {"tokenRequests": [{"audience": "disk"}]}}));
    cluster.admin.post("/apis/storage.k8s.io/v1/csidrivers", &driver).await.expect(201);
    cluster.until(("n1", "POST", tokens, own(json!(["disk"])), 201, "")).await;
    cluster.until(("n1", "POST", tokens, own(json!(["elsewhere"])), 403, elsewhere)).await;
    let rule =
        json!([{"verbs": ["request-serviceaccounts-token-audience"], "apiGroups": [""], "resources": ["elsewhere"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    cluster.admin.post(format!("{rbac}/clusterroles"), &named("any", json!({ "rules": rule }))).await.expect(201);
    let subjects = json!([{"kind": "Group", "name": "system:nodes"}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "any"});
    let binding = named("any", json!({"subjects": subjects, "roleRef": role}));
    cluster.admin.post(format!("{rbac}/clusterrolebindings"), &binding).await.expect(201);
    cluster.check(&[("n1", "POST", tokens, own(json!(["elsewhere"])), 201, "")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_reviews_of_nodes_are_incomplete() {
    let cluster = Cluster::start().await;
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let ask = async |user: &str| {
        let call = cluster.server.anonymous().post(rules, &json!({"spec": {"namespace": "a"}}));
        call.header("authorization", format!("Bearer {user}")).await.expect(201).json()["status"].clone()
    };
    let told = ask("n1").await;
    assert_eq!(told["incomplete"], true);
    assert_eq!(told["evaluationError"], "node authorizer does not support user rule resolution");
    assert_eq!(ask("lone").await["incomplete"], false);
    let review = async |name: &str| {
        let asked = json!({"verb": "get", "resource": "secrets", "namespace": "a", "name": name});
        let spec = json!({"user": "system:node:n1", "groups": ["system:nodes"], "resourceAttributes": asked});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        cluster.admin.post(path, &json!({ "spec": spec })).await.expect(201).json()["status"].clone()
    };
    cluster.until(get("n1", "/api/v1/namespaces/a/secrets/vol", 200, "")).await;
    assert_eq!(review("vol").await, json!({"allowed": true}));
    let reason = "no relationship found between node 'n1' and this object";
    assert_eq!(review("two").await, json!({"allowed": false, "reason": reason}));
}
