//! Tests of ClusterTrustBundles, which are served if enabled: the right to write one for a signer, valid content, and
//! its form in responses.
//!
//! Texts are as recorded. `validation` tests each rule for names and content.

use keelson_testkit::{Answer, Call, RECORDED_RELEASE, Raw, TestServer};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";

async fn serving(settings: &[&str]) -> (TestServer, Raw) {
    let serve = |config: &mut keelson_server::Config| {
        config.registry.serve(keelson_builtin::catalogue_of(RECORDED_RELEASE), settings).unwrap();
    };
    let server = TestServer::builder().recorded().configure(serve).start().await;
    let raw = server.raw();
    (server, raw)
}

/// A certificate in PEM.
fn certificate(name: &str, is_ca: IsCa) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = is_ca;
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

fn authority(name: &str) -> String {
    certificate(name, IsCa::Ca(BasicConstraints::Unconstrained))
}

fn bundle(name: &str, signer: Option<&str>, anchors: &str) -> Value {
    let mut spec = json!({ "trustBundle": anchors });
    if let Some(signer) = signer {
        spec["signerName"] = json!(signer);
    }
    json!({ "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle", "metadata": { "name": name }, "spec": spec })
}

/// Grants ann the right to write bundles, and to attest for a signer.
async fn permit(raw: &Raw, signer: &str) {
    let rules = json!([
        { "apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"], "verbs": ["*"] },
        { "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [signer], "verbs": ["attest"] },
    ]);
    let role = json!({ "metadata": { "name": "attests" }, "rules": rules });
    raw.post(format!("{ROLES}/clusterroles"), &role).await.expect(201);
    let (group, kind) = ("rbac.authorization.k8s.io", "ClusterRole");
    let binding = json!({
        "metadata": { "name": "attests" }, "roleRef": { "apiGroup": group, "kind": kind, "name": "attests" },
        "subjects": [{ "kind": "User", "name": "ann", "apiGroup": group }],
    });
    raw.post(format!("{ROLES}/clusterrolebindings"), &binding).await.expect(201);
}

fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn bundles_are_served_in_the_requested_versions() {
    let versions = async |settings: &[&str]| {
        let (_server, raw) = serving(settings).await;
        let group = raw.get("/apis/certificates.k8s.io").await.expect(200).json();
        let names = group["versions"].as_array().unwrap().iter();
        let names: Vec<String> = names.map(|version| version["version"].as_str().unwrap().to_owned()).collect();
        for version in ["v1beta1", "v1alpha1"] {
            let found = if names.iter().any(|name| name == version) { 200 } else { 404 };
            raw.get(format!("/apis/certificates.k8s.io/{version}")).await.expect(found);
            raw.get(format!("/apis/certificates.k8s.io/{version}/clustertrustbundles")).await.expect(found);
            raw.get(format!("/openapi/v3/apis/certificates.k8s.io/{version}")).await.expect(found);
        }
        names
    };
    assert_eq!(versions(&[]).await, ["v1"]);
    assert_eq!(versions(&["certificates.k8s.io/v1beta1=true"]).await, ["v1", "v1beta1"]);
    assert_eq!(versions(&["api/beta", "api/alpha"]).await, ["v1", "v1beta1", "v1alpha1"]);
    let (_server, raw) = serving(&["certificates.k8s.io/v1beta1", "certificates.k8s.io/v1alpha1"]).await;
    let listed = raw.get("/apis/certificates.k8s.io/v1beta1").await.expect(200).json();
    let expected = json!([{
        "name": "clustertrustbundles", "singularName": "clustertrustbundle", "namespaced": false, "kind": "ClusterTrustBundle",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "storageVersionHash": listed["resources"][0]["storageVersionHash"],
    }]);
    assert_eq!(listed["resources"], expected);
    raw.post(BUNDLES, &bundle("plain", None, &authority("a"))).await.expect(201);
    let older = raw.get(format!("{}/plain", BUNDLES.replace("v1beta1", "v1alpha1"))).await.expect(200).json();
    assert_eq!(older["apiVersion"], "certificates.k8s.io/v1alpha1");
}

