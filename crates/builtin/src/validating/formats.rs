//! Formats of strings, each with its name and its errors.
//!
//! `meta` validates names and labels. The formats here belong to fields of single kinds. Messages are upstream's.
//! Regular expressions appear only in messages. The checks are plain code, since they run for every object.

use std::net::IpAddr;

use keelson_meta::names::{self, length_faults, regex_fault};

use crate::validating::at::At;
use crate::validating::type_rules::{Run, range_text};

/// A format of strings.
pub(crate) struct Format {
    /// The name of the format.
    pub(crate) name: &'static str,
    check: fn(&str) -> Vec<String>,
}

impl Format {
    pub(crate) const fn new(name: &'static str, check: fn(&str) -> Vec<String>) -> Self {
        Self { name, check }
    }

    /// The errors of a string; empty if it has the format.
    pub(crate) fn faults(&self, text: &str) -> Vec<String> {
        (self.check)(text)
    }
}

/// A DNS label (RFC 1123).
pub(crate) const DNS_LABEL: Format = Format::new("DNS label", names::dns_label_faults);
/// A DNS label that starts with a letter (RFC 1035).
pub(crate) const DNS_1035_LABEL: Format = Format::new("DNS label (RFC 1035)", names::dns_1035_label_faults);
/// A DNS subdomain (RFC 1123).
pub(crate) const DNS_SUBDOMAIN: Format = Format::new("DNS subdomain", names::dns_subdomain_faults);
/// A DNS subdomain that may contain underscores.
pub(crate) const DNS_SUBDOMAIN_UNDERSCORE: Format =
    Format::new("DNS subdomain, underscores allowed", subdomain_with_underscore_faults);
/// A label key.
pub(crate) const QUALIFIED_NAME: Format = Format::new("qualified name", names::label_key_faults);
/// A label value.
pub(crate) const LABEL_VALUE: Format = Format::new("label value", names::label_value_faults);
/// One segment of a URL path.
pub(crate) const PATH_SEGMENT: Format = Format::new("path segment", |text| names::path_segment_faults(text, false));
/// The name of a port (IANA).
pub(crate) const PORT_NAME: Format = Format::new("port name", port_name_faults);
/// The name of an environment variable: any printable characters except `=`.
pub(crate) const ENV_NAME: Format = Format::new("environment variable", env_name_faults);
/// A key of a config map or secret.
pub(crate) const DATA_KEY: Format = Format::new("data key", data_key_faults);
/// The name of an HTTP header.
pub(crate) const HEADER_NAME: Format = Format::new("header name", header_name_faults);
/// An IP address.
pub(crate) const IP: Format = Format::new("IP address", ip_faults);
/// A range of IP addresses.
pub(crate) const CIDR: Format = Format::new("CIDR", cidr_faults);

/// The error for a number that is not a valid port.
pub(crate) fn port_fault(port: i64) -> Option<String> {
    (!(1..=65535).contains(&port)).then(|| range_text(1, 65535))
}

/// A port number.
pub(crate) fn port_number(at: &At<'_, '_>, run: &mut Run<'_>) {
    if let Some(fault) = port_fault(at.int()) {
        at.invalid(run, at.int(), fault);
    }
}

/// Parses an IP address as leniently as upstream: parts of IPv4 addresses may have leading zeros.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let parts: Vec<u8> = text.split('.').map(decimal_octet).collect::<Option<_>>()?;
    <[u8; 4]>::try_from(parts).ok().map(IpAddr::from)
}

/// Parses a range of IP addresses into the address and the prefix length.
pub(crate) fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address = parse_ip(address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let digits = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit());
    let bits = bits.parse().ok().filter(|bits| digits && *bits <= most)?;
    Some((address, bits))
}

fn decimal_octet(text: &str) -> Option<u8> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits {
        text.trim_start_matches('0').parse().ok().or((text.bytes().all(|byte| byte == b'0')).then_some(0))
    } else {
        None
    }
}

fn ip_faults(text: &str) -> Vec<String> {
    match parse_ip(text) {
        None => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
        Some(_) if text.parse::<IpAddr>().is_err() => vec!["must not have leading 0s".to_owned()],
        Some(address) if is_mapped(address) => vec!["must not be an IPv4-mapped IPv6 address".to_owned()],
        Some(_) => Vec::new(),
    }
}

