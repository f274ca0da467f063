//! The resources that a source serves, from its aggregated discovery documents (KEP-3352).
//!
//! Of a resource with several versions only the preferred one is mirrored, so that each object is mirrored once.
//! Requests for other versions are passed through.

use keelson_meta::json::Value;

use crate::source::{Fault, Source};

/// The media types of the documents, the stable version first.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// The documents of the core group and of all other groups.
const PATHS: [&str; 2] = ["/api", "/apis"];

/// A resource of the source that can be listed and watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
}

/// The discovery documents of a source, followed by their ETags.
#[derive(Default)]
pub(crate) struct Discovery {
    etags: [Option<String>; 2],
    groups: [Vec<Group>; 2],
}

/// A group, by version. A version is `None` if the source could not find out its resources.
struct Group {
    name: String,
    versions: Vec<(String, Option<Vec<Served>>)>,
}

impl Discovery {
    /// Reads the documents that have changed. Returns false if none has.
    ///
    /// # Errors
    /// The source does not answer, or has no aggregated discovery.
    pub(crate) async fn read(&mut self, source: &Source) -> Result<bool, Fault> {
        let mut is_new = false;
        for (place, path) in PATHS.iter().enumerate() {
            let Some(tagged) = source.newer(path, ACCEPT, self.etags[place].as_deref()).await? else { continue };
            if tagged.value["kind"] != "APIGroupDiscoveryList" {
                return Err(Fault::Invalid(
                    "it has no aggregated discovery, which Kubernetes has since 1.26".to_owned(),
                ));
            }
            let groups = tagged.value["items"].as_array().into_iter().flatten().map(group).collect();
            let before = std::mem::replace(&mut self.groups[place], groups);
            self.keep_stale(place, before);
            self.etags[place] = tagged.etag;
            is_new = true;
        }
        Ok(is_new)
    }

    /// Keeps the resources of versions that the source currently does not know, as while an aggregated server is away.
    fn keep_stale(&mut self, place: usize, before: Vec<Group>) {
        for old in before {
            let Some(group) = self.groups[place].iter_mut().find(|group| group.name == old.name) else { continue };
            for (name, resources) in old.versions {
                if let Some((_, unknown @ None)) = group.versions.iter_mut().find(|(version, _)| *version == name) {
                    *unknown = resources;
                }
            }
        }
    }

    /// Each resource that can be listed and watched, once.
    pub(crate) fn resources(&self) -> Vec<Served> {
        let mut all: Vec<Served> = Vec::new();
        for group in self.groups.iter().flatten() {
            let first = all.len();
            for served in group.versions.iter().filter_map(|(_, resources)| resources.as_ref()).flatten() {
                if !all[first..].iter().any(|known| known.plural == served.plural) {
                    all.push(served.clone());
                }
            }
        }
        all
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn group(item: &Value) -> Group {
    let name = text(&item["metadata"]["name"]);
    let versions = item["versions"].as_array().into_iter().flatten().map(|stated| {
        let version = text(&stated["version"]);
        if stated["freshness"] == "Stale" {
            return (version, None);
        }
        let resources = stated["resources"].as_array().into_iter().flatten();
        let resources = resources.filter_map(|resource| served(&name, &version, resource)).collect();
        (version, Some(resources))
    });
    let versions = versions.collect();
    Group { name, versions }
}

fn served(group: &str, version: &str, stated: &Value) -> Option<Served> {
    let has = |verb: &str| stated["verbs"].as_array().into_iter().flatten().any(|known| known == verb);
    let (plural, kind) = (text(&stated["resource"]), text(&stated["responseKind"]["kind"]));
    // They become parts of paths.
    let is_segment =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let is_group = group.is_empty() || is_segment(group);
    if !has("list") || !has("watch") || !is_group || ![version, &plural, &kind].into_iter().all(is_segment) {
        return None;
    }
    let namespaced = stated["scope"] == "Namespaced";
    Some(Served { group: group.to_owned(), version: version.to_owned(), plural, kind, namespaced })
}

impl Served {
    /// The path of its collection.
    pub(crate) fn path(&self) -> String {
        let Self { group, version, plural, .. } = self;
        if group.is_empty() { format!("/api/{version}/{plural}") } else { format!("/apis/{group}/{version}/{plural}") }
    }

    /// Its name: `plural`, or `plural.group`.
    pub(crate) fn name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    fn resource(plural: &str, kind: &str, verbs: &[&str]) -> Value {
        json!({"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced", "verbs": verbs})
    }

    fn resources(items: &Value) -> Vec<Served> {
        let groups = items.as_array().unwrap().iter().map(group).collect();
        Discovery { groups: [Vec::new(), groups], ..Discovery::default() }.resources()
    }

    #[test]
    fn watchable_resources_are_mirrored_in_their_preferred_version() {
        let both = ["list", "watch"];
        let items = json!([{"metadata": {"name": "g"}, "versions": [
            {"version": "v2", "resources": [resource("things", "Thing", &both), resource("reviews", "Review", &["create"])]},
            {"version": "v1", "resources": [resource("things", "Thing", &both), resource("olds", "Old", &both)]},
        ]}]);
        let found: Vec<_> = resources(&items).iter().map(Served::path).collect();
        assert_eq!(found, ["/apis/g/v2/things", "/apis/g/v1/olds"]);
    }

    #[test]
    fn a_name_that_would_change_a_path_is_no_resource() {
        let both = ["list", "watch"];
        let items = json!([{"metadata": {"name": "g"}, "versions": [
            {"version": "v1", "resources": [resource("../secrets", "A", &both), resource("a?b", "B", &both), resource("", "C", &both)]},
            {"version": "v1/x", "resources": [resource("things", "Thing", &both)]},
        ]}]);
        assert!(resources(&items).is_empty());
    }

    #[test]
    fn a_stale_version_keeps_its_resources() {
        let fresh = json!({"metadata": {"name": "g"}, "versions": [{"version": "v1", "resources": [resource("a", "A", &["list", "watch"])]}]});
        let stale =
            json!({"metadata": {"name": "g"}, "versions": [{"version": "v1", "freshness": "Stale", "resources": []}]});
        let mut discovery = Discovery { groups: [Vec::new(), vec![group(&stale)]], ..Discovery::default() };
        discovery.keep_stale(1, vec![group(&fresh)]);
        assert_eq!(discovery.resources().len(), 1);
    }
}
