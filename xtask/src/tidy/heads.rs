//! Every Rust file opens by saying what it is for: a head of a few `//!` lines.

use super::Finding;

const SHORTEST: usize = 1;
const LONGEST: usize = 10;
/// The head of a whole crate also states its invariants.
const LONGEST_OF_CRATE: usize = 16;
const FEWEST_WORDS: usize = 2;

pub(super) fn check(place: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().take_while(|l| l.starts_with("//!")).count();
    let longest = if place.ends_with("src/lib.rs") { LONGEST_OF_CRATE } else { LONGEST };
    let words = text.lines().take(lines).flat_map(|l| l[3..].split_whitespace()).count();
    if lines < SHORTEST || words < FEWEST_WORDS {
        Some(Finding::fault(place, "does not open with a `//!` head that says what it is for"))
    } else if lines > longest {
        Some(Finding::fault(place, format!("its head has {lines} lines; {longest} are enough")))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_head_is_asked_for_and_kept_short() {
        assert!(check("a.rs", "//! Reads the wire.\nuse x;").is_none());
        assert!(check("a.rs", "use x;").is_some());
        assert!(check("a.rs", "//! bench\nuse x;").is_some());
        assert!(check("a.rs", &"//! a line of many\n".repeat(11)).is_some());
        assert!(check("crates/a/src/lib.rs", &"//! a line of many\n".repeat(11)).is_none());
    }
}
