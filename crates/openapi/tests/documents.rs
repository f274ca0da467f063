//! Tests of the documents as clients read them.
//!
//! The documents are compared with upstream's rules for each kind. Tests of cost count how often a part is rendered,
//! and measure no time.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Value, json};
use keelson_openapi::{
    CustomKind, Descriptions, Document, DocumentEncoding, DocumentId, ForeignPaths, Fragment, ResourceDescription,
    SharedDefinitions, VersionDescription,
};
use keelson_resources::Verb;
use keelson_schema::{SchemaDocument, Schemas};

#[path = "documents/promises.rs"]
mod promises;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The documents of the built-in resources and further versions, on a server of this version.
fn assembled(server_version: &str, further: &[VersionDescription]) -> Descriptions {
    let builtin = VersionDescription::all(keelson_builtin::catalogue());
    let shared = SharedDefinitions::new(Schemas::builtin(), &builtin, server_version);
    let fragments: Vec<_> = builtin.iter().chain(further).cloned().map(Fragment::new).collect();
    Descriptions::assemble(&shared, &fragments)
}

fn openapi() -> Descriptions {
    assembled("v1.36.2", &[])
}

fn document(descriptions: &Descriptions, path: &str) -> Option<Arc<Document>> {
    descriptions.document(&DocumentId::V3(path.to_owned(), DocumentEncoding::Json))
}

fn index(descriptions: &Descriptions) -> Arc<Document> {
    descriptions.document(&DocumentId::V3Index).expect("the index is always there")
}

fn v2(descriptions: &Descriptions, form: DocumentEncoding) -> Arc<Document> {
    descriptions.document(&DocumentId::V2(form)).expect("version 2 is always there")
}

fn parsed(document: &Document) -> Value {
    serde_json::from_slice(&document.bytes()).expect("documents are JSON")
}

fn v3(path: &str) -> Value {
    parsed(&document(&openapi(), path).expect("a document"))
}

fn kind(kind: &GroupVersionKind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

/// Calls `check` for each group version, with its document.
fn every_version(mut check: impl FnMut(&'static keelson_resources::Group, &'static str, &Value)) {
    let openapi = openapi();
    for group in keelson_builtin::catalogue().groups() {
        let served = group.versions.iter();
        for version in served {
            let path = &group.version_path(&version.name)[1..];
            check(group, &version.name, &parsed(&document(&openapi, path).expect("a document for each version")));
        }
    }
}

/// kubectl's check before a request with server-side validation: the kind's first PATCH operation must have the
/// parameter in its query.
fn kubectl_finds(document: &Value, wanted: &Value, name: &str) -> bool {
    let paths = document["paths"].as_object().expect("paths are an object");
    let patch = paths.values().map(|item| &item["patch"]).find(|o| o["x-kubernetes-group-version-kind"] == *wanted);
    let parameters = patch.and_then(|operation| operation["parameters"].as_array());
    parameters.is_some_and(|list| list.iter().any(|each| each["name"] == name && each["in"] == "query"))
}

/// The definition of a kind, found as `kubectl explain` finds it.
fn definition<'a>(definitions: &'a Value, wanted: &Value) -> Option<&'a Value> {
    let is_wanted = |schema: &&Value| {
        schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|kinds| kinds.contains(wanted))
    };
    definitions.as_object().expect("definitions are an object").values().find(is_wanted)
}

/// Every `$ref` in a document.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(elements) => elements.iter().for_each(|element| references(element, found)),
        _ => {}
    }
}

#[track_caller]
fn all_references_lead_somewhere(document: &Value, name: &str) {
    let mut found = Vec::new();
    references(document, &mut found);
    found.sort();
    found.dedup();
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("a reference within the document");
        assert!(document.pointer(pointer).is_some(), "{reference} in {name}");
    }
}