#[tokio::test]
async fn clusters_with_bundles_have_the_roles_for_them() {
    const ROLES_OF_BUNDLES: [&str; 2] = [
        "system:cluster-trust-bundle-discovery",
        "system:controller:kube-apiserver-serving-clustertrustbundle-publisher",
    ];
    let (_server, raw) = serving(&["certificates.k8s.io/v1beta1"]).await;
    for name in ROLES_OF_BUNDLES {
        raw.get(format!("{ROLES}/clusterroles/{name}")).await.expect(200);
        raw.get(format!("{ROLES}/clusterrolebindings/{name}")).await.expect(200);
    }
    // All service accounts and nodes may read bundles, and none of them may write them.
    let reads = async |user: &str, group: &str| {
        let asked = |call: Call| call.header("impersonate-user", user).header("impersonate-group", group);
        asked(raw.get(BUNDLES)).await.expect(200);
        asked(raw.post(BUNDLES, &bundle("own", None, &authority("a")))).await.expect(403);
    };
    reads("system:serviceaccount:default:default", "system:serviceaccounts").await;
    reads("system:node:n1", "system:nodes").await;
    let (_server, raw) = serving(&[]).await;
    for name in ROLES_OF_BUNDLES {
        raw.get(format!("{ROLES}/clusterroles/{name}")).await.expect(404);
    }
}

#[tokio::test]
async fn bundles_are_served_by_default_since_1_37() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let bundles = BUNDLES.replace("v1beta1", "v1");
    let mut made = bundle("plain", None, &authority("a"));
    made["apiVersion"] = json!("certificates.k8s.io/v1");
    raw.post(&*bundles, &made).await.expect(201);
    raw.get(BUNDLES).await.expect(404);
    raw.get(format!("{ROLES}/clusterroles/system:cluster-trust-bundle-discovery")).await.expect(200);
    let as_node = raw.get(&*bundles).header("impersonate-user", "system:node:n1");
    as_node.header("impersonate-group", "system:nodes").await.expect(200);
}

#[tokio::test]
async fn trust_bundles_need_attest_on_the_signer() {
    let (_server, raw) = serving(&["certificates.k8s.io/v1beta1"]).await;
    permit(&raw, "example.org/one").await;
    let as_ann = |call: Call| call.header("impersonate-user", "ann");
    let anchors = authority("one");
    let post = |name: &str, signer: Option<&str>| as_ann(raw.post(BUNDLES, &bundle(name, signer, &anchors)));
    let refusal = |name: &str, signer: &str| {
        format!(
            "clustertrustbundles.certificates.k8s.io \"{name}\" is forbidden: user not permitted to attest for signerName \"{signer}\""
        )
    };
    post("plain", None).await.expect(201);
    let made = post("example.org:one:a", Some("example.org/one")).await.expect(201).json();
    assert_eq!(made["spec"], json!({ "signerName": "example.org/one", "trustBundle": anchors }));
    let refused = post("example.org:two:a", Some("example.org/two")).await.expect(403);
    assert_eq!(message(&refused), refusal("example.org:two:a", "example.org/two"));
    raw.get(format!("{BUNDLES}/example.org:two:a")).await.expect(404);

    // For a bundle of another signer only an unchanged update, deletion and a deletion of the collection are allowed.
    raw.post(BUNDLES, &bundle("example.org:two:a", Some("example.org/two"), &anchors)).await.expect(201);
    let two = format!("{BUNDLES}/example.org:two:a");
    let patch = |change: Value| as_ann(raw.patch(&*two, MERGE, &change));
    let refused = patch(json!({ "metadata": { "labels": { "x": "y" } } })).await.expect(403);
    assert_eq!(message(&refused), refusal("example.org:two:a", "example.org/two"));
    patch(json!({ "metadata": { "finalizers": ["example.org/f"] } })).await.expect(200);
    patch(json!({})).await.expect(200);
    as_ann(raw.delete(&*two)).await.expect(200);
    patch(json!({ "metadata": { "finalizers": null } })).await.expect(200);
    raw.get(&*two).await.expect(404);
    let one = format!("{BUNDLES}/example.org:one:a");
    let signer = json!({ "spec": { "signerName": "example.org/two" } });
    let response = raw.patch(&*one, MERGE, &signer).await.expect(422);
    let why = "[metadata.name: Invalid value: \"example.org:one:a\": ClusterTrustBundle for signerName example.org/two must be named with prefix example.org:two:, spec.signerName: Invalid value: \"example.org/two\": field is immutable]";
    let expected = format!("ClusterTrustBundle.certificates.k8s.io \"example.org:one:a\" is invalid: {why}");
    assert_eq!(message(&response), expected);
}

