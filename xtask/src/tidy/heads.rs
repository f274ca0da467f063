//! Every Rust file starts with a head of a few `//!` lines about its purpose.
//!
//! A head of one line only repeats the file's name. One that is too long is documentation and belongs elsewhere.

use super::Finding;

/// The fewest lines of a head. A shorter head only repeats the file's name.
const SHORTEST: usize = 2;
/// Openings of heads that do not name their subject.
const RIDDLES: [&str; 12] = [
    "Who ",
    "Whom ",
    "Whose ",
    "What ",
    "Whether ",
    "Where ",
    "Which ",
    "In which ",
    "Up to ",
    "How ",
    "When ",
    "That ",
];
const LONGEST: usize = 10;
/// The head of a whole crate also states its invariants.
const LONGEST_OF_CRATE: usize = 16;
const FEWEST_WORDS: usize = 2;

pub(super) fn check(place: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().take_while(|l| l.starts_with("//!")).count();
    let longest = if place.ends_with("src/lib.rs") { LONGEST_OF_CRATE } else { LONGEST };
    let words = text.lines().take(lines).flat_map(|l| l[3..].split_whitespace()).count();
    if lines < SHORTEST || words < FEWEST_WORDS {
        let text = format!("does not open with a `//!` head of {SHORTEST} lines or more that says what it is for");
        Some(Finding::fault(place, text))
    } else if is_riddle(text) {
        Some(Finding::fault(place, "its head begins with a question word: name the thing that is here, by its noun"))
    } else if lines > longest {
        Some(Finding::fault(place, format!("its head has {lines} lines; {longest} are enough")))
    } else {
        None
    }
}

fn is_riddle(text: &str) -> bool {
    text.strip_prefix("//! ").is_some_and(|head| RIDDLES.iter().any(|word| head.starts_with(word)))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn module_heads_are_required_short_and_plain() {
        assert!(check("a.rs", "//! What is read.\n//! Knows no objects.\nuse x;").is_some());
        assert!(check("crates/a/tests/a.rs", "//! What is read.\n//! Knows no objects.\nuse x;").is_some());
        assert!(check("a.rs", "//! Reads the wire.\n//! Knows no objects.\nuse x;").is_none());
        assert!(check("a.rs", "//! Reads the wire.\nuse x;").is_some());
        assert!(check("crates/a/tests/a.rs", "//! Reads the wire.\nuse x;").is_some());
        assert!(check("a.rs", "use x;").is_some());
        assert!(check("a.rs", "//! bench\nuse x;").is_some());
        assert!(check("a.rs", &"//! a line of many\n".repeat(11)).is_some());
        assert!(check("crates/a/src/lib.rs", &"//! a line of many\n".repeat(11)).is_none());
    }
}
