//! The fields of one owner. They are kept as stored text until they must be parsed.
//!
//! Most owners are only copied from one write to the next, which costs no more than copying the text.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::combine::{Combination, combine, shows};
use super::set::FieldSet;
use super::text::NO_FIELDS;

/// The fields of an owner: a text that is parsed into a set on demand. Most writes leave most owners unchanged, and
/// change few fields of the others.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    text: Option<Arc<str>>,
    set: OnceLock<FieldSet>,
}

impl Fields {
    /// Wraps a text in the form of written sets.
    pub(super) fn of_text(text: impl Into<Arc<str>>) -> Self {
        Self { text: Some(text.into()), set: OnceLock::new() }
    }

    /// Returns the fields that are in the other set too. Only these parts of a text are read.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        if other.is_empty() {
            return FieldSet::new();
        }
        match self.combine(other, Combination::Intersection) {
            Some(text) => read_text(&text),
            None => self.deref().intersection(other),
        }
    }

    /// Removes the fields of the other set, but not the fields below them.
    pub fn subtract(&mut self, other: &FieldSet) {
        if !other.is_empty() {
            *self = match self.combine(other, Combination::Difference) {
                Some(text) => Self::of_text(text),
                None => self.deref().difference(other).into(),
            };
        }
    }

    /// Adds the fields of the other set.
    pub fn extend(&mut self, other: &FieldSet) {
        if !other.is_empty() {
            *self = match self.combine(other, Combination::Union) {
                Some(text) => Self::of_text(text),
                None => self.deref().union(other).into(),
            };
        }
    }

    /// Returns true if both have the same text.
    pub(super) fn are_written_as(&self, other: &Self) -> bool {
        self.text.is_some() && self.text == other.text
    }

    /// Returns true if the texts prove that `others` have all of these fields.
    pub(super) fn are_shown_by(&self, others: &Self) -> bool {
        match (&self.text, &others.text) {
            (Some(part), Some(whole)) => part == whole || shows(part, whole),
            _ => false,
        }
    }

    /// Returns true if the other set has all of these fields.
    pub(super) fn are_in(&self, other: &FieldSet) -> bool {
        match self.combine(other, Combination::Difference) {
            Some(text) => text == NO_FIELDS,
            None => self.is_subset(other),
        }
    }

    /// Returns true if these fields include the other set.
    pub(super) fn have(&self, other: &FieldSet) -> bool {
        other.is_empty() || other.is_subset(&self.intersection(other))
    }

    /// Returns the text of a combination. `None` if the fields are a parsed set, or their text must be parsed.
    fn combine(&self, other: &FieldSet, how: Combination) -> Option<String> {
        match (&self.text, self.set.get()) {
            (Some(text), None) => combine(text, other, how),
            _ => None,
        }
    }

    /// The set.
    pub fn into_set(self) -> FieldSet {
        let Self { text, set } = self;
        set.into_inner().unwrap_or_else(|| text.map(|text| read_text(&text)).unwrap_or_default())
    }

    /// Returns true if there are no fields, without parsing.
    pub(super) fn has_none(&self) -> bool {
        match &self.text {
            Some(text) => &**text == NO_FIELDS,
            None => self.is_empty(),
        }
    }

    /// The length of the text in bytes, 0 without a text.
    pub(super) fn text_len(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.len())
    }

    /// Appends the text of `fieldsV1`.
    pub fn write_text(&self, out: &mut String) {
        match &self.text {
            Some(text) => out.push_str(text),
            None => self.deref().write_text(out),
        }
    }
}

/// Parses a text. If it can't be parsed, there are no fields.
fn read_text(text: &str) -> FieldSet {
    FieldSet::from_text(text).unwrap_or_default()
}

impl Deref for Fields {
    type Target = FieldSet;

    fn deref(&self) -> &FieldSet {
        self.set.get_or_init(|| self.text.as_deref().map(read_text).unwrap_or_default())
    }
}

impl From<FieldSet> for Fields {
    fn from(set: FieldSet) -> Self {
        Self { text: None, set: OnceLock::from(set) }
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.are_written_as(other) || **self == **other
    }
}

impl Eq for Fields {}