#[tokio::test]
async fn a_bundle_holds_certificates_of_authorities_and_each_once() {
    let (_server, raw) = serving(&["certificates.k8s.io/v1beta1"]).await;
    let response = async |name: &str, anchors: &str| {
        let refused = raw.post(BUNDLES, &bundle(name, None, anchors)).await.expect(422);
        raw.get(format!("{BUNDLES}/{name}")).await.expect(404);
        message(&refused)
    };
    let invalid = |name: &str, why: &str| {
        format!(
            "ClusterTrustBundle.certificates.k8s.io \"{name}\" is invalid: spec.trustBundle: Invalid value: \"<value omitted>\": {why}"
        )
    };
    let (one, two) = (authority("one"), authority("two"));
    let server = certificate("server", IsCa::ExplicitNoCa);
    assert_eq!(response("bad", "hello").await, invalid("bad", "at least one trust anchor must be provided"));
    assert_eq!(response("leaf", &server).await, invalid("leaf", "entry 0 does not have the CA bit set"));
    let plain = certificate("plain", IsCa::NoCa);
    assert_eq!(
        response("none", &format!("{one}{plain}")).await,
        invalid("none", "entry 1 does not have the CA bit set")
    );
    let twice = format!("{one}{two}words\n{one}");
    assert_eq!(response("twice", &twice).await, invalid("twice", "duplicate trust anchor (indices [0 2])"));
    let both = format!("words\n{one}{two}");
    let made = raw.post(BUNDLES, &bundle("both", None, &both)).await.expect(201).json();
    assert_eq!(made["spec"]["trustBundle"], both.as_str(), "as it was sent");

    // An update must have a resourceVersion.
    let mut blind = made.clone();
    blind["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let response = raw.put(format!("{BUNDLES}/both"), &blind).await.expect(422);
    assert!(
        message(&response).contains("metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
        "{}",
        message(&response)
    );
    let mut changed = made;
    changed["spec"]["trustBundle"] = json!(two);
    raw.put(format!("{BUNDLES}/both"), &changed).await.expect(200);
}

#[tokio::test]
async fn bundles_are_selected_and_shown_with_their_signer() {
    let (_server, raw) = serving(&["certificates.k8s.io/v1beta1"]).await;
    let anchors = authority("one");
    raw.post(BUNDLES, &bundle("plain", None, &anchors)).await.expect(201);
    raw.post(BUNDLES, &bundle("example.org:one:a", Some("example.org/one"), &anchors)).await.expect(201);
    let selected =
        raw.get(format!("{BUNDLES}?fieldSelector=spec.signerName%3Dexample.org/one")).await.expect(200).json();
    let names = |list: &Value| -> Vec<String> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&selected), ["example.org:one:a"]);
    let table =
        raw.get(BUNDLES).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io").await.expect(200).json();
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "SignerName"]);
    let cells: Vec<&Value> = table["rows"].as_array().unwrap().iter().map(|row| &row["cells"]).collect();
    assert_eq!(cells, [&json!(["example.org:one:a", "example.org/one"]), &json!(["plain", "<none>"])]);
}
