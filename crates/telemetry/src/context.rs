//! The header `traceparent` of W3C Trace Context, level 1.
//!
//! A header that breaks the rules of the recommendation counts as absent.

use std::fmt;

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The name of the header.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The length of a header of version 00, in bytes.
const LENGTH: usize = 55;
/// The largest length of a header of a later version, in bytes.
const LONGEST: usize = 512;

/// The position of a span in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The id of the trace. Not 0.
    pub trace: u128,
    /// The id of the span. Not 0.
    pub span: u64,
    /// True if the trace is recorded.
    pub is_sampled: bool,
}

impl TraceContext {
    /// The context in the headers of a request, if it has exactly one valid `traceparent`.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?;
        if values.next().is_some() || value.len() > LONGEST {
            return None;
        }
        Self::parse(value.as_bytes())
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let (known, further) = text.split_at_checked(LENGTH)?;
        let [version, trace, span, flags] = [0..2, 3..35, 36..52, 53..55].map(|place| &known[place]);
        let version = hexadecimal(version)?;
        let is_divided = [2, 35, 52].iter().all(|place| known[*place] == b'-');
        // Version 255 is invalid. Later versions may add fields.
        let is_ended = further.is_empty() || version > 0 && further[0] == b'-';
        if !is_divided || !is_ended || version == 255 {
            return None;
        }
        let (trace, span) = (hexadecimal(trace)?, u64::try_from(hexadecimal(span)?).ok()?);
        let is_sampled = hexadecimal(flags)? & 1 == 1;
        (trace != 0 && span != 0).then_some(Self { trace, span, is_sampled })
    }

    /// The value of the header.
    pub fn header(&self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).expect("hexadecimal digits and dashes are visible characters")
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

/// The number that lower-case hexadecimal digits state.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn check(values: &[&str], expect: Option<bool>) {
        let headers: HeaderMap =
            values.iter().map(|value| (TRACEPARENT, HeaderValue::from_str(value).unwrap())).collect();
        let context = TraceContext::from_headers(&headers);
        assert_eq!(context.map(|context| context.is_sampled), expect, "{values:?}");
        if let Some(context) = context {
            assert_eq!(context.to_string()[..52], GIVEN[..52]);
            assert_eq!(TraceContext::parse(context.header().as_bytes()), Some(context));
        }
    }

    #[test]
    fn valid_headers_are_read_and_written() {
        check(&[GIVEN], Some(true));
        check(&[&GIVEN.replace("-01", "-00")], Some(false));
        check(&[&GIVEN.replace("-01", "-fe")], Some(false));
        check(&[&format!("cc{}-more", &GIVEN[2..])], Some(true));
    }

    #[test]
    fn broken_long_and_repeated_headers_count_as_absent() {
        for broken in [
            "",
            "x",
            &GIVEN[..54],
            &format!("{GIVEN}-more"),
            &GIVEN.to_ascii_uppercase(),
            &GIVEN.replace('-', "_"),
            &format!("ff{}", &GIVEN[2..]),
            &format!("zz{}", &GIVEN[2..]),
            &format!("cc{}more", &GIVEN[2..]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473\u{7f}-00f067aa0ba902b7-01",
            &format!("cc{}-{}", &GIVEN[2..], "x".repeat(60_000)),
        ] {
            let value = HeaderValue::from_bytes(broken.as_bytes());
            let Ok(value) = value else { continue };
            let headers = HeaderMap::from_iter([(TRACEPARENT, value)]);
            assert_eq!(TraceContext::from_headers(&headers), None, "{broken}");
        }
        check(&[GIVEN, GIVEN], None);
        check(&[], None);
    }
}
