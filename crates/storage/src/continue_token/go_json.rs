//! The subset of Go's encoding/json for continue tokens: syntax errors in Go's words, the members of the top-level
//! object, and string quoting.
//!
//! The scanner keeps its own stack of open brackets, so a hostile token can't exhaust the thread's stack.

/// Go's nesting limit.
const MAX_DEPTH: usize = 10_000;

/// The kind of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    fn from_byte(first: u8) -> Self {
        match first {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::String,
            b't' | b'f' => Self::Bool,
            b'n' => Self::Null,
            _ => Self::Number,
        }
    }

    /// The word for this kind in Go's messages.
    pub(super) const fn go_name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

/// A valid JSON text, parsed one level deep.
pub(super) struct Document<'a> {
    pub(super) kind: Kind,
    /// The members of an object in order, with duplicates.
    pub(super) fields: Vec<Field<'a>>,
}

/// One member of the top-level object.
pub(super) struct Field<'a> {
    /// The raw name between its quotes, with escapes.
    raw_name: &'a [u8],
    pub(super) kind: Kind,
    /// The raw text of a scalar; only the bracket of arrays and objects.
    raw: &'a [u8],
}

impl Field<'_> {
    pub(super) fn name(&self) -> String {
        unquote(self.raw_name)
    }

    pub(super) fn string(&self) -> Option<String> {
        (self.kind == Kind::String).then(|| unquote(&self.raw[1..self.raw.len() - 1]))
    }

    pub(super) fn number(&self) -> Option<&str> {
        (self.kind == Kind::Number).then(|| std::str::from_utf8(self.raw).unwrap_or_default())
    }
}

/// Checks the syntax of a whole text. The error text is Go's.
pub(super) fn scan(text: &[u8]) -> Result<Document<'_>, String> {
    Scanner { text, at: 0, open: Vec::new(), name: &[], fields: Vec::new() }.run()
}

#[derive(Clone, Copy)]
enum Expect {
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    Colon,
    AfterValue,
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// The open brackets.
    open: Vec<u8>,
    name: &'a [u8],
    fields: Vec<Field<'a>>,
}