#[test]
fn every_patchable_kind_declares_field_validation_and_dry_run() {
    every_version(|group, version, document| {
        for (resource, served) in group.known_in(version) {
            let wanted = kind(&resource.gvk(version));
            for name in ["fieldValidation", "dryRun"] {
                assert_eq!(kubectl_finds(document, &wanted, name), served.allows(Verb::Patch), "{wanted} {name}");
            }
        }
    });
}

#[test]
fn every_kind_has_its_schema_and_no_reference_leads_nowhere() {
    every_version(|group, version, document| {
        let definitions = &document["components"]["schemas"];
        for (resource, served) in group.known_in(version) {
            let gvk = resource.gvk(version);
            let schema = definition(definitions, &kind(&gvk)).unwrap_or_else(|| panic!("no schema of {gvk:?}"));
            assert_eq!(schema["properties"]["apiVersion"]["type"], "string", "{gvk:?}");
            if served.allows(Verb::List) {
                let list = kind(&GroupVersionKind { kind: resource.list_kind.to_string(), ..gvk.clone() });
                assert!(definition(definitions, &list).is_some(), "no schema of {list}");
            }
        }
        all_references_lead_somewhere(document, &group.version_path(version));
    });
}

#[test]
fn version_2_has_every_kind_too() {
    let document = parsed(&v2(&openapi(), DocumentEncoding::Json));
    assert_eq!(document["swagger"], "2.0");
    for resource in keelson_builtin::catalogue().resources() {
        for version in resource.versions.iter().filter(|version| !version.hidden) {
            let wanted = kind(&resource.gvk(&version.name));
            assert!(definition(&document["definitions"], &wanted).is_some(), "no schema of {wanted}");
        }
    }
    all_references_lead_somewhere(&document, "version 2");
    let paths = &document["paths"];
    assert_eq!(paths["/api/v1/nodes/{name}"]["patch"]["operationId"], "patchCoreV1Node");
    assert_eq!(paths["/apis/apps/v1/deployments"]["get"]["x-kubernetes-action"], "list");
    assert_eq!(
        paths["/api/v1/namespaces/{namespace}/pods"]["post"]["parameters"][0]["schema"],
        json!({ "$ref": "#/definitions/io.k8s.api.core.v1.Pod" })
    );
}

#[test]
fn the_index_names_each_document_with_its_hash() {
    let openapi = openapi();
    let index = parsed(&index(&openapi));
    let paths = index["paths"].as_object().expect("paths are an object");
    for path in ["api", "api/v1", "apis", "apis/apps", "apis/resource.k8s.io/v1alpha3", "version"] {
        assert!(paths.contains_key(path), "{path}");
    }
    for (path, entry) in paths {
        let hash = document(&openapi, path).expect("a document at each path").hash.clone();
        assert_eq!(entry["serverRelativeURL"], format!("/openapi/v3/{path}?hash={hash}"));
    }
}

#[test]
fn equal_servers_have_equal_documents_and_versions_change_the_hash() {
    let (first, second) = (openapi(), openapi());
    assert_eq!(index(&first), index(&second));
    for form in [DocumentEncoding::Json, DocumentEncoding::Protobuf] {
        assert_eq!(v2(&first, form), v2(&second, form));
    }
    assert_ne!(index(&first).hash, index(&assembled("v1.36.3", &[])).hash);
}

#[test]
fn unknown_paths_have_no_document() {
    for path in ["", "api/v2", "apis/nope", "apis/apps/v9", "/api/v1"] {
        assert!(document(&openapi(), path).is_none(), "{path}");
    }
}

