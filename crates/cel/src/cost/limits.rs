//! Limits for what expressions may cost, and how upstream says that one might cost more.
//!
//! Rules are held to these when a definition is written, by their estimates, and when an object is, by what they use.

/// What one rule of a definition may be estimated to cost for a whole object.
pub const RULE: u64 = 10_000_000;
/// What all rules of a definition's schema may.
pub const SCHEMA: u64 = 100_000_000;
/// What one evaluation of an expression may use.
pub const EVALUATION: u64 = 1_000_000;
/// What all evaluations for one object may.
pub const OBJECT: u64 = 10_000_000;

/// What all evaluations for one object may do of what upstream's count leaves out: in nanoseconds, about. Upstream's counts keep
/// nobody from letting a short expression compare or match for minutes.
pub const WORK: u64 = 5_000_000_000;

/// The bytes that a request may have.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// From which factor on no number is said.
const FAR: f64 = 100.0;
/// Up to which factor all digits are said.
const NEAR: f64 = 1.5;

/// How often a value of so many bytes can be in a request whose lists and maps have no bound.
pub fn most_values(min_size: u64) -> u64 {
    // There is at least a comma between two of them.
    MAX_REQUEST / min_size.saturating_add(1)
}

/// How many times a limit an estimate is, as upstream writes it; `None` if it is within it.
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

/// What is said of what might cost more than its limit; `None` if it may not.
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
    fn an_excess_is_said_the_more_exactly_the_smaller_it_is() {
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