impl<'a> Scanner<'a> {
    fn run(mut self) -> Result<Document<'a>, String> {
        self.skip_space();
        let kind = self.text.get(self.at).map_or(Kind::Null, |first| Kind::from_byte(*first));
        let mut expect = Expect::Value;
        loop {
            self.skip_space();
            expect = match expect {
                Expect::AfterValue if self.open.is_empty() => match self.text.get(self.at) {
                    None => return Ok(Document { kind, fields: self.fields }),
                    Some(byte) => return Err(invalid(*byte, "after top-level value")),
                },
                Expect::ValueOrEnd if self.peek()? == b']' => self.close(),
                Expect::NameOrEnd if self.peek()? == b'}' => self.close(),
                Expect::Value | Expect::ValueOrEnd => self.value()?,
                Expect::Name | Expect::NameOrEnd => self.member_name()?,
                Expect::Colon => match self.next()? {
                    b':' => Expect::Value,
                    other => return Err(invalid(other, "after object key")),
                },
                Expect::AfterValue => self.after_value()?,
            };
        }
    }

    fn after_value(&mut self) -> Result<Expect, String> {
        let in_object = self.open.last() == Some(&b'{');
        match (in_object, self.peek()?) {
            (true, b',') => {
                self.at += 1;
                Ok(Expect::Name)
            }
            (false, b',') => {
                self.at += 1;
                Ok(Expect::Value)
            }
            (true, b'}') | (false, b']') => Ok(self.close()),
            (true, other) => Err(invalid(other, "after object key:value pair")),
            (false, other) => Err(invalid(other, "after array element")),
        }
    }

    fn close(&mut self) -> Expect {
        self.at += 1;
        self.open.pop();
        Expect::AfterValue
    }

    fn member_name(&mut self) -> Result<Expect, String> {
        let start = self.at;
        match self.next()? {
            b'"' => self.string()?,
            other => return Err(invalid(other, "looking for beginning of object key string")),
        }
        if self.open.len() == 1 {
            self.name = &self.text[start + 1..self.at - 1];
        }
        Ok(Expect::Colon)
    }

    fn value(&mut self) -> Result<Expect, String> {
        let start = self.at;
        let is_member = self.open == [b'{'];
        let first = self.next()?;
        let expect = match first {
            b'{' => self.opened(first, Expect::NameOrEnd)?,
            b'[' => self.opened(first, Expect::ValueOrEnd)?,
            b'"' => self.string().map(|()| Expect::AfterValue)?,
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            b'-' | b'0'..=b'9' => self.number(first)?,
            other => return Err(invalid(other, "looking for beginning of value")),
        };
        if is_member {
            self.fields.push(Field {
                raw_name: self.name,
                kind: Kind::from_byte(first),
                raw: &self.text[start..self.at],
            });
        }
        Ok(expect)
    }

    fn opened(&mut self, bracket: u8, expect: Expect) -> Result<Expect, String> {
        self.open.push(bracket);
        if self.open.len() > MAX_DEPTH { Err(invalid(bracket, "exceeded max depth")) } else { Ok(expect) }
    }

    /// Reads the rest of a string after its first quote.
    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let digit = self.next()?;
                            if !digit.is_ascii_hexdigit() {
                                return Err(invalid(digit, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    other => return Err(invalid(other, "in string escape code")),
                },
                control if control < 0x20 => return Err(invalid(control, "in string literal")),
                _ => {}
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<Expect, String> {
        for wanted in word.bytes().skip(1) {
            let found = self.next()?;
            if found != wanted {
                return Err(invalid(found, &format!("in literal {word} (expecting '{}')", char::from(wanted))));
            }
        }
        Ok(Expect::AfterValue)
    }

    fn number(&mut self, mut first: u8) -> Result<Expect, String> {
        if first == b'-' {
            first = self.digit("in numeric literal")?;
        }
        if first != b'0' {
            self.skip_digits();
        }
        if self.skip_if(b".") {
            self.digit("after decimal point in numeric literal")?;
            self.skip_digits();
        }
        if self.skip_if(b"eE") {
            self.skip_if(b"+-");
            self.digit("in exponent of numeric literal")?;
            self.skip_digits();
        }
        Ok(Expect::AfterValue)
    }

    fn digit(&mut self, context: &str) -> Result<u8, String> {
        let found = self.next()?;
        if found.is_ascii_digit() { Ok(found) } else { Err(invalid(found, context)) }
    }

    fn skip_digits(&mut self) {
        while self.skip_if(b"0123456789") {}
    }

    fn skip_space(&mut self) {
        while self.skip_if(b" \t\r\n") {}
    }

    fn skip_if(&mut self, any_of: &[u8]) -> bool {
        let found = self.text.get(self.at).is_some_and(|byte| any_of.contains(byte));
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Result<u8, String> {
        self.text.get(self.at).copied().ok_or_else(|| "unexpected end of JSON input".to_owned())
    }

    fn next(&mut self) -> Result<u8, String> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }
}

/// Go's message about an unexpected byte. Go shows the byte as if it were a character.
fn invalid(byte: u8, context: &str) -> String {
    let shown = match byte {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        b'\\' => "\\\\".to_owned(),
        0x07 => "\\a".to_owned(),
        0x08 => "\\b".to_owned(),
        0x09 => "\\t".to_owned(),
        0x0a => "\\n".to_owned(),
        0x0b => "\\v".to_owned(),
        0x0c => "\\f".to_owned(),
        0x0d => "\\r".to_owned(),
        0x00..=0x1f | 0x7f => format!("\\x{byte:02x}"),
        // Not printable in Go's tables: controls, the no-break space, and the soft hyphen.
        0x80..=0xa0 | 0xad => format!("\\u{byte:04x}"),
        _ => char::from(byte).to_string(),
    };
    format!("invalid character '{shown}' {context}")
}

/// The text of a valid string between its quotes. As in Go, invalid Unicode becomes U+FFFD.
fn unquote(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    let mut out = String::with_capacity(text.len());
    let mut units = Vec::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let escape = if c == '\\' { rest.next() } else { None };
        if escape == Some('u') {
            let digits: String = rest.by_ref().take(4).collect();
            units.push(u16::from_str_radix(&digits, 16).unwrap_or(0xfffd));
            continue;
        }
        push_utf16(&mut out, &mut units);
        out.push(match escape {
            None => c,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some(other) => other,
        });
    }
    push_utf16(&mut out, &mut units);
    out
}

fn push_utf16(out: &mut String, units: &mut Vec<u16>) {
    out.extend(char::decode_utf16(units.drain(..)).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)));
}

/// A quoted string as `json.Marshal` in Go writes it, with HTML escapes.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_are_gos() {
        for (text, expect) in [
            ("", "unexpected end of JSON input"),
            ("{\"v\":", "unexpected end of JSON input"),
            ("{x", "invalid character 'x' looking for beginning of object key string"),
            ("{\"a\" 1", "invalid character '1' after object key"),
            ("{\"a\":1 2", "invalid character '2' after object key:value pair"),
            ("[1 2", "invalid character '2' after array element"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("tru!", "invalid character '!' in literal true (expecting 'e')"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("\"\n", "invalid character '\\n' in string literal"),
            ("\"\\x", "invalid character 'x' in string escape code"),
            ("\"\\u00g", "invalid character 'g' in \\u hexadecimal character escape"),
            ("'", "invalid character '\\'' looking for beginning of value"),
            ("é", "invalid character 'Ã' looking for beginning of value"),
        ] {
            assert_eq!(scan(text.as_bytes()).err().as_deref(), Some(expect), "of {text:?}");
        }
        let deep = "[".repeat(MAX_DEPTH + 1);
        assert_eq!(scan(deep.as_bytes()).err().as_deref(), Some("invalid character '[' exceeded max depth"));
    }

    #[test]
    fn strings_are_unquoted_as_in_go() {
        for (raw, expect) in
            [(r"a\u00e9\n\/", "aé\n/"), (r"\ud83d\ude00", "😀"), (r"\ud83dx", "\u{fffd}x"), (r#"\"\\"#, r#""\"#)]
        {
            assert_eq!(unquote(raw.as_bytes()), expect);
        }
    }
}
