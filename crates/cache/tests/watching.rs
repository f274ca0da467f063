//! Wake-ups, dispatch, frames, and positions outside of the history.
//!
//! These are tests of one cursor. Property tests of the registry cover many concurrent ones.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};

use common::*;
use keelson_cache::{FrameKind, Scope, ScopeTerm, TooOld, ViewId, WatchCursor};
use keelson_meta::Revision;
use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn body(node: u8) -> Body {
    Body { app: None, node: Some(node), number: 1 }
}

fn is_pending(cursor: &mut WatchCursor, wakes: &Arc<Wakes>) -> bool {
    let waker = wakes.clone().into();
    cursor.poll_next(&mut Context::from_waker(&waker), 10).is_pending()
}

#[tokio::test]
async fn an_event_wakes_the_watchers_of_its_own_scopes_only() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let scopes = [
        (Scope::All, true),
        (Scope::Namespace("a".to_owned()), true),
        (Scope::Namespace("b".to_owned()), false),
        (Scope::Object { key: "a/p1".to_owned() }, true),
        (Scope::Object { key: "a/p2".to_owned() }, false),
        (on_node("n1"), true),
        (on_node("n2"), false),
    ];
    let mut watchers = Vec::new();
    for (scope, concerned) in scopes {
        let mut cursor = pods(&cache).watch(cache.watermark(), scope).unwrap();
        let wakes = Arc::new(Wakes::default());
        assert!(is_pending(&mut cursor, &wakes) && is_pending(&mut cursor, &wakes));
        watchers.push((cursor, wakes, concerned));
    }
    commit(&store, "a/p1", Some(&body(1))).await;
    catch_up(&store, &cache).await;
    for (cursor, wakes, concerned) in &mut watchers {
        assert_eq!(wakes.0.load(Ordering::SeqCst), usize::from(*concerned));
        assert_eq!(is_pending(cursor, wakes), !*concerned);
    }
    // A move to another node concerns the watches of both.
    commit(&store, "a/p1", Some(&body(2))).await;
    catch_up(&store, &cache).await;
    assert_eq!(watchers[5].0.try_next(10).unwrap().events.len(), 1);
    assert_eq!(watchers[6].0.try_next(10).unwrap().events.len(), 1);
    assert_eq!(pods(&cache).stats().watchers, 7);
    drop(watchers);
    assert_eq!(pods(&cache).stats().watchers, 0);
}

/// A watch with a selector is woken by objects that begin to match, change while matching, or cease to match, and by
/// nothing else.
#[tokio::test]
async fn an_event_wakes_the_selectors_that_it_concerns_only() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let label = |value: &str| ScopeTerm::Label { key: "app".to_owned(), value: value.to_owned() };
    let number = |value: &str| ScopeTerm::Field { path: "data.number".to_owned(), value: value.to_owned() };
    // The wake-ups of each scope: a1 created in namespace a, changed, turned into a2, deleted.
    let scopes = [
        (selected(label("a1"), None, None), [1, 1, 1, 0]),
        (selected(label("a1"), Some("a"), None), [1, 1, 1, 0]),
        (selected(label("a1"), Some("b"), None), [0, 0, 0, 0]),
        (selected(label("a2"), None, None), [0, 0, 1, 1]),
        (selected(label("a3"), None, None), [0, 0, 0, 0]),
        (selected(ScopeTerm::LabelKey("app".to_owned()), None, None), [1, 1, 1, 1]),
        // The term matches all the time, the rest of the selector does not.
        (selected(ScopeTerm::LabelKey("all".to_owned()), None, Some(2)), [0, 0, 1, 1]),
        (selected(ScopeTerm::LabelKey("none".to_owned()), None, None), [0, 0, 0, 0]),
        (selected(ScopeTerm::Name("p1".to_owned()), None, None), [1, 1, 1, 1]),
        (selected(ScopeTerm::Name("p2".to_owned()), None, None), [0, 0, 0, 0]),
        (selected(number("1"), None, None), [1, 1, 0, 0]),
        (selected(number("2"), None, None), [0, 1, 1, 1]),
    ];
    let mut watchers = Vec::new();
    for (scope, expected) in scopes {
        let cursor = pods(&cache).watch(cache.watermark(), scope).unwrap();
        watchers.push((cursor, expected));
    }
    let of = |app, number| Body { app: Some(app), node: None, number };
    for (step, body) in [Some(of(1, 1)), Some(of(1, 2)), Some(of(2, 2)), None].iter().enumerate() {
        let mut waiting = Vec::new();
        for (cursor, _) in &mut watchers {
            let wakes = Arc::new(Wakes::default());
            assert!(is_pending(cursor, &wakes));
            waiting.push(wakes);
        }
        commit(&store, "a/p1", body.as_ref()).await;
        catch_up(&store, &cache).await;
        for (place, ((cursor, expected), wakes)) in watchers.iter_mut().zip(waiting).enumerate() {
            assert_eq!(wakes.0.load(Ordering::SeqCst), expected[step], "watcher {place}, step {step}");
            assert_eq!(cursor.try_next(10).unwrap().events.len(), expected[step], "watcher {place}, step {step}");
        }
    }
    assert_eq!(pods(&cache).stats().watchers, watchers.len());
    drop(watchers);
    assert_eq!(pods(&cache).stats().watchers, 0);
}