fn cidr_faults(text: &str) -> Vec<String> {
    let Some((address, bits)) = parse_cidr(text) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    };
    let (base, length) = text.split_once('/').unwrap_or((text, ""));
    let mut faults = Vec::new();
    if base.parse::<IpAddr>().is_err() || length != bits.to_string() {
        faults.push("must not have leading 0s in IP or prefix length".to_owned());
    } else if is_mapped(address) {
        faults.push("must not have an IPv4-mapped IPv6 address".to_owned());
    }
    if !is_base(address, bits) {
        faults.push("must not have bits set beyond the prefix length".to_owned());
    }
    faults
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// Returns true if all bits of an address after the prefix are zero.
fn is_base(address: IpAddr, bits: u8) -> bool {
    let (value, width) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let behind = u32::from(width - bits);
    behind == 0 || value.trailing_zeros() >= behind || value == 0
}

/// Reports errors of a format that older servers checked less strictly. An unchanged value is accepted.
pub(crate) fn strictly(format: &Format, at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.old.is_null() || !at.is_unchanged() {
        at.complain(run, format.faults(at.text()));
    }
}

fn port_name_faults(text: &str) -> Vec<String> {
    const MAX: usize = 15;
    let mut faults = Vec::new();
    if text.len() > MAX {
        faults.push(format!("must be no more than {MAX} characters"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

fn env_name_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.is_empty() {
        faults.push("environment variable name must be non-empty".to_owned());
    }
    if text.chars().any(|c| !matches!(c, ' '..='~') || c == '=') {
        faults.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    faults
}

fn data_key_faults(text: &str) -> Vec<String> {
    const MAX: usize = 253;
    const TEXT: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
    let mut faults = length_faults(text, MAX);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.is_empty() || !text.bytes().all(fits) {
        faults.push(regex_fault(TEXT, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match text {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

fn header_name_faults(text: &str) -> Vec<String> {
    const TEXT: &str = "a valid HTTP header must consist of alphanumeric characters or '-'";
    let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if fits { Vec::new() } else { vec![regex_fault(TEXT, "[-A-Za-z0-9]+", &["X-Header-Name"])] }
}

fn subdomain_with_underscore_faults(text: &str) -> Vec<String> {
    const MAX: usize = 253;
    const TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
    const REGEX: &str = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part_fits = |part: &str| {
        let bytes = part.strip_prefix('_').unwrap_or(part).as_bytes();
        bytes.first().is_some_and(edge)
            && bytes.last().is_some_and(edge)
            && bytes.iter().all(|byte| edge(byte) || b"-_".contains(byte))
    };
    let mut faults = length_faults(text, MAX);
    if !text.split('.').all(part_fits) {
        faults.push(regex_fault(TEXT, REGEX, &["example.com"]));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: &Format, good: &[&str], bad: &[(&str, &str)]) {
        for text in good {
            assert!(format.faults(text).is_empty(), "{}: {text}: {:?}", format.name, format.faults(text));
        }
        for (text, fault) in bad {
            assert!(format.faults(text).iter().any(|found| found.contains(fault)), "{}: {text}", format.name);
        }
    }

    #[test]
    fn each_form_accepts_and_refuses() {
        check(
            &PORT_NAME,
            &["http", "a-1"],
            &[("1", "at least one letter"), ("a--b", "consecutive"), ("-a", "begin or end"), ("A", "alpha-numeric")],
        );
        check(&PORT_NAME, &[], &[("abcdefghijklmnop", "no more than 15 characters")]);
        check(&ENV_NAME, &["A", "a.b-c", "1 x"], &[("a=b", "other than '='"), ("\u{e9}", "printable")]);
        check(
            &DATA_KEY,
            &["a.b", "..a".trim_start_matches('.'), ".x"],
            &[("a/b", "config key"), ("..", "must not be '..'")],
        );
        check(&HEADER_NAME, &["X-A"], &[("a b", "HTTP header"), ("", "HTTP header")]);
        check(
            &IP,
            &["10.0.0.1", "::1"],
            &[("10.0.0", "valid IP"), ("256.1.1.1", "valid IP"), ("010.0.0.1", "leading 0s")],
        );
        check(&IP, &[], &[("::ffff:10.0.0.1", "IPv4-mapped")]);
        check(
            &CIDR,
            &["0.0.0.0/0"],
            &[("10.0.0.1/8", "beyond"), ("010.0.0.0/8", "leading 0s"), ("10.0.0.0/08", "leading 0s")],
        );
        check(&CIDR, &["::/0"], &[("::ffff:10.0.0.0/104", "IPv4-mapped"), ("fd00::1/64", "beyond")]);
        check(&CIDR, &["10.0.0.0/8", "fd00::/64"], &[("10.0.0.0/33", "CIDR"), ("10.0.0.0", "CIDR")]);
        check(&DNS_SUBDOMAIN_UNDERSCORE, &["_a.b", "a_b.c"], &[("-a", "subdomain"), ("a_", "subdomain")]);
    }
}
