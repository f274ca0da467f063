//! Tests of objects that violate the rules of their kinds: the status, and every cause with its field, reason and text.
//!
//! The crate `validation` tests each rule.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";

/// A cause of an error: field, reason (without `FieldValue`) and text.
type Cause<'a> = (&'a str, &'a str, &'a str);

fn check_causes(answer: &Value, kind: &str, expected: &[Cause<'_>]) {
    let causes: Vec<Value> = expected
        .iter()
        .map(|(field, reason, message)| json!({"reason": format!("FieldValue{reason}"), "message": message, "field": field}))
        .collect();
    assert_eq!((&answer["reason"], &answer["details"]["kind"]), (&json!("Invalid"), &json!(kind)), "{answer}");
    assert_eq!(answer["details"]["causes"], json!(causes), "{answer:#}");
    let texts: Vec<String> = expected.iter().map(|(field, _, message)| format!("{field}: {message}")).collect();
    let text = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
    assert!(answer["message"].as_str().unwrap().ends_with(&format!(" is invalid: {text}")), "{answer}");
}

/// Creates an object, which must be rejected.
async fn check_create(raw: &Raw, collection: &str, body: Value, expected: &[Cause<'_>]) {
    let answer = raw.post(collection, &body).await.expect(422).json();
    check_causes(&answer, body["kind"].as_str().unwrap(), expected);
}

/// Creates an object, and patches it, which must be rejected.
async fn check_change(raw: &Raw, collection: &str, body: Value, patch: Value, expected: &[Cause<'_>]) {
    let made = raw.post(collection, &body).await.expect(201).json();
    let path = format!("{collection}/{}", made["metadata"]["name"].as_str().unwrap());
    let answer = raw.patch(path.as_str(), MERGE, &patch).await.expect(422).json();
    check_causes(&answer, body["kind"].as_str().unwrap(), expected);
    let kept = raw.get(path.as_str()).await.expect(200).json();
    assert_eq!(
        kept["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"],
        "what is refused changes nothing"
    );
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}})
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template()}})
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";

#[tokio::test]
async fn new_objects_are_refused_with_all_that_is_wrong() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut bad = pod("Bad");
    bad["spec"] = json!({"restartPolicy": "Maybe", "containers": [{"name": "c", "ports": [{"containerPort": 99999}]}]});
    let subdomain = "Invalid value: \"Bad\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                     characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
                     regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let policies = "Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\"";
    check_create(
        &raw,
        PODS,
        bad,
        &[
            ("metadata.name", "Invalid", subdomain),
            ("spec.containers[0].image", "Required", "Required value"),
            (
                "spec.containers[0].ports[0].containerPort",
                "Invalid",
                "Invalid value: 99999: must be between 1 and 65535, inclusive",
            ),
            ("spec.restartPolicy", "NotSupported", policies),
        ],
    )
    .await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": []}});
    check_create(&raw, SERVICES, service, &[("spec.ports", "Required", "Required value")]).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "kubernetes.io/tls"});
    let missing = ("data[tls.crt]", "Required", "Required value");
    check_create(&raw, SECRETS, secret, &[missing, ("data[tls.key]", "Required", "Required value")]).await;
    let job =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template()}});
    let restart = "Required value: valid values: \"OnFailure\", \"Never\"";
    check_create(&raw, JOBS, job, &[("spec.template.spec.restartPolicy", "Required", restart)]).await;
    let mut spec = template();
    spec["spec"]["restartPolicy"] = json!("Never");
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
        "spec": {"schedule": "61 * * * *", "jobTemplate": {"spec": {"template": spec}}}});
    let minutes = "Invalid value: \"61 * * * *\": end of range (61) above maximum (59): 61";
    check_create(&raw, CRON_JOBS, cron, &[("spec.schedule", "Invalid", minutes)]).await;
}

