//! Cost limits of expressions, and upstream's messages for exceeding them.
//!
//! Estimates are checked when a definition is written, and actual costs when an object is.

/// The maximum estimated cost of one rule of a definition.
pub const RULE: u64 = 10_000_000;
/// The maximum estimated cost of all rules of a schema.
pub const SCHEMA: u64 = 100_000_000;
/// The maximum cost of one evaluation.
pub const EVALUATION: u64 = 1_000_000;
/// The maximum cost of all evaluations for one object.
pub const OBJECT: u64 = 10_000_000;

/// The approximate maximum of work that upstream's cost model does not count, for all evaluations of one object, in
/// nanoseconds. By upstream's model alone, a short expression could compare or match for minutes.
pub const WORK: u64 = 5_000_000_000;

/// The maximum size of a request in bytes.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// The factor from which a message states no number.
const FAR: f64 = 100.0;
/// The factor up to which a message states all digits.
const NEAR: f64 = 1.5;

/// The maximum number of values of this size in one request, if lists and maps have no limit.
pub fn most_values(min_size: u64) -> u64 {
    // Two values are separated at least by a comma.
    MAX_REQUEST / min_size.saturating_add(1)
}

/// The cost as a multiple of its limit, in upstream's format. `None` if the limit is not exceeded.
pub fn excess(cost: u64, limit: u64) -> Option<String> {
    if cost <= limit {
        return None;
    }
    let factor = cost as f64 / limit as f64;
    Some(if factor > FAR {
        "more than 100x".to_owned()
    } else if factor < NEAR {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    })
}

/// The message for a cost above its limit. `None` if the limit is not exceeded.
pub fn complaint(what: &str, cost: u64, limit: u64) -> Option<String> {
    let factor = excess(cost, limit)?;
    Some(format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength \
         where arrays, maps, and strings are declared)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_precision_of_a_cost_excess_grows_near_the_limit() {
        assert_eq!(excess(10_000_000, RULE), None);
        assert_eq!(excess(10_147_803, RULE).as_deref(), Some("1.014780x"));
        assert_eq!(excess(24_000_003, RULE).as_deref(), Some("2.4x"));
        assert_eq!(excess(u64::MAX, RULE).as_deref(), Some("more than 100x"));
    }

    #[test]
    fn an_estimate_counts_for_each_value_that_there_can_be() {
        assert_eq!(complaint("estimated rule cost", 12 * 100, RULE), None);
        let said = complaint("estimated rule cost", 12 * most_values(2), RULE);
        assert!(said.is_some_and(|said| said.contains("cost exceeds budget by factor of 1.258291x (")));
    }
}
