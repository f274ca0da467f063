//! The reach of a page in a scan: the end key of its request.
//!
//! For each page, etcd counts all keys of the requested range. So if a range has many more keys than a page, the next
//! request is narrowed to keys with a common prefix. It is widened again if such a range has few keys. The distribution
//! of keys is unknown, so the result of each page determines the next request.
//!
//! Invariant: a range starts where the previous one ended, so that no key is skipped.

/// If a range has more keys than this number of pages, it is narrowed.
const PAGES: usize = 8;

/// The maximum number of bytes that the keys of the next range have in common with its first key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach(usize);

/// The result of a page.
pub(super) struct PageOutcome<'k> {
    /// The requested range.
    pub(super) range: (&'k [u8], &'k [u8]),
    /// The first and the last key of the page, unless it is empty.
    pub(super) ends: Option<(&'k [u8], &'k [u8])>,
    /// The number of keys in the page, and its limit.
    pub(super) keys: (usize, usize),
    /// The number of keys in the whole range.
    pub(super) counted: usize,
}

impl Reach {
    /// Returns the end of the next range: `to`, unless the range is narrowed.
    pub(super) fn end(self, from: &[u8], to: &[u8]) -> Vec<u8> {
        let beginning = &from[..self.0.min(from.len())];
        behind_all(beginning).filter(|end| **end < *to).unwrap_or_else(|| to.to_vec())
    }

    /// Adjusts the reach to the result of a page.
    pub(super) fn learn(&mut self, outcome: &PageOutcome<'_>) {
        let (from, to) = outcome.range;
        let narrowed = if self.end(from, to) == to { common(from, to) } else { self.0.min(from.len()) };
        let (had, limit) = outcome.keys;
        match outcome.ends {
            Some((first, last)) if outcome.counted > PAGES * limit => {
                self.0 = (narrowed + 1).max(common(last, to) + 1).max(common(first, last));
            }
            _ if had < outcome.counted || had > limit / 2 => {}
            _ => self.0 = narrowed.saturating_sub(1),
        }
    }
}

/// Returns the first key after all keys with this prefix, if there is one.
fn behind_all(beginning: &[u8]) -> Option<Vec<u8>> {
    let last = beginning.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut behind = beginning[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

/// Returns the length of the common prefix of two keys.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Reads all keys in pages. Returns the number of pages, and the number of keys that etcd has counted.
    fn read(keys: &BTreeSet<Vec<u8>>, limit: usize) -> (usize, usize) {
        let (mut from, to) = (b"/registry/".to_vec(), b"/registry0".to_vec());
        let (mut reach, mut pages, mut counted) = (Reach::default(), 0, 0);
        let mut found = Vec::new();
        while from < to {
            let end = reach.end(&from, &to);
            assert!(from < end && end <= to);
            let within: Vec<&Vec<u8>> = keys.range(from.clone()..end.clone()).collect();
            let page = &within[..within.len().min(limit)];
            pages += 1;
            counted += within.len();
            assert!(pages < 1000 + 4 * keys.len(), "it ends");
            let ends = page.first().zip(page.last()).map(|(first, last)| (first.as_slice(), last.as_slice()));
            reach.learn(&PageOutcome { range: (&from, &to), ends, keys: (page.len(), limit), counted: within.len() });
            found.extend(page.iter().map(|key| (*key).clone()));
            from = match page.last() {
                Some(last) if page.len() < within.len() => [last.as_slice(), b"\0"].concat(),
                _ => end,
            };
        }
        assert!(found.iter().eq(keys), "every key once, in order");
        (pages, counted)
    }

    #[test]
    fn no_more_is_counted_than_some_times_the_keys() {
        let key = |number: usize, namespaces: usize| {
            let namespace = number % namespaces;
            format!(
                "/registry/pods/namespace-{namespace}/web-{:x}-{number}",
                number.wrapping_mul(2_654_435_761) & 0xff_ffff
            )
        };
        for namespaces in [1, 7, 400] {
            let keys: BTreeSet<Vec<u8>> = (0..100_000).map(|number| key(number, namespaces).into_bytes()).collect();
            let (pages, counted) = read(&keys, 500);
            // If each request reached to the end of its range, etcd would count 10 million keys for 200 pages.
            assert!(pages <= 800 && counted <= 20 * keys.len(), "{namespaces}: {counted} in {pages} pages");
        }
    }

    #[test]
    fn small_collections_are_read_in_full_pages() {
        let keys: BTreeSet<Vec<u8>> = (0..3_000).map(|number| format!("/registry/a/{number}").into_bytes()).collect();
        assert_eq!(read(&keys, 500).0, 6);
        assert_eq!(read(&BTreeSet::new(), 500).0, 1);
    }

    proptest! {
        #[test]
        fn every_key_is_read_once(ends in prop::collection::btree_set("[a-c/]{0,6}|.{0,3}", 0..400), limit in 1_usize..9) {
            let keys = ends.into_iter().map(|end| format!("/registry/{end}").into_bytes()).collect();
            read(&keys, limit);
        }
    }
}