#[tokio::test]
async fn changes_are_refused_where_a_field_is_there_for_good() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let other = "Invalid value: \"other\": field is immutable";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    check_change(&raw, SECRETS, secret, json!({"type": "other"}), &[("type", "Invalid", other)]).await;
    check_change(
        &raw,
        DEPLOYMENTS,
        deployment("d"),
        json!({"spec": {"selector": {"matchLabels": {"app": "c"}}}}),
        &[
            (
                "spec.template.metadata.labels",
                "Invalid",
                "Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
            ),
            ("spec.selector", "Invalid", "Invalid value: {\"matchLabels\":{\"app\":\"c\"}}: field is immutable"),
        ],
    )
    .await;
    let mut job =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template()}});
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let completions = ("spec.completions", "Invalid", "Invalid value: 2: field is immutable");
    check_change(&raw, JOBS, job, json!({"spec": {"completions": 2}}), &[completions]).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let kept = "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                bound claims\n- resources.requests.storage: \"1Gi\"\n+ resources.requests.storage: \"2Gi\"\n";
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    check_change(&raw, CLAIMS, claim, more, &[("spec", "Forbidden", kept)]).await;
}

#[tokio::test]
async fn a_pod_may_change_its_image_and_nothing_around_it() {
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post(PODS, &pod("p")).await.expect(201);
    let image = json!({"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}});
    let strategic = "application/strategic-merge-patch+json";
    raw.patch(format!("{PODS}/p"), strategic, &image).await.expect(200);
    let answer =
        raw.patch(format!("{PODS}/p"), MERGE, &json!({"spec": {"hostname": "other"}})).await.expect(422).json();
    let causes = &answer["details"]["causes"];
    assert_eq!((&causes[0]["field"], &causes[0]["reason"]), (&json!("spec"), &json!("FieldValueForbidden")));
    let text = causes[0]["message"].as_str().unwrap();
    assert!(text.starts_with("Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"));
    assert!(text.ends_with("\n- hostname: null\n+ hostname: \"other\"\n"), "{text}");
}

#[tokio::test]
async fn a_status_is_not_held_up_by_the_spec() {
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post(DEPLOYMENTS, &deployment("d")).await.expect(201);
    let path = format!("{DEPLOYMENTS}/d/status");
    raw.patch(path.as_str(), MERGE, &json!({"status": {"replicas": 1, "readyReplicas": 1}})).await.expect(200);
    let answer = raw.patch(path.as_str(), MERGE, &json!({"status": {"readyReplicas": 2}})).await.expect(422).json();
    let text = "Invalid value: 2: cannot be greater than status.replicas";
    check_causes(&answer, "Deployment", &[("status.readyReplicas", "Invalid", text)]);
}

#[tokio::test]
async fn a_scale_is_validated_as_a_change_of_the_whole() {
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post(DEPLOYMENTS, &deployment("d")).await.expect(201);
    let path = format!("{DEPLOYMENTS}/d/scale");
    raw.patch(path.as_str(), MERGE, &json!({"spec": {"replicas": 3}})).await.expect(200);
    raw.patch(path.as_str(), MERGE, &json!({"spec": {"replicas": -1}})).await.expect(422);
}

/// An invalid object of each kind that concerns the API servers themselves.
#[tokio::test]
async fn api_descriptions_are_validated() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s"},
        "addressType": "IPv4", "endpoints": [{"addresses": ["example.com"]}]});
    let address = "endpoints[0].addresses[0]";
    let refused = "Invalid value: \"example.com\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    let causes = [(address, "Invalid", refused)];
    check_create(&raw, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice, &causes).await;
    let schema = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "s"},
        "spec": {"rules": []}});
    let required = "Required value: must reference a priority level";
    let causes = [("spec.priorityLevelConfiguration.name", "Required", required)];
    check_create(&raw, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", schema, &causes).await;
    let level = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "l"}, "spec": {"type": "Limited"}});
    let causes = [("spec.limited", "Required", "Required value: must not be empty when type is Limited")];
    check_create(&raw, "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", level, &causes).await;
    let class =
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "c"}, "handler": "a"});
    let causes = [("handler", "Invalid", "Invalid value: \"b\": field is immutable")];
    check_change(&raw, "/apis/node.k8s.io/v1/runtimeclasses", class, json!({"handler": "b"}), &causes).await;
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.a.org"},
        "spec": {"group": "a.org", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 2000}});
    let causes = [("spec.versionPriority", "Invalid", "Invalid value: 2000: must be positive and less than 1000")];
    check_create(&raw, "/apis/apiregistration.k8s.io/v1/apiservices", service, &causes).await;
    let migration = json!({"apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
        "metadata": {"name": "m"}, "spec": {"resource": {"group": "apps", "resource": ""}}});
    let causes = [("spec.resource.resource", "Required", "Required value: resource is required to be set")];
    check_create(&raw, "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations", migration, &causes).await;
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r"}, "spec": {"request": "YWJj", "signerName": "a.org/s", "usages": ["any"]}});
    let causes = [("spec.request", "Invalid", "Invalid value: \"YWJj\": PEM block type must be CERTIFICATE REQUEST")];
    check_create(&raw, "/apis/certificates.k8s.io/v1/certificatesigningrequests", request, &causes).await;
}

