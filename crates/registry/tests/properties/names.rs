//! Generated names: no object is overwritten, whatever the random numbers are.
//!
//! The test has its own generator, which repeats the same numbers.

use keelson_registry::Caller;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use keelson_meta::json::json;
use keelson_meta::options::CreateOptions;
use keelson_meta::{ApiError, Object, Random};

use crate::cluster::*;

/// A source of random numbers that returns a few values in turn.
struct Repeating {
    values: usize,
    drawn: AtomicUsize,
}

impl Random for Repeating {
    fn fill(&self, buffer: &mut [u8]) {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
        buffer.fill(u8::try_from(drawn % self.values).unwrap());
    }
}

async fn cluster(values: usize) -> Cluster {
    let random = Arc::new(Repeating { values, drawn: AtomicUsize::new(0) });
    Cluster::start_with(Engine::Memory, Settings { servers: 2, ..Settings::default() }, random).await
}

async fn generate(cluster: &Cluster, server: usize, number: usize) -> Result<String, ApiError> {
    let object = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"generateName": "job-", "namespace": "q"},
        "data": {"number": number.to_string()},
    });
    let (object, target) = (Object::from_value(object).unwrap(), target("configmaps", Some("q")));
    let created = cluster.server(server).create(&target, object, &Caller::server(), &CreateOptions::default()).await?;
    Ok(created.object.decode(created.revision.unwrap()).name().to_owned())
}

#[test]
fn a_generated_name_that_is_taken_is_drawn_again_and_never_overwritten() {
    run(async {
        let cluster = cluster(3).await;
        let mut names = BTreeSet::new();
        for number in 0..3 {
            assert!(names.insert(generate(&cluster, number, number).await.unwrap()));
        }
        let before = cluster.revision().await;
        let refused = generate(&cluster, 0, 3).await.unwrap_err();
        assert_eq!(refused.code(), 409, "{refused}");
        assert_eq!(cluster.revision().await, before);
        assert!(names.iter().all(|name| name.starts_with("job-")));
    });
}

#[test]
fn names_generated_at_once_on_two_servers_are_all_different() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Arc::new(cluster(20).await);
        let tasks = (0..16).map(|number| {
            let cluster = cluster.clone();
            tokio::spawn(async move { generate(&cluster, number, number).await })
        });
        let outcomes: Vec<_> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
        let names: Vec<&String> = outcomes.iter().flatten().collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let page =
            cluster.server(0).list(&target("configmaps", Some("q")), &Caller::server(), &options("")).await.unwrap();
        let keelson_registry::ListItems::Range { cursor, .. } = page.items else { panic!("an unselected list") };
        assert_eq!(cursor.remaining(), names.len(), "each one that was acknowledged is there");
        let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        refused.for_each(|error| assert_eq!(error.code(), 409, "{error}"));
    });
}
