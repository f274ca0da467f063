//! Finds a short plan that still breaks the same rule.
//!
//! It leaves out halves, then smaller parts, as long as the rule stays broken (delta debugging). Every attempt is a run of
//! its own from the same seed.

use std::collections::BTreeSet;

use crate::plan::Plan;

/// Removes parts of the plan while `breaks` holds, with at most this many runs.
pub(crate) fn shrink(plan: &Plan, mut runs: usize, mut breaks: impl FnMut(&Plan) -> bool) -> Plan {
    let mut parts = plan.parts();
    let mut size = parts.len().div_ceil(2);
    while size > 0 && runs > 0 {
        let mut place = 0;
        let before = parts.len();
        while place < parts.len() && runs > 0 {
            let end = (place + size).min(parts.len());
            let rest: Vec<String> = parts[..place].iter().chain(&parts[end..]).cloned().collect();
            runs -= 1;
            if breaks(&plan.only(&rest.iter().cloned().collect::<BTreeSet<_>>())) {
                parts = rest;
            } else {
                place = end;
            }
        }
        if size == 1 && parts.len() == before {
            break;
        }
        size = if size == 1 { 1 } else { size.div_ceil(2) };
    }
    plan.only(&parts.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let plan = Plan::new(3, None);
        let needs = |plan: &Plan| {
            let parts = plan.parts();
            ["f1", "o20", "o77"].iter().all(|part| parts.iter().any(|known| known == part))
        };
        assert_eq!(shrink(&plan, 1000, needs).parts(), ["f1", "o20", "o77"]);
        assert!(needs(&shrink(&plan, 20, needs)), "a limited search is right too");
    }
}
