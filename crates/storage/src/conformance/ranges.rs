//! Range reads: byte order, limits, and reads at a revision.
//!
//! Chunked lists rely on these cases: pages are exact, counts agree, and an old revision never shows newer content.

use futures::TryStreamExt as _;
use keelson_meta::Revision;

use super::{
    Factory, PREFIX, assert_compacted, assert_future, commit, delete, everything, key, pairs, put, read, relative,
    text, texts,
};
use crate::key::StoreKey;
use crate::store::{KeyValue, RangeRequest, ScanRequest, Store, StoreError, Transaction};

/// Keys sort by bytes, not by characters or segments: `q-b/x` before `q/x`, upper case before lower, no collation.
pub async fn inv08_keys_are_ordered_by_their_bytes(factory: &mut impl Factory) {
    let store = factory.open().await;
    let ordered = ["Q/x", "q", "q-b/x", "q.b/x", "q/x", "q/x-", "q/x.", "q/x0", "q/xa", "q0/x", "qa/x", "é/x", "𐀀/x"];
    for name in ordered.iter().rev() {
        commit(&*store, put(name, name)).await;
    }
    // Neighbours of the prefix are outside of it.
    for outside in ["/registry/conformance", "/registry/conformance-b/x", "/registry/conformance0", "/registry/z"] {
        commit(&*store, Transaction::default().put(StoreKey::new(outside), "outside")).await;
    }
    let page = read(&*store, None).await;
    assert_eq!(page.entries.iter().map(|entry| relative(&entry.key)).collect::<Vec<_>>(), ordered);
    assert!(!page.more);
    let request = RangeRequest { from: key("q/x\0"), to: key("qa"), revision: None, limit: None };
    let page = store.range(request).await.unwrap();
    assert_eq!(
        page.entries.iter().map(|entry| relative(&entry.key)).collect::<Vec<_>>(),
        ["q/x-", "q/x.", "q/x0", "q/xa", "q0/x"]
    );
}

/// A limit returns that many entries from the start of the range, and `more` is exact.
pub async fn a_limit_cuts_and_says_whether_more_follows(factory: &mut impl Factory) {
    let store = factory.open().await;
    for name in ["a", "b", "c", "d"] {
        commit(&*store, put(name, name)).await;
    }
    commit(&*store, delete("d")).await;
    for (limit, names, more) in [
        (0, vec![], true),
        (1, vec!["a"], true),
        (2, vec!["a", "b"], true),
        (3, vec!["a", "b", "c"], false),
        (9, vec!["a", "b", "c"], false),
    ] {
        let page = store.range(RangeRequest { limit: Some(limit), ..everything(None) }).await.unwrap();
        assert_eq!(page.entries.iter().map(|entry| relative(&entry.key)).collect::<Vec<_>>(), names, "limit {limit}");
        assert_eq!(page.more, more, "limit {limit}");
    }
    let reversed = RangeRequest { from: key("z"), to: key("a"), revision: None, limit: None };
    let page = store.range(reversed).await.unwrap();
    assert!(page.entries.is_empty() && !page.more);
}

/// A scan, where the engine has one, finds the same entries as ranges and refuses the same revisions.
pub async fn a_scan_finds_what_ranges_find(factory: &mut impl Factory) {
    let store = factory.open().await;
    let names: Vec<String> = (0..700).map(|number| format!("{}/{number:03}", ["a", "b", "c"][number % 3])).collect();
    let mut revisions = Vec::new();
    for version in 0..3 {
        for (number, name) in names.iter().enumerate().filter(|(number, _)| number % (version + 1) == 0) {
            let change = if version == 2 && number % 4 == 0 { delete(name) } else { put(name, &version.to_string()) };
            revisions.push(commit(&*store, change).await);
        }
    }
    let newest = *revisions.last().expect("there were writes");
    let scan = |of: &[&str], revision| {
        let ranges = of.iter().map(|of| (key(&format!("{of}/")), key(&format!("{of}0")))).collect();
        store.scan(ScanRequest { ranges, revision })
    };
    let refused = async |revision| {
        let found = scan(&["a"], revision)?;
        Some(found.try_collect::<Vec<_>>().await)
    };
    let Some(future) = refused(newest.next()).await else { return };
    assert_future(future, newest.next());
    let oldest = revisions[revisions.len() / 2];
    store.compact(oldest).await.unwrap();
    for revision in revisions.iter().copied().filter(|revision| *revision >= oldest).step_by(97).chain([newest]) {
        for of in [&["c", "a", "nothing"][..], &["b"], &["a", "b", "c"]] {
            let found = scan(of, revision).expect("the engine has one");
            let mut found = found.try_collect::<Vec<_>>().await.unwrap().concat();
            found.sort_by(|one, other| one.key.cmp(&other.key));
            let mut all = read(&*store, Some(revision)).await.entries;
            all.retain(|entry| of.contains(&&relative(&entry.key)[..1]));
            assert_eq!(found, all, "{of:?} at {revision}");
        }
    }
    let compacted = refused(revisions[0]).await.expect("the engine has one");
    assert_compacted(compacted, revisions[0], oldest);
}

