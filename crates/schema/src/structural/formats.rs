//! The formats of strings and numbers that upstream validates.
//!
//! Unknown formats are ignored, since a definition may state any.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr as _;
use std::sync::LazyLock;

use keelson_meta::clock::parse_rfc3339;
use keelson_meta::names::{dns_label_faults, dns_subdomain_faults};
use regex::Regex;

use super::rules::Kind;

/// A format: its name in upstream's messages, and its check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    name: &'static str,
    check: FormatCheck,
}

#[derive(Clone, Copy, Debug)]
enum FormatCheck {
    Text(fn(&str) -> bool),
    Int32,
    /// Any integer fits.
    Int64,
    Float,
    /// Any number fits.
    Double,
}

const FORMATS: &[(&str, FormatCheck)] = &[
    ("bsonobjectid", FormatCheck::Text(|text| text.len() == 24 && is_hex(text))),
    ("byte", FormatCheck::Text(is_base64)),
    ("cidr", FormatCheck::Text(is_cidr)),
    ("creditcard", FormatCheck::Text(is_credit_card)),
    ("date", FormatCheck::Text(is_date)),
    ("date-time", FormatCheck::Text(is_time)),
    ("datetime", FormatCheck::Text(is_time)),
    ("double", FormatCheck::Double),
    ("duration", FormatCheck::Text(is_duration)),
    ("email", FormatCheck::Text(is_email)),
    ("float", FormatCheck::Float),
    ("hexcolor", FormatCheck::Text(is_hex_colour)),
    ("hostname", FormatCheck::Text(is_hostname)),
    ("int32", FormatCheck::Int32),
    ("int64", FormatCheck::Int64),
    ("ipv4", FormatCheck::Text(is_ipv4)),
    ("ipv6", FormatCheck::Text(|text| Ipv6Addr::from_str(text).is_ok())),
    ("isbn", FormatCheck::Text(|text| is_isbn10(text) || is_isbn13(text))),
    ("isbn10", FormatCheck::Text(is_isbn10)),
    ("isbn13", FormatCheck::Text(is_isbn13)),
    ("k8s-long-name", FormatCheck::Text(|text| dns_subdomain_faults(text).is_empty())),
    ("k8s-short-name", FormatCheck::Text(|text| dns_label_faults(text).is_empty())),
    ("mac", FormatCheck::Text(is_mac)),
    ("password", FormatCheck::Text(|_| true)),
    ("rgbcolor", FormatCheck::Text(is_rgb_colour)),
    ("ssn", FormatCheck::Text(is_ssn)),
    ("uri", FormatCheck::Text(is_uri)),
    ("uuid", FormatCheck::Text(|text| is_uuid(text, None))),
    ("uuid3", FormatCheck::Text(|text| is_uuid(text, Some(b'3')))),
    ("uuid4", FormatCheck::Text(|text| is_uuid(text, Some(b'4')) && has_variant(text))),
    ("uuid5", FormatCheck::Text(|text| is_uuid(text, Some(b'5')) && has_variant(text))),
];

/// Returns true if the format is known for values of a type. Other formats cause a warning about the definition.
pub fn is_known(of: &str, name: &str) -> bool {
    let plain = |name: &str| name.replace('-', "");
    match of {
        "string" => {
            let is_text = |(known, check): &(&str, FormatCheck)| {
                matches!(check, FormatCheck::Text(_)) && plain(known) == plain(name)
            };
            FORMATS.iter().any(is_text)
        }
        "integer" => matches!(name, "int32" | "int64"),
        "number" => matches!(name, "float" | "double"),
        _ => false,
    }
}

