//! Violations: things that a pod does and a standard forbids, in the words that clients are told.
//!
//! Texts are upstream's; names are listed as there, in order and in quotes that escape nothing.

use std::collections::BTreeSet;

/// What a pod breaks of one control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// What is forbidden, in general.
    pub(super) reason: &'static str,
    /// By whom, and how it should be.
    pub(super) detail: String,
}

impl Violation {
    /// A violation in these words.
    pub(super) fn new(reason: &'static str, detail: String) -> Option<Self> {
        Some(Self { reason, detail })
    }
}

/// The violations of a pod as they are told whoever writes it.
pub(super) fn told(violations: &[Violation]) -> String {
    let told: Vec<String> = violations.iter().map(|it| format!("{} ({})", it.reason, it.detail)).collect();
    told.join(", ")
}

/// The same without who breaks what, as many pods are told of together.
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

/// Who has set something that is forbidden: the pod, some containers, or both.
#[derive(Debug, Default)]
pub(super) struct Setters<'p> {
    /// Whether the pod has.
    pub(super) pod: bool,
    /// The containers that have.
    pub(super) containers: Vec<&'p str>,
    /// What they have set.
    pub(super) values: BTreeSet<String>,
}

impl Setters<'_> {
    /// Whether nobody has.
    pub(super) fn are_none(&self) -> bool {
        !self.pod && self.containers.is_empty()
    }

    /// Who has, as texts to be joined.
    pub(super) fn named(&self) -> Vec<String> {
        let pod = self.pod.then(|| "pod".to_owned());
        let containers = (!self.containers.is_empty()).then(|| containers(&self.containers));
        pod.into_iter().chain(containers).collect()
    }

    /// Who has, in one text.
    pub(super) fn told(&self) -> String {
        self.named().join(" and ")
    }

    /// What they have set, in order.
    pub(super) fn values(&self) -> String {
        quoted(self.values.iter().map(String::as_str))
    }
}
