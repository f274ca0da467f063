//! Storage versions: what servers publish about the versions in which they store objects.
//!
//! The checks read only. A server without the alpha API skips them.

use http::StatusCode;
use serde_json::Value;

use super::{Need, Rule};
use crate::lab::{Checked, Fault, Lab, array, hold};
use crate::server::Ask;

const SOURCE: &str = "KEP-2339";
const PATH: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "storage-versions.decodable",
        text: "each server decodes the version in which it encodes",
        source: SOURCE,
        needs: Need::Reads,
        check: |lab| Box::pin(what_is_written_can_be_read(lab)),
    },
    Rule {
        id: "storage-versions.common",
        text: "commonEncodingVersion is there exactly if all servers encode in the same version, and is that version",
        source: SOURCE,
        needs: Need::Reads,
        check: |lab| Box::pin(common_versions_are_common(lab)),
    },
    Rule {
        id: "storage-versions.hash",
        text: "discovery has a storage version hash for each stored resource of the core group",
        source: SOURCE,
        needs: Need::Reads,
        check: |lab| Box::pin(stored_resources_have_a_hash(lab)),
    },
];

async fn storage_versions(lab: &Lab) -> Result<Vec<Value>, Fault> {
    let answer = lab.send(Ask::get(PATH)).await?;
    match answer.status {
        StatusCode::OK => Ok(answer.body["items"].as_array().cloned().unwrap_or_default()),
        StatusCode::NOT_FOUND => Err(Fault::Skipped("the server does not serve storage versions".to_owned())),
        StatusCode::FORBIDDEN => Err(Fault::Skipped("this user may not read storage versions".to_owned())),
        status => Err(Fault::Broken(format!("a list of storage versions was answered with {status}"))),
    }
}

fn servers(of: &Value) -> Vec<&Value> {
    array(&of["status"]["storageVersions"]).iter().collect()
}

async fn what_is_written_can_be_read(lab: &Lab) -> Checked {
    for of in storage_versions(lab).await? {
        for server in servers(&of) {
            let decodable = array(&server["decodableVersions"]);
            hold(decodable.contains(&server["encodingVersion"]), || {
                format!(
                    "{}: {} encodes in {} and decodes {decodable:?}",
                    of["metadata"]["name"], server["apiServerID"], server["encodingVersion"]
                )
            })?;
        }
    }
    Ok(())
}

async fn common_versions_are_common(lab: &Lab) -> Checked {
    for of in storage_versions(lab).await? {
        let encodings: Vec<&Value> = servers(&of).into_iter().map(|server| &server["encodingVersion"]).collect();
        let agreed = encodings.first().filter(|first| encodings.iter().all(|one| one == *first)).copied();
        let said = of["status"].get("commonEncodingVersion");
        hold(said == agreed, || {
            format!(
                "{}: the servers encode in {encodings:?}, and commonEncodingVersion is {said:?}",
                of["metadata"]["name"]
            )
        })?;
    }
    Ok(())
}

async fn stored_resources_have_a_hash(lab: &Lab) -> Checked {
    let document = lab.get("/api/v1").await?;
    for resource in array(&document["resources"]) {
        let name = resource["name"].as_str().unwrap_or_default();
        let verbs = array(&resource["verbs"]);
        // Resources that are listed and not stored, such as component statuses, can't be watched.
        let is_stored = !name.contains('/') && verbs.iter().any(|verb| verb == "watch");
        let has_hash = resource["storageVersionHash"].as_str().is_some_and(|hash| !hash.is_empty());
        hold(!is_stored || has_hash, || format!("{name} has no storage version hash"))?;
    }
    Ok(())
}