impl Format {
    /// The format with this name, if it applies to the type. Formats of strings apply to int-or-string values.
    pub(super) fn named(of: Option<Kind>, name: &str) -> Option<Self> {
        let (name, check) = FORMATS.iter().find(|(known, _)| *known == name)?;
        let is_of_type = match check {
            FormatCheck::Text(_) => matches!(of, None | Some(Kind::String)),
            FormatCheck::Int32 | FormatCheck::Int64 => of == Some(Kind::Integer),
            FormatCheck::Float | FormatCheck::Double => of == Some(Kind::Number),
        };
        is_of_type.then_some(Self { name, check: *check })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns true for a number in the range of the format.
    pub(super) fn has_room(&self, number: f64) -> bool {
        match self.check {
            FormatCheck::Int32 => (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number),
            FormatCheck::Float => number.abs() <= f64::from(f32::MAX),
            FormatCheck::Int64 | FormatCheck::Double | FormatCheck::Text(_) => true,
        }
    }
}

/// Returns true if a text fits a format.
pub(super) fn fits(format: &Format, text: &str) -> bool {
    match format.check {
        FormatCheck::Text(fits) => fits(text),
        FormatCheck::Int32 | FormatCheck::Int64 | FormatCheck::Float | FormatCheck::Double => true,
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Base64 with its padding, and at least one byte.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !digits.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && digits.bytes().all(plain)
}

/// Leading zeros do not make a number octal.
fn is_ipv4(text: &str) -> bool {
    let mut parts = 0;
    let decimal = text.split('.').all(|part| {
        parts += 1;
        matches!(part.len(), 1..=3) && part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u8>().is_ok()
    });
    let mapped = || Ipv6Addr::from_str(text).is_ok_and(|address| address.to_ipv4_mapped().is_some());
    parts == 4 && decimal || mapped()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match IpAddr::from_str(address) {
        Ok(IpAddr::V6(_)) => 128,
        Ok(IpAddr::V4(_)) => 32,
        Err(_) if is_ipv4(address) => 32,
        Err(_) => return false,
    };
    let decimal = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    decimal && length.parse::<u8>().is_ok_and(|length| length <= most)
}

fn is_mac(text: &str) -> bool {
    let pairs = |separator: char, digits: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|part| part.len() == digits && is_hex(part))
    };
    pairs(':', 2, &[6, 8, 20])
        || pairs('-', 2, &[6, 8, 20])
        || pairs('.', 4, &[3, 4, 10])
        || text.len() == 12 && is_hex(text)
}

/// The dashes of a UUID may be left out.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((part, behind)) = rest.split_at_checked(length) else { return false };
        let of_version = index != 2 || version.is_none_or(|version| part.as_bytes().first() == Some(&version));
        if !is_hex(part) || !of_version {
            return false;
        }
        rest = behind;
    }
    rest.is_empty()
}

fn has_variant(text: &str) -> bool {
    let digit = text.bytes().filter(|byte| *byte != b'-').nth(16);
    digit.is_some_and(|digit| matches!(digit, b'8' | b'9' | b'a' | b'b' | b'A' | b'B'))
}

fn digits_of(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !matches!(byte, b'-' | b' ')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    let value = |(place, digit): (usize, &u8)| match digit {
        b'0'..=b'9' => Some(u32::from(digit - b'0')),
        b'X' if place == 9 => Some(10),
        _ => None,
    };
    let values: Option<Vec<u32>> = digits.iter().enumerate().map(value).collect();
    let weighed = |values: Vec<u32>| values.iter().zip(1..).map(|(value, weight)| value * weight).sum::<u32>();
    digits.len() == 10 && values.is_some_and(|values| weighed(values).is_multiple_of(11))
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    let values = digits.iter().map(|digit| digit.is_ascii_digit().then(|| u32::from(digit - b'0')));
    let values: Option<Vec<u32>> = values.collect();
    let weighed = |values: Vec<u32>| {
        values.iter().zip([1, 3].into_iter().cycle()).map(|(value, weight)| value * weight).sum::<u32>()
    };
    digits.len() == 13 && values.is_some_and(|values| weighed(values).is_multiple_of(10))
}

/// Returns true for a card number of a known issuer whose last digit is the checksum of the others (ISO/IEC 7812).
fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let issued =
        matches!((digits.len(), digits.first()), (13 | 16, Some(4)) | (14..=16, Some(3)) | (16, Some(2 | 5 | 6)));
    let checked = digits.iter().rev().enumerate().map(|(place, digit)| match (place % 2, digit * 2) {
        (0, _) => *digit,
        (_, doubled) if doubled > 9 => doubled - 9,
        (_, doubled) => doubled,
    });
    issued && checked.sum::<u32>().is_multiple_of(10)
}

fn is_ssn(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digit = |place: usize| bytes[place].is_ascii_digit();
    let between = |place: usize| matches!(bytes[place], b'-' | b' ');
    bytes.len() == 11 && (0..11).all(|place| if matches!(place, 3 | 6) { between(place) } else { digit(place) })
}

fn is_hex_colour(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hex(digits)
}

