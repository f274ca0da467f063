//! The constants of filter expressions, and their comparison with values of objects.
//!
//! A constant is the sort key of its type, except for a text, which is compared as a whole. A value of another type is
//! neither equal to the constant nor smaller or larger.

use crate::sort_key;
use crate::value::Value;

/// A set of allowed values.
#[derive(Clone, Debug)]
pub(super) struct OneOf {
    /// The sort keys of the values, sorted and distinct, by the type of the value.
    pub(super) places: Vec<(Form, Vec<Vec<u8>>)>,
}

/// A constant, as a sort key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Literal {
    pub(super) form: Form,
    pub(super) place: Vec<u8>,
}

/// The type that a value must have for a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Bool,
    /// A JSON number.
    Number,
    /// A text.
    Text,
    Quantity,
    Time,
    Version,
}

impl OneOf {
    pub(super) fn new(literals: impl IntoIterator<Item = Literal>) -> Self {
        let mut places: Vec<(Form, Vec<Vec<u8>>)> = Vec::new();
        for Literal { form, place } in literals {
            match places.iter_mut().find(|(known, _)| *known == form) {
                Some((_, places)) => places.push(place),
                None => places.push((form, vec![place])),
            }
        }
        for (_, places) in &mut places {
            places.sort_unstable();
            places.dedup();
        }
        Self { places }
    }

    /// Returns true if the set has the value.
    ///
    /// Cost: logarithmic in the size of the set.
    pub(super) fn hold(&self, value: &Value<'_>) -> bool {
        self.places.iter().any(|(form, places)| {
            if let (Form::Text, Value::Text(text)) = (form, value) {
                return places.binary_search_by(|place| (**place).cmp(text.as_bytes())).is_ok();
            }
            let mut place = Vec::new();
            form.write(value, &mut place).is_some() && places.binary_search(&place).is_ok()
        })
    }

    /// The only allowed text.
    pub(super) fn only_text(&self) -> Option<&str> {
        let [(Form::Text, places)] = self.places.as_slice() else { return None };
        let [place] = places.as_slice() else { return None };
        std::str::from_utf8(place).ok()
    }
}

impl Literal {
    /// Compares a value with the constant. `None` for a value of another type.
    pub(super) fn compared(&self, value: &Value<'_>) -> Option<std::cmp::Ordering> {
        if let (Form::Text, Value::Text(text)) = (self.form, value) {
            // Compares the whole text, since a sort key has only the start of a long one.
            return Some(text.as_bytes().cmp(&self.place));
        }
        let mut place = Vec::new();
        self.form.write(value, &mut place)?;
        Some(place.cmp(&self.place))
    }
}

impl Form {
    pub(super) fn write(self, value: &Value<'_>, out: &mut Vec<u8>) -> Option<()> {
        match (self, value) {
            (Self::Bool, Value::Bool(value)) => {
                out.push((*value).into());
                Some(())
            }
            (Self::Number, Value::Number(text)) => sort_key::number(text, out),
            (Self::Text, Value::Text(text)) => {
                out.extend_from_slice(text.as_bytes());
                Some(())
            }
            (Self::Quantity, Value::Text(text) | Value::Number(text)) => sort_key::quantity(text, out),
            (Self::Time, Value::Text(text)) => sort_key::time(text, out),
            (Self::Version, Value::Text(text)) => sort_key::version(text, out),
            _ => None,
        }
    }
}