#[tokio::test]
async fn a_dropped_wait_loses_nothing() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let mut cursor = pods(&cache).watch(cache.watermark(), Scope::All).unwrap();
    for n in 1..=20u8 {
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(1), cursor.next(10)).await;
        assert!(waiting.is_err(), "nothing has happened");
        let revision = commit(&store, "a/p1", Some(&body(n))).await;
        let batch = cursor.next(10).await.unwrap();
        assert_eq!(batch.events.iter().map(|event| event.revision).collect::<Vec<_>>(), [revision]);
        assert!(batch.watermark >= revision);
    }
}

#[tokio::test]
async fn a_watch_from_the_future_stays_silent_until_then() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let future = Revision::new(cache.watermark().get() + 2);
    let mut cursor = pods(&cache).watch(future, Scope::All).unwrap();
    assert_eq!(cursor.delivered_up_to(), Some(future));
    for n in 1..=4u8 {
        commit(&store, "a/p1", Some(&body(n))).await;
    }
    catch_up(&store, &cache).await;
    let seen: Vec<Revision> = cursor.try_next(10).unwrap().events.iter().map(|event| event.revision).collect();
    assert_eq!(seen, [future.next(), future.next().next()]);
}

#[tokio::test]
async fn cursors_with_lost_events_fail_and_others_continue() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let start = cache.watermark();
    let mut of_all = pods(&cache).watch(start, Scope::All).unwrap();
    let mut of_node = pods(&cache).watch(start, on_node("n1")).unwrap();
    let mut of_other = pods(&cache).watch(start, on_node("n2")).unwrap();
    commit(&store, "a/p1", Some(&body(1))).await;
    let last = commit(&store, "a/p2", Some(&body(3))).await;
    catch_up(&store, &cache).await;
    cache.compacted(last);
    let gone = |cursor: &mut WatchCursor| cursor.try_next(10).err();
    let too_old = Some(TooOld { requested: start, oldest: last });
    assert_eq!((gone(&mut of_all), gone(&mut of_node)), (too_old, too_old));
    assert_eq!(pods(&cache).watch(start, Scope::All).err(), too_old);
    // No event on n2 was dropped, so its watch continues.
    let revision = commit(&store, "a/p3", Some(&body(2))).await;
    catch_up(&store, &cache).await;
    assert_eq!(of_other.try_next(10).unwrap().events[0].revision, revision);
    // The node's watch reports it even after its scope has had new events.
    commit(&store, "a/p4", Some(&body(1))).await;
    catch_up(&store, &cache).await;
    assert_eq!(gone(&mut of_node), Some(TooOld { requested: start, oldest: last }));
}

#[tokio::test]
async fn a_bookmark_may_name_the_watermark_of_the_whole_server() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let mut cursor = pods(&cache).watch(cache.watermark(), Scope::Object { key: "a/p1".to_owned() }).unwrap();
    for n in 0..5 {
        commit(&store, "b/p2", Some(&body(n))).await;
    }
    catch_up(&store, &cache).await;
    assert_eq!(cursor.delivered_up_to(), Some(cache.watermark()));
    commit(&store, "a/p1", Some(&body(1))).await;
    catch_up(&store, &cache).await;
    assert_eq!(cursor.delivered_up_to(), None, "an event is left to deliver");
    assert_eq!(cursor.try_next(10).unwrap().watermark, cache.watermark());
    assert_eq!(cursor.delivered_up_to(), Some(cache.watermark()));
}

