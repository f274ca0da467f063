//! Functions for parts of a request that are unreadable in expanded form.
//!
//! `token(REVISION START)` is a continue token for the position after the key START, `base64url(TEXT)` any other token,
//! and `repeat(COUNT TEXT)` a long text. Arguments can't contain a closing parenthesis.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A function of its arguments; `None` when they are invalid.
type Function = fn(&str) -> Option<String>;

const FUNCTIONS: [(&str, Function); 3] =
    [("base64url(", |text| Some(URL_SAFE_NO_PAD.encode(text))), ("repeat(", repeat), ("token(", encode_token)];

/// Expands the functions in a text. Invalid calls stay unchanged.
pub(super) fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(end) = rest.find(')') {
        let (head, tail) = rest.split_at(end);
        let called = FUNCTIONS.iter().filter_map(|(name, apply)| {
            let start = head.rfind(name)?;
            Some((start, apply(&head[start + name.len()..])?))
        });
        match called.max_by_key(|(start, _)| *start) {
            Some((start, value)) => out.extend([&head[..start], &value]),
            None => out.extend([head, ")"]),
        }
        rest = &tail[1..];
    }
    out + rest
}

/// The revision and key of a continue token, if it has exactly the form that this server writes.
pub(super) fn token(text: &str) -> Option<(i64, String)> {
    let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (revision, start) = decoded
        .strip_prefix(r#"{"v":"meta.k8s.io/v1","rv":"#)?
        .strip_suffix(r#"\u0000"}"#)?
        .split_once(r#","start":""#)?;
    let plain = !start.contains(['"', '\\', '(', ')']);
    plain.then_some((revision.parse().ok()?, start.to_owned()))
}

fn encode_token(arguments: &str) -> Option<String> {
    let (revision, start) = arguments.split_once(' ')?;
    let revision: i64 = revision.parse().ok()?;
    Some(URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":"{start}\u0000"}}"#)))
}

fn repeat(arguments: &str) -> Option<String> {
    let (count, text) = arguments.split_once(' ')?;
    Some(text.repeat(count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{expand, token};

    #[test]
    fn functions_are_spelled_out_and_other_parentheses_stay() {
        for (text, expanded) in [
            ("a=repeat(3 xy)&b", "a=xyxyxy&b"),
            ("base64url(hello)", "aGVsbG8"),
            ("labelSelector=a+in+(b,c)", "labelSelector=a+in+(b,c)"),
            ("a in (b), token(nothing)", "a in (b), token(nothing)"),
        ] {
            assert_eq!(expand(text), expanded);
        }
    }

    #[test]
    fn a_token_reads_back() {
        assert_eq!(token(&expand("token(-1 b/c)")), Some((-1, "b/c".to_owned())));
        assert_eq!(token(&expand("base64url(hello)")), None);
    }
}
