//! Points in the past: a revision, or a time.
//!
//! The cache maps times to revisions.

use std::time::SystemTime;

use keelson_meta::Revision;
use keelson_meta::clock::parse_rfc3339;

use crate::error::QueryError;

/// A point in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A revision.
    Revision(Revision),
    /// The newest revision at a time.
    Time(SystemTime),
}

impl Moment {
    /// Parses a revision or a time.
    ///
    /// # Errors
    /// A text that is neither.
    pub fn parse(parameter: &'static str, text: &str) -> Result<Self, QueryError> {
        let revision = || text.parse().ok().map(Revision::new).filter(|revision| *revision > Revision::ZERO);
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let read = match is_number {
            true => revision().map(Self::Revision),
            false => parse_rfc3339(text).map(Self::Time),
        };
        let why = "a revision or a time in RFC 3339 is expected";
        read.ok_or_else(|| QueryError::Value { name: parameter, why, value: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn revisions_and_times_are_read_and_nothing_else() {
        assert_eq!(Moment::parse("at", "17"), Ok(Moment::Revision(Revision::new(17))));
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_323_045_500);
        for text in ["2026-01-02T03:04:05.5Z", "2026-01-02T05:04:05.5+02:00"] {
            assert_eq!(Moment::parse("at", text), Ok(Moment::Time(time)), "{text}");
        }
        for text in ["", "0", "-1", "1.5", "99999999999999999999", "2026-01-02", "yesterday", "2026-01-02T03:04:05"] {
            let refused = Moment::parse("at", text).unwrap_err().to_string();
            assert!(refused.starts_with("at: a revision or a time in RFC 3339 is expected, not"), "{refused}");
        }
    }
}
