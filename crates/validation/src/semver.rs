//! Semantic versions (semver.org, 2.0.0), as far as fields hold them: read strictly, and in their order.
//!
//! What follows a plus sign has to have its form and counts for nothing.

use std::cmp::Ordering;

/// A version without its build. Greater ones are newer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SemVer {
    numbers: [u64; 3],
    pre: Vec<Identifier>,
}

/// A part of what follows the dash. Numbers come before texts.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl SemVer {
    /// Reads a version of three numbers.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        let (numbers, pre) = text.split_once('-').map_or((text, None), |(numbers, pre)| (numbers, Some(pre)));
        let numbers: Vec<u64> = numbers.split('.').map(number).collect::<Option<_>>()?;
        let pre = pre.map_or(Some(Vec::new()), |pre| pre.split('.').map(part).collect())?;
        let built = build.is_none_or(|build| build.split('.').all(is_identifier));
        built.then_some(Self { numbers: numbers.try_into().ok()?, pre })
    }

    /// Whether this is `0.0.0`.
    pub(crate) fn is_zero(&self) -> bool {
        self.numbers == [0; 3] && self.pre.is_empty()
    }
}

impl Ord for SemVer {
    fn cmp(&self, other: &Self) -> Ordering {
        // What has nothing after the dash is newer than what is still on its way there.
        let released = |version: &Self| version.pre.is_empty();
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| released(self).cmp(&released(other))).then_with(|| self.pre.cmp(&other.pre))
    }
}

impl PartialOrd for SemVer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

fn part(text: &str) -> Option<Identifier> {
    if !is_identifier(text) {
        return None;
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(text).map(Identifier::Number);
    }
    Some(Identifier::Text(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_strictly_and_have_an_order() {
        for bad in ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.x", "v1.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3-a_b"]
        {
            assert_eq!(SemVer::parse(bad), None, "{bad}");
        }
        let order =
            ["0.0.0", "1.0.0-1", "1.0.0-2", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta", "1.0.0", "1.2.0", "1.10.0"];
        let versions: Vec<SemVer> = order.iter().map(|text| SemVer::parse(text).expect("a version")).collect();
        assert!(versions.is_sorted_by(|a, b| a < b));
        assert_eq!(SemVer::parse("1.0.0+a.1"), SemVer::parse("1.0.0+b"));
        assert!(versions[0].is_zero() && !versions[1].is_zero());
    }
}
