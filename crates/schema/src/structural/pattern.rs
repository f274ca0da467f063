//! Regular expressions as RE2 reads them, which run in linear time here too. The differences that matter: `\d`, `\w`, `\s` and `\b`
//! mean ASCII alone, and `\z` ends the text.

use regex::{Regex, RegexBuilder};

/// How large one compiled expression may be, in bytes.
const COMPILED_BYTES: usize = 1 << 20;

/// Compiles an expression.
///
/// # Errors
/// Why it can't be, on one line.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let compiled = RegexBuilder::new(&translated(pattern)).size_limit(COMPILED_BYTES).build();
    compiled.map_err(|error| error.to_string().lines().last().unwrap_or_default().trim().to_owned())
}

fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str(r"[\t\n\f\r ]"),
                Some('S') => out.push_str(r"[^\t\n\f\r ]"),
                Some(boundary @ ('b' | 'B')) if !in_class => {
                    out.push_str("(?-u:\\");
                    out.push(boundary);
                    out.push(')');
                }
                Some(escaped) => {
                    out.push('\\');
                    out.push(escaped);
                }
                None => out.push('\\'),
            },
            // Sets of sets are no matter of RE2: a bracket in a class is one of its characters, unless it names a class.
            '[' if in_class && !chars.as_str().starts_with(':') => out.push_str(r"\["),
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '[' if in_class => {
                out.push('[');
                // A named class such as `[:alpha:]`, up to its own bracket.
                for c in chars.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' => {
                in_class = true;
                out.push('[');
                for first in ['^', ']'] {
                    if let Some(rest) = chars.as_str().strip_prefix(first) {
                        out.push_str(if first == ']' { r"\]" } else { "^" });
                        chars = rest.chars();
                    }
                }
            }
            ']' => {
                in_class = false;
                out.push(']');
            }
            c => out.push(c),
        }
    }
    out
}