/// Expressions of kinds that are only stored so far: an invalid one is rejected at the write, not at its first use.
#[tokio::test]
async fn invalid_expressions_are_refused_at_the_write() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let name = json!({"name": "e.example.com"});
    let hook = json!({"name": "e.example.com", "clientConfig": {"url": "https://example.com"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "matchConditions": [{"name": "a", "expression": "$"}]});
    let constraints = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]});
    let patch = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "$"}});
    let request =
        json!({"name": "r", "exactly": {"deviceClassName": "c", "selectors": [{"cel": {"expression": "$"}}]}});
    let (admission, devices) = ("/apis/admissionregistration.k8s.io/v1", "/apis/resource.k8s.io/v1");
    let truth = ("true", "nope");
    for (collection, body, field, (good, bad)) in [
        (
            format!("{admission}/validatingwebhookconfigurations"),
            json!({"webhooks": [hook]}),
            "webhooks[0].matchConditions[0].expression",
            truth,
        ),
        (
            format!("{admission}/mutatingwebhookconfigurations"),
            json!({"webhooks": [hook]}),
            "webhooks[0].matchConditions[0].expression",
            truth,
        ),
        (
            format!("{admission}/validatingadmissionpolicies"),
            json!({"spec": {"matchConstraints": constraints, "validations": [{"expression": "$"}]}}),
            "spec.validations[0].expression",
            truth,
        ),
        (
            format!("{admission}/mutatingadmissionpolicies"),
            json!({"spec": {"matchConstraints": constraints, "reinvocationPolicy": "Never", "failurePolicy": "Fail", "mutations": [patch]}}),
            "spec.mutations[0].applyConfiguration.expression",
            ("Object{}", "Object{"),
        ),
        (
            format!("{devices}/deviceclasses"),
            json!({"spec": {"selectors": [{"cel": {"expression": "$"}}]}}),
            "spec.selectors[0].cel.expression",
            ("device.driver == 'd'", "device.nope"),
        ),
        (
            format!("{devices}/namespaces/default/resourceclaims"),
            json!({"spec": {"devices": {"requests": [request]}}}),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression",
            ("device.driver == 'd'", "device.driver.nope("),
        ),
    ] {
        let with = |expression: &str| {
            let text = body.to_string().replace("\"$\"", &json!(expression).to_string());
            let mut object: Value = serde_json::from_str(&text).unwrap();
            object["metadata"] = name.clone();
            object
        };
        let refused = raw.post(&*collection, &with(bad)).await.expect(422).json();
        let cause = &refused["details"]["causes"][0];
        assert_eq!(cause["field"], field, "{refused:#}");
        assert!(cause["message"].as_str().unwrap().contains("compilation failed: ERROR: <input>:1:"), "{refused:#}");
        raw.post(&*collection, &with(good)).await.expect(201);
    }
}

#[tokio::test]
async fn a_definition_keeps_the_versions_that_objects_may_be_stored_in() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let server = TestServer::start().await;
    let raw = server.raw();
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let mut definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "x.y"}, "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"}, "versions": [version("v1", true)]}});
    let named = "Invalid value: \"x.y\": must be spec.names.plural+\".\"+spec.group";
    check_create(&raw, DEFINITIONS, definition.clone(), &[("metadata.name", "Invalid", named)]).await;
    definition["metadata"]["name"] = json!("widgets.example.org");
    let made = raw.post(DEFINITIONS, &definition).await.expect(201).json();
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    let path = format!("{DEFINITIONS}/widgets.example.org");
    let both = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    let changed = raw.patch(path.as_str(), MERGE, &both).await.expect(200).json();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    let only = json!({"spec": {"versions": [version("v2", true)]}});
    let answer = raw.patch(path.as_str(), MERGE, &only).await.expect(422).json();
    let gone = "Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain in \
                spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from \
                status.storedVersions";
    check_causes(&answer, "CustomResourceDefinition", &[("status.storedVersions[0]", "Invalid", gone)]);
}

