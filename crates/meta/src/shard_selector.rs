//! Shard selectors: `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`, or several of them
//! joined by `||`.
//!
//! A shard has the objects whose field has a hash in one of the ranges. The hash is FNV-1a with 64 bits, so that several
//! clients can share a collection. The syntax is that of CEL, of which only this much is allowed.

use std::fmt;

use crate::fnv1a::fnv1a;

/// The ranges of one field. At least one must contain the hash of an object's field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardSelector {
    field: ShardField,
    ranges: Vec<ShardRange>,
}

/// A field whose hash divides the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardField {
    /// `metadata.uid`.
    Uid,
    /// `metadata.namespace`.
    Namespace,
}

/// The hashes from `start` on and before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShardRange {
    start: u128,
    end: u128,
}

const FUNCTION: &str = "shardRange";
/// The first number that is no hash.
const END: u128 = 1 << 64;
/// The largest depth of parentheses.
const MAX_DEPTH: u32 = 32;

impl ShardField {
    const ALL: [Self; 2] = [Self::Uid, Self::Namespace];

    const fn path(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }
}

impl ShardSelector {
    /// Parses a selector.
    ///
    /// # Errors
    /// The text of the error for the client.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("empty shard selector is not allowed; omit the parameter for unfiltered lists".to_owned());
        }
        let mut parser = Parser { rest: text };
        let mut terms = Vec::new();
        parser.alternatives(&mut terms, MAX_DEPTH)?;
        parser.space();
        if !parser.rest.is_empty() {
            return Err(parser.unexpected());
        }
        let mut terms = terms.into_iter();
        let (field, first) = terms.next().ok_or("a shard selector has no range")?;
        let mut ranges = vec![first];
        for (other, range) in terms {
            if other != field {
                let (first, other) = (field.path(), other.path());
                return Err(format!("all shard ranges must use the same field, got {first:?} and {other:?}"));
            }
            ranges.push(range);
        }
        Ok(Self { field, ranges })
    }

    /// The field whose hash selects an object.
    pub fn field(&self) -> ShardField {
        self.field
    }

    /// Returns true if objects with this value of the field are selected.
    pub fn matches(&self, value: &str) -> bool {
        let hash = u128::from(fnv1a(value));
        self.ranges.iter().any(|range| (range.start..range.end).contains(&hash))
    }
}

