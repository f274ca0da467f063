//! Resources by the names that people write in settings: `secrets`, `roles.rbac.authorization.k8s.io`.
//!
//! A setting that names nothing must be refused, not ignored: what it was to protect would stay open. The refusal names
//! what may have been meant.

use std::fmt;
use std::sync::Arc;

use crate::catalogue::Catalogue;
use crate::resource::Resource;

/// How many letters may be wrong in a name for another to be offered.
const NEAR: usize = 2;
/// How many names are offered at the most.
const MOST_OFFERED: usize = 4;

/// There is no resource of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownResource {
    /// The name.
    pub name: String,
    /// What may have been meant, the likeliest first.
    pub near: Vec<String>,
}

impl fmt::Display for UnknownResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no resource {:?}", self.name)?;
        match self.near.as_slice() {
            [] => f.write_str("; a name is a plural, with its group behind a dot, such as secrets or deployments.apps"),
            near => write!(f, "; did you mean {}?", near.join(" or ")),
        }
    }
}

impl std::error::Error for UnknownResource {}

impl Catalogue {
    /// The resource of a plural name, followed by a dot and the group unless that is the core group.
    ///
    /// # Errors
    /// When there is none. Kinds, singulars and short names are not accepted, but lead to the name that is.
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
        // The sort is stable: what is equally near stays in the order of discovery.
        found.sort_by_key(|(far, _)| *far);
        found.into_iter().take(MOST_OFFERED).map(|(_, name)| name).collect()
    }
}

/// How far a word is from a resource's names; `None` when it is too far to have been meant.
fn distance_to(resource: &Resource, word: &str) -> Option<usize> {
    let kind = resource.kind.to_lowercase();
    if word == kind || word == resource.singular || resource.short_names.iter().any(|name| name == word) {
        return Some(0);
    }
    let far = edits(word, &resource.plural).min(edits(word, &kind));
    // In a short word two other letters make another word.
    (far <= NEAR.min(word.len() / 3)).then_some(far)
}

/// How many letters must be put in, left out or replaced to make one word of the other (Levenshtein's distance).
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
