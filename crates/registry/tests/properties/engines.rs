//! Equality of all engines: invariant 9, once revisions are renamed to their places in the history.
//!
//! The conformance suite tests the contract itself.

use std::sync::OnceLock;

use keelson_registry::{Caller, ListItems};
use keelson_teststores::EtcdServer;
use proptest::prelude::*;

use crate::cluster::*;
use crate::model::*;

#[derive(Clone, Debug)]
enum Step {
    Write(Write),
    Walk(RequestPath, Selector, usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any_write().prop_map(Step::Write),
        2 => (any_place(), any_selector(), 1..6usize).prop_map(|(place, selector, limit)| {
            Step::Walk(place, selector, limit)
        }),
        1 => Just(Step::Restart),
    ]
}

/// The bytes of each chunk of a walk, without revisions.
async fn walk(cluster: &Cluster, place: RequestPath, selector: &Selector, limit: usize) -> Vec<Vec<bytes::Bytes>> {
    let (mut chunks, mut token) = (Vec::new(), None);
    loop {
        let next = token.map(|token: String| format!("&continue={token}")).unwrap_or_default();
        let query = format!("{}&limit={limit}{next}", selector.query());
        let server = cluster.server(0);
        let target = pods(server, place.namespace());
        let page = server.list(&target, &Caller::server(), &options(&query)).await.unwrap();
        let entries = match page.items {
            ListItems::Range { cursor, .. } => cursor.flat_map(|leaf| leaf.entries().to_vec()).collect(),
            others => others.into_entries().await.unwrap(),
        };
        chunks.push(entries.iter().map(|entry| entry.object().bytes()).collect());
        token = page.continue_token;
        if token.is_none() {
            return chunks;
        }
    }
}

async fn compare(engines: &[Engine], steps: Vec<Step>) {
    let mut clusters = Vec::new();
    for engine in engines {
        clusters.push((Cluster::start(*engine, Settings::default()).await, Model::default()));
    }
    for step in steps {
        let mut walks = Vec::new();
        for (cluster, model) in &mut clusters {
            match &step {
                Step::Write(write) => cluster.write(model, 0, write).await,
                Step::Walk(place, selector, limit) => walks.push(walk(cluster, *place, selector, *limit).await),
                Step::Restart => cluster.restart().await,
            }
        }
        assert!(walks.windows(2).all(|pair| pair[0] == pair[1]), "{step:?} gave {walks:?}");
    }
}

proptest! {
    #![proptest_config(cases(8))]
    #[test]
    fn inv09_all_engines_give_the_same_bytes_for_the_same_history(steps in prop::collection::vec(step(), 20..60)) {
        static OWN: OnceLock<Option<EtcdServer>> = OnceLock::new();
        let others = [Engine::postgres(), Engine::etcd(&OWN)].into_iter().flatten();
        let engines: Vec<Engine> = [Engine::Memory, Engine::Sqlite].into_iter().chain(others).collect();
        run(compare(&engines, steps));
    }
}
