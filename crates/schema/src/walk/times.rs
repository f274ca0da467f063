//! Parses times as Go does. It accepts RFC 3339, writes UTC with whole seconds or microseconds, and has Go's error
//! messages.
//!
//! The parser is written by hand, since messages name the part of the text that does not fit. Canonical texts are not
//! rewritten.

use std::fmt::Write as _;

use keelson_meta::clock;

/// Go's zero time, which Go writes as null.
const ZERO: &str = "0001-01-01T00:00:00Z";

/// The precision of a field's times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Seconds,
    Microseconds,
}

/// The canonical form of a time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Canonical {
    /// The text is already canonical.
    Unchanged,
    /// The canonical text.
    Text(String),
    /// The time is Go's zero time, which becomes null.
    Null,
}

/// Returns the canonical form of a time.
///
/// # Errors
/// Go's message.
pub(super) fn canonical(text: &str, precision: Precision) -> Result<Canonical, String> {
    if is_written_so(text, precision) {
        return Ok(Canonical::Unchanged);
    }
    let mut reader = Reader { rest: text, text, layout: layout(precision) };
    reader.read(precision)?;
    if text == ZERO {
        return Ok(Canonical::Null);
    }
    if text.len() == written_length(precision) && text.ends_with('Z') {
        return Ok(Canonical::Unchanged);
    }
    let written = match clock::parse_rfc3339(text) {
        Some(time) if precision == Precision::Seconds => clock::rfc3339(time),
        Some(time) => clock::rfc3339_micro(time),
        None => return Ok(Canonical::Unchanged),
    };
    Ok(if written == text { Canonical::Unchanged } else { Canonical::Text(written) })
}

/// Returns true for a canonical time in this century, which is the usual case. Does not parse it.
fn is_written_so(text: &str, precision: Precision) -> bool {
    let form: &[u8] = match precision {
        Precision::Seconds => b"20dd-dd-ddTdd:dd:ddZ",
        Precision::Microseconds => b"20dd-dd-ddTdd:dd:dd.ddddddZ",
    };
    let text = text.as_bytes();
    let fits = |(byte, form): (&u8, &u8)| if *form == b'd' { byte.is_ascii_digit() } else { byte == form };
    let within = |place: usize, least: &[u8], most: &[u8]| (least..=most).contains(&&text[place..place + 2]);
    text.len() == form.len()
        && text.iter().zip(form).all(fits)
        && within(5, b"01", b"12")
        // The day must be at most 28, which exists in every month.
        && within(8, b"01", b"28")
        && text[11..13] <= b"23"[..]
        && text[14] < b'6'
        && text[17] < b'6'
}

fn layout(precision: Precision) -> &'static str {
    match precision {
        Precision::Seconds => "2006-01-02T15:04:05Z07:00",
        Precision::Microseconds => "2006-01-02T15:04:05.000000Z07:00",
    }
}

/// The length of a canonical time.
fn written_length(precision: Precision) -> usize {
    match precision {
        Precision::Seconds => "2006-01-02T15:04:05Z".len(),
        Precision::Microseconds => "2006-01-02T15:04:05.000000Z".len(),
    }
}

/// Compares the text with the layout element by element, as Go does, so that it fails with the same message.
struct Reader<'a> {
    rest: &'a str,
    text: &'a str,
    layout: &'static str,
}

