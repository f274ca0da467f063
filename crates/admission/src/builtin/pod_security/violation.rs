//! Violations of a standard by a pod, with their messages.
//!
//! Messages are upstream's. Names are listed in upstream's order, in quotes without escapes.

use std::collections::BTreeSet;

/// The violation of one control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// A general description of the forbidden property.
    pub(super) reason: &'static str,
    /// The containers and values that violate the control, and the required setting.
    pub(super) detail: String,
}

impl Violation {
    /// Creates a violation.
    pub(super) fn new(reason: &'static str, detail: String) -> Option<Self> {
        Some(Self { reason, detail })
    }
}

/// The message with all violations of one pod.
pub(super) fn told(violations: &[Violation]) -> String {
    let messages: Vec<String> = violations.iter().map(|it| format!("{} ({})", it.reason, it.detail)).collect();
    messages.join(", ")
}

/// The message without the details of containers, for many pods together.
pub(super) fn reasons(violations: &[Violation]) -> String {
    let reasons: Vec<&str> = violations.iter().map(|it| it.reason).collect();
    reasons.join(", ")
}

/// The first word for a count of one, else the second.
pub(super) fn word(count: usize, one: &'static str, more: &'static str) -> &'static str {
    if count == 1 { one } else { more }
}

/// The names, each in quotes, joined by commas.
pub(super) fn quoted<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(", ")
}

/// The word "container" or "containers" with the names.
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", word(names.len(), "container", "containers"), quoted(names.iter().copied()))
}

/// The parts that set a forbidden value: the pod, some containers, or both.
#[derive(Debug, Default)]
pub(super) struct Setters<'p> {
    /// True if the pod sets it.
    pub(super) pod: bool,
    /// The containers that set it.
    pub(super) containers: Vec<&'p str>,
    /// The forbidden values.
    pub(super) values: BTreeSet<String>,
}

impl Setters<'_> {
    /// Returns true if neither the pod nor a container sets it.
    pub(super) fn are_none(&self) -> bool {
        !self.pod && self.containers.is_empty()
    }

    /// The pod and the containers, as texts to be joined.
    pub(super) fn named(&self) -> Vec<String> {
        let pod = self.pod.then(|| "pod".to_owned());
        let containers = (!self.containers.is_empty()).then(|| containers(&self.containers));
        pod.into_iter().chain(containers).collect()
    }

    /// The pod and the containers as one text.
    pub(super) fn told(&self) -> String {
        self.named().join(" and ")
    }

    /// The values, sorted, as one text.
    pub(super) fn values(&self) -> String {
        quoted(self.values.iter().map(String::as_str))
    }
}