#[test]
fn operations_have_parameters_bodies_and_responses() {
    let document = v3("apis/apps/v1");
    let item = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"];
    let patch = &item["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" })
    );
    let body = &patch["requestBody"]["content"]["application/merge-patch+json"]["schema"];
    assert_eq!(body["$ref"], "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Patch");
    let answer = &patch["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(answer["$ref"], "#/components/schemas/io.k8s.api.autoscaling.v1.Scale");
    let names: Vec<&Value> =
        item["parameters"].as_array().expect("parameters").iter().map(|each| &each["name"]).collect();
    assert_eq!(names, ["name", "namespace", "pretty"]);
    let delete = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["delete"];
    assert_eq!(delete["requestBody"].get("required"), None);
    assert_eq!(
        delete["requestBody"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
    );
}

/// Reads protobuf by field numbers. Does not know the messages.
mod wire {
    /// The length-delimited fields of a message with this number.
    pub(crate) fn fields(mut message: &[u8], wanted: u64) -> Vec<&[u8]> {
        let mut found = Vec::new();
        while !message.is_empty() {
            let tag = varint(&mut message);
            match tag & 7 {
                0 => drop(varint(&mut message)),
                2 => {
                    let length = usize::try_from(varint(&mut message)).expect("a length in memory");
                    let (content, rest) = message.split_at(length);
                    message = rest;
                    if tag >> 3 == wanted {
                        found.push(content);
                    }
                }
                other => panic!("wire type {other} is not used"),
            }
        }
        found
    }

    /// The texts at a path of field numbers.
    pub(crate) fn texts(message: &[u8], path: &[u64]) -> Vec<String> {
        match path {
            [] => vec![String::from_utf8(message.to_vec()).expect("texts are UTF-8")],
            [first, rest @ ..] => fields(message, *first).into_iter().flat_map(|inner| texts(inner, rest)).collect(),
        }
    }

    fn varint(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (byte, rest) = message.split_first().expect("the message goes on");
            *message = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
}

#[test]
fn openapi_2_protobuf_equals_its_json() {
    let openapi = openapi();
    let json = parsed(&v2(&openapi, DocumentEncoding::Json));
    let protobuf = &v2(&openapi, DocumentEncoding::Protobuf).bytes();
    assert_eq!(wire::texts(protobuf, &[1]), ["2.0"]);
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().expect("an object").keys().map(str::to_owned).collect() };
    assert_eq!(wire::texts(protobuf, &[8, 2, 1]), keys(&json["paths"]));
    assert_eq!(wire::texts(protobuf, &[9, 1, 1]), keys(&json["definitions"]));

    let definitions = wire::fields(protobuf, 9);
    for named in wire::fields(definitions[0], 1) {
        let name = &wire::texts(named, &[1])[0];
        let expected = &json["definitions"][name];
        let schema = wire::fields(named, 2)[0];
        assert_eq!(wire::texts(schema, &[4]), expected["description"].as_str().into_iter().collect::<Vec<_>>());
        assert_eq!(wire::texts(schema, &[22, 1]), expected["type"].as_str().into_iter().collect::<Vec<_>>(), "{name}");
        let properties = expected.get("properties").map(keys).unwrap_or_default();
        assert_eq!(wire::texts(schema, &[25, 1, 1]), properties, "{name}");
    }
}

/// A schema that a test states.
#[derive(Debug)]
struct DeclaredSchema(Value);

impl SchemaDocument for DeclaredSchema {
    fn read(&self) -> Option<Value> {
        Some(self.0.clone())
    }
}

/// A resource of a group that is not built in.
fn custom(group: &str, plural: &str) -> VersionDescription {
    let spec = json!({ "type": "object", "properties": { "size": { "type": "integer", "default": 1, "maximum": 9 } } });
    let schema = json!({ "type": "object", "description": "It is small.", "properties": { "spec": spec } });
    VersionDescription {
        group: group.to_owned(),
        version: "v1".to_owned(),
        resources: vec![ResourceDescription {
            plural: plural.to_owned(),
            kind: GroupVersionKind { group: group.to_owned(), version: "v1".to_owned(), kind: "Widget".to_owned() },
            namespaced: true,
            verbs: vec![Verb::Create, Verb::Get, Verb::List, Verb::Patch, Verb::Watch],
            subresources: vec![],
            returns_deleted: false,
            custom: Some(CustomKind {
                list_kind: "WidgetList".to_owned(),
                selectable_fields: vec!["spec.size".to_owned()],
                schema: Some(Arc::new(DeclaredSchema(schema))),
            }),
        }],
    }
}

#[test]
fn an_added_group_is_in_every_form_and_changes_no_other() {
    // The group's name begins like that of a built-in group, and its path sorts before the paths of the built-in
    // versions.
    let (before, after) = (openapi(), assembled("v1.36.2", &[custom("apps.example.org", "widgets")]));
    let path = "/apis/apps.example.org/v1/namespaces/{namespace}/widgets";
    for text in ["apis/apps.example.org/v1", "apis/apps", "apis/apps/v1"] {
        assert!(parsed(&index(&after))["paths"].get(text).is_some(), "{text}");
        let is_new = document(&before, text).is_none();
        assert_eq!(is_new, text.contains("example"), "{text}");
        if !is_new {
            assert_eq!(document(&before, text), document(&after, text), "{text}");
        }
    }
    assert!(document(&after, "apis/apps.example.org").is_none(), "custom groups have no page");
    let own = parsed(&document(&after, "apis/apps.example.org/v1").expect("a document"));
    assert_eq!(own["paths"][path]["post"]["operationId"], "createAppsExampleOrgV1NamespacedWidget");
    all_references_lead_somewhere(&own, "the custom group");
    let whole = parsed(&v2(&after, DocumentEncoding::Json));
    assert_eq!(whole["paths"][path]["post"]["x-kubernetes-action"], "post");
    all_references_lead_somewhere(&whole, "version 2");
    assert!(wire::texts(&v2(&after, DocumentEncoding::Protobuf).bytes(), &[8, 2, 1]).iter().any(|known| known == path));
    assert_ne!(index(&before).hash, index(&after).hash);
    assert_ne!(v2(&before, DocumentEncoding::Json).hash, v2(&after, DocumentEncoding::Json).hash);
}

#[test]
fn custom_kinds_and_their_lists_have_definitions_in_every_form() {
    let openapi = assembled("v1.36.2", &[custom("apps.example.org", "widgets")]);
    let v3 = parsed(&document(&openapi, "apis/apps.example.org/v1").expect("a document"));
    let whole = parsed(&v2(&openapi, DocumentEncoding::Json));
    let names = wire::texts(&v2(&openapi, DocumentEncoding::Protobuf).bytes(), &[9, 1, 1]);
    for (definitions, default) in [(&v3["components"]["schemas"], json!(1)), (&whole["definitions"], Value::Null)] {
        let of = |kind: &str| {
            let wanted = json!({ "group": "apps.example.org", "version": "v1", "kind": kind });
            definition(definitions, &wanted).unwrap_or_else(|| panic!("no definition of {kind}")).clone()
        };
        let (widget, list) = (of("Widget"), of("WidgetList"));
        assert_eq!(widget, definitions["org.example.apps.v1.Widget"]);
        assert_eq!(widget["description"], "It is small.");
        assert_eq!(widget["properties"]["spec"]["properties"]["size"]["maximum"], 9);
        let stated = widget["properties"]["spec"]["properties"]["size"].get("default").cloned().unwrap_or_default();
        assert_eq!(stated, default);
        assert_eq!(widget["x-kubernetes-selectable-fields"], json!([{ "fieldPath": "spec.size" }]));
        assert_eq!(list["description"], "WidgetList is a list of Widget");
        let items = list["properties"]["items"]["items"]["$ref"].as_str().expect("a reference");
        assert!(items.ends_with("/org.example.apps.v1.Widget"), "{items}");
        for name in ["org.example.apps.v1.Widget", "org.example.apps.v1.WidgetList"] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
    }
}

#[test]
fn a_custom_kind_never_takes_the_name_of_a_built_in_definition() {
    // Each group is the reversed name of a built-in definition.
    for (group, kind) in [
        ("apiextensions.apis.pkg.apiextensions-apiserver.k8s.io", "CustomResourceDefinition"),
        ("core.api.k8s.io", "Pod"),
        ("meta.apis.pkg.apimachinery.k8s.io", "ObjectMeta"),
        ("meta.apis.pkg.apimachinery.k8s.io", "Status"),
    ] {
        let mut added = custom(group, "widgets");
        added.resources[0].kind.kind = kind.to_owned();
        added.resources[0].custom.as_mut().unwrap().list_kind = format!("{kind}List");
        let (before, after) = (openapi(), assembled("v1.36.2", &[added]));
        let name = format!("{}.v1.{kind}", group.split('.').rev().collect::<Vec<_>>().join("."));
        let (before, whole) = (v2(&before, DocumentEncoding::Json), v2(&after, DocumentEncoding::Json));
        let (before, whole) = (parsed(&before), parsed(&whole));
        assert_eq!(whole["definitions"][&name], before["definitions"][&name], "{name}");
        let own = parsed(&document(&after, &format!("apis/{group}/v1")).expect("a document"));
        let core = parsed(&document(&after, "api/v1").expect("a document"));
        assert_eq!(core["components"], v3("api/v1")["components"]);
        for (document, definitions) in [(&whole, &whole["definitions"]), (&own, &own["components"]["schemas"])] {
            all_references_lead_somewhere(document, &name);
            assert_eq!(definitions[format!("{name}_v2")]["description"], "It is small.", "{name}");
            let path = format!("/apis/{group}/v1/namespaces/{{namespace}}/widgets");
            let mut found = Vec::new();
            references(&document["paths"][&path]["post"], &mut found);
            assert!(found.iter().any(|to| to.ends_with(&format!("{name}_v2"))), "{found:?}");
        }
        assert_eq!(own["components"]["schemas"][OBJECT_META], core["components"]["schemas"][OBJECT_META]);
        let names = wire::texts(&v2(&after, DocumentEncoding::Protobuf).bytes(), &[9, 1, 1]);
        assert_eq!(names.iter().filter(|known| **known == name).count(), 1);
        assert!(names.contains(&format!("{name}_v2")));
    }
}

#[test]
fn definitions_of_other_servers_replace_none_of_this_one() {
    let definition = |text: &str| json!({ "type": "object", "description": text });
    let foreign = |widget: Value| {
        let document = json!({
            "swagger": "2.0",
            "paths": { "/apis/far.example.org/v1/things": { "get": { "responses": { "200": {
                "schema": { "$ref": "#/definitions/org.example.apps.v1.Widget" } } } } } },
            "definitions": {
                "org.example.apps.v1.Widget": widget,
                "io.k8s.api.core.v1.Pod": definition("posed"),
                (OBJECT_META): definition("posed"),
            },
        });
        ForeignPaths::of_document(&document, &["apis/far.example.org/v1".to_owned()]).unwrap()
    };
    let before = assembled("v1.36.2", &[custom("apps.example.org", "widgets")]);
    let own = parsed(&v2(&before, DocumentEncoding::Json));
    let widget = own["definitions"]["org.example.apps.v1.Widget"].clone();
    let with = |widget: Value| {
        let all = assembled("v1.36.2", &[custom("apps.example.org", "widgets")]).with_foreign([], foreign(widget));
        parsed(&v2(&all, DocumentEncoding::Json))
    };
    let posed = with(definition("posed"));
    for name in ["org.example.apps.v1.Widget", "io.k8s.api.core.v1.Pod", OBJECT_META] {
        assert_eq!(posed["definitions"][name], own["definitions"][name], "{name}");
        assert_eq!(posed["definitions"][format!("{name}_v2")]["description"], "posed", "{name}");
    }
    let answer = &posed["paths"]["/apis/far.example.org/v1/things"]["get"]["responses"]["200"]["schema"]["$ref"];
    assert_eq!(answer, "#/definitions/org.example.apps.v1.Widget_v2");
    // If another server on the store describes the same custom kind, its definition is equal and gets no suffix.
    assert!(with(widget)["definitions"].get("org.example.apps.v1.Widget_v2").is_none());
}

/// A schema that counts its reads.
#[derive(Debug, Default)]
struct CountingSchema(AtomicUsize);

impl SchemaDocument for CountingSchema {
    fn read(&self) -> Option<Value> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(json!({ "type": "object" }))
    }
}

