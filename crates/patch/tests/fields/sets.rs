//! The laws of operations on sets of fields.
//!
//! Union, intersection and difference work on ordered trees. The tests compare them with the same operations on sets of
//! paths.

use keelson_meta::json::json;
use keelson_patch::fields::{FieldSet, Path, PathElement};
use proptest::collection::vec;
use proptest::prelude::*;

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        4 => "[a-c]".prop_map(|name| PathElement::field(&name)),
        1 => ("[a-b]", 0..2).prop_map(|(name, port)| PathElement::key([("port".into(), json!(port)), ("name".into(), json!(name))])),
        1 => prop_oneof![Just(json!(1)), Just(json!(1.5)), Just(json!("a<\"")), Just(json!(true))].prop_map(PathElement::value),
        1 => (0..2usize).prop_map(PathElement::Index),
    ]
}

fn path() -> impl Strategy<Value = Path> {
    vec(element(), 1..4).prop_map(|elements| elements.into_iter().collect())
}

fn set() -> impl Strategy<Value = FieldSet> {
    vec(path(), 0..12).prop_map(|paths| paths.iter().collect())
}

fn collected(paths: impl IntoIterator<Item = Path>) -> FieldSet {
    paths.into_iter().collect::<Vec<_>>().iter().collect()
}

proptest! {
    #[test]
    fn union_is_idempotent_commutative_and_associative(a in set(), b in set(), c in set()) {
        prop_assert_eq!(&a.union(&a), &a);
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.union(&FieldSet::new()), a);
    }

    #[test]
    fn intersection_is_idempotent_commutative_and_distributes(a in set(), b in set(), c in set()) {
        prop_assert_eq!(&a.intersection(&a), &a);
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
        prop_assert!(a.intersection(&FieldSet::new()).is_empty());
    }

    #[test]
    fn difference_and_intersection_make_up_the_set(a in set(), b in set()) {
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert_eq!(a.union(&b).difference(&b), a.difference(&b));
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert!(a.difference(&a).is_empty());
    }

    #[test]
    fn membership_is_that_of_the_parts(a in set(), b in set(), path in path()) {
        let (in_a, in_b) = (a.contains(path.elements()), b.contains(path.elements()));
        prop_assert_eq!(a.union(&b).contains(path.elements()), in_a || in_b);
        prop_assert_eq!(a.intersection(&b).contains(path.elements()), in_a && in_b);
        prop_assert_eq!(a.difference(&b).contains(path.elements()), in_a && !in_b);
    }

    #[test]
    fn recursive_difference_removes_descendants(a in set(), b in set()) {
        let outside = |path: &Path| (1..=path.elements().len()).all(|end| !b.contains(&path.elements()[..end]));
        prop_assert_eq!(a.recursive_difference(&b), collected(a.paths().into_iter().filter(outside)));
    }

    #[test]
    fn leaves_have_nothing_below(a in set()) {
        let leaf = |path: &Path| {
            let below = |other: &Path| other.elements().len() > path.elements().len() && other.elements().starts_with(path.elements());
            !a.paths().iter().any(below)
        };
        prop_assert_eq!(a.leaves(), collected(a.paths().into_iter().filter(leaf)));
    }

    #[test]
    fn sets_are_their_paths_and_their_text(a in set()) {
        prop_assert_eq!(a.paths().len(), a.len());
        prop_assert_eq!(a == FieldSet::new(), a.is_empty());
        prop_assert_eq!(&collected(a.paths()), &a);
        let text = a.to_fields_v1().to_string();
        let read = FieldSet::from_fields_v1(&serde_json::from_str(&text).unwrap()).unwrap();
        prop_assert_eq!(read.to_fields_v1().to_string(), text);
        prop_assert_eq!(read, a);
    }
}
