//! Discovery: both forms agree, and a client can cache documents by their ETag.
//!
//! The aggregated form is compared with the documents of each version, and the index of OpenAPI with both.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use http::header::ETAG;
use serde_json::Value;

use super::{CONCEPTS, Need, Rule};
use crate::lab::{Checked, Fault, Lab, array, hold};
use crate::server::{Ask, Exchange};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "discovery.aggregated",
        text: "aggregated discovery lists the resources and verbs of each version's own document",
        source: "KEP-3352",
        needs: Need::Reads,
        check: |lab| Box::pin(both_forms_agree(lab)),
    },
    Rule {
        id: "discovery.etag",
        text: "aggregated discovery has an ETag, and answers 304 to a client that has it",
        source: "KEP-3352",
        needs: Need::Reads,
        check: |lab| Box::pin(an_etag_spares_the_body(lab)),
    },
    Rule {
        id: "discovery.groups",
        text: "the preferred version of each group is one of its versions",
        source: CONCEPTS,
        needs: Need::Reads,
        check: |lab| Box::pin(preferred_versions_are_served(lab)),
    },
    Rule {
        id: "discovery.openapi",
        text: "the index of OpenAPI v3 names each version of discovery, and each document can be read",
        source: "KEP-2896",
        needs: Need::Reads,
        check: |lab| Box::pin(documents_can_be_read(lab)),
    },
];

/// Group versions with the verbs of each resource and subresource.
type Served = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

async fn both_forms_agree(lab: &Lab) -> Checked {
    let aggregated = aggregated(lab, "/apis").await?;
    let shown = served_of(&aggregated.body);
    for (version, resources) in &shown {
        let own = lab.get(format!("/apis/{version}")).await?;
        let own = resources_of(&own);
        hold(own == *resources, || {
            let names = |all: &BTreeMap<String, BTreeSet<String>>| all.keys().cloned().collect::<BTreeSet<_>>();
            let differ: Vec<String> = names(&own)
                .union(&names(resources))
                .filter(|name| own.get(*name) != resources.get(*name))
                .cloned()
                .collect();
            format!("{version}: {} differ between aggregated discovery and /apis/{version}", differ.join(", "))
        })?;
    }
    let groups = lab.get("/apis").await?;
    let plain: BTreeSet<&str> = array(&groups["groups"])
        .iter()
        .flat_map(|group| array(&group["versions"]))
        .filter_map(|version| version["groupVersion"].as_str())
        .collect();
    let shown: BTreeSet<&str> = shown.keys().map(String::as_str).collect();
    hold(plain == shown, || {
        let differ: Vec<&str> = plain.symmetric_difference(&shown).copied().collect();
        format!("{} are in one form of /apis alone", differ.join(", "))
    })
}

async fn an_etag_spares_the_body(lab: &Lab) -> Checked {
    let first = aggregated(lab, "/apis").await?;
    let tag = first.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let tag = tag.ok_or_else(|| Fault::Broken("aggregated discovery has no ETag".to_owned()))?;
    let ask = Ask::get("/apis").accepting(AGGREGATED).header("if-none-match", tag);
    lab.expect(StatusCode::NOT_MODIFIED, ask).await.map(drop)
}

async fn preferred_versions_are_served(lab: &Lab) -> Checked {
    let groups = lab.get("/apis").await?;
    for group in array(&groups["groups"]) {
        let preferred = &group["preferredVersion"]["groupVersion"];
        let is_one = array(&group["versions"]).iter().any(|version| version["groupVersion"] == *preferred);
        hold(is_one, || format!("the group {} prefers {preferred}, which is none of its versions", group["name"]))?;
    }
    Ok(())
}

async fn documents_can_be_read(lab: &Lab) -> Checked {
    let index = lab.send(Ask::get("/openapi/v3")).await?;
    if index.status == StatusCode::NOT_FOUND {
        return Err(Fault::Skipped("the server has no OpenAPI v3".to_owned()));
    }
    let paths = index.body["paths"].as_object().cloned().unwrap_or_default();
    let groups = lab.get("/apis").await?;
    let versions = array(&groups["groups"]).iter().flat_map(|group| array(&group["versions"]));
    for version in versions.filter_map(|version| version["groupVersion"].as_str()) {
        let entry = paths.get(&format!("apis/{version}"));
        // Documents of aggregated servers may be missing while their server is away.
        let Some(url) = entry.and_then(|entry| entry["serverRelativeURL"].as_str()) else { continue };
        let document = lab.get(url).await?;
        hold(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")), || {
            format!("{url} is no document of OpenAPI 3")
        })?;
    }
    hold(paths.contains_key("api/v1"), || "the index of OpenAPI v3 has no api/v1".to_owned())
}

async fn aggregated(lab: &Lab, path: &str) -> Result<Exchange, Fault> {
    let exchange = lab.expect(StatusCode::OK, Ask::get(path).accepting(AGGREGATED)).await?;
    if exchange.body["kind"] != "APIGroupDiscoveryList" {
        return Err(Fault::Skipped("the server has no aggregated discovery".to_owned()));
    }
    Ok(exchange)
}

fn served_of(list: &Value) -> Served {
    let mut served = Served::new();
    for group in array(&list["items"]) {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        for version in array(&group["versions"]) {
            // The resources of a stale version are those of its last known document.
            if version["freshness"] == "Stale" {
                continue;
            }
            let resources = served.entry(format!("{name}/{}", text(&version["version"]))).or_default();
            for resource in array(&version["resources"]) {
                let plural = text(&resource["resource"]);
                resources.insert(plural.clone(), verbs(resource));
                for sub in array(&resource["subresources"]) {
                    resources.insert(format!("{plural}/{}", text(&sub["subresource"])), verbs(sub));
                }
            }
        }
    }
    served
}

fn resources_of(document: &Value) -> BTreeMap<String, BTreeSet<String>> {
    array(&document["resources"]).iter().map(|resource| (text(&resource["name"]), verbs(resource))).collect()
}

fn verbs(resource: &Value) -> BTreeSet<String> {
    array(&resource["verbs"]).iter().map(text).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_forms_of_a_version_have_the_same_names() {
        let aggregated = json!({"items": [{
            "metadata": {"name": "apps"},
            "versions": [
                {"version": "v1", "resources": [{
                    "resource": "deployments",
                    "verbs": ["get", "list"],
                    "subresources": [{"subresource": "scale", "verbs": ["get"]}],
                }]},
                {"version": "v1beta1", "freshness": "Stale", "resources": [{"resource": "old", "verbs": []}]},
            ],
        }]});
        let own = json!({"resources": [
            {"name": "deployments", "verbs": ["list", "get"]},
            {"name": "deployments/scale", "verbs": ["get"]},
        ]});
        assert_eq!(served_of(&aggregated), Served::from([("apps/v1".to_owned(), resources_of(&own))]));
    }
}
