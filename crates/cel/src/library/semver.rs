//! Semantic versions (semver.org, 2.0.0), with upstream's errors.
//!
//! The functions that compare versions also serve quantities, for which they have the same names.

use super::no_overload_of;
use crate::values::{EvalError, Outcome, Value};
use keelson_meta::go_format::quote;
use std::cmp::Ordering;

/// A version. Build metadata is ignored.
#[derive(Debug, PartialEq, Eq)]
pub struct Version {
    numbers: [u64; 3],
    pre: Vec<Identifier>,
}

/// A pre-release identifier. Numbers come before texts.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Version {
    /// Parses a version.
    ///
    /// # Errors
    /// The text is not a version.
    pub fn parse(text: &str) -> Result<Self, String> {
        const NAMES: [&str; 3] = ["Major", "Minor", "Patch"];
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((*rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        let mut numbers = [0; 3];
        for (at, (name, digits)) in NAMES.iter().zip([*major, *minor, patch]).enumerate() {
            numbers[at] = number(name, digits)?;
        }
        let pre = pre.into_iter().flat_map(|pre| pre.split('.')).map(part).collect::<Result<_, _>>()?;
        for meta in build.into_iter().flat_map(|build| build.split('.')) {
            if meta.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !meta.bytes().all(is_identifier) {
                return Err(format!("Invalid character(s) found in build meta data {}", quote(meta)));
            }
        }
        Ok(Self { numbers, pre })
    }

    /// Parses a version that may have a leading `v`, fewer than three numbers, and leading zeros.
    ///
    /// # Errors
    /// The text is not such a version.
    pub fn parse_tolerant(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in &mut parts {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let trimmed = part[..digits].trim_start_matches('0');
            let kept = if trimmed.is_empty() && digits > 0 { "0" } else { trimmed };
            *part = format!("{kept}{}", &part[digits..]);
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("Short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }
}

impl Version {
    /// Returns true for `0.0.0`.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.numbers == [0; 3] && self.pre.is_empty()
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let is_released = |version: &Self| version.pre.is_empty();
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| is_released(self).cmp(&is_released(other))).then_with(|| self.pre.cmp(&other.pre))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn number(name: &str, digits: &str) -> Result<u64, String> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {} number {}", name.to_ascii_lowercase(), quote(digits)));
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {}", quote(digits)));
    }
    parsed(digits)
}

fn parsed(digits: &str) -> Result<u64, String> {
    let fault = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
    digits.parse().map_err(|_| format!("strconv.ParseUint: parsing {}: {fault}", quote(digits)))
}

fn part(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {}", quote(text)));
        }
        return parsed(text).map(Identifier::Number);
    }
    if text.bytes().all(is_identifier) {
        Ok(Identifier::Text(text.to_owned()))
    } else {
        Err(format!("Invalid character(s) found in prerelease {}", quote(text)))
    }
}

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "semver" => |args| match read(args, "semver")? {
            Ok(version) => Ok(Value::Semver(version.into())),
            Err(fault) => Err(EvalError::new(fault)),
        },
        "isSemver" => |args| Ok(Value::Bool(read(args, "isSemver")?.is_ok())),
        "isLessThan" => |args| ordered(args, "isLessThan", |order| Value::Bool(order.is_lt())),
        "isGreaterThan" => |args| ordered(args, "isGreaterThan", |order| Value::Bool(order.is_gt())),
        "compareTo" => |args| ordered(args, "compareTo", |order| Value::Int(order as i64)),
        "major" => |args| component(args, "major", 0),
        "minor" => |args| component(args, "minor", 1),
        "patch" => |args| component(args, "patch", 2),
        _ => return None,
    })
}

fn read(args: &[Value<'_>], name: &str) -> Result<Result<Version, String>, EvalError> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(Version::parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(Version::parse_tolerant(text)),
        _ => Err(no_overload_of(name, args)),
    }
}

fn ordered<'a>(args: &[Value<'a>], name: &str, say: fn(Ordering) -> Value<'a>) -> Outcome<'a> {
    match args {
        [Value::Semver(a), Value::Semver(b)] => Ok(say(a.cmp(b))),
        [Value::Quantity(a), Value::Quantity(b)] => Ok(say(a.cmp(b))),
        _ => Err(no_overload_of(name, args)),
    }
}

fn component<'a>(args: &[Value<'a>], name: &str, at: usize) -> Outcome<'a> {
    match args {
        [Value::Semver(version)] => Ok(Value::Int(i64::try_from(version.numbers[at]).unwrap_or(i64::MAX))),
        _ => Err(no_overload_of(name, args)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_strictly_and_have_an_order() {
        for bad in ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.x", "v1.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3-a_b"]
        {
            assert!(Version::parse(bad).is_err(), "{bad}");
        }
        let order =
            ["0.0.0", "1.0.0-1", "1.0.0-2", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta", "1.0.0", "1.2.0", "1.10.0"];
        let versions: Vec<Version> = order.iter().map(|text| Version::parse(text).expect("a version")).collect();
        assert!(versions.is_sorted_by(|a, b| a < b));
        assert_eq!(Version::parse("1.0.0+a.1"), Version::parse("1.0.0+b"));
        assert!(versions[0].is_zero() && !versions[1].is_zero());
    }
}
