//! The order of version names: `v2` before `v1` before `v1beta1`, as in discovery.
//!
//! This module must not know what the versions contain.

use std::cmp::Ordering;

/// Compares version names: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then other names alphabetically.
pub fn compare(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// The maturity of a version, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Maturity {
    /// `v1alpha1`
    Alpha,
    /// `v1beta1`
    Beta,
    /// `v1`
    Stable,
}

/// The maturity of a version. `None` for a name of another form.
pub fn maturity(name: &str) -> Option<Maturity> {
    parse_version(name).map(|(maturity, ..)| maturity)
}

/// Maturity, major and minor number of a name such as `v1beta2`. `None` for another form.
fn parse_version(name: &str) -> Option<(Maturity, u64, u64)> {
    let numbers = name.strip_prefix('v')?;
    let (major, maturity, minor) = if let Some((major, minor)) = numbers.split_once("alpha") {
        (major, Maturity::Alpha, number(minor)?)
    } else if let Some((major, minor)) = numbers.split_once("beta") {
        (major, Maturity::Beta, number(minor)?)
    } else {
        (numbers, Maturity::Stable, 0)
    };
    Some((maturity, number(major)?, minor))
}

/// A number without sign and leading zero.
fn number(digits: &str) -> Option<u64> {
    if digits.starts_with('0') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_by_maturity_and_number() {
        let mut names = ["zeta", "v1alpha1", "v1", "alpha", "v10", "v2beta1", "v01", "v2", "v1beta11", "v1beta2"];
        names.sort_by(|a, b| compare(a, b));
        assert_eq!(names, ["v10", "v2", "v1", "v2beta1", "v1beta11", "v1beta2", "v1alpha1", "alpha", "v01", "zeta"]);
    }
}
