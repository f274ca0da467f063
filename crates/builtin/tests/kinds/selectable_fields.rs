//! Tests the field selectors of the built-in kinds: known fields, errors, and values of absent fields.
//!
//! Messages are upstream's.

use keelson_builtin::catalogue;
use keelson_resources::FieldRef;

fn check(group: &str, version: &str, plural: &str, field: &str, expected: Result<&str, &str>) {
    let (resource, _) = catalogue().lookup(group, version, plural).expect("a built-in resource");
    let found = resource.field(version, field).map(|found| match found {
        FieldRef::Name => "name",
        FieldRef::Namespace => "namespace",
        FieldRef::Declared(declared) => declared.paths.first().map_or("", |path| path),
    });
    assert_eq!(found, expected.map_err(str::to_owned), "{plural} {field}");
}

#[test]
fn every_kind_knows_its_name() {
    for resource in catalogue().resources() {
        assert_eq!(resource.field("v1", "metadata.name"), Ok(FieldRef::Name), "{}", resource.plural);
    }
}

#[test]
fn kinds_without_selectable_fields_list_name_and_namespace() {
    let refusal = "\"nope\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    check("", "v1", "configmaps", "nope", Err(refusal));
    check("", "v1", "configmaps", "metadata.namespace", Ok("namespace"));
    check("", "v1", "persistentvolumes", "metadata.namespace", Ok("namespace"));
}

#[test]
fn kinds_with_fields_refuse_in_their_own_words() {
    check("", "v1", "pods", "nope", Err("field label not supported: nope"));
    check("", "v1", "nodes", "metadata.namespace", Err("field label not supported: metadata.namespace"));
    check("batch", "v1", "jobs", "nope", Err("field label \"nope\" not supported for Job"));
    let refusal = "field label not supported for resource.k8s.io/v1beta1, Kind=ResourceSlice: nope";
    check("resource.k8s.io", "v1beta1", "resourceslices", "nope", Err(refusal));
}

#[test]
fn selector_names_map_to_stored_paths() {
    check("", "v1", "pods", "spec.host", Ok("spec.nodeName"));
    check("events.k8s.io", "v1", "events", "regarding.name", Ok("involvedObject.name"));
    check("batch", "v1", "jobs", "status.successful", Ok("status.succeeded"));
    check("", "v1", "events", "regarding.name", Err("field label not supported: regarding.name"));
}

#[test]
fn an_absent_field_has_the_text_of_its_type() {
    let field = |plural, name| {
        let resource = catalogue().resource("", plural).expect("a core resource");
        resource.selectable_fields.iter().find(|field| field.name == name).expect("a declared field")
    };
    assert_eq!(field("nodes", "spec.unschedulable").text(|_| ""), "false");
    assert_eq!(field("nodes", "spec.unschedulable").text(|_| "true"), "true");
    assert_eq!(field("replicationcontrollers", "status.replicas").text(|_| ""), "0");
    assert_eq!(field("pods", "spec.nodeName").text(|_| ""), "");
    let source = field("events", "source");
    assert_eq!(source.text(|path| if path == "reportingComponent" { "kubelet" } else { "" }), "kubelet");
    assert_eq!(source.text(|_| "both"), "both");
}