#[tokio::test]
async fn definitions_with_invalid_schemas_are_refused() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let server = TestServer::start().await;
    let raw = server.raw();
    let definition = |spec: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
    };
    let at = |below: &str| format!("spec.validation.openAPIV3Schema.properties[spec]{below}");
    let missing = [(&*at(".items"), "Required", "Required value: must be specified")];
    check_create(&raw, DEFINITIONS, definition(json!({"type": "array"})), &missing).await;
    let default = json!({"type": "integer", "minimum": 5, "default": 3});
    let too_small = "Invalid value: 3:  in body should be greater than or equal to 5";
    check_create(&raw, DEFINITIONS, definition(default), &[(&*at(".default"), "Invalid", too_small)]).await;
    let rule = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 'a'"}]});
    let compiled = "Invalid value: {\"Rule\":\"self \\u003e 'a'\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\
                    \"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:6: found no matching \
                    overload for '_>_' applied to '(int, string)'\n | self > 'a'\n | .....^";
    let causes = [(&*at(".x-kubernetes-validations[0].rule"), "Invalid", compiled)];
    check_create(&raw, DEFINITIONS, definition(rule), &causes).await;
    let unknown = definition(json!({"type": "string", "format": "colour"}));
    let answer = raw.post(DEFINITIONS, &unknown).await.expect(201);
    assert_eq!(answer.header("warning"), "299 - \"unrecognized format \\\"colour\\\"\"");
}

#[tokio::test]
async fn the_common_encoding_version_must_match_the_servers() {
    const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    let server = TestServer::start().await;
    let raw = server.raw();
    let version = json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": "example.org.widgets"}, "spec": {}});
    raw.post(VERSIONS, &version).await.expect(201);
    let server_entry = json!({"apiServerID": "a", "encodingVersion": "v1", "decodableVersions": ["v1"]});
    let status = json!({"status": {"commonEncodingVersion": "v2", "storageVersions": [server_entry]}});
    let path = format!("{VERSIONS}/example.org.widgets/status");
    let answer = raw.patch(path.as_str(), MERGE, &status).await.expect(422).json();
    let actual = "Invalid value: \"v2\": the actual common encoding version is v1";
    check_causes(&answer, "StorageVersion", &[("status.commonEncodingVersion", "Invalid", actual)]);
    let twice = json!({"status": {"commonEncodingVersion": "v1", "storageVersions": [server_entry, server_entry]}});
    let answer = raw.patch(path.as_str(), MERGE, &twice).await.expect(422).json();
    let again = ("status.storageVersions[1].apiServerID", "Duplicate", "Duplicate value: \"a\"");
    check_causes(&answer, "StorageVersion", &[again]);
    let unsaid = json!({"status": {"storageVersions": [server_entry]}});
    let answer = raw.patch(path.as_str(), MERGE, &unsaid).await.expect(422).json();
    let common = "Invalid value: null: the common encoding version is v1";
    check_causes(&answer, "StorageVersion", &[("status.commonEncodingVersion", "Invalid", common)]);
    let mut misnamed = version.clone();
    misnamed["metadata"]["name"] = json!("example.org.1widgets");
    let answer = raw.post(VERSIONS, &misnamed).await.expect(422).json();
    let segment = answer["details"]["causes"][0]["message"].as_str().unwrap();
    assert!(segment.contains("the resource segment a DNS-1035 label must consist of"), "{segment}");
    assert_eq!(answer["details"]["causes"].as_array().map(Vec::len), Some(1));
}