fn is_rgb_colour(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    let part = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u8>().is_ok();
    parts.len() == 3 && parts.iter().all(part)
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && is_time(&format!("{text}T00:00:00Z"))
}

/// RFC 3339, but lower-case letters are allowed.
fn is_time(text: &str) -> bool {
    let separated = text.as_bytes().get(10).is_some_and(|byte| matches!(byte, b'T' | b't'));
    let seconds = text.get(17..19).and_then(|seconds| seconds.parse::<u8>().ok());
    separated
        && seconds.is_some_and(|seconds| seconds < 60)
        && parse_rfc3339(&text.to_ascii_uppercase().replace(',', ".")).is_some()
}

/// A duration in Go's format (`1h2m`), or numbers with units in words (`2 days`).
fn is_duration(text: &str) -> bool {
    if text == "0" {
        return true;
    }
    let mut rest = text.trim_start_matches(['-', '+', 'P', 'T']);
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, behind) = rest.split_at(number);
        let behind = behind.trim_start();
        let unit = behind.find(|c: char| !c.is_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        if digits.parse::<f64>().is_err() || !is_unit(unit) {
            return false;
        }
        parts += 1;
        rest = behind.trim_start();
    }
    parts > 0
}

fn is_unit(unit: &str) -> bool {
    const UNITS: &[&str] = &[
        "ns", "nano", "us", "µs", "micro", "ms", "milli", "s", "sec", "second", "m", "min", "minute", "h", "hr",
        "hour", "d", "day", "w", "wk", "week",
    ];
    let unit = unit.to_lowercase();
    UNITS.contains(&&*unit) || unit.strip_suffix('s').is_some_and(|single| single.len() > 1 && UNITS.contains(&single))
}

/// A mail address, with or without a display name.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>') {
        Some(named) => named.rsplit_once('<').map_or("", |(_, address)| address),
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let plain = !local.is_empty()
        && !local.starts_with('.')
        && !local.ends_with('.')
        && !local.contains("..")
        && !local.contains(|c: char| c.is_whitespace() || "\"(),:;<>@[\\]".contains(c));
    let literal = domain.starts_with('[') && domain.ends_with(']');
    let named = !domain.is_empty() && !domain.contains(|c: char| c.is_whitespace() || "\"(),:;<>@[\\]".contains(c));
    (quoted || plain) && (literal || named)
}

/// A letter, and a letter or symbol, of any script. They are parts of a host name's labels.
static LETTERS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\p{L}$").expect("it is a good pattern"));
static SIGNS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[\p{S}\p{L}]$").expect("it is a good pattern"));

/// Upstream's pattern: the last of several labels has at least two letters. A single label may have a hyphen only
/// directly after its first character.
fn is_hostname(text: &str) -> bool {
    let is_sign = |c: &char| c.is_ascii_alphanumeric() || SIGNS.is_match(c.encode_utf8(&mut [0; 4]));
    let is_letter = |c: char| c.is_ascii_alphabetic() || LETTERS.is_match(c.encode_utf8(&mut [0; 4]));
    let label = |label: &&str| {
        let plain = label.chars().all(|c| is_sign(&c) || c == '-');
        matches!(label.chars().count(), 1..=63) && plain && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.len() > 255 || text.split('.').any(|label| label.len() > 63) {
        return false;
    }
    match text.rsplit_once('.') {
        None => {
            let mut rest = text.chars();
            let first = rest.next().is_some_and(|c| is_sign(&c));
            let rest = rest.as_str().strip_prefix('-').filter(|rest| !rest.is_empty()).unwrap_or(rest.as_str());
            first && rest.chars().count() <= 63 && rest.chars().all(|c| is_sign(&c))
        }
        Some((before, last)) => {
            before.split('.').collect::<Vec<_>>().iter().all(label)
                && matches!(last.chars().count(), 2..=63)
                && last.chars().all(is_letter)
        }
    }
}

/// An absolute URI, or a path that begins at the root.
fn is_uri(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    let absolute = first == '/' || text == "*" || scheme.is_some_and(is_scheme);
    let host = text.split_once("//").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    absolute
        && !text.chars().any(char::is_control)
        && !host.contains(char::is_whitespace)
        && text.match_indices('%').all(|(place, _)| text.get(place + 1..place + 3).is_some_and(is_hex))
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}