/// A count equals the length of the range for the same request: at its revision, without deleted keys, up to its limit.
pub async fn a_count_is_the_length_of_the_range(factory: &mut impl Factory) {
    let store = factory.open().await;
    let mut revisions = vec![store.current_revision().await.unwrap()];
    for name in ["a", "b", "q/c", "q/d", "z"] {
        revisions.push(commit(&*store, put(name, "1")).await);
        revisions.push(commit(&*store, put("b", name)).await);
    }
    revisions.push(commit(&*store, delete("q/c")).await);
    for revision in revisions.iter().copied().map(Some).chain([None]) {
        for (from, to) in [("", None), ("b", None), ("b\0", None), ("q/", Some("q0")), ("x", Some("c"))] {
            for limit in [None, Some(0), Some(2)] {
                let to = to.map_or_else(|| StoreKey::prefix_end(PREFIX), key);
                let request = RangeRequest { from: key(from), to, revision, limit };
                let entries = store.range(request.clone()).await.unwrap().entries;
                assert_eq!(store.count(request.clone()).await.unwrap(), entries.len() as u64, "{request:?}");
            }
        }
    }
    let newest = *revisions.last().expect("something was written");
    assert_future(store.count(everything(Some(newest.next()))).await, newest.next());
    store.compact(newest).await.unwrap();
    assert_compacted(store.count(everything(Some(revisions[0]))).await, revisions[0], newest);
}

/// Every revision in the history shows the content of its time.
pub async fn a_range_is_read_at_its_revision(factory: &mut impl Factory) {
    let store = factory.open().await;
    let start = store.current_revision().await.unwrap();
    let one = commit(&*store, put("a", "1")).await;
    let two = commit(&*store, put("b", "1")).await;
    let three = commit(&*store, put("a", "2")).await;
    let four = commit(&*store, delete("b")).await;
    let five = commit(&*store, put("b", "3")).await;
    let expected: [(Revision, &[(&str, &str)]); 6] = [
        (start, &[]),
        (one, &[("a", "1")]),
        (two, &[("a", "1"), ("b", "1")]),
        (three, &[("a", "2"), ("b", "1")]),
        (four, &[("a", "2")]),
        (five, &[("a", "2"), ("b", "3")]),
    ];
    for (revision, entries) in expected {
        let page = read(&*store, Some(revision)).await;
        assert_eq!(texts(&page), pairs(entries), "at {revision}");
        assert_eq!(page.revision, revision);
    }
    assert_eq!(read(&*store, None).await.revision, five);
}

/// A future revision is a retryable error.
pub async fn a_future_revision_is_refused(factory: &mut impl Factory) {
    let store = factory.open().await;
    let next = commit(&*store, put("a", "1")).await.next();
    let refused = store.range(everything(Some(next))).await;
    assert!(refused.as_ref().is_err_and(StoreError::is_retryable));
    assert_future(refused, next);
}

/// Lists of an empty store need a resourceVersion, and 0 has another meaning for clients.
pub async fn an_empty_store_has_a_revision(factory: &mut impl Factory) {
    let store = factory.open().await;
    let revision = store.current_revision().await.unwrap();
    assert!(revision > Revision::ZERO);
    assert!(store.oldest_revision().await.unwrap() <= revision);
    let page = read(&*store, None).await;
    assert_eq!((page.entries, page.revision, page.more), (vec![], revision, false));
    store.check().await.unwrap();
}

/// Chunks of any size at one revision, with writes in between, equal the list at that revision.
pub async fn inv01_chunks_at_one_revision_equal_the_whole(factory: &mut impl Factory) {
    let store = factory.open().await;
    for number in 0..40 {
        commit(&*store, put(&format!("ns-{}/o{number}", number % 3), "first")).await;
    }
    let whole = read(&*store, None).await;
    for (size, number) in [(1, 0), (3, 1), (7, 2), (40, 3), (41, 4)] {
        let chunked = walk(&*store, whole.revision, size, number).await;
        assert_eq!(chunked, whole.entries, "in chunks of {size}");
    }
}

async fn walk(store: &dyn Store, revision: Revision, size: usize, number: usize) -> Vec<KeyValue> {
    let mut entries: Vec<KeyValue> = Vec::new();
    let mut from = key("");
    loop {
        let to = StoreKey::prefix_end(PREFIX);
        let request = RangeRequest { from, to, revision: Some(revision), limit: Some(size) };
        let page = store.range(request).await.unwrap();
        assert!(page.entries.len() <= size && page.revision == revision);
        assert!(page.entries.iter().all(|entry| text(&entry.value) == "first"));
        entries.extend(page.entries);
        if !page.more {
            return entries;
        }
        let last = &entries.last().expect("more follows only a full chunk").key;
        from = StoreKey::new(format!("{last}\0"));
        let other = format!("ns-{}/o{}", number % 3, entries.len());
        commit(store, put(&other, "second")).await;
        commit(store, delete(&relative(last))).await;
    }
}