/// The warnings of a response, as clients read them.
fn warnings_of(answer: &keelson_testkit::Answer) -> Vec<String> {
    let values = answer.headers.get_all("warning").iter();
    let text = |value: &str| value.strip_prefix("299 - \"")?.strip_suffix('"').map(|text| text.replace("\\\"", "\""));
    values.map(|value| text(value.to_str().unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn a_refusal_keeps_the_warnings() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut bad = deployment("Bad");
    bad["spec"]["bogus"] = json!(1);
    let unknown = ["unknown field \"spec.bogus\""];
    assert_eq!(warnings_of(&raw.post(DEPLOYMENTS, &bad).await.expect(422)), unknown);
    let mut good = deployment("good");
    good["spec"]["template"]["spec"]["hostAliases"] = json!([{"ip": "::1"}, {"ip": "::1"}]);
    let alias = "spec.template.spec.hostAliases[1].ip: duplicate ip \"::1\"";
    assert_eq!(warnings_of(&raw.post(DEPLOYMENTS, &good).await.expect(201)), [alias]);
    let path = format!("{DEPLOYMENTS}/good");
    let patch = json!({"spec": {"bogus": 1, "replicas": -1}});
    assert_eq!(warnings_of(&raw.patch(path.as_str(), MERGE, &patch).await.expect(422)), unknown);
    let scaled = raw.patch(path.as_str(), MERGE, &json!({"spec": {"replicas": 2}})).await.expect(200);
    assert_eq!(warnings_of(&scaled), [alias], "the template is looked at with each generation");
    let labelled = raw.patch(path.as_str(), MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    assert_eq!(warnings_of(&labelled), [""; 0]);
    // The number of warnings that an attacker can cause fits into the response header.
    let mut many = pod("Bad");
    for index in 0..2000 {
        many[format!("{}{index}", "x".repeat(200))] = json!(1);
    }
    let answer = raw.post(PODS, &many).await.expect(422);
    let told: Vec<usize> = warnings_of(&answer).iter().map(|text| text.chars().count()).collect();
    // Each warning is cut after 256 characters, and the one that exceeds 4,096 in total is the last.
    assert!(told.iter().all(|characters| *characters <= 256), "{told:?}");
    assert!((4096..4096 + 256).contains(&told.iter().sum::<usize>()), "{told:?}");
}

#[tokio::test]
async fn templates_are_validated_as_pods_are_in_every_workload() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"restartPolicy": "OnFailure",
        "containers": [{"name": "c", "image": "", "env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
        "volumes": [{"emptyDir": {}}]}});
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"selector": selector, "template": template});
    for (collection, kind, spec, prefix) in [
        ("apis/apps/v1/namespaces/default/statefulsets", "StatefulSet", spec.clone(), "spec.template"),
        ("apis/apps/v1/namespaces/default/deployments", "Deployment", spec.clone(), "spec.template"),
        ("apis/apps/v1/namespaces/default/replicasets", "ReplicaSet", spec.clone(), "spec.template"),
        ("apis/apps/v1/namespaces/default/daemonsets", "DaemonSet", spec.clone(), "spec.template"),
        ("apis/batch/v1/namespaces/default/jobs", "Job", json!({"template": template}), "spec.template"),
        (
            "apis/batch/v1/namespaces/default/cronjobs",
            "CronJob",
            json!({"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}),
            "spec.jobTemplate.spec.template",
        ),
        (
            "api/v1/namespaces/default/replicationcontrollers",
            "ReplicationController",
            json!({"selector": {"app": "web"}, "template": template}),
            "spec.template",
        ),
    ] {
        let version = if collection.starts_with("api/") { "v1" } else { collection.split('/').nth(1).unwrap() };
        let version = if version == "v1" { "v1".to_owned() } else { format!("{version}/v1") };
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        let answer = raw.post(format!("/{collection}"), &body).await.expect(422).json();
        let causes: Vec<(String, String)> = answer["details"]["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cause| (cause["field"].as_str().unwrap().to_owned(), cause["message"].as_str().unwrap().to_owned()))
            .collect();
        let mut expected = vec![
            (format!("{prefix}.spec.volumes[0].name"), "Required value"),
            (format!("{prefix}.spec.containers[0].image"), "Required value"),
            (
                format!("{prefix}.spec.containers[0].env[0].valueFrom"),
                "Invalid value: \"\": may not be specified when `value` is not empty",
            ),
        ];
        if !matches!(kind, "Job" | "CronJob") {
            let always = "Unsupported value: \"OnFailure\": supported values: \"Always\"";
            expected.push((format!("{prefix}.spec.restartPolicy"), always));
        }
        let expected: Vec<(String, String)> =
            expected.into_iter().map(|(field, text)| (field, text.to_owned())).collect();
        assert_eq!(causes, expected, "{kind}");
    }
}

#[tokio::test]
async fn many_faults_are_reported_in_an_answer_of_bounded_size() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let labels: serde_json::Map<String, Value> = (0..100_000).map(|index| (format!("!{index}"), json!("!"))).collect();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "labels": labels}});
    let answer = raw.post("/api/v1/namespaces/default/configmaps", &map).await.expect(422);
    assert!(answer.body.len() < 2 * 1024 * 1024, "{}", answer.body.len());
    let status = answer.json();
    let (message, causes) = (status["message"].as_str().unwrap(), status["details"]["causes"].as_array().unwrap());
    assert!(message.ends_with(" more]") && causes.len() <= 1000, "{}", &message[message.len() - 80..]);
}

