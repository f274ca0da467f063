//! The natural order of keys in `go-yaml`: `a2` before `a10`, and letters after other characters.
//!
//! Written YAML has this order, since clients compare files from `kubectl`.

use std::cmp::Ordering;

/// Compares two keys by the first difference: letters after other characters, runs of digits by value.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    // Most keys first differ in a letter, which decides the order.
    let differing = a.bytes().zip(b.bytes()).find(|(a, b)| a != b);
    if let Some((next_a, next_b)) = differing
        && next_a.is_ascii_alphabetic()
        && next_b.is_ascii_alphabetic()
    {
        return next_a.cmp(&next_b);
    }
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    let (rest_a, rest_b) = (&a[same..], &b[same..]);
    let (Some(next_a), Some(next_b)) = (rest_a.chars().next(), rest_b.chars().next()) else {
        return rest_a.len().cmp(&rest_b.len());
    };
    match (next_a.is_alphabetic(), next_b.is_alphabetic()) {
        (true, true) => next_a.cmp(&next_b),
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => {
            let inside = (next_a == '0' || next_b == '0') && ends_in_number(&a[..same]);
            let ((value_a, digits_a), (value_b, digits_b)) = (number(rest_a, inside), number(rest_b, inside));
            value_a.cmp(&value_b).then(digits_a.cmp(&digits_b)).then(next_a.cmp(&next_b))
        }
    }
}

/// Returns true if the text ends in digits that are not all zero. Then a following zero is significant.
fn ends_in_number(text: &str) -> bool {
    text.chars().rev().take_while(char::is_ascii_digit).any(|digit| digit != '0')
}

/// The value and the length of the leading digits. Values wrap around as they do in Go.
fn number(text: &str, inside: bool) -> (i64, usize) {
    let mut value = i64::from(inside);
    let mut digits = 0;
    for byte in text.bytes().take_while(u8::is_ascii_digit) {
        value = value.wrapping_mul(10).wrapping_add(i64::from(byte - b'0'));
        digits += 1;
    }
    (value, digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_natural_order() {
        let ordered = [
            "", "-1", ".", "/", "_", "0", "1", "01", "2", "9", "10", "100", "A", "Z", "a", "a-b", "a.b", "a/b", "a2",
            "a10", "ab", "b",
        ];
        for pair in ordered.windows(2) {
            assert_eq!(natural(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(natural(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(natural("a10", "a10"), Ordering::Equal);
    }

    #[test]
    fn zeros_inside_a_number_count() {
        assert_eq!(natural("a1", "a10"), Ordering::Less);
        assert_eq!(natural("a100", "a11"), Ordering::Greater);
        assert_eq!(natural("a0", "a1"), Ordering::Less);
    }
}
