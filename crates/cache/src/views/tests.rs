//! Views compared with a sorted list of all entries, while objects are added, changed and removed.
//!
//! However a view was built, it must equal the view that results from evaluating every entry.

use bytes::Bytes;
use keelson_meta::Revision;
use proptest::prelude::*;

use super::*;
use crate::entry::Decoder;
use crate::packing::{Packer, Pool};
use crate::spec::Layout;
use crate::trees::Trees;
use crate::written::DecoderId;

/// Sorts by the letters of a label, each of which is a group. An entry without the label is in no group.
struct ByLetters;

impl PositionSource for ByLetters {
    fn places(&self, entry: &Entry, out: &mut Places) {
        let letters = entry.labels.get("letters").unwrap_or_default();
        for letter in letters.bytes() {
            out.push(&[letter, 0]);
        }
        if letters.is_empty() {
            out.fail();
        }
    }

    fn is_heavy(&self, entry: &Entry) -> bool {
        entry.key.ends_with('7')
    }
}

fn decoder() -> Decoder {
    Decoder::new(Arc::new(Layout::default()), None, Arc::new(Pool::new(Packer::off())))
}

fn entry(decoder: &Decoder, number: u16, letters: &str, revision: u64) -> Arc<Entry> {
    let value = Bytes::from(format!(
        r#"{{"kind":"K","apiVersion":"v1","metadata":{{"name":"n{number:04}","labels":{{"letters":"{letters}"}}}}}}"#
    ));
    Arc::new(
        decoder
            .decode(format!("n{number:04}").into(), &value, (Revision::new(revision), keelson_storage::Seal::PLAIN))
            .unwrap(),
    )
}

fn gathered(snapshot: &Snapshot, parts: usize) -> View {
    let mut made: Vec<GatheredPositions> = Vec::new();
    made.resize_with(parts, GatheredPositions::default);
    for (place, entry) in snapshot.range("", None).enumerate() {
        made[place % parts].add(&ByLetters, entry);
    }
    View::new(&mut made)
}

fn caught_up(view: &View, from: &Snapshot, to: &Snapshot) -> View {
    let mut catching_up = ViewUpdate::new(view.clone(), from, to, &ByLetters);
    loop {
        match catching_up.go_on(1) {
            Turn::Over => break,
            Turn::More => {}
            Turn::Heavy(mut change) => {
                change.look(&ByLetters);
                catching_up.take_over(&change);
            }
        }
    }
    catching_up.into_view()
}

fn content(view: &View) -> Vec<(Vec<u8>, String)> {
    let mut positions = view.positions(0, view.len());
    let mut shown = Vec::new();
    while let Some(Position { place, key }) = positions.next_position() {
        shown.push((place.to_vec(), key.to_owned()));
    }
    shown
}

#[track_caller]
fn check(view: &View, snapshot: &Snapshot) {
    let mut expected: Vec<(Vec<u8>, String)> = Vec::new();
    for entry in snapshot.range("", None) {
        let mut places = Places::default();
        ByLetters.places(entry, &mut places);
        expected.extend(places.sorted().into_iter().map(|place| (place.to_vec(), entry.key.to_string())));
    }
    expected.sort();
    assert_eq!(content(view), expected);
    assert_eq!(view.len(), expected.len());
    let without = |entry: &&Arc<Entry>| entry.labels.get("letters").unwrap_or_default().is_empty();
    assert_eq!(view.failures(), snapshot.range("", None).filter(without).count());
    let bytes: usize = expected.iter().map(|(place, key)| place.len() + key.len() + END_BYTES + 8).sum();
    assert_eq!(view.bytes(), bytes as u64);
    for (rank, (place, key)) in expected.iter().enumerate() {
        assert_eq!(view.rank_behind(place, key), rank + 1);
    }
    for place in [b"a\0", b"b\0", b"c\0"] {
        assert_eq!(view.rank_behind_place(place), expected.partition_point(|(at, _)| **at <= place[..]));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, String),
    Remove(u16),
    PutStretch(u16, u16, String),
    RemoveStretch(u16, u16),
    Keep,
}

