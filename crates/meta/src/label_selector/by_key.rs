//! Joins the requirements of a large selector by key.
//!
//! A selector may have tens of thousands of requirements, and is matched against every object of a collection. After
//! joining, it costs one lookup for each label of the object. Requirements that hold for an absent label need no
//! evaluation if the label is absent. For those that require a label, the labels found are counted.

use std::collections::{HashMap, HashSet};

use super::{Operator, Requirement};

/// The joined requirements of each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByKey {
    keys: HashMap<String, Condition>,
    /// The number of keys that an object must have.
    demanded: usize,
}

/// The joined requirements of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Condition {
    present: bool,
    absent: bool,
    allowed: Option<HashSet<String>>,
    refused: HashSet<String>,
    above: Option<i64>,
    below: Option<i64>,
}

impl ByKey {
    pub(super) fn new(requirements: &[Requirement]) -> Self {
        let mut keys: HashMap<String, Condition> = HashMap::new();
        for requirement in requirements {
            keys.entry(requirement.key.clone()).or_default().add(requirement);
        }
        let demanded = keys.values().filter(|condition| condition.present).count();
        Self { keys, demanded }
    }

    /// Returns true if the requirements hold for an object with these labels, whose keys are distinct.
    pub(super) fn match_all<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
        let mut met = 0;
        for (key, value) in labels {
            let Some(condition) = self.keys.get(key) else { continue };
            if !condition.holds(value) {
                return false;
            }
            met += usize::from(condition.present);
        }
        met == self.demanded
    }
}

impl Condition {
    fn add(&mut self, requirement: &Requirement) {
        let bound = || requirement.values.first().and_then(|value| value.parse().ok());
        match requirement.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => {
                let values = || requirement.values.iter().cloned().collect();
                match &mut self.allowed {
                    Some(allowed) => allowed.retain(|value| requirement.values.contains(value)),
                    None => self.allowed = Some(values()),
                }
            }
            Operator::NotIn | Operator::NotEquals => self.refused.extend(requirement.values.iter().cloned()),
            Operator::Exists => {}
            Operator::DoesNotExist => self.absent = true,
            // If the bound is not a number, no value matches.
            Operator::GreaterThan => self.above = self.above.max(Some(bound().unwrap_or(i64::MAX))),
            Operator::LessThan => {
                let bound = bound().unwrap_or(i64::MIN);
                self.below = Some(self.below.map_or(bound, |below| below.min(bound)));
            }
        }
        self.present |= !matches!(requirement.operator, Operator::NotIn | Operator::NotEquals | Operator::DoesNotExist);
    }

    /// Returns true if the requirements hold for a label with this value.
    fn holds(&self, value: &str) -> bool {
        !self.absent
            && self.allowed.as_ref().is_none_or(|allowed| allowed.contains(value))
            && !self.refused.contains(value)
            && self.above.is_none_or(|bound| value.parse().is_ok_and(|value: i64| value > bound))
            && self.below.is_none_or(|bound| value.parse().is_ok_and(|value: i64| value < bound))
    }
}
