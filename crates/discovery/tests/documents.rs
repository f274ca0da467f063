//! The documents of the built-in resources, compared with those of kube-apiserver 1.36.2 for the same set.
//!
//! Clients find resources with them, so every member and the order matter.

use std::sync::Arc;

use keelson_discovery::{
    AggregatedForm, DiscoveredKind, DiscoveredResource, Documents, Fragment, Freshness, SourceOrder, VersionSource,
    fragments, root_paths,
};
use keelson_meta::Release;
use serde_json::{Value, json};

/// The tag of `/api` from kube-apiserver 1.36.2.
const CORE_ETAG: &str = "4D7E1BED90B364BC86049DD9E636494980AEF65B7F8CFAA267616FA062B514A8\
                         A3CC2C2851CC9337B8D28B4C80960E2353DE5E0B152E87CC223E02EA3C5C37AC";
/// The tag of `/apis` from kube-apiserver 1.36.2.
const GROUPS_ETAG: &str = "08EEDE608C37C5B62CDFF173759E7FD7763FC82EFB2559C950CD53367502ED9E\
                           39BB181617865A41BA109C77D3063DE121E32C7CE4037ACAFCDFBE4044514B42";

fn builtin() -> Documents {
    with(&[])
}

fn parsed(json: &[u8]) -> Value {
    assert!(json.ends_with(b"\n"), "documents end in a line break");
    serde_json::from_slice(json).expect("documents are JSON")
}

/// The documents of the built-in resources and these fragments.
fn with(further: &[Arc<Fragment>]) -> Documents {
    // kube-apiserver disables trust bundles by a feature gate.
    let is_there = |group: &str, version: &str| group != "certificates.k8s.io" || version == "v1";
    Documents::assemble(&[&fragments(keelson_builtin::catalogue_of(Release::V1_36), is_there), further].concat())
}

fn custom(group: &str, version: &str) -> Arc<Fragment> {
    Fragment::new(source(group, version))
}

fn source(group: &str, version: &str) -> VersionSource {
    VersionSource {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        group_priority: 1000,
        version_priority: 100,
        order: SourceOrder::Custom,
        freshness: Freshness::Current,
        resources: vec![DiscoveredResource {
            plural: "foos".into(),
            singular: "foo".into(),
            kind: DiscoveredKind {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                kind: "Foo".into(),
            },
            scope: "Namespaced".into(),
            verbs: vec!["get".into(), "list".into()],
            short_names: Vec::new(),
            categories: Vec::new(),
            storage_version_hash: Some("hash".to_owned()),
            subresources: Vec::new(),
        }],
    }
}

#[test]
fn tags_equal_those_of_kube_apiserver_for_the_same_resources() {
    let documents = builtin();
    for form in [AggregatedForm::V2, AggregatedForm::V2Beta1] {
        assert_eq!(documents.aggregated_core(form).etag, CORE_ETAG);
        assert_eq!(documents.aggregated_groups(form).etag, GROUPS_ETAG);
    }
}

