//! Reserves capacity for arrays while they are parsed. It reserves rarely, and as many elements as the rest of the text
//! can have.
//!
//! When an array grows, the allocator keeps the old allocation for a while and can't reuse it for the next larger one.
//! An array that grows step by step to 50 MB therefore makes the process take a multiple of that. Reserved memory that
//! is never touched costs nothing, so the estimate may be too high.

/// The number of elements up to which an array grows by doubling.
const SMALL: usize = 4096;
/// The length of text that is scanned for further elements, as a multiple of the text of the existing ones: first 4,
/// later 100. So a short text can't reserve much. In a body of 3 MiB, the first scan covers a hundredth and the second
/// covers all of it. Earlier allocations are small beside the last.
const LOOKED_AHEAD: usize = 4;
const LOOKED_AHEAD_THEN: usize = 100;

/// The unread part of an array's text.
#[derive(Clone, Copy)]
pub(crate) struct Rest<'t> {
    text: &'t [u8],
    opened: usize,
    at: usize,
}

impl<'t> Rest<'t> {
    /// The rest of an array. Its first element starts at `opened`, and its next one at `at`.
    pub(crate) fn new(text: &'t [u8], opened: usize, at: usize) -> Self {
        Self { text, opened, at }
    }

    /// Makes room for one more element. For a large array, reserves the number of elements that `count` finds in the
    /// text ahead.
    #[inline]
    pub(crate) fn make_room<T>(self, array: &mut Vec<T>, count: impl FnOnce(&[u8]) -> usize) {
        if array.len() == array.capacity() && array.len() >= SMALL {
            array.reserve_exact(self.count(array.len(), count));
        }
    }

    /// The number of elements to reserve, at least one.
    pub(crate) fn count(self, elements: usize, count: impl FnOnce(&[u8]) -> usize) -> usize {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let read = self.at.saturating_sub(self.opened);
        let times = if elements > 2 * SMALL { LOOKED_AHEAD_THEN } else { LOOKED_AHEAD };
        let length = read.saturating_mul(times);
        1 + count(&rest[..rest.len().min(length)])
    }
}

/// The number of bytes in the text that are one of `of`.
pub(crate) fn count_any<const N: usize>(text: &[u8], of: [u8; N]) -> usize {
    text.iter().filter(|byte| of.contains(byte)).count()
}

/// The maximum number of values in compact JSON: each follows a comma, or is the first in an array or object.
pub(crate) fn count_values(text: &[u8]) -> usize {
    let is_first =
        |pair: &[u8]| matches!(pair, [b'[', next] if *next != b']') || matches!(pair, [b'{', next] if *next != b'}');
    count_any(text, [b',']) + text.windows(2).filter(|pair| is_first(pair)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_array_moves_a_few_times() {
        let text = "1,".repeat(1_000_000);
        let mut array = Vec::new();
        let (mut moves, mut capacity) = (0, 0);
        for at in (0..text.len()).step_by(2) {
            Rest::new(text.as_bytes(), 0, at).make_room(&mut array, |text| count_any(text, [b',']));
            array.push(1_u8);
            if array.len() > SMALL && array.capacity() != capacity {
                (moves, capacity) = (moves + 1, array.capacity());
            }
        }
        assert!((1..=5).contains(&moves), "{moves}");
        assert_eq!(array.capacity(), array.len() + 1);
    }

    #[test]
    fn values_are_counted() {
        for (text, values) in [("1", 0), ("[]", 0), ("[[],{},1]", 3), (r#"{"a":[1,{"b":""}]}"#, 4)] {
            assert_eq!(count_values(text.as_bytes()), values, "{text}, but for the outermost one");
        }
    }

    #[test]
    fn an_array_always_has_space_for_one_more_item() {
        let mut array = vec![0_u8; SMALL];
        array.shrink_to_fit();
        for at in [0, 1, usize::MAX] {
            let before = array.len();
            Rest::new(b"", 0, at).make_room(&mut array, <[u8]>::len);
            assert!(array.capacity() > before);
            array.push(0);
            array.shrink_to_fit();
        }
    }
}
