//! Amounts of resources by name: requests, limits and usage.
//!
//! As upstream, a sum is written with a binary suffix if its first amount is.

use std::collections::BTreeMap;
use std::fmt;

use crate::json::{Map, Value};
use crate::quantity::{Quantity, canonical};

/// The value of the smallest binary suffix in units.
const KIBI: i128 = 1024;

/// An amount of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    quantity: Quantity,
    /// True if the amount is written with a binary suffix.
    is_binary: bool,
}

impl Amount {
    /// Parses a quantity.
    pub fn parse(value: &Value) -> Option<Self> {
        let number;
        let text = match value {
            Value::String(text) => text.as_str(),
            Value::Number(plain) => {
                number = plain.to_string();
                &number
            }
            _ => return None,
        };
        Some(Self { quantity: Quantity::parse(text)?, is_binary: text.ends_with('i') })
    }

    /// An amount of `number` whole units.
    pub const fn units(number: i64) -> Self {
        Self { quantity: Quantity::units(number), is_binary: false }
    }

    /// The quantity.
    pub const fn quantity(self) -> Quantity {
        self.quantity
    }

    /// Returns true for zero.
    pub fn is_zero(self) -> bool {
        self.quantity == Quantity::ZERO
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let is_binary = if self.is_zero() { other.is_binary } else { self.is_binary };
        Self { quantity: self.quantity.plus(other.quantity), is_binary }
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let is_binary = if self.is_zero() { other.is_binary } else { self.is_binary };
        Self { quantity: self.quantity.minus(other.quantity), is_binary }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.quantity.rounded_up();
        if !self.is_binary || !self.quantity.is_whole() || units.abs() < KIBI {
            return self.quantity.fmt(f);
        }
        if units % KIBI != 0 {
            return units.fmt(f);
        }
        let text = format!("{}Ki", units / KIBI);
        f.write_str(&canonical(&text).ok().flatten().unwrap_or(text))
    }
}

/// Amounts by the names of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(pub BTreeMap<String, Amount>);

impl Amounts {
    /// Reads a list of quantities. Invalid ones are skipped, since validation reports them.
    pub fn read(list: Option<&Value>) -> Self {
        let list = list.and_then(Value::as_object).into_iter().flat_map(Map::iter);
        Self(list.filter_map(|(name, amount)| Some((name.to_owned(), Amount::parse(amount)?))).collect())
    }

    /// The amount of a resource.
    pub fn get(&self, name: &str) -> Option<Amount> {
        self.0.get(name).copied()
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, name: impl Into<String>, amount: Amount) {
        self.0.insert(name.into(), amount);
    }

    /// Adds to an amount.
    pub fn add(&mut self, name: &str, amount: Amount) {
        let sum = self.0.entry(name.to_owned()).or_default();
        *sum = sum.plus(amount);
    }

    /// Adds all amounts of `others` to these.
    pub fn add_all(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            self.add(name, *amount);
        }
    }

    /// Raises each amount to that of `others` if that is greater.
    pub fn raise_to(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            let known = self.0.entry(name.clone()).or_insert(*amount);
            if amount.quantity > known.quantity {
                *known = *amount;
            }
        }
    }

    /// The amounts as a JSON object.
    pub fn to_value(&self) -> Value {
        let texts = self.0.iter().map(|(name, amount)| (name.as_str(), Value::from(amount.to_string())));
        Value::Object(texts.collect())
    }
}

/// Formats the amounts as upstream does in its messages.
impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, amount)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{name}={amount}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn sums_are_reported_as_their_first_amount_is() {
        let check = |amounts: &[&str], expected: &str| {
            let amounts = amounts.iter().map(|text| Amount::parse(&json!(text)).unwrap());
            assert_eq!(amounts.fold(Amount::default(), Amount::plus).to_string(), expected);
        };
        check(&["300Mi", "300Mi"], "600Mi");
        check(&["512Mi", "512Mi"], "1Gi");
        check(&["1500m", "1"], "2500m");
        check(&["2", "2"], "4");
        check(&["1Gi", "1k"], "1073742824");
        check(&["1Mi", "1Ki"], "1025Ki");
        check(&["0"], "0");
        check(&["64Mi"], "64Mi");
        let less = Amount::parse(&json!("1500m")).unwrap().minus(Amount::parse(&json!("100m")).unwrap());
        assert_eq!(less.to_string(), "1400m");
    }
}