/// When one of many custom group versions changes, the others are not rendered again in any form.
#[test]
fn a_change_of_one_among_many_renders_that_one() {
    const MANY: usize = 50;
    let counted = |number: usize| {
        let mut described = custom(&format!("g{number}.example.org"), "widgets");
        let schema = Arc::new(CountingSchema::default());
        described.resources[0].custom.as_mut().expect("it is custom").schema = Some(schema.clone());
        (Fragment::new(described), schema)
    };
    let (mut fragments, schemas): (Vec<_>, Vec<_>) = (0..MANY).map(counted).unzip();
    let shared = SharedDefinitions::new(Schemas::builtin(), &[], "v1.36.2");
    let read = || schemas.iter().map(|schema| schema.0.load(Ordering::Relaxed)).sum::<usize>();
    let look_at_all = |fragments: &[Arc<Fragment>]| {
        let documents = Descriptions::assemble(&shared, fragments);
        let alone: Vec<_> =
            (0..MANY).map(|number| document(&documents, &format!("apis/g{number}.example.org/v1"))).collect();
        (index(&documents), alone, v2(&documents, DocumentEncoding::Json), v2(&documents, DocumentEncoding::Protobuf))
    };
    let before = look_at_all(&fragments);
    let once = read();
    assert!(once >= MANY, "{once}");
    let (changed, schema) = counted(7);
    fragments[7] = changed;
    assert_eq!(look_at_all(&fragments), before, "it says the same");
    assert_eq!(read(), once, "none of the others is read again");
    assert_eq!(schema.0.load(Ordering::Relaxed), once / MANY, "it is rendered as often as each was at first");
    fragments.remove(7);
    assert_ne!(look_at_all(&fragments), before);
    assert_eq!(read(), once, "whoever asks gets what was rendered before");
}

