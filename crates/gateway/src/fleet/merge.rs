//! Joins ordered results into one order: by sort key, then by source, then by object key.
//!
//! No result is copied. A page costs its objects and O(log² n) for its start, wherever it begins.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use keelson_registry::OrderedResult;

/// A result in the order of its sort keys and object keys.
pub(super) trait Ordered {
    /// The number of objects.
    fn len(&self) -> usize;
    /// The sort key and the object key at a rank.
    fn position(&self, rank: usize) -> Option<(Vec<u8>, String)>;
    /// The number of objects up to and including a position.
    fn through(&self, place: &[u8], key: &str) -> usize;
    /// The number of objects before a sort key.
    fn before_place(&self, place: &[u8]) -> usize;
    /// The number of objects up to and including a sort key.
    fn through_place(&self, place: &[u8]) -> usize;
}

/// A result, with the name of its source. Several results of one source have different objects.
pub(super) struct Run<'r, O> {
    pub(super) cluster: &'r str,
    pub(super) result: &'r O,
}

/// The position of an object in the joint order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) place: Vec<u8>,
    pub(super) cluster: String,
    pub(super) key: String,
}

impl<O: Ordered> Run<'_, O> {
    fn place(&self, rank: usize) -> Option<Place> {
        let (place, key) = self.result.position(rank)?;
        Some(Place { place, cluster: self.cluster.to_owned(), key })
    }

    /// The number of objects up to and including a position.
    pub(super) fn through(&self, position: &Place) -> usize {
        match self.cluster.cmp(&position.cluster) {
            Ordering::Less => self.result.through_place(&position.place),
            Ordering::Equal => self.result.through(&position.place, &position.key),
            Ordering::Greater => self.result.before_place(&position.place),
        }
    }
}

/// The numbers of objects of each result among the first `rank` objects of the joint order.
pub(super) fn split<O: Ordered>(runs: &[Run<'_, O>], rank: usize) -> Vec<usize> {
    let mut low = vec![0; runs.len()];
    let mut high: Vec<usize> = runs.iter().map(|run| run.result.len()).collect();
    // Each round halves the widest range, and each other range only shrinks.
    while let Some(widest) = (0..runs.len()).filter(|at| low[*at] < high[*at]).max_by_key(|at| high[*at] - low[*at]) {
        let middle = low[widest] + (high[widest] - low[widest]) / 2;
        let Some(pivot) = runs[widest].place(middle) else { break };
        let through: Vec<usize> = runs.iter().map(|run| run.through(&pivot)).collect();
        if through.iter().sum::<usize>() <= rank {
            for (low, through) in low.iter_mut().zip(through) {
                *low = (*low).max(through);
            }
        } else {
            for (high, through) in high.iter_mut().zip(through) {
                *high = (*high).min(through);
            }
            high[widest] = middle;
        }
    }
    low
}

/// The objects after these numbers of objects of each result: the number of the result, and the position.
pub(super) fn merged<'r, O: Ordered>(
    runs: &'r [Run<'r, O>],
    begins: &[usize],
) -> impl Iterator<Item = (usize, Place)> + use<'r, O> {
    let firsts = runs.iter().zip(begins).enumerate();
    let firsts = firsts.filter_map(|(at, (run, begin))| Some(Reverse((run.place(*begin)?, at, *begin))));
    let mut next: BinaryHeap<_> = firsts.collect();
    std::iter::from_fn(move || {
        let Reverse((place, at, rank)) = next.pop()?;
        if let Some(following) = runs[at].place(rank + 1) {
            next.push(Reverse((following, at, rank + 1)));
        }
        Some((at, place))
    })
}

impl Ordered for OrderedResult {
    fn len(&self) -> usize {
        self.len()
    }

    fn position(&self, rank: usize) -> Option<(Vec<u8>, String)> {
        self.position(rank)
    }

    fn through(&self, place: &[u8], key: &str) -> usize {
        self.through(place, key)
    }

    fn before_place(&self, place: &[u8]) -> usize {
        self.before_place(place)
    }

    fn through_place(&self, place: &[u8]) -> usize {
        self.through_place(place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    /// Sorted positions.
    #[derive(Debug)]
    struct Sorted(Vec<(Vec<u8>, String)>);

    impl Ordered for Sorted {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn position(&self, rank: usize) -> Option<(Vec<u8>, String)> {
            self.0.get(rank).cloned()
        }

        fn through(&self, place: &[u8], key: &str) -> usize {
            self.0.partition_point(|(own, name)| (&**own, &**name) <= (place, key))
        }

        fn before_place(&self, place: &[u8]) -> usize {
            self.0.partition_point(|(own, _)| &**own < place)
        }

        fn through_place(&self, place: &[u8]) -> usize {
            self.0.partition_point(|(own, _)| &**own <= place)
        }
    }

    proptest! {
        #[test]
        fn every_page_is_that_of_the_sorted_whole(
            sources in vec(btree_set((0_u8..4, "[a-c]{1,3}"), 0..12), 0..6),
            rank in 0_usize..40,
        ) {
            let results: Vec<Sorted> = sources
                .into_iter()
                .map(|source| Sorted(source.into_iter().map(|(place, key)| (vec![place], key)).collect()))
                .collect();
            // Two results may be of one source, which then have different objects.
            let names: Vec<String> = (0..results.len()).map(|at| format!("c{at}")).collect();
            let runs: Vec<_> =
                results.iter().zip(&names).map(|(result, cluster)| Run { cluster, result }).collect();
            let mut whole: Vec<Place> =
                runs.iter().flat_map(|run| (0..run.result.len()).filter_map(|rank| run.place(rank))).collect();
            whole.sort();
            let begins = split(&runs, rank);
            prop_assert_eq!(begins.iter().sum::<usize>(), rank.min(whole.len()));
            let rest: Vec<Place> = merged(&runs, &begins).map(|(_, place)| place).collect();
            prop_assert_eq!(&rest[..], &whole[rank.min(whole.len())..]);
            if let Some(position) = rank.checked_sub(1).and_then(|last| whole.get(last)) {
                let behind: Vec<usize> = runs.iter().map(|run| run.through(position)).collect();
                prop_assert_eq!(behind, begins);
            }
        }
    }
}
