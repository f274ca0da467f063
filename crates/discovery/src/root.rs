//! The document at `/`: the list of all paths.
//!
//! Paths of groups and versions come from discovery, others from the caller.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::documents::Documents;

#[derive(Serialize)]
struct RootPaths<'a> {
    paths: BTreeSet<&'a str>,
}

/// The document at `/`: the paths of all groups and versions and the given others (health, metrics, OpenAPI), sorted.
/// As upstream, it is indented JSON without a final line feed.
pub fn root_paths(documents: &Documents, others: &[&str]) -> Vec<u8> {
    let api = api_paths(documents);
    let paths = api.iter().map(String::as_str).chain(others.iter().copied()).collect();
    serde_json::to_vec_pretty(&RootPaths { paths }).expect("a list of strings is JSON")
}

fn api_paths(documents: &Documents) -> Vec<String> {
    let mut paths: Vec<String> = ["/api", "/apis", "/apis/"].map(str::to_owned).to_vec();
    for (group, version) in documents.group_versions() {
        if group.is_empty() {
            paths.push(format!("/api/{version}"));
        } else {
            paths.push(format!("/apis/{group}"));
            paths.push(format!("/apis/{group}/{version}"));
        }
    }
    paths
}