#[tokio::test]
async fn generations_count_changes_of_the_spec() {
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post(DEPLOYMENTS, &deployment("d")).await.expect(201);
    let patch = async |path: &str, patch: Value| {
        raw.patch(path, MERGE, &patch).await.expect(200).json()["metadata"]["generation"].clone()
    };
    let path = format!("{DEPLOYMENTS}/d");
    assert_eq!(patch(&path, json!({"metadata": {"labels": {"a": "b"}}})).await, 1);
    assert_eq!(patch(&path, json!({"metadata": {"annotations": {"a": "b"}}})).await, 2, "a deployment passes them on");
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class =
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}, "value": 1});
    raw.post(classes, &class).await.expect(201);
    assert_eq!(patch(&format!("{classes}/c"), json!({"globalDefault": true})).await, 1);
}

#[tokio::test]
async fn fields_of_disabled_gates_are_dropped() {
    let closed = [("ClusterTrustBundleProjection".to_owned(), false)];
    let close = |config: &mut keelson_server::Config| {
        config.registry.gates.set(&closed).unwrap();
    };
    let server = TestServer::builder().configure(close).start().await;
    let raw = server.raw();
    let mut sent = pod("p");
    sent["spec"]["containers"] = json!([{"name": "c", "image": "$(IMAGE)", "lifecycle": {"stopSignal": "SIGTERM"}}, ]);
    sent["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {}}]}}]);
    sent["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    let answer = raw.post(PODS, &sent).await.expect(201);
    assert_eq!(warnings_of(&answer), ["volume \"v\" (Projected) has no sources provided"]);
    let made = answer.json();
    let container = &made["spec"]["containers"][0];
    assert_eq!((&container["lifecycle"], &container["imagePullPolicy"]), (&Value::Null, &json!("IfNotPresent")));
    assert_eq!(made["spec"]["volumes"][0]["projected"]["sources"], json!([{}]));
    assert_eq!(made["status"]["conditions"][0]["reason"], "SchedulingGated");
    let mut null = pod("n");
    null["spec"]["containers"] = json!([null]);
    check_create(
        &raw,
        PODS,
        null,
        &[
            ("spec.containers[0].name", "Required", "Required value"),
            ("spec.containers[0].image", "Required", "Required value"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_status_is_completed_and_validated_by_its_kind() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    raw.post(CLAIMS, &claim).await.expect(201);
    let put = raw.put(format!("{CLAIMS}/c/status"), &claim).await.expect(200).json();
    assert_eq!(put["status"]["phase"], "Pending");
    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}});
    raw.post(volumes, &volume).await.expect(201);
    let put = raw.put(format!("{volumes}/v/status"), &volume).await.expect(200).json();
    assert_eq!(put["status"]["phase"], "Pending");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    raw.post("/api/v1/namespaces", &namespace).await.expect(201);
    let put = raw.put("/api/v1/namespaces/n/status", &namespace).await.expect(200).json();
    assert_eq!(put["status"]["phase"], "Active");
    raw.post(PODS, &pod("p")).await.expect(201);
    let status = |status: Value| json!({"status": status});
    let path = format!("{PODS}/p/status");
    let odd = status(
        json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "allocatedResourcesStatus": [{"name": "x", "resources": [{"resourceID": "r"}]}]}]}),
    );
    let answer = raw.patch(path.as_str(), MERGE, &odd).await.expect(422).json();
    check_causes(
        &answer,
        "Pod",
        &[(
            "status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health",
            "NotSupported",
            "Unsupported value: \"\": supported values: \"Healthy\", \"Unhealthy\", \"Unknown\"",
        )],
    );
}
