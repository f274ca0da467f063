//! Counts of repetitions: `{2}`, `{2,}` and `{2,3}`.
//!
//! Both the parser and the measurement of patterns use this module, so that they refuse the same counts.

/// The largest count of a repetition, and the largest product of nested ones.
pub(super) const MAX_REPEAT: u32 = 1000;

/// Reads `{least}`, `{least,}` or `{least,most}`, and returns the rest of the text. If a count is too large, the least
/// count is `None`.
pub(super) fn counts(text: &str) -> Option<(Option<u32>, Option<u32>, &str)> {
    let (least, rest) = count(text.strip_prefix('{')?)?;
    let (most, rest) = match rest.strip_prefix(',') {
        None => (least.ok(), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => match count(rest)? {
            (Ok(most), rest) => (Some(most), rest),
            (Err(TooMany), rest) => return Some((None, None, rest.strip_prefix('}')?)),
        },
    };
    Some((least.ok(), most, rest.strip_prefix('}')?))
}

/// The error for a count that is too large.
#[derive(Clone, Copy)]
struct TooMany;

/// Reads a count without leading zeros, and returns the rest.
fn count(text: &str) -> Option<(Result<u32, TooMany>, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    let count = digits.parse().ok().filter(|count| *count <= MAX_REPEAT).ok_or(TooMany);
    Some((count, rest))
}
