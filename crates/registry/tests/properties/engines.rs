//! Both engines give the same answers: invariant 9, once revisions are renamed to their places in the history.

use keelson_registry::ListItems;
use proptest::prelude::*;

use crate::cluster::*;
use crate::model::*;

#[derive(Clone, Debug)]
enum Step {
    Write(Write),
    Walk(Place, Selector, usize),
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
async fn walk(cluster: &Cluster, place: Place, selector: &Selector, limit: usize) -> Vec<Vec<bytes::Bytes>> {
    let (mut chunks, mut token) = (Vec::new(), None);
    loop {
        let next = token.map(|token: String| format!("&continue={token}")).unwrap_or_default();
        let query = format!("{}&limit={limit}{next}", selector.query());
        let page = cluster.server(0).list(&pods(place.namespace()), &options(&query)).await.unwrap();
        let entries = match page.items {
            ListItems::Range { cursor, .. } => cursor.flat_map(|leaf| leaf.entries().to_vec()).collect(),
            others => others.into_entries().await.unwrap(),
        };
        chunks.push(entries.iter().map(|entry| entry.object.bytes().clone()).collect());
        token = page.continue_token;
        if token.is_none() {
            return chunks;
        }
    }
}

async fn compare(steps: Vec<Step>) {
    let mut memory = Cluster::start(Engine::Memory, Settings::default()).await;
    let mut sqlite = Cluster::start(Engine::Sqlite, Settings::default()).await;
    let (mut one, mut other) = (Model::default(), Model::default());
    for step in steps {
        match step {
            Step::Write(write) => {
                memory.write(&mut one, 0, &write).await;
                sqlite.write(&mut other, 0, &write).await;
            }
            Step::Walk(place, selector, limit) => {
                let first = walk(&memory, place, &selector, limit).await;
                assert_eq!(first, walk(&sqlite, place, &selector, limit).await);
            }
            Step::Restart => {
                memory.restart().await;
                sqlite.restart().await;
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(8))]
    #[test]
    fn both_engines_give_the_same_bytes_for_the_same_history(steps in prop::collection::vec(step(), 20..60)) {
        run(compare(steps));
    }
}
