//! The requirements of a selector with many, joined key by key.
//!
//! A selector may have tens of thousands of requirements and is asked of every object of a collection. Joined, it costs one
//! look for each label that the object has, however many requirements there are: those that hold where a label is absent
//! need not be looked at, and those that demand a label are counted.

use std::collections::{HashMap, HashSet};

use super::{Operator, Requirement};

/// What all requirements together say of each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByKey {
    keys: HashMap<String, Condition>,
    /// How many keys an object must have.
    demanded: usize,
}

/// What all requirements on one key say together.
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
    pub(super) fn of(requirements: &[Requirement]) -> Self {
        let mut keys: HashMap<String, Condition> = HashMap::new();
        for requirement in requirements {
            keys.entry(requirement.key.clone()).or_default().add(requirement);
        }
        let demanded = keys.values().filter(|condition| condition.present).count();
        Self { keys, demanded }
    }

    /// Whether the requirements hold for an object with these labels, each of which has a key of its own.
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
            // A bound that is no number is one that no value keeps.
            Operator::GreaterThan => self.above = self.above.max(Some(bound().unwrap_or(i64::MAX))),
            Operator::LessThan => {
                let bound = bound().unwrap_or(i64::MIN);
                self.below = Some(self.below.map_or(bound, |below| below.min(bound)));
            }
        }
        self.present |= !matches!(requirement.operator, Operator::NotIn | Operator::NotEquals | Operator::DoesNotExist);
    }

    /// Whether a label with this value is as it should be.
    fn holds(&self, value: &str) -> bool {
        !self.absent
            && self.allowed.as_ref().is_none_or(|allowed| allowed.contains(value))
            && !self.refused.contains(value)
            && self.above.is_none_or(|bound| value.parse().is_ok_and(|value: i64| value > bound))
            && self.below.is_none_or(|bound| value.parse().is_ok_and(|value: i64| value < bound))
    }
}
