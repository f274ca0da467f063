//! Words that must not be in the repository: paths of one machine, hosts of package registries, unfinished marks.
//!
//! A clone must build anywhere, with any configured registries.

use super::Finding;

/// Each word is split into two parts, so that this file does not contain it.
const FORBIDDEN: [(&str, &str, &str); 14] = [
    ("/wo", "rk/", "a path of one machine"),
    ("/ho", "me/", "a path of one machine"),
    ("/ro", "ot/", "a path of one machine"),
    ("/Us", "ers/", "a path of one machine"),
    ("/tmp", "/w/", "a path of one machine"),
    ("pypi", ".org", "the host of a package registry"),
    ("python", "hosted.org", "the host of a package registry"),
    ("index.cra", "tes.io", "the host of a package registry"),
    ("static.cra", "tes.io", "the host of a package registry"),
    ("npm", "js.org", "the host of a package registry"),
    ("proxy.go", "lang.org", "the host of a package registry"),
    ("deb.deb", "ian.org", "the host of a package registry"),
    ("TO", "DO", "an unfinished mark"),
    ("FIX", "ME", "an unfinished mark"),
];

pub(super) fn check(place: &str, text: &str) -> Vec<Finding> {
    // cargo writes the lockfile: it names the default registry.
    if place == "Cargo.lock" {
        return Vec::new();
    }
    let words = FORBIDDEN.map(|(head, tail, why)| (format!("{head}{tail}"), why));
    let found = |(number, line): (usize, &str)| {
        let (word, why) = words.iter().find(|(word, _)| line.contains(word.as_str()))?;
        Some(Finding::fault(format_args!("{place}:{}", number + 1), format!("{word:?} is {why}")))
    };
    text.lines().enumerate().filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::{FORBIDDEN, check};

    #[test]
    fn each_forbidden_word_is_found_with_its_line() {
        for (head, tail, _) in FORBIDDEN {
            let found = check("a.md", &format!("fine\nsee {head}{tail}x"));
            assert_eq!(found.len(), 1, "{head}{tail}");
            assert_eq!(found[0].place, "a.md:2");
        }
        assert!(check("a.md", "nothing to see").is_empty());
    }
}