#[tokio::test]
async fn a_frame_is_encoded_once_for_each_kind_and_view() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let mut cursor = pods(&cache).watch(cache.watermark(), Scope::All).unwrap();
    commit(&store, "a/p1", Some(&body(1))).await;
    commit(&store, "a/p1", None).await;
    catch_up(&store, &cache).await;
    let events = cursor.try_next(10).unwrap().events;
    let (added, deleted) = (events[0].frame(FrameKind::Added), events[1].frame(FrameKind::Deleted));
    assert_eq!(added.as_ptr(), events[0].frame(FrameKind::Added).as_ptr(), "shared, not encoded again");
    let revision_in = |frame: &[u8]| {
        let frame: keelson_meta::json::Value = serde_json::from_slice(frame).unwrap();
        let text = |value: &keelson_meta::json::Value| value.as_str().unwrap().to_owned();
        (text(&frame["type"]), text(&frame["object"]["metadata"]["resourceVersion"]))
    };
    assert_eq!(revision_in(&added), ("ADDED".to_owned(), events[0].revision.to_string()));
    assert_eq!(revision_in(&deleted), ("DELETED".to_owned(), events[1].revision.to_string()));
    let mut encoded = 0;
    for _ in 0..3 {
        let frame = events[0].frame_in(ViewId(7), FrameKind::Modified, |entry, revision| {
            encoded += 1;
            Ok::<_, std::convert::Infallible>(format!("{} {revision}", entry.key).into())
        });
        assert_eq!(frame.unwrap(), format!("a/p1 {}", events[0].revision));
    }
    assert_eq!(encoded, 1);
}

#[tokio::test]
async fn old_events_give_their_frames_back() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let mut cursor = pods(&cache).watch(cache.watermark(), Scope::All).unwrap();
    let large = |n: usize| {
        let text = "x".repeat(1 << 20);
        let object = keelson_meta::json::json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "a"}, "data": {"text": text, "number": n}});
        bytes::Bytes::from(serde_json::to_vec(&object).unwrap())
    };
    for n in 0..20 {
        let key = keelson_storage::StoreKey::new("/registry/pods/a/p");
        let put = keelson_storage::Write::Put { key, value: large(n), expires: None };
        store
            .commit(keelson_storage::Transaction { writes: vec![put], ..keelson_storage::Transaction::default() })
            .await
            .unwrap();
        if n == 0 {
            catch_up(&store, &cache).await;
        }
    }
    catch_up(&store, &cache).await;
    let events = cursor.try_next(100).unwrap().events;
    let is_kept = |place: usize| {
        let frame = |_| events[place].frame(FrameKind::Modified);
        let frames: Vec<_> = (0..2).map(frame).collect();
        assert_eq!(frames[0], frames[1]);
        frames[0].as_ptr() == frames[1].as_ptr()
    };
    assert!(!is_kept(0) && is_kept(19));
}

#[tokio::test]
async fn many_watchers_of_one_node_each_are_all_served() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let nodes = 200u8;
    let mut watchers = Vec::new();
    for node in 0..nodes {
        let mut cursor = pods(&cache).watch(cache.watermark(), on_node(&format!("n{node}"))).unwrap();
        watchers.push(tokio::spawn(async move { cursor.next(10).await.unwrap().events[0].key().to_owned() }));
    }
    tokio::task::yield_now().await;
    for node in 0..nodes {
        commit(&store, &format!("a/p{node}"), Some(&body(node))).await;
    }
    for (node, watcher) in watchers.into_iter().enumerate() {
        assert_eq!(watcher.await.unwrap(), format!("a/p{node}"));
    }
}

#[tokio::test]
async fn a_poll_after_an_event_is_ready_without_any_wake() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let mut cursor = pods(&cache).watch(cache.watermark(), Scope::All).unwrap();
    commit(&store, "a/p1", Some(&body(1))).await;
    catch_up(&store, &cache).await;
    let wakes: Arc<Wakes> = Arc::default();
    let waker = wakes.into();
    assert!(matches!(cursor.poll_next(&mut Context::from_waker(&waker), 1), Poll::Ready(Ok(_))));
}

#[tokio::test]
async fn compacting_the_store_does_not_end_watches() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let begin = cache.watermark();
    commit(&store, "a/p1", Some(&body(1))).await;
    let newest = commit(&store, "a/p1", Some(&body(2))).await;
    catch_up(&store, &cache).await;
    store.compact(newest).await.unwrap();
    assert_eq!(pods(&cache).watch(begin, Scope::All).unwrap().try_next(10).unwrap().events.len(), 2);
}
