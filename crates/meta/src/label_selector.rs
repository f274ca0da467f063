//! Label selectors: `app=web,tier in (a,b),!legacy`.
//!
//! [`LabelSelector`] has the semantics, `parse` the grammar, and `structured` the form in objects. The grammar and its
//! messages are upstream's, including oddities: `in` and `notin` are keys except where an operator is expected, and the
//! values of a set may be empty.

mod by_key;
mod parse;
mod structured;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use by_key::ByKey;

use crate::object::Object;

/// The number of requirements up to which each is evaluated separately. That is faster than joining them by key.
const FEW_REQUIREMENTS: usize = 8;

/// A conjunction of requirements, sorted by key: all must hold. The empty selector matches every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// The requirements joined by key. `None` if there are few.
    by_key: Option<Arc<ByKey>>,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

/// The condition on a label's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `key in (a,b)`: present with one of the values.
    In,
    /// `key notin (a,b)`: absent, or with none of the values.
    NotIn,
    /// `key=a`: present with the value.
    Equals,
    /// `key==a`: present with the value.
    DoubleEquals,
    /// `key!=a`: absent, or with another value.
    NotEquals,
    /// `key`: present.
    Exists,
    /// `!key`: absent.
    DoesNotExist,
    /// `key>1`: present with a greater integer.
    GreaterThan,
    /// `key<1`: present with a smaller integer.
    LessThan,
}

impl LabelSelector {
    /// The selector that matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Parses a selector.
    ///
    /// # Errors
    /// The text of the error for the client.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self::sorted(parse::requirements(text)?))
    }

    fn sorted(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|one, other| one.key.cmp(&other.key));
        Self::from_requirements(requirements)
    }

    fn from_requirements(requirements: Vec<Requirement>) -> Self {
        let by_key = (requirements.len() > FEW_REQUIREMENTS).then(|| Arc::new(ByKey::new(&requirements)));
        Self { requirements, by_key }
    }

    /// Returns true if the selector matches every object.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Returns true if the selector matches an object with these labels. `get` returns the value of one label, and
    /// `all` returns all labels.
    ///
    /// Cost: for few requirements, one lookup for each of them. For many, one lookup for each label of the object,
    /// whatever the number of requirements.
    pub fn matches_labels<'a, L: Iterator<Item = (&'a str, &'a str)>>(
        &self,
        get: impl Fn(&str) -> Option<&'a str>,
        all: impl FnOnce() -> L,
    ) -> bool {
        match &self.by_key {
            Some(by_key) => by_key.match_all(all()),
            None => self.matches(get),
        }
    }

    /// Returns true if the selector matches this object.
    pub fn selects(&self, object: &Object) -> bool {
        self.matches(|wanted| object.labels().find(|(name, _)| *name == wanted).map(|(_, value)| value))
    }

    /// Returns true if the selector matches an object. `get` returns the object's labels.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(get(&requirement.key)))
    }
}

impl Requirement {
    /// The label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The condition.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values of the condition, sorted. Conditions on presence and absence have none, and only sets have several.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(String::as_str)
    }

    /// Returns true if the requirement holds for a label with this value, or without one.
    pub fn matches(&self, label: Option<&str>) -> bool {
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => {
                label.is_some_and(|value| self.values.contains(value))
            }
            Operator::NotIn | Operator::NotEquals => label.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => self.compare(label).is_some_and(|(value, bound)| value > bound),
            Operator::LessThan => self.compare(label).is_some_and(|(value, bound)| value < bound),
        }
    }

    /// The label's value and the bound as integers. `None` if either is not an integer.
    fn compare(&self, label: Option<&str>) -> Option<(i64, i64)> {
        Some((label?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let values = values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests;