fn step() -> impl Strategy<Value = Step> {
    let (key, letters) = (0..600u16, "[abc]{0,3}");
    prop_oneof![
        6 => (key.clone(), letters).prop_map(|(key, letters)| Step::Put(key, letters)),
        3 => key.clone().prop_map(Step::Remove),
        2 => (key.clone(), 0..120u16, letters).prop_map(|(from, len, letters)| Step::PutStretch(from, len, letters)),
        1 => (key, 0..120u16).prop_map(|(from, len)| Step::RemoveStretch(from, len)),
        3 => Just(Step::Keep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_view_is_the_same_however_it_was_made(steps in prop::collection::vec(step(), 1..60), parts in 1..5usize) {
        let (decoder, mut trees, mut revision) = (decoder(), Trees::empty(Arc::new(Layout::default())), 0);
        let mut moments = vec![Snapshot { revision: Revision::ZERO, trees: trees.clone() }];
        for step in &steps {
            let mut put = |number: u16, letters: &str| {
                revision += 1;
                drop(trees.put(&entry(&decoder, number, letters, revision)));
            };
            match step {
                Step::Put(number, letters) => put(*number, letters),
                Step::PutStretch(from, len, letters) => (*from..from + len).for_each(|number| put(number, letters)),
                Step::Remove(number) => drop(trees.remove(&format!("n{number:04}"))),
                Step::RemoveStretch(from, len) => {
                    (*from..from + len).for_each(|number| drop(trees.remove(&format!("n{number:04}"))));
                }
                Step::Keep => {
                    moments.push(Snapshot { revision: Revision::new(revision), trees: trees.clone() });
                }
            }
        }
        moments.push(Snapshot { revision: Revision::new(revision), trees });
        let first = gathered(&moments[0], parts);
        let (mut view, mut at) = (first, 0);
        // The update goes to newer snapshots and then back to older ones.
        for next in (0..moments.len()).chain((0..moments.len()).rev()) {
            view = caught_up(&view, &moments[at], &moments[next]);
            at = next;
            check(&view, &moments[at]);
        }
        check(&gathered(&moments[moments.len() - 1], parts), &moments[moments.len() - 1]);
    }
}

#[test]
fn unchanged_objects_are_not_evaluated() {
    let decoder = decoder();
    let entries: Vec<_> = (0..9_999).map(|number| entry(&decoder, number, "ab", 1)).collect();
    let mut trees = Trees::from_sorted(&entries, Arc::new(Layout::default()));
    let old = Snapshot { revision: Revision::new(1), trees: trees.clone() };
    for number in [5, 5_000, 9_998] {
        drop(trees.put(&entry(&decoder, number, "c", 2)));
    }
    drop(trees.remove("n0500"));
    let new = Snapshot { revision: Revision::new(2), trees };
    let mut catching_up = ViewUpdate::new(gathered(&old, 1), &old, &new, &ByLetters);
    assert!(matches!(catching_up.go_on(u64::MAX), Turn::Over));
    assert_eq!(catching_up.looked_at(), 4);
    check(&catching_up.into_view(), &new);
}

#[test]
fn views_are_kept_within_bounds_and_no_longer_than_their_history() {
    let (views, decoder) = (ViewCache::new(1 << 20), decoder());
    let moments: Vec<Snapshot> = (1..=6u64)
        .map(|revision| {
            let entries = [entry(&decoder, 1, "a", revision)];
            let trees = Trees::from_sorted(&entries, Arc::new(Layout::default()));
            Snapshot { revision: Revision::new(revision), trees }
        })
        .collect();
    for moment in &moments {
        views.keep(ViewOwner::default(), (decoder.id, "v"), moment, &gathered(moment, 1));
    }
    let is_exact = |moment: &Snapshot| matches!(views.find(decoder.id, "v", moment), LookupResult::Exact(_));
    assert_eq!(moments.iter().map(is_exact).collect::<Vec<_>>(), [false, false, true, true, true, true]);
    assert!(matches!(views.find(decoder.id, "w", &moments[5]), LookupResult::Nothing));
    assert!(matches!(views.find(DecoderId::next(), "v", &moments[5]), LookupResult::Nothing));
    match views.find(decoder.id, "v", &moments[0]) {
        LookupResult::Near { snapshot, .. } => assert_eq!(snapshot.revision, Revision::new(3)),
        LookupResult::Exact(_) | LookupResult::Nothing => panic!("the nearest moment is found"),
    }
    // The view of an unchanged state also belongs to later revisions.
    assert!(is_exact(&Snapshot { revision: Revision::new(9), trees: moments[4].trees.clone() }));
    views.trim(None, Revision::new(6));
    assert_eq!(moments.iter().map(is_exact).collect::<Vec<_>>(), [false, false, false, false, true, true]);
    assert_eq!(views.sizes().0, 2);
    views.forget(decoder.id);
    assert_eq!(views.sizes(), (0, 0));
}

#[test]
fn views_of_one_user_push_out_no_view_of_another() {
    let (views, decoder) = (ViewCache::new(64 << 10), decoder());
    let entries: Vec<_> = (0..400).map(|number| entry(&decoder, number, "a", 1)).collect();
    let trees = Trees::from_sorted(&entries, Arc::new(Layout::default()));
    let moment = Snapshot { revision: Revision::new(1), trees };
    let view = gathered(&moment, 1);
    let (ann, bob) = (ViewOwner::new("ann"), ViewOwner::new("bob"));
    views.keep(bob, (decoder.id, "of bob"), &moment, &view);
    for number in 0..100 {
        views.keep(ann, (decoder.id, &format!("of ann {number}")), &moment, &view);
    }
    let is_kept = |name: &str| matches!(views.find(decoder.id, name, &moment), LookupResult::Exact(_));
    assert!(is_kept("of bob") && is_kept("of ann 99") && !is_kept("of ann 0"));
    assert!(views.sizes().1 <= 64 << 10 && views.sizes().0 > 2, "{:?}", views.sizes());
}
