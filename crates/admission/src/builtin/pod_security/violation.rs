//! Violations of a standard by a pod, in the words for clients.
//!
//! Texts are upstream's; names are listed as there, in order and in quotes without escapes.

use std::collections::BTreeSet;

/// The violation of one control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// The forbidden property, in general.
    pub(super) reason: &'static str,
    /// The containers and values, and the required setting.
    pub(super) detail: String,
}

impl Violation {
    /// A violation in these words.
    pub(super) fn new(reason: &'static str, detail: String) -> Option<Self> {
        Some(Self { reason, detail })
    }
}

/// The violations of a pod, as text for its writer.
pub(super) fn told(violations: &[Violation]) -> String {
    let told: Vec<String> = violations.iter().map(|it| format!("{} ({})", it.reason, it.detail)).collect();
    told.join(", ")
}

/// The same without containers, for many pods together.
pub(super) fn reasons(violations: &[Violation]) -> String {
    let reasons: Vec<&str> = violations.iter().map(|it| it.reason).collect();
    reasons.join(", ")
}

/// One of two words, by a number.
pub(super) fn word(count: usize, one: &'static str, more: &'static str) -> &'static str {
    if count == 1 { one } else { more }
}

/// Names in quotes.
pub(super) fn quoted<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(", ")
}

/// Containers by their names.
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", word(names.len(), "container", "containers"), quoted(names.iter().copied()))
}

/// The parts that set a forbidden value: the pod, some containers, or both.
#[derive(Debug, Default)]
pub(super) struct Setters<'p> {
    /// True if the pod sets it.
    pub(super) pod: bool,
    /// The containers that have.
    pub(super) containers: Vec<&'p str>,
    /// The values set.
    pub(super) values: BTreeSet<String>,
}

impl Setters<'_> {
    /// Returns true if no part sets it.
    pub(super) fn are_none(&self) -> bool {
        !self.pod && self.containers.is_empty()
    }

    /// The parts, as texts to be joined.
    pub(super) fn named(&self) -> Vec<String> {
        let pod = self.pod.then(|| "pod".to_owned());
        let containers = (!self.containers.is_empty()).then(|| containers(&self.containers));
        pod.into_iter().chain(containers).collect()
    }

    /// The parts, in one text.
    pub(super) fn told(&self) -> String {
        self.named().join(" and ")
    }

    /// The values, in order.
    pub(super) fn values(&self) -> String {
        quoted(self.values.iter().map(String::as_str))
    }
}
