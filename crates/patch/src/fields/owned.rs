//! The fields of one owner, kept as the text that is stored for as long as nobody needs more.
//!
//! Most owners are only copied from one write to the next, which costs no more than their text then.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::combine::{Combination, combine, shows};
use super::set::FieldSet;
use super::text::NO_FIELDS;

/// The fields of an owner: a text, which is read as a set only when somebody looks into it. Most writes do not change what
/// most owners own, and most others change few fields of it.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    text: Option<Arc<str>>,
    set: OnceLock<FieldSet>,
}

impl Fields {
    /// The fields of this text, which has to be as sets are written.
    pub(super) fn of_text(text: impl Into<Arc<str>>) -> Self {
        Self { text: Some(text.into()), set: OnceLock::new() }
    }

    /// The fields that are in the other set too. Of a text, only what the other set has is read.
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

    /// Takes away the fields of the other set, but not what is below them.
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

    /// Whether the text of both is the same.
    pub(super) fn are_written_as(&self, other: &Self) -> bool {
        self.text.is_some() && self.text == other.text
    }

    /// Whether the texts of both show that the others have all of these fields.
    pub(super) fn are_shown_by(&self, others: &Self) -> bool {
        match (&self.text, &others.text) {
            (Some(part), Some(whole)) => part == whole || shows(part, whole),
            _ => false,
        }
    }

    /// Whether the other set has all of these fields.
    pub(super) fn are_in(&self, other: &FieldSet) -> bool {
        match self.combine(other, Combination::Difference) {
            Some(text) => text == NO_FIELDS,
            None => self.is_subset(other),
        }
    }

    /// Whether all fields of the other set are there.
    pub(super) fn have(&self, other: &FieldSet) -> bool {
        other.is_empty() || other.is_subset(&self.intersection(other))
    }

    /// The text of a combination, unless these fields are a set already or a text that has to be read.
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

    /// Whether there are no fields; like the set's own question, but without reading it.
    pub(super) fn has_none(&self) -> bool {
        match &self.text {
            Some(text) => &**text == NO_FIELDS,
            None => self.is_empty(),
        }
    }

    /// How many bytes of text there are, if there is one.
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

/// What can't be read is no field: whoever stored it knew no better.
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
