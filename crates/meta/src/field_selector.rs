//! Field selectors: `metadata.name=a,spec.nodeName!=b`.
//!
//! Terms keep the client's names of fields. Each resource defines which fields are selectable. In values, a backslash
//! escapes `\`, `,` and `=`.

use std::fmt;

/// A conjunction of terms: all must hold. The empty selector matches every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldTerm>);

/// One comparison of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    /// The path of the field, such as `spec.nodeName`.
    pub field: String,
    /// The comparison.
    pub op: FieldOperator,
    /// The value.
    pub value: String,
}

/// The operators on fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    /// `=` or `==`.
    Equal,
    /// `!=`.
    NotEqual,
}

/// The operators in the order in which they are tried: a longer one before its prefix.
const OPERATORS: [(&str, FieldOperator); 3] =
    [("!=", FieldOperator::NotEqual), ("==", FieldOperator::Equal), ("=", FieldOperator::Equal)];

impl FieldSelector {
    /// The selector that matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// The selector `field=value`.
    pub fn exact(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self(vec![FieldTerm { field: field.into(), op: FieldOperator::Equal, value: value.into() }])
    }

    /// Parses a selector.
    ///
    /// # Errors
    /// The text of the error for the client.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts: Vec<&str> = split_terms(text).into_iter().filter(|part| !part.is_empty()).collect();
        parts.sort_unstable();
        parts.into_iter().map(|part| parse_term(text, part)).collect::<Result<_, _>>().map(Self)
    }

    /// Returns true if the selector matches every object.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The terms.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.0
    }

    /// The value that the selector requires for the field; `None` if it requires none.
    pub fn require_exact(&self, field: &str) -> Option<&str> {
        let exact = self.0.iter().find(|term| term.field == field && term.op == FieldOperator::Equal)?;
        Some(&exact.value)
    }

    /// Returns true if the selector matches an object. `get` returns the object's fields. An absent field counts as
    /// empty.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|term| term.matches(get(&term.field)))
    }

    /// Returns the selector with a term added.
    #[must_use]
    pub fn and(mut self, field: impl Into<String>, op: FieldOperator, value: impl Into<String>) -> Self {
        self.0.push(FieldTerm { field: field.into(), op, value: value.into() });
        self
    }
}

impl FieldTerm {
    /// Returns true if the term holds for a field with this value. An absent field counts as empty.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let equal = value.unwrap_or_default() == self.value;
        match self.op {
            FieldOperator::Equal => equal,
            FieldOperator::NotEqual => !equal,
        }
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            term.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            FieldOperator::Equal => "=",
            FieldOperator::NotEqual => "!=",
        };
        write!(f, "{}{op}{}", self.field, escape(&self.value))
    }
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn parse_term(selector: &str, term: &str) -> Result<FieldTerm, String> {
    let at_operator = term.char_indices().find_map(|(index, _)| {
        let rest = &term[index..];
        OPERATORS.iter().find_map(|(text, op)| Some((&term[..index], *op, rest.strip_prefix(text)?)))
    });
    let Some((field, op, value)) = at_operator else {
        return Err(format!("invalid selector: '{selector}'; can't understand '{term}'"));
    };
    Ok(FieldTerm { field: field.to_owned(), op, value: unescape(value)? })
}

fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(invalid_escape(&format!("\\{other}"))),
                None => return Err(invalid_escape("\\")),
            },
            // As upstream, which prints the character as its number.
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

fn invalid_escape(sequence: &str) -> String {
    format!("invalid field selector: invalid escape sequence: {sequence}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let parsed = FieldSelector::parse(text).map(|selector| selector.to_string());
        assert_eq!(parsed.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn terms_are_sorted_and_empty_ones_dropped() {
        check("", Ok(""));
        check(",,", Ok(""));
        check("z=1,a==2,b!=3", Ok("a=2,b!=3,z=1"));
        check("metadata.name=", Ok("metadata.name="));
        check("=x", Ok("=x"));
    }

    #[test]
    fn escapes_are_read_and_written() {
        check(r"a=b\,c,d=\\\=", Ok(r"a=b\,c,d=\\\="));
        let selector = FieldSelector::parse(r"a=b\,c,d=\\\=").expect("a valid selector");
        assert_eq!(selector.require_exact("a"), Some("b,c"));
        assert_eq!(selector.require_exact("d"), Some(r"\="));
    }

    #[test]
    fn faults_have_upstream_texts() {
        check("nope", Err("invalid selector: 'nope'; can't understand 'nope'"));
        check("a=b,nope", Err("invalid selector: 'a=b,nope'; can't understand 'nope'"));
        check(r"a=\x", Err(r"invalid field selector: invalid escape sequence: \x"));
        check("a=b\\", Err("invalid field selector: invalid escape sequence: \\"));
        check("a=b=c", Err("invalid field selector: unescaped character in value: 61"));
        check("a===b", Err("invalid field selector: unescaped character in value: 61"));
    }

    #[test]
    fn absent_fields_count_as_empty() {
        let selector = FieldSelector::parse("a=x,b!=y").expect("a valid selector");
        assert!(selector.matches(|field| (field == "a").then_some("x")));
        assert!(!selector.matches(|field| Some(if field == "a" { "x" } else { "y" })));
        assert!(!selector.matches(|_| None));
        assert!(FieldSelector::parse("a=").expect("a valid selector").matches(|_| None));
        assert!(FieldSelector::everything().matches(|_| None));
        assert_eq!(selector.require_exact("b"), None);
    }

    proptest! {
        #[test]
        fn written_selectors_read_back(
            terms in proptest::collection::vec(("[a-z.]{1,8}", any::<bool>(), "[a-z\\\\,= !é]{0,6}"), 0..4)
        ) {
            let selector = terms.iter().fold(FieldSelector::everything(), |selector, (field, equal, value)| {
                let op = if *equal { FieldOperator::Equal } else { FieldOperator::NotEqual };
                selector.and(field, op, value)
            });
            let mut expected = selector.terms().to_vec();
            let mut parsed = FieldSelector::parse(&selector.to_string()).expect("a written selector is valid").0;
            expected.sort_by_key(ToString::to_string);
            parsed.sort_by_key(ToString::to_string);
            prop_assert_eq!(parsed, expected);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            if let Ok(selector) = FieldSelector::parse(&text) {
                let written = selector.to_string();
                let again = FieldSelector::parse(&written).map(|again| again.to_string());
                prop_assert_eq!(again, Ok(written));
            }
        }
    }
}
