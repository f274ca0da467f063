//! The changes between two pages: entered, left, changed and moved objects.
//!
//! The set of moved objects is minimal: those that keep their relative order are not reported.

use std::collections::HashMap;
use std::sync::Arc;

use keelson_cache::Entry;

/// The difference of two pages.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) entered: Vec<Arc<Entry>>,
    pub(super) left: Vec<Arc<Entry>>,
    /// Objects in both that were written in between, with their old and new state.
    pub(super) changed: Vec<(Arc<Entry>, Arc<Entry>)>,
    /// The smallest set of objects in both pages that must move.
    pub(super) moved: Vec<Arc<Entry>>,
}

impl Changes {
    /// Cost: O(n log n) of the length of the pages.
    pub(super) fn between(before: &[Arc<Entry>], after: &[Arc<Entry>]) -> Self {
        let mut changes = Self::default();
        let mut known: HashMap<&str, usize> =
            before.iter().enumerate().map(|(place, entry)| (&*entry.key, place)).collect();
        // The objects in both, in the new order, with their old places.
        let mut stayed = Vec::new();
        for entry in after {
            match known.remove(&*entry.key) {
                Some(place) => {
                    stayed.push((place, entry));
                    if before[place].revision != entry.revision {
                        changes.changed.push((before[place].clone(), entry.clone()));
                    }
                }
                None => changes.entered.push(entry.clone()),
            }
        }
        changes.left = before.iter().filter(|entry| known.contains_key(&*entry.key)).cloned().collect();
        let places: Vec<usize> = stayed.iter().map(|(place, _)| *place).collect();
        let in_order = longest_ascending(&places);
        let moved = stayed.iter().enumerate().filter(|(at, _)| in_order.binary_search(at).is_err());
        changes.moved = moved.map(|(_, (_, entry))| (*entry).clone()).collect();
        changes
    }

    /// Returns true if the pages are equal.
    pub(super) fn is_empty(&self) -> bool {
        self.entered.is_empty() && self.left.is_empty() && self.changed.is_empty() && self.moved.is_empty()
    }
}

/// The places of a longest ascending subsequence.
fn longest_ascending(numbers: &[usize]) -> Vec<usize> {
    // For each length: the place of the smallest number that ends such a subsequence.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(numbers.len());
    for (place, number) in numbers.iter().enumerate() {
        let length = ends.partition_point(|end| numbers[*end] < *number);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = place,
            None => ends.push(place),
        }
    }
    let mut part: Vec<usize> = std::iter::successors(ends.last().copied(), |place| before[*place]).collect();
    part.reverse();
    part
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn objects_in_order_have_not_moved() {
        let check = |numbers: &[usize], expect: &[usize]| assert_eq!(longest_ascending(numbers), expect);
        check(&[], &[]);
        check(&[0, 1, 2], &[0, 1, 2]);
        // The first became the last.
        check(&[1, 2, 3, 0], &[0, 1, 2]);
        check(&[2, 0, 1], &[1, 2]);
    }

    proptest! {
        #[test]
        fn the_longest_ascending_subsequence_is_found(numbers in Just((0..9usize).collect::<Vec<_>>()).prop_shuffle()) {
            let part = longest_ascending(&numbers);
            prop_assert!(part.windows(2).all(|pair| pair[0] < pair[1] && numbers[pair[0]] < numbers[pair[1]]));
            let ascends = |mask: &u32| {
                let chosen: Vec<usize> = numbers.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, n)| *n).collect();
                chosen.is_sorted()
            };
            let longest = (0..1u32 << 9).filter(ascends).map(u32::count_ones).max().unwrap();
            prop_assert_eq!(part.len(), longest as usize);
        }
    }
}
