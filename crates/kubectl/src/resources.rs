//! The resources of a server by the names that users type: plural, singular, short, and with the group.
//!
//! The resources come from aggregated discovery with groups in its order, so that the preferred one of two with the
//! same name is found.

use anyhow::bail;
use keelson_meta::json::Value;

use crate::client::Server;

/// The media type of discovery for all groups in one document.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The paths: the core group, and the others.
const PLACES: [&str; 2] = ["/api", "/apis"];

/// A resource that can be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) singular: String,
    pub(crate) is_namespaced: bool,
}

impl Resource {
    /// The path of the collection, in a namespace or of all.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let base = match &*self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match namespace {
            Some(namespace) => format!("{base}/namespaces/{namespace}/{}", self.plural),
            None => format!("{base}/{}", self.plural),
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The name in kubectl's output before an object's name.
    pub(crate) fn name(&self) -> String {
        if self.group.is_empty() { self.singular.clone() } else { format!("{}.{}", self.singular, self.group) }
    }
}

/// Finds the resource of a name.
///
/// # Errors
/// There is none of this name.
pub(crate) async fn find(server: &Server, named: &str) -> anyhow::Result<Resource> {
    for place in PLACES {
        let document = server.ask(place, AGGREGATED).await?.success()?.body;
        if let Some(found) = find_in(&document, named) {
            return Ok(found);
        }
    }
    bail!("the server doesn't have a resource type {named:?}")
}

/// The first resource of this name in a document, which has preferred ones first.
fn find_in(document: &Value, named: &str) -> Option<Resource> {
    let list = |value: &Value| value.as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (wanted, group_wanted) = named.split_once('.').map_or((named, None), |(name, group)| (name, Some(group)));
    for group in list(&document["items"]) {
        let name = text(&group["metadata"]["name"]);
        for version in list(&group["versions"]) {
            let version_name = text(&version["version"]);
            // `deployments.apps` or `deployments.v1.apps`.
            let fits = group_wanted.is_none_or(|wanted| wanted == name || wanted == format!("{version_name}.{name}"));
            let resources = list(&version["resources"]).into_iter().filter(|_| fits);
            let lists = |resource: &Value| list(&resource["verbs"]).iter().any(|verb| verb.as_str() == Some("list"));
            for resource in resources.filter(lists) {
                let (plural, singular) = (text(&resource["resource"]), text(&resource["singularResource"]));
                let is_short = list(&resource["shortNames"]).iter().any(|short| short.as_str() == Some(wanted));
                let kind = text(&resource["responseKind"]["kind"]);
                if plural == wanted || singular == wanted || is_short || kind.eq_ignore_ascii_case(wanted) {
                    let is_namespaced = resource["scope"].as_str() == Some("Namespaced");
                    let singular = if singular.is_empty() { kind.to_lowercase() } else { singular };
                    return Some(Resource {
                        group: name,
                        version: version_name,
                        plural,
                        kind,
                        singular,
                        is_namespaced,
                    });
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn resources_are_found_by_all_their_names() {
        let resource = |plural: &str, singular: &str, kind: &str, short: &str| {
            json!({
                "resource": plural, "singularResource": singular, "scope": "Namespaced", "verbs": ["get", "list"],
                "responseKind": {"kind": kind}, "shortNames": [short],
            })
        };
        let document = json!({"items": [{
            "metadata": {"name": "apps"},
            "versions": [{"version": "v1", "resources": [resource("deployments", "deployment", "Deployment", "deploy")]}],
        }]});
        for name in ["deployments", "deployment", "deploy", "Deployment", "deployments.apps", "deploy.v1.apps"] {
            let found = find_in(&document, name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(found.path(Some("a")), "/apis/apps/v1/namespaces/a/deployments");
            assert_eq!((found.name(), found.api_version()), ("deployment.apps".to_owned(), "apps/v1".to_owned()));
        }
        for name in ["deploys", "deployments.extensions", "deploy.v2.apps", ""] {
            assert_eq!(find_in(&document, name), None, "{name}");
        }
    }
}
