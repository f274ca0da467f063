//! The growth of arrays while a text is parsed: seldom, and by as many elements as the rest of the text can have.
//!
//! An array that is moved leaves its place to the allocator, which can't use that for the next and larger place, and keeps it for a
//! while: an array that grows step by step to 50 MB has the process take many times that. Memory of which nothing is used costs
//! nothing, so the count may be too high.

/// Up to this many elements an array doubles.
const SMALL: usize = 4096;
/// How far the text is looked at ahead, as a multiple of what was read for the elements that there are. A text of which little
/// is known yet can't make the array reserve much. Of a body of 3 MiB the first look finds a hundredth, and the second one all: what
/// the places left behind take is little beside the last one.
const LOOKED_AHEAD: usize = 4;
const LOOKED_AHEAD_THEN: usize = 100;

/// The part of a text in which the elements of an array stand that were not read yet.
#[derive(Clone, Copy)]
pub(crate) struct Rest<'t> {
    text: &'t [u8],
    opened: usize,
    at: usize,
}

impl<'t> Rest<'t> {
    /// Of an array whose first element stands at `opened`, and whose next one at `at`.
    pub(crate) fn new(text: &'t [u8], opened: usize, at: usize) -> Self {
        Self { text, opened, at }
    }

    /// Makes room for one more element, and for as many as `count` says that the text ahead has, where the array is large.
    #[inline]
    pub(crate) fn make_room<T>(self, array: &mut Vec<T>, count: impl FnOnce(&[u8]) -> usize) {
        if array.len() == array.capacity() && array.len() >= SMALL {
            array.reserve_exact(self.count(array.len(), count));
        }
    }

    /// How many elements to make room for beside those that there are: at least one.
    pub(crate) fn count(self, elements: usize, count: impl FnOnce(&[u8]) -> usize) -> usize {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let read = self.at.saturating_sub(self.opened);
        let times = if elements > 2 * SMALL { LOOKED_AHEAD_THEN } else { LOOKED_AHEAD };
        let length = read.saturating_mul(times);
        1 + count(&rest[..rest.len().min(length)])
    }
}

/// How many bytes of the text are one of these.
pub(crate) fn count_any<const N: usize>(text: &[u8], of: [u8; N]) -> usize {
    text.iter().filter(|byte| of.contains(byte)).count()
}

/// How many values compact JSON has at the most: each stands behind a comma, or is the first in an array or an object.
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
    fn there_is_room_for_one_more_whatever_the_text_says() {
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
