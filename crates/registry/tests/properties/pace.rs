//! The pace of watches: the first events after silence are sent at once, those of a steady stream together, and less
//! often the more watchers there are. Time passes only while all tasks wait.

use keelson_registry::Caller;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::*;
use crate::model::*;

/// Writes a pod at each of these milliseconds, with this number of watchers. Returns the number of events received
/// after each time.
async fn heard(watchers: usize, writes: &[u64]) -> Vec<(u64, usize)> {
    let cluster = Cluster::start(Engine::Memory, Settings::default()).await;
    let mut model = Model::default();
    let mut watches = Vec::new();
    for _ in 0..watchers {
        watches.push(
            cluster
                .server(0)
                .watch(&pods(cluster.server(0), Some("q")), &Caller::server(), &watch_options("&timeoutSeconds=60"))
                .await
                .unwrap(),
        );
    }
    let begun = Instant::now();
    let mut first = watches.remove(0);
    let hearing = tokio::spawn(async move {
        let mut heard = Vec::new();
        while let Some(outputs) = first.next().await {
            let at = u64::try_from(begun.elapsed().as_millis()).unwrap();
            heard.push((at, outputs.len()));
        }
        heard
    });
    for (number, at) in writes.iter().enumerate() {
        tokio::time::sleep_until(begun + Duration::from_millis(*at)).await;
        let pod = Pod { app: None, node: None, number: 0 };
        let write = Write { key: format!("q/pod-{number}"), action: Action::Create(pod) };
        cluster.write(&mut model, 0, &write).await;
    }
    hearing.await.unwrap()
}

fn check(watchers: usize, writes: &[u64], expected: &[(u64, usize)]) {
    let (writes, expected) = (writes.to_vec(), expected.to_vec());
    run_paused(async move {
        let heard = heard(watchers, &writes).await;
        // Timers are exact to a millisecond.
        let near = |(at, events): &(u64, usize), (due, expected): &(u64, usize)| {
            (*due..=due + 1).contains(at) && events == expected
        };
        let matches = heard.len() == expected.len() && heard.iter().zip(&expected).all(|(heard, due)| near(heard, due));
        assert!(matches, "{watchers} watchers, writes at {writes:?}: heard {heard:?}, expected {expected:?}");
    });
}

#[test]
fn first_events_are_sent_at_once_and_streams_in_batches() {
    let at_once = [(100, 1), (103, 1), (106, 1), (109, 1), (112, 1)];
    let heard = [&at_once[..], &[(122, 2), (160, 1), (170, 1), (230, 1), (233, 1)]].concat();
    check(1, &[100, 103, 106, 109, 112, 115, 118, 160, 161, 230, 233], &heard);
}

#[test]
fn many_watchers_of_one_scope_get_larger_batches() {
    check(2_000, &[100, 110, 120, 130, 200], &[(100, 1), (140, 3), (200, 1)]);
}

#[test]
fn no_event_waits_long_however_many_watch() {
    check(8_000, &[100, 110], &[(100, 1), (200, 1)]);
}
