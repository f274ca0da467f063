//! The catalogue of built-in kinds: kinds, order, types, list types, merge keys, defaults, descriptions.
//!
//! The expected values are taken from the documentation of the API.

use keelson_schema::{ListType, MapType, PatchStrategy, SchemaRef, Schemas, Type};

fn kind(group: &str, version: &str, kind: &str) -> SchemaRef<'static> {
    Schemas::builtin().kind(group, version, kind).expect("the kind is built in")
}

#[test]
fn kinds_are_found_by_group_version_and_kind() {
    assert_eq!(kind("", "v1", "Pod").definition_name(), Some("io.k8s.api.core.v1.Pod"));
    assert_eq!(kind("apps", "v1", "Deployment").go_type(), "v1.Deployment");
    assert_eq!(kind("autoscaling", "v1", "HorizontalPodAutoscaler").go_type(), "v1.HorizontalPodAutoscaler");
    assert_eq!(kind("autoscaling", "v2", "HorizontalPodAutoscaler").go_type(), "v2.HorizontalPodAutoscaler");
    assert!(Schemas::builtin().kind("apps", "v2", "Deployment").is_none());
    assert!(Schemas::builtin().kind("", "v1", "Deployment").is_none());
}

#[test]
fn every_listed_kind_has_its_list() {
    let pods = kind("", "v1", "PodList");
    let items = pods.field("items").expect("a list has items");
    assert_eq!(items.go_type(), "[]v1.Pod");
    assert_eq!(items.items().and_then(SchemaRef::definition_name), Some("io.k8s.api.core.v1.Pod"));
    assert!(Schemas::builtin().kind("authorization.k8s.io", "v1", "SubjectAccessReviewList").is_none());
}

#[test]
fn all_kinds_have_metadata_or_are_known_not_to() {
    for (group, version, name, schema) in Schemas::builtin().kinds() {
        assert_eq!(schema.value_type(), Type::Object, "{group}/{version} {name}");
        assert!(schema.field("kind").is_some() && schema.field("apiVersion").is_some(), "{group}/{version} {name}");
        let bare = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions"];
        assert_eq!(schema.field("metadata").is_none(), bare.contains(&name), "{group}/{version} {name}");
    }
}

#[test]
fn fields_stand_in_the_order_in_which_they_are_written() {
    let names: Vec<&str> = kind("", "v1", "ConfigMap").fields().map(SchemaRef::field_name).collect();
    assert_eq!(names, ["kind", "apiVersion", "metadata", "immutable", "data", "binaryData"]);
    let spec = kind("", "v1", "Pod").field("spec").expect("a pod has a spec");
    let first: Vec<&str> = spec.fields().map(SchemaRef::field_name).take(4).collect();
    assert_eq!(first, ["volumes", "initContainers", "containers", "ephemeralContainers"]);
}

#[test]
fn every_field_is_found_by_its_name() {
    for definition in Schemas::builtin().definitions() {
        for field in definition.fields() {
            let found = definition.field(field.field_name());
            assert_eq!(found.map(SchemaRef::field_name), Some(field.field_name()), "{definition:?}");
        }
        assert!(definition.field("").is_none() && definition.field("noSuchField").is_none());
    }
}

#[test]
fn list_types_and_merge_keys_are_reachable() {
    let containers = kind("apps", "v1", "Deployment").at_path(&["spec", "template", "spec", "containers"]);
    let containers = containers.expect("a deployment has containers");
    assert_eq!(containers.list_type(), ListType::Map);
    assert_eq!(containers.list_keys().collect::<Vec<_>>(), ["name"]);
    assert_eq!(containers.merge_key(), Some("name"));
    assert!(containers.patch_strategy().merge);

    let ports = containers.items().and_then(|c| c.field("ports")).expect("a container has ports");
    assert_eq!(ports.list_keys().collect::<Vec<_>>(), ["containerPort", "protocol"]);
    assert_eq!(ports.merge_key(), Some("containerPort"));
    let protocol = ports.items().and_then(|p| p.field("protocol")).expect("a port has a protocol");
    assert_eq!(protocol.default_json(), Some("\"TCP\""));

    let args = containers.items().and_then(|c| c.field("args")).expect("a container has arguments");
    assert_eq!(args.list_type(), ListType::Atomic);
    assert_eq!(args.merge_key(), None);
    assert_eq!(args.patch_strategy(), PatchStrategy::default());

    let finalizers = kind("", "v1", "Pod").at_path(&["metadata", "finalizers"]).expect("all objects have finalizers");
    assert_eq!(finalizers.list_type(), ListType::Set);
    let volumes = kind("", "v1", "Pod").at_path(&["spec", "volumes"]).expect("a pod has volumes");
    assert_eq!(volumes.patch_strategy(), PatchStrategy { merge: true, retain_keys: true, replace: false });
}

#[test]
fn map_types_come_from_the_definition_unless_the_field_overrides_them() {
    let volume = kind("", "v1", "PersistentVolume");
    let claim = volume.at_path(&["spec", "claimRef"]).expect("a volume has a claim");
    assert_eq!(claim.map_type(), MapType::Granular);
    let event = kind("", "v1", "Event");
    assert_eq!(event.field("involvedObject").map(SchemaRef::map_type), Some(MapType::Atomic));
    let selector = kind("", "v1", "Service").at_path(&["spec", "selector"]).expect("a service has a selector");
    assert_eq!(selector.map_type(), MapType::Atomic);
}

#[test]
fn unions_name_their_discriminator() {
    let profile = kind("", "v1", "Pod").at_path(&["spec", "securityContext", "seccompProfile"]).expect("declared");
    assert_eq!(profile.union().collect::<Vec<_>>(), ["type", "localhostProfile", "LocalhostProfile"]);
}

#[test]
fn required_fields_and_descriptions_are_those_of_the_api() {
    let pod = kind("", "v1", "Pod");
    assert!(!pod.field("metadata").expect("declared").required());
    let spec = pod.field("spec").expect("declared");
    assert!(spec.field("containers").expect("declared").required());
    assert!(!spec.field("volumes").expect("declared").required());
    assert!(spec.description().starts_with("Specification of the desired behavior of the pod"));
    assert!(spec.definition_description().starts_with("PodSpec is a description of a pod"));
}

#[test]
fn special_types_have_their_schema_type() {
    let of = |path: &[&str]| kind("", "v1", "Pod").at_path(path).map(SchemaRef::value_type);
    assert_eq!(of(&["metadata", "creationTimestamp"]), Some(Type::Time));
    assert_eq!(of(&["metadata", "managedFields", "fieldsV1"]), Some(Type::Any));
    let limits =
        kind("", "v1", "Pod").at_path(&["spec", "containers", "resources", "limits"]).and_then(SchemaRef::items);
    assert_eq!(limits.map(SchemaRef::value_type), Some(Type::Quantity));
    assert_eq!(of(&["spec", "containers", "livenessProbe", "httpGet", "port"]), Some(Type::IntOrString));
    let lease = kind("coordination.k8s.io", "v1", "Lease").at_path(&["spec", "renewTime"]);
    assert_eq!(lease.map(SchemaRef::value_type), Some(Type::MicroTime));
    let data = kind("", "v1", "Secret").field("data").and_then(SchemaRef::items);
    assert_eq!(data.map(SchemaRef::value_type), Some(Type::Bytes));
}