/// The ranges in the order of the request.
impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, ShardRange { start, end }) in self.ranges.iter().enumerate() {
            let joint = if place == 0 { "" } else { " || " };
            write!(f, "{joint}{FUNCTION}({}, '{start:#018x}', '{end:#018x}')", self.field.path())?;
        }
        Ok(())
    }
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    /// Ranges that are joined by `||`.
    fn alternatives(&mut self, terms: &mut Vec<(ShardField, ShardRange)>, depth: u32) -> Result<(), String> {
        loop {
            if self.takes("(") {
                let depth = depth.checked_sub(1).ok_or("the shard selector has too many parentheses")?;
                self.alternatives(terms, depth)?;
                self.expect(")")?;
            } else {
                terms.push(self.range()?);
            }
            if !self.takes("||") {
                return Ok(());
            }
        }
    }

    fn range(&mut self) -> Result<(ShardField, ShardRange), String> {
        match self.path()?.as_str() {
            FUNCTION => {}
            name if self.takes("(") => {
                return Err(format!("unsupported function {name:?}; only shardRange() and || are allowed"));
            }
            _ => return Err("unexpected expression; expected shardRange() call or || operator".to_owned()),
        }
        self.expect("(")?;
        let path = self.path().map_err(|why| format!("shardRange() first argument: {why}"))?;
        let field = ShardField::ALL.into_iter().find(|field| field.path() == path).ok_or_else(|| {
            let [uid, namespace] = ShardField::ALL.map(ShardField::path);
            format!("unsupported field path {path:?}; supported: {uid}, {namespace}")
        })?;
        self.expect(",")?;
        let (start_text, start) = self.number("hexStart")?;
        self.expect(",")?;
        let (end_text, end) = self.number("hexEnd")?;
        self.expect(")")?;
        if start >= end {
            return Err(format!("shard range start {start_text} must be less than end {end_text}"));
        }
        Ok((field, ShardRange { start, end }))
    }

    /// Names with dots between them.
    fn path(&mut self) -> Result<String, String> {
        let mut path = self.name()?.to_owned();
        while self.takes(".") {
            path.push('.');
            path.push_str(self.name()?);
        }
        Ok(path)
    }

    fn name(&mut self) -> Result<&'t str, String> {
        self.space();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let end = self.rest.bytes().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
            return Err(self.unexpected());
        }
        self.rest = rest;
        Ok(name)
    }

    /// A hexadecimal number in a text of 16 digits, or the first number that is too large for them.
    fn number(&mut self, what: &str) -> Result<(&'t str, u128), String> {
        self.space();
        let quote = self.rest.chars().next().filter(|first| matches!(first, '\'' | '"'));
        let quote = quote.ok_or_else(|| format!("{what} must be a string literal (e.g. '0xff')"))?;
        let (text, rest) =
            self.rest[1..].split_once(quote).ok_or_else(|| format!("{what}: the string literal has no end"))?;
        self.rest = rest;
        let digits = text.strip_prefix("0x").ok_or_else(|| format!("{what} must have '0x' prefix, got {text:?}"))?;
        if digits.is_empty() {
            return Err(format!("{what}: hex value is required after '0x'"));
        }
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if !digits.bytes().all(is_digit) {
            return Err(format!("{what}: invalid hex character in {text:?}"));
        }
        let number = match digits.len() {
            17.. => None,
            _ => u128::from_str_radix(digits, 16).ok(),
        };
        match (digits.len(), number) {
            (16, Some(number)) => Ok((text, number)),
            (17, _) if u128::from_str_radix(digits, 16) == Ok(END) => Ok((text, END)),
            (17, _) => Err(format!("{what}: 17-digit hex value must be '0x10000000000000000' (2^64), got {text:?}")),
            (_, Some(number)) => Err(format!(
                "{what} must be a 0x-prefixed 16-digit hex value, got {text:?} (did you mean \"{number:#018x}\"?)"
            )),
            (length, None) => Err(format!("{what}: hex value too long ({length} chars, max 17)")),
        }
    }

    /// Skips a token if it comes next.
    fn takes(&mut self, token: &str) -> bool {
        self.space();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.takes(token) { Ok(()) } else { Err(format!("{}, expected {token:?}", self.unexpected())) }
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn unexpected(&self) -> String {
        match self.rest.chars().next() {
            Some(next) => format!("unexpected {next:?}"),
            None => "unexpected end".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    const SECOND: &str = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')";

    #[test]
    fn a_selector_is_shown_as_it_was_given() {
        let both = format!("{FIRST} || {SECOND}");
        for text in [FIRST, SECOND, &both, &FIRST.replace("uid", "namespace")] {
            assert_eq!(ShardSelector::parse(text).unwrap().to_string(), text);
        }
        for same in [
            FIRST.replace(' ', ""),
            FIRST.replace('\'', "\""),
            format!("\t(({FIRST}))\n"),
            FIRST.replace("object.metadata", "object . metadata"),
        ] {
            assert_eq!(ShardSelector::parse(&same).unwrap().to_string(), FIRST, "{same}");
        }
        let grouped = format!("({FIRST}||{SECOND})");
        assert_eq!(ShardSelector::parse(&grouped).unwrap().to_string(), both);
    }

    #[test]
    fn two_shards_have_every_value_once() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("a"), 0xaf63_dc4c_8601_ec8c);
        let [first, second] = [FIRST, SECOND].map(|text| ShardSelector::parse(text).unwrap());
        for number in 0..100 {
            let value = format!("value-{number}");
            assert_ne!(first.matches(&value), second.matches(&value), "{value}");
        }
        let all = ShardSelector::parse(&format!("{SECOND} || {FIRST}")).unwrap();
        assert!(all.matches("") && all.matches("a"));
        assert!(!first.matches("") && second.matches(""));
    }

    #[test]
    fn other_expressions_say_what_is_wrong() {
        let check = |text: &str, expected: &str| {
            let error = ShardSelector::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check(" ", "empty shard selector is not allowed");
        check(&FIRST.replace("'0x0", "'0"), "hexStart must have '0x' prefix");
        check(&FIRST.replace("0x8000000000000000", "0x"), "hexEnd: hex value is required after '0x'");
        check(&FIRST.replace("0x8000000000000000", "0xff"), "did you mean \"0x00000000000000ff\"?");
        check(&FIRST.replace("0x8000000000000000", "0x800000000000000G"), "invalid hex character");
        check(&FIRST.replace("0x8000000000000000", "0xA000000000000000"), "invalid hex character");
        check(&FIRST.replace("0x8000000000000000", "0x20000000000000000"), "must be '0x10000000000000000' (2^64)");
        check(&FIRST.replace("0x8000000000000000", "0x100000000000000000"), "too long (18 chars, max 17)");
        check(&FIRST.replace("0x8", "0x0"), "must be less than end");
        check(&FIRST.replace("uid", "name"), "unsupported field path \"object.metadata.name\"");
        check(&FIRST.replace("shardRange", "range"), "unsupported function \"range\"");
        check("object.metadata.uid > '0x0'", "expected shardRange() call");
        check("shardRange(object.metadata.uid, 0, 8)", "hexStart must be a string literal");
        check("shardRange(object.metadata.uid, '0x0000000000000000')", "expected \",\"");
        check("shardRange(object.metadata.uid, '0x0", "has no end");
        check(&format!("{FIRST} && {SECOND}"), "unexpected '&'");
        check(&format!("{FIRST} ||"), "unexpected end");
        let mixed = format!("{FIRST} || {}", SECOND.replace("uid", "namespace"));
        check(&mixed, "all shard ranges must use the same field");
        check(&format!("{}{FIRST}", "(".repeat(100)), "too many parentheses");
    }
}
