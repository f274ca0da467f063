//! Checks recorded requests and responses byte for byte. Each record in `tests/objects/wire` covers one situation.
//!
//! The records have the responses of kube-apiserver, except for steps that name a difference.
//! `docs/explanation/differences.md` must explain each of these, and a step must show each explained difference.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_meta::clock::ManualClock;
use keelson_server::{Config, Switches};
use keelson_testkit::{TestServer, check_record, differences_shown};
use tempfile::TempDir;

/// The time that a read waits for a future revision before its error. In these records the revision never comes.
const REVISION_WAIT: Duration = Duration::from_millis(100);
/// A history that expires during a test, but not before its first lists.
const SHORT_HISTORY: Duration = Duration::from_secs(2);

/// Users that are nodes or similar to nodes: token, name, no uid, groups.
const NODES: &str = "bow,system:node:bow,,system:nodes\nlost,system:node:lost,,system:nodes\nraft,system:node:raft,\ndeck,deckhand,,system:nodes\n";
/// The users in the records about rights: token, name, no uid, groups.
const USERS: &str = "ann,ann,,crew\ndan,dan,,\"crew,mates\"\nvera,vera,,lookouts\neva,eva,\nfred,fred,\ngil,gil,\nhal,hal,\nira,ira,\nkit,kit,\ntom,tom,\n";

fn records() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects/wire")
}

async fn check(record: &str) {
    let server = TestServer::builder()
        .recorded()
        .every_version()
        .configure(|config| config.registry.revision_wait = REVISION_WAIT)
        .start()
        .await;
    check_record(records().join(record), &server).await;
}

#[tokio::test]
async fn chunked_lists_in_every_combination() {
    check("chunked-lists.wire").await;
}

#[tokio::test]
async fn lists_and_watches_with_expired_revisions() {
    let server = TestServer::builder().recorded().every_version().history(SHORT_HISTORY).start().await;
    check_record(records().join("expired-lists.wire"), &server).await;
}

#[tokio::test]
async fn watches() {
    check("watch.wire").await;
}

#[tokio::test]
async fn refusals() {
    check("errors.wire").await;
}

#[tokio::test]
async fn tables_of_every_kind() {
    // The clock is stopped, since cells contain ages.
    let clock = Arc::new(ManualClock::new(SystemTime::now()));
    let server =
        TestServer::builder().recorded().every_version().configure(|config| config.clock = clock).start().await;
    check_record(records().join("tables.wire"), &server).await;
}

#[tokio::test]
async fn discovery() {
    check("discovery.wire").await;
}

#[tokio::test]
async fn patches_statuses_and_finalizers() {
    check("patches.wire").await;
}

#[tokio::test]
async fn definitions() {
    check("definitions.wire").await;
}

#[tokio::test]
async fn custom_resources_and_their_schemas() {
    check("custom-resource-schemas.wire").await;
}

#[tokio::test]
async fn changes_of_custom_resources() {
    check("custom-resource-changes.wire").await;
}

#[tokio::test]
async fn versions_of_custom_resources() {
    check("custom-resource-versions.wire").await;
}

#[tokio::test]
async fn expressions() {
    check("expressions.wire").await;
}

#[tokio::test]
async fn values_of_expressions() {
    check("expression-values.wire").await;
}

#[tokio::test]
async fn migrations() {
    let all = ["*", "-root-ca-certificate-publisher-controller", "-serviceaccount-controller"];
    let migrating = |config: &mut Config| config.controllers = Switches::parse(all).expect("names of controllers");
    let server = TestServer::builder().recorded().every_version().configure(migrating).start().await;
    check_record(records().join("migrations.wire"), &server).await;
}

/// Checks a record on a server with users whose tokens are their names.
async fn check_with_users(record: &str) {
    check_with(USERS, record).await;
}

async fn check_with(users: &str, record: &str) {
    let files = TempDir::new().expect("a directory for the file of tokens");
    let tokens = files.path().join("tokens.csv");
    fs::write(&tokens, users).expect("a file of tokens");
    let server = TestServer::builder()
        .recorded()
        .every_version()
        .configure(|config| config.token_file = Some(tokens))
        .start()
        .await;
    check_record(records().join(record), &server).await;
}

#[tokio::test]
async fn rights_by_roles_and_bindings() {
    check_with_users("rights.wire").await;
}

#[tokio::test]
async fn reviews_of_rights() {
    check_with_users("reviews.wire").await;
}

#[tokio::test]
async fn nodes_have_the_rights_of_the_node_authorizer() {
    check_with(NODES, "node-access.wire").await;
}

#[tokio::test]
async fn authentication() {
    check_with_users("authentication.wire").await;
}

#[tokio::test]
async fn bootstrap_rights() {
    // Without controllers the aggregated roles have no rules.
    let none = |config: &mut Config| config.controllers = Switches::parse([]).expect("no names");
    let server = TestServer::builder().recorded().every_version().configure(none).start().await;
    check_record(records().join("bootstrap-rights.wire"), &server).await;
}

#[test]
fn every_difference_is_explained_and_every_explanation_is_shown() {
    let shown: BTreeSet<String> = differences_shown(records()).into_keys().collect();
    assert_eq!(shown, explained(), "left: shown by the records; right: explained in docs/explanation/differences.md");
}

/// The first column of the first table in `docs/explanation/differences.md`.
fn explained() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explanation/differences.md");
    let text = std::fs::read_to_string(path).expect("docs/explanation/differences.md is part of the repository");
    let (_, recorded) = text.split_once("## Recorded differences").expect("the table has a heading");
    let recorded = recorded.split("\n## ").next().unwrap_or_default();
    let rows = recorded.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    rows.map(|(id, _)| id.to_owned()).filter(|id| id != "id").collect()
}
