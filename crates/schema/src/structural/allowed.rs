//! The values that an `enum` allows.
//!
//! In a long list, a value is looked up by hash, because the lookup runs for each value of an object.

use std::hash::{BuildHasher as _, RandomState};

use keelson_meta::json::Value;

use super::equality::{CelEqual, equal};
use super::rare_keywords::KeywordGroup;

/// The largest number of values compared one by one.
const COMPARED: usize = 8;

/// Allowed values. If there are none, every value is allowed.
#[derive(Debug)]
pub(super) struct Allowed {
    stated: Vec<Value>,
    /// Indexes by hash, sorted. Empty for short lists.
    hashed: Vec<(u64, usize)>,
    /// `None` for short lists.
    hasher: Option<RandomState>,
}

impl KeywordGroup for Allowed {
    fn unset() -> &'static Self {
        static NOTHING: Allowed = Allowed { stated: Vec::new(), hashed: Vec::new(), hasher: None };
        &NOTHING
    }

    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

impl Allowed {
    pub(super) fn new(stated: &[Value]) -> Self {
        let hasher = (stated.len() > COMPARED).then(RandomState::new);
        let mut hashed = Vec::new();
        if let Some(hasher) = &hasher {
            let places = stated.iter().enumerate();
            hashed.extend(places.map(|(place, value)| (hasher.hash_one(CelEqual(value)), place)));
            hashed.sort_unstable();
        }
        Self { stated: stated.to_vec(), hashed, hasher }
    }

    /// The values in the order of the schema.
    pub(super) fn stated(&self) -> &[Value] {
        &self.stated
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stated.is_empty()
    }

    /// Returns true for an allowed value. As upstream, null is never allowed.
    pub(super) fn has(&self, value: &Value) -> bool {
        let is = |allowed: &Value| !allowed.is_null() && equal(allowed, value);
        let Some(hasher) = &self.hasher else { return self.stated.iter().any(is) };
        let hash = hasher.hash_one(CelEqual(value));
        let from = self.hashed.partition_point(|(other, _)| *other < hash);
        self.hashed[from..].iter().take_while(|(other, _)| *other == hash).any(|(_, place)| is(&self.stated[*place]))
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn long_enumerations_allow_the_values_of_short_ones() {
        let few = [json!("a"), json!(1), json!({"x": [1.0]}), json!(null)];
        let many: Vec<Value> =
            few.iter().cloned().chain((0..100).map(|index| json!(format!("more-{index}")))).collect();
        for allowed in [Allowed::new(&few), Allowed::new(&many)] {
            let check = |value: Value, expected: bool| assert_eq!(allowed.has(&value), expected, "{value}");
            check(json!("a"), true);
            check(json!(1.0), true);
            check(json!({"x": [1]}), true);
            check(json!(null), false);
            check(json!("b"), false);
            check(json!({"x": [2]}), false);
        }
    }
}
