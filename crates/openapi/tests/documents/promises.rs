//! The documents state the fields, defaults and responses of the API, in both encodings.
//!
//! Tests that send requests to a server are among the tests of the whole program.

use super::*;

#[test]
fn openapi_3_protobuf_equals_its_json() {
    let openapi = assembled("v1.36.2", &[custom("apps.example.org", "widgets")]);
    for path in ["api", "api/v1", "apis/apps/v1", "apis/apps.example.org/v1", "version"] {
        let json = document(&openapi, path).expect("a document");
        let wanted = DocumentId::V3(path.to_owned(), DocumentEncoding::Protobuf);
        let protobuf = openapi.document(&wanted).expect("it is there in both encodings");
        assert_eq!(json.hash, protobuf.hash, "one tag names both");
        let (json, protobuf) = (parsed(&json), &protobuf.bytes());
        let keys = |value: &Value| -> Vec<String> {
            value.as_object().into_iter().flat_map(|members| members.keys().map(str::to_owned)).collect()
        };
        assert_eq!(wire::texts(protobuf, &[1]), ["3.0.0"]);
        assert_eq!(wire::texts(protobuf, &[2, 6]), [json["info"]["version"].as_str().unwrap()]);
        assert_eq!(wire::texts(protobuf, &[4, 1, 1]), keys(&json["paths"]), "{path}");
        assert_eq!(wire::texts(protobuf, &[5, 1, 1, 1]), keys(&json["components"]["schemas"]), "{path}");
        assert_eq!(wire::texts(protobuf, &[5, 7, 1, 1]), ["BearerToken"], "{path}");
        assert_eq!(wire::texts(protobuf, &[6, 1, 1]), ["BearerToken"], "{path}");
        for named in wire::fields(wire::fields(wire::fields(protobuf, 5)[0], 1)[0], 1) {
            let name = &wire::texts(named, &[1])[0];
            let expected = &json["components"]["schemas"][name];
            assert_eq!(wire::texts(named, &[2, 1, 25]), expected["type"].as_str().into_iter().collect::<Vec<_>>());
            assert_eq!(wire::texts(named, &[2, 1, 31, 1, 1]), keys(&expected["properties"]), "{name}");
        }
        let ids = |of: u64| wire::texts(protobuf, &[4, 1, 2, of, 5]).len();
        let operations = json["paths"].as_object().unwrap().iter().flat_map(|(_, item)| keys(item));
        let stated = operations.filter(|key| key != "parameters").count();
        assert_eq!([4, 5, 6, 7, 10].map(ids).iter().sum::<usize>(), stated, "{path}");
    }
}

#[test]
fn every_document_says_how_clients_authenticate() {
    let openapi = assembled("v1.36.2", &[custom("apps.example.org", "widgets")]);
    let whole = parsed(&v2(&openapi, DocumentEncoding::Json));
    assert_eq!(whole["securityDefinitions"]["BearerToken"]["name"], "authorization");
    assert_eq!(whole["security"], json!([{ "BearerToken": [] }]));
    let protobuf = v2(&openapi, DocumentEncoding::Protobuf).bytes();
    assert_eq!(wire::texts(&protobuf, &[12, 1, 1]), ["BearerToken"]);
    assert_eq!(wire::texts(&protobuf, &[13, 1, 2, 2, 3]), ["header"]);
    for path in ["api/v1", "apis/apps.example.org/v1"] {
        let document = parsed(&document(&openapi, path).expect("a document"));
        assert_eq!(document["components"]["securitySchemes"], whole["securityDefinitions"], "{path}");
        assert_eq!(document["security"], whole["security"], "{path}");
    }
}

#[test]
fn a_delete_that_is_answered_with_the_object_is_published_so() {
    let mut described = custom("apps.example.org", "widgets");
    described.resources[0].verbs.push(Verb::Delete);
    for returns_deleted in [false, true] {
        described.resources[0].returns_deleted = returns_deleted;
        let openapi = assembled("v1.36.2", &[described.clone()]);
        let document = parsed(&document(&openapi, "apis/apps.example.org/v1").expect("a document"));
        let operation = &document["paths"]["/apis/apps.example.org/v1/namespaces/{namespace}/widgets/{name}"]["delete"];
        let mut found = Vec::new();
        references(&operation["responses"], &mut found);
        let expected = if returns_deleted { "org.example.apps.v1.Widget" } else { "meta.v1.Status" };
        assert!(found.iter().all(|to| to.ends_with(expected)) && !found.is_empty(), "{found:?}");
    }
}

#[test]
fn ids_and_tags_of_a_group_with_a_hyphen_are_names() {
    let openapi = assembled("v1.36.2", &[custom("acme.cert-manager.io", "widgets")]);
    let document = parsed(&document(&openapi, "apis/acme.cert-manager.io/v1").expect("a document"));
    let operation = &document["paths"]["/apis/acme.cert-manager.io/v1/widgets"]["get"];
    assert_eq!(operation["operationId"], "listAcmeCertManagerIoV1WidgetForAllNamespaces");
    assert_eq!(operation["tags"], json!(["acmeCertManagerIo_v1"]));
}

#[test]
fn fields_are_required_and_defaulted_as_the_api_has_them() {
    let core = v3("api/v1");
    let schemas = &core["components"]["schemas"];
    for name in [
        "ConfigMapEnvSource",
        "ConfigMapKeySelector",
        "ConfigMapProjection",
        "ConfigMapVolumeSource",
        "LocalObjectReference",
        "SecretEnvSource",
        "SecretKeySelector",
        "SecretProjection",
    ] {
        let schema = &schemas[format!("io.k8s.api.core.v1.{name}")];
        let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
        assert!(!required.contains(&json!("name")), "{name}");
        assert_eq!(schema["properties"]["name"]["default"], "", "{name}");
    }
    assert_eq!(schemas["io.k8s.api.core.v1.Event"]["required"], json!(["metadata", "involvedObject"]));
    let events = v3("apis/events.k8s.io/v1");
    assert_eq!(events["components"]["schemas"]["io.k8s.api.events.v1.Event"]["required"], json!(["eventTime"]));
    let of = |name: &str, field: &str| schemas[format!("io.k8s.api.core.v1.{name}")]["properties"][field].clone();
    assert_eq!(of("AzureDiskVolumeSource", "readOnly")["default"], false);
    assert_eq!(of("GRPCAction", "service")["default"], "");
    assert_eq!(of("ReplicationControllerSpec", "minReadySeconds")["default"], 0);
    assert_eq!(of("Toleration", "operator")["enum"], json!(["Equal", "Exists", "Gt", "Lt"]));
    assert_eq!(of("ServiceSpec", "ipFamilies")["items"]["enum"], json!(["", "IPv4", "IPv6"]));
    assert!(of("Lifecycle", "stopSignal")["enum"].as_array().unwrap().contains(&json!("SIGRTMIN+1")));
    let requests = v3("apis/certificates.k8s.io/v1");
    let spec = &requests["components"]["schemas"]["io.k8s.api.certificates.v1.CertificateSigningRequestSpec"];
    assert!(spec["properties"]["usages"]["items"]["enum"].as_array().unwrap().contains(&json!("cert sign")));
    assert_eq!(of("ServiceList", "items")["description"], "List of services.");
}
