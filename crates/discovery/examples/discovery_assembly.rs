//! Measures a change among 3,000 custom group versions:
//! `cargo run --release -p keelson-discovery --example discovery_assembly`.
//!
//! Each has one resource. A change renders one fragment and assembles all of them again. The first request after it
//! builds the aggregated document and its tag. Later requests share its bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_discovery::{
    AggregatedForm, DiscoveredKind, DiscoveredResource, Documents, Fragment, Freshness, SourceOrder, VersionSource,
};

const MANY: usize = 3000;
/// The number of measurements, of which the median is printed.
const RUNS: usize = 31;

fn fragment(number: usize, verbs: &[&'static str]) -> Arc<Fragment> {
    let group = format!("group-{number:04}.example.org");
    Fragment::new(VersionSource {
        group: group.clone().into(),
        version: "v1".into(),
        group_priority: 1000,
        version_priority: 100,
        order: SourceOrder::Custom,
        freshness: Freshness::Current,
        resources: vec![DiscoveredResource {
            plural: "widgets".into(),
            singular: "widget".into(),
            kind: DiscoveredKind { group: group.into(), version: "v1".into(), kind: "Widget".into() },
            scope: "Namespaced".into(),
            verbs: verbs.iter().map(|verb| (*verb).into()).collect(),
            short_names: vec!["wd".into()],
            categories: Vec::new(),
            storage_version_hash: Some("xZ1uC2hDLwY=".to_owned()),
            subresources: Vec::new(),
        }],
    })
}

fn median(mut work: impl FnMut()) -> Duration {
    let mut taken: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect();
    taken.sort();
    taken[RUNS / 2]
}

#[expect(clippy::print_stdout, reason = "the example prints its results")]
fn main() {
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let render = median(|| drop(fragment(1, &all)));
    let mut fragments: Vec<_> = (0..MANY).map(|number| fragment(number, &all)).collect();
    let mut verbs = 1;
    let mut change = |fragments: &mut Vec<Arc<Fragment>>| {
        verbs = verbs % 7 + 1;
        fragments[MANY / 2] = fragment(MANY / 2, &all[..verbs]);
        Documents::assemble(fragments)
    };
    let alone = median(|| drop(change(&mut fragments)));
    let asked = median(|| drop(change(&mut fragments).aggregated_groups(AggregatedForm::V2).etag.clone()));
    let documents = Documents::assemble(&fragments);
    let bytes = documents.aggregated_groups(AggregatedForm::V2).json.len();
    let again = median(|| drop(documents.aggregated_groups(AggregatedForm::V2).json.clone()));
    println!("{MANY} group versions, {bytes} bytes of aggregated discovery");
    println!("render one fragment           {render:?}");
    println!("change one of them            {alone:?}");
    println!("change one, document and tag  {asked:?}");
    println!("each further request          {again:?}");
}
