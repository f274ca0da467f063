//! Finds resources by the names used in settings: `secrets`, `roles.rbac.authorization.k8s.io`.
//!
//! A setting with an unknown resource must be refused and not ignored, since it may protect that resource. The error
//! suggests similar names.

use std::fmt;
use std::sync::Arc;

use crate::catalogue::Catalogue;
use crate::resource::Resource;

/// The maximum edit distance of a suggestion.
const NEAR: usize = 2;
/// The maximum number of suggestions.
const MOST_OFFERED: usize = 4;

/// An unknown resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownResource {
    /// The name.
    pub name: String,
    /// Similar names, the best first.
    pub near: Vec<String>,
}

impl fmt::Display for UnknownResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no resource {:?}", self.name)?;
        match self.near.as_slice() {
            [] => f.write_str("; a name is the plural with its group after a dot, such as secrets or deployments.apps"),
            near => write!(f, "; did you mean {}?", near.join(" or ")),
        }
    }
}

impl std::error::Error for UnknownResource {}

impl Catalogue {
    /// The resource of a plural name, followed by a dot and the group except for the core group.
    ///
    /// # Errors
    /// An unknown name. Kinds, singulars and short names are not accepted, but yield a suggestion.
    pub fn named(&self, name: &str) -> Result<&Arc<Resource>, UnknownResource> {
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        self.resource(group, plural)
            .ok_or_else(|| UnknownResource { name: name.to_owned(), near: self.near(plural, group) })
    }

    fn near(&self, word: &str, group: &str) -> Vec<String> {
        let word = word.to_lowercase();
        let mut found: Vec<(usize, String)> = self
            .resources()
            .filter_map(|resource| {
                let far = distance_to(resource, &word)? + usize::from(resource.group != group);
                Some((far, resource.group_resource().to_string()))
            })
            .collect();
        // The sort is stable: equal distances keep the order of discovery.
        found.sort_by_key(|(far, _)| *far);
        found.into_iter().take(MOST_OFFERED).map(|(_, name)| name).collect()
    }
}

/// The distance of a word to a resource's names. `None` if it is too large.
fn distance_to(resource: &Resource, word: &str) -> Option<usize> {
    let kind = resource.kind.to_lowercase();
    if word == kind || word == resource.singular || resource.short_names.iter().any(|name| name == word) {
        return Some(0);
    }
    let far = edits(word, &resource.plural).min(edits(word, &kind));
    // In a short word two edits give an unrelated word.
    (far <= NEAR.min(word.len() / 3)).then_some(far)
}

/// The number of inserted, removed or replaced letters between two words (Levenshtein's distance).
fn edits(one: &str, other: &str) -> usize {
    let other = other.as_bytes();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, letter) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], above + 1);
        for (column, &wanted) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_differ_by_the_letters_that_must_change() {
        for (one, other, far) in
            [("", "", 0), ("", "abc", 3), ("pods", "pod", 1), ("nodse", "nodes", 2), ("abc", "abc", 0)]
        {
            assert_eq!((edits(one, other), edits(other, one)), (far, far), "{one} {other}");
        }
    }
}