/// Only the compressed form of a custom resource's document is kept, and both forms have the same content and hash.
#[test]
fn a_document_of_custom_resources_is_kept_compressed() {
    let openapi = assembled("v1.36.2", &[custom("apps.example.org", "widgets")]);
    let kept = document(&openapi, "apis/apps.example.org/v1").expect("a document");
    let packed = kept.compressed(|_| panic!("it is there already"));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*packed).read_to_end(&mut unpacked).expect("it is in the gzip format");
    assert_eq!((kept.bytes(), kept.length()), (unpacked.into(), kept.bytes().len()));
    assert!(packed.len() * 4 < kept.length(), "{} of {}", packed.len(), kept.length());
    let line = parsed(&index(&openapi))["paths"]["apis/apps.example.org/v1"]["serverRelativeURL"].clone();
    assert_eq!(line, format!("/openapi/v3/apis/apps.example.org/v1?hash={}", kept.hash));
}

#[test]
fn equal_sets_give_equal_documents_in_any_order_of_fragments() {
    let (one, other) = (custom("a.example.org", "widgets"), custom("b.example.org", "widgets"));
    let (first, second) = (assembled("v1", &[one.clone(), other.clone()]), assembled("v1", &[other, one]));
    assert_eq!(index(&first), index(&second));
    assert_eq!(v2(&first, DocumentEncoding::Json), v2(&second, DocumentEncoding::Json));
    assert_eq!(v2(&first, DocumentEncoding::Protobuf), v2(&second, DocumentEncoding::Protobuf));
}

#[test]
fn documents_are_ready_after_the_first_request() {
    let openapi = openapi();
    let v3 = |encoding| DocumentId::V3("apis/apps/v1".to_owned(), encoding);
    let v3 = [v3(DocumentEncoding::Json), v3(DocumentEncoding::Protobuf)];
    for wanted in [DocumentId::V2(DocumentEncoding::Json), DocumentId::V3Index].into_iter().chain(v3) {
        assert!(!openapi.is_ready(&wanted), "{wanted:?}");
        openapi.document(&wanted).expect("a document");
        assert!(openapi.is_ready(&wanted), "{wanted:?}");
    }
}