#[test]
fn both_aggregated_forms_differ_in_their_api_version_alone() {
    let documents = builtin();
    let text = |form| String::from_utf8(documents.aggregated_groups(form).json.to_vec()).expect("JSON is UTF-8");
    let (v2, beta) = (text(AggregatedForm::V2), text(AggregatedForm::V2Beta1));
    assert!(v2.starts_with(r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apiregistration.k8s.io"},"versions":[{"version":"v1","resources":[{"resource":"apiservices","#));
    assert_eq!(v2.replacen("apidiscovery.k8s.io/v2", "apidiscovery.k8s.io/v2beta1", 1), beta);
}

#[test]
fn any_change_alters_the_tag_and_equal_sources_give_it_back() {
    let tag = |further: &[&Arc<Fragment>]| {
        let further: Vec<Arc<Fragment>> = further.iter().copied().cloned().collect();
        with(&further).aggregated_groups(AggregatedForm::V2).etag.clone()
    };
    let (one, other) = (&custom("example.org", "v1"), &custom("example.org", "v2"));
    assert_ne!(tag(&[one]), GROUPS_ETAG);
    assert_ne!(tag(&[one]), tag(&[other]));
    assert_eq!(tag(&[one, other]), tag(&[other, one]), "the order in which sources are given does not count");
    assert_eq!(tag(&[]), GROUPS_ETAG);
}

#[test]
fn custom_groups_follow_builtin_ones_and_have_full_kinds() {
    let documents = with(&[custom("example.org", "v1")]);
    let list = parsed(&documents.aggregated_groups(AggregatedForm::V2).json);
    let last = list["items"].as_array().and_then(|items| items.last()).expect("groups");
    assert_eq!(last["metadata"]["name"], "example.org");
    let kind = &last["versions"][0]["resources"][0]["responseKind"];
    assert_eq!(*kind, json!({ "group": "example.org", "version": "v1", "kind": "Foo" }));
    let legacy = parsed(&documents.resources("example.org", "v1").expect("the version's document"));
    assert_eq!(legacy["resources"][0]["storageVersionHash"], "hash");
}

#[test]
fn a_source_that_did_not_answer_is_stale() {
    let mut source = source("example.org", "v1");
    source.order = SourceOrder::Aggregated;
    source.freshness = Freshness::Stale;
    source.resources.clear();
    let documents = Documents::assemble(&[Fragment::new(source)]);
    let list = parsed(&documents.aggregated_groups(AggregatedForm::V2).json);
    assert_eq!(list["items"][0]["versions"][0], json!({ "version": "v1", "freshness": "Stale" }));
}

#[test]
fn the_older_form_lists_core_versions_with_the_address_for_clients() {
    let expected = "{\"kind\":\"APIVersions\",\"versions\":[\"v1\"],\"serverAddressByClientCIDRs\":\
                    [{\"clientCIDR\":\"0.0.0.0/0\",\"serverAddress\":\"192.0.2.2:6443\"}]}\n";
    assert_eq!(builtin().api_versions("192.0.2.2:6443"), expected.as_bytes());
}

#[test]
fn the_older_form_names_the_preferred_version_of_a_group() {
    let documents = builtin();
    let expected = "{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",\"name\":\"autoscaling\",\"versions\":\
                    [{\"groupVersion\":\"autoscaling/v2\",\"version\":\"v2\"},\
                    {\"groupVersion\":\"autoscaling/v1\",\"version\":\"v1\"}],\
                    \"preferredVersion\":{\"groupVersion\":\"autoscaling/v2\",\"version\":\"v2\"}}\n";
    assert_eq!(documents.group("autoscaling").expect("a built-in group"), expected.as_bytes());
    let list = parsed(&documents.group_list());
    assert_eq!(list["groups"].as_array().map(Vec::len), Some(22));
    assert_eq!(list["groups"][0]["name"], "apiregistration.k8s.io");
}

#[test]
fn the_legacy_form_lists_subresources_and_hashes_of_stored_resources() {
    let documents = builtin();
    let list = parsed(&documents.resources("apps", "v1").expect("apps/v1"));
    assert_eq!(list["apiVersion"], "v1");
    let entry = |name: &str| {
        let entries = list["resources"].as_array().expect("resources");
        entries.iter().find(|entry| entry["name"] == name).expect("an entry").clone()
    };
    assert_eq!(entry("deployments")["storageVersionHash"], "8aSe+NMegvE=");
    assert_eq!(
        entry("deployments/scale").to_string(),
        r#"{"name":"deployments/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get","patch","update"]}"#
    );
}

#[test]
fn the_older_form_of_the_core_group_is_without_api_version() {
    let list = builtin().resources("", "v1").expect("core v1");
    assert!(list.starts_with(br#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]},"#));
}

#[test]
fn events_of_both_groups_have_the_hash_of_the_form_they_are_stored_in() {
    let documents = builtin();
    for (group, version) in [("", "v1"), ("events.k8s.io", "v1")] {
        let list = parsed(&documents.resources(group, version).expect("events are served"));
        let entries = list["resources"].as_array().expect("resources");
        let events = entries.iter().find(|entry| entry["name"] == "events").expect("events");
        assert_eq!(events["storageVersionHash"], "r2yiGXH7wu8=");
    }
}

#[test]
fn unserved_groups_have_no_document() {
    let documents = builtin();
    assert!(documents.group("nope.example.org").is_none());
    assert!(documents.group("").is_none(), "the core group has no document of this form");
    assert!(documents.resources("apps", "v9").is_none());
    assert!(documents.resources("nope.example.org", "v1").is_none());
}

#[test]
fn root_paths_are_sorted_and_indented() {
    let text =
        String::from_utf8(root_paths(&builtin(), &["/version", "/healthz", "/.well-known/x"])).expect("JSON is UTF-8");
    let start = "{\n  \"paths\": [\n    \"/.well-known/x\",\n    \"/api\",\n    \"/api/v1\",\n    \"/apis\",\n    \"/apis/\",\n";
    assert!(text.starts_with(start), "{text}");
    assert!(text.ends_with("    \"/healthz\",\n    \"/version\"\n  ]\n}"), "{text}");
    assert!(text.contains(
        "\"/apis/storage.k8s.io\",\n    \"/apis/storage.k8s.io/v1\",\n    \"/apis/storage.k8s.io/v1beta1\","
    ));
}

/// Enough for a tag that is not the hash of the whole document.
const MANY: usize = 3000;

fn many() -> Vec<Arc<Fragment>> {
    (0..MANY).map(|number| custom(&format!("group-{number:04}.example.org"), "v1")).collect()
}

#[test]
fn the_tag_of_a_large_document_follows_from_its_content_alone() {
    let tag = |documents: &Documents| documents.aggregated_groups(AggregatedForm::V2).etag.clone();
    let given = many();
    let documents = Documents::assemble(&given);
    let (v2, beta) = (AggregatedForm::V2, AggregatedForm::V2Beta1);
    assert!(documents.aggregated_groups(v2).json.len() > 512 * 1024);
    assert_eq!(tag(&documents).len(), 128);
    assert_eq!(documents.aggregated_groups(v2).etag, documents.aggregated_groups(beta).etag);
    let mut turned = given.clone();
    turned.reverse();
    assert_eq!(tag(&Documents::assemble(&turned)), tag(&documents), "the order in which they are given");
    assert_eq!(tag(&Documents::assemble(&many())), tag(&documents), "another server with the same");
    let mut changed = given.clone();
    let mut source = given[MANY / 2].source().clone();
    source.resources[0].verbs.push("watch".into());
    changed[MANY / 2] = Fragment::new(source);
    assert_ne!(tag(&Documents::assemble(&changed)), tag(&documents), "one verb more");
    assert_ne!(tag(&Documents::assemble(&given[1..])), tag(&documents), "one group less");
}

#[test]
fn two_sources_of_equal_rank_give_the_same_document_in_either_order() {
    let mut other = source("example.org", "v1");
    other.resources.clear();
    let (one, other) = (custom("example.org", "v1"), Fragment::new(other));
    let json = |fragments: &[&Arc<Fragment>]| {
        let fragments: Vec<_> = fragments.iter().copied().cloned().collect();
        Documents::assemble(&fragments).aggregated_groups(AggregatedForm::V2).json.clone()
    };
    assert_eq!(json(&[&one, &other]), json(&[&other, &one]));
}

#[test]
fn a_document_is_compressed_once() {
    let documents = builtin();
    let document = documents.aggregated_groups(AggregatedForm::V2);
    let first = document.compressed(|json| json[..8].to_vec().into());
    assert_eq!(document.compressed(|_| unreachable!("it is kept")), first);
}