impl Reader<'_> {
    fn read(&mut self, precision: Precision) -> Result<(), String> {
        let year = self.number(4, "2006")?;
        self.literal("-")?;
        let month = self.number(2, "01")?;
        self.within(month, 1..=12, "month")?;
        self.literal("-")?;
        let day = self.number(2, "02")?;
        self.literal("T")?;
        for (element, most, what) in [("15", 23, "hour"), ("04", 59, "minute"), ("05", 59, "second")] {
            let value = self.number(2, element)?;
            self.within(value, 0..=most, what)?;
            if what != "second" {
                self.literal(":")?;
            }
        }
        self.fraction(precision)?;
        self.zone()?;
        if !self.rest.is_empty() {
            let rest = quote(self.rest);
            return Err(format!("{}: extra text: {rest}", self.head()));
        }
        self.within(day, 1..=days(year, month), "day")
    }

    fn fraction(&mut self, precision: Precision) -> Result<(), String> {
        let digits = self.rest.strip_prefix('.').map_or(0, |d| d.bytes().take_while(u8::is_ascii_digit).count());
        match precision {
            Precision::Seconds => {
                if digits > 0 {
                    self.rest = &self.rest[1 + digits..];
                }
                Ok(())
            }
            Precision::Microseconds if digits >= 6 => {
                self.rest = &self.rest[7..];
                Ok(())
            }
            Precision::Microseconds => Err(self.unreadable(".000000")),
        }
    }

    fn zone(&mut self) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(());
        }
        let zone = self.rest.as_bytes();
        let digits = |range: std::ops::Range<usize>| zone.get(range).is_some_and(|d| d.iter().all(u8::is_ascii_digit));
        let valid =
            matches!(zone.first(), Some(b'+' | b'-')) && digits(1..3) && zone.get(3) == Some(&b':') && digits(4..6);
        if !valid {
            return Err(self.unreadable("Z07:00"));
        }
        self.rest = &self.rest[6..];
        Ok(())
    }

    fn number(&mut self, digits: usize, element: &str) -> Result<u32, String> {
        let number =
            self.rest.get(..digits).filter(|d| d.bytes().all(|b| b.is_ascii_digit())).and_then(|d| d.parse().ok());
        let number = number.ok_or_else(|| self.unreadable(element))?;
        self.rest = &self.rest[digits..];
        Ok(number)
    }

    fn literal(&mut self, text: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(text).ok_or_else(|| self.unreadable(text))?;
        Ok(())
    }

    fn within(&self, value: u32, range: std::ops::RangeInclusive<u32>, what: &str) -> Result<(), String> {
        if range.contains(&value) { Ok(()) } else { Err(format!("{}: {what} out of range", self.head())) }
    }

    fn head(&self) -> String {
        format!("parsing time {}", quote(self.text))
    }

    fn unreadable(&self, element: &str) -> String {
        let rest = quote(self.rest);
        format!("{} as \"{}\": cannot parse {rest} as \"{element}\"", self.head(), self.layout)
    }
}

fn days(year: u32, month: u32) -> u32 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Quotes a text as Go's `time` package does. Bytes that are not printable ASCII are escaped one by one.
fn quote(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=0x7f => quoted.push(char::from(byte)),
            _ => {
                let _ = write!(quoted, "\\x{byte:02x}");
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        let text = |text: &str| Ok(Canonical::Text(text.to_owned()));
        let seconds = |given| canonical(given, Precision::Seconds);
        assert_eq!(seconds("2026-01-02T03:04:05Z"), Ok(Canonical::Unchanged));
        assert_eq!(seconds("2026-01-02T03:04:05.75Z"), text("2026-01-02T03:04:05Z"));
        assert_eq!(seconds("2026-01-02T03:04:05+02:00"), text("2026-01-02T01:04:05Z"));
        assert_eq!(seconds(ZERO), Ok(Canonical::Null));
        let micro = |given| canonical(given, Precision::Microseconds);
        assert_eq!(micro("2026-01-02T03:04:05.000000Z"), Ok(Canonical::Unchanged));
        assert_eq!(micro("2026-01-02T03:04:05.123456-01:00"), text("2026-01-02T04:04:05.123456Z"));
    }

    #[test]
    fn errors_read_as_in_go() {
        let seconds = |given| canonical(given, Precision::Seconds).unwrap_err();
        let layout = "2006-01-02T15:04:05Z07:00";
        assert_eq!(seconds("abc"), format!(r#"parsing time "abc" as "{layout}": cannot parse "abc" as "2006""#));
        assert_eq!(
            seconds("2026-01-02"),
            format!(r#"parsing time "2026-01-02" as "{layout}": cannot parse "" as "T""#)
        );
        assert_eq!(
            seconds("a\nb\"é"),
            format!(r#"parsing time "a\x0ab\"\xc3\xa9" as "{layout}": cannot parse "a\x0ab\"\xc3\xa9" as "2006""#)
        );
        assert_eq!(seconds("2026-13-02T03:04:05Z"), r#"parsing time "2026-13-02T03:04:05Z": month out of range"#);
        assert_eq!(seconds("2026-02-30T03:04:05Z"), r#"parsing time "2026-02-30T03:04:05Z": day out of range"#);
        assert_eq!(seconds("2026-02-03T03:04:05Zx"), r#"parsing time "2026-02-03T03:04:05Zx": extra text: "x""#);
        assert_eq!(
            canonical("2026-01-02T03:04:05Z", Precision::Microseconds).unwrap_err(),
            r#"parsing time "2026-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }
}
