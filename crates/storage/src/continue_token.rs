//! Continue tokens of chunked lists (KEP-365): the revision of a list, and the first key of its next chunk.
//!
//! The format is kube-apiserver's, so tokens survive a change of server: unpadded base64url of
//! `{"v":"meta.k8s.io/v1","rv":<revision>,"start":"<key>\u0000"}`. Servers that list from a cache write the key with a
//! leading slash, those that list from etcd without; both are accepted. Error texts are those of Go's decoders, because
//! clients print them.
//!
//! A key in a token is relative to the prefix of the request's URL and can't escape it, however it was forged.

mod go_json;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_meta::{Revision, base64_url_digit};

use crate::key::{StoreKey, behind};
use go_json::{Field, Kind};

/// The only released version of the token.
const VERSION: &str = "meta.k8s.io/v1";

/// The revision at which the rest of a list is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRevision {
    /// Exactly this one: the revision of the list's first chunk.
    At(Revision),
    /// The newest one when the token is used. The server sent such a token with a 410; the rest of the list may be
    /// inconsistent with the first chunks.
    Newest,
}

/// The position of the next chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision to read at.
    pub revision: TokenRevision,
    /// The first key of the next chunk, relative to the list's prefix, without a leading slash. The position after a
    /// key is the key with a NUL appended. Empty means the beginning.
    pub start: String,
}

/// The reason for refusing a token. Its `Display` is the text after `invalid continue token: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is not base64url without padding.
    #[error("continue key is not valid: illegal base64 data at input byte {offset}")]
    Base64 {
        /// The first offending byte of the token.
        offset: usize,
    },
    /// The content is not JSON, or has the wrong shape. Holds Go's text.
    #[error("continue key is not valid: {0}")]
    Json(String),
    /// The token has an unreleased version.
    #[error("continue key is not valid: server does not recognize this encoded version {0}")]
    Version(String),
    /// The token's revision is 0.
    #[error("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")]
    Revision,
    /// The token has no key.
    #[error("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")]
    EmptyStart,
    /// The token's key has empty, `.` or `..` segments. Holds the key as sent.
    #[error("continue key is not valid: {0}")]
    UncleanStart(String),
}

impl ContinueToken {
    /// The token for the position after `last_relative_key` (`<namespace>/<name>` or `<name>`) at `revision`.
    pub fn after(revision: Revision, last_relative_key: &str) -> Self {
        Self { revision: TokenRevision::At(revision), start: behind(last_relative_key) }
    }

    /// The token for the position at `relative_key`.
    pub fn at(revision: Revision, relative_key: &str) -> Self {
        Self { revision: TokenRevision::At(revision), start: relative_key.to_owned() }
    }

    /// The token for the same position at the newest revision, as offered with a 410.
    #[must_use]
    pub fn newest(&self) -> Self {
        Self { revision: TokenRevision::Newest, start: self.start.clone() }
    }

    /// Returns the encoded token.
    ///
    /// As upstream, a token with a revision has the form of kube-apiserver's cache (leading slash), and the token of a
    /// 410 has the form of its etcd lists (no slash).
    pub fn encode(&self) -> String {
        let (revision, slash) = match self.revision {
            TokenRevision::At(revision) => (revision.to_string(), "/"),
            TokenRevision::Newest if self.start.is_empty() => ("-1".to_owned(), "/"),
            TokenRevision::Newest => ("-1".to_owned(), ""),
        };
        let start = go_json::quote(&format!("{slash}{}", self.start));
        URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"{VERSION}","rv":{revision},"start":{start}}}"#))
    }

    /// Decodes a token.
    ///
    /// # Errors
    /// The first check that fails, in kube-apiserver's order.
    pub fn decode(text: &str) -> Result<Self, TokenError> {
        let json = decode_base64(text).map_err(|offset| TokenError::Base64 { offset })?;
        let wire = WireToken::parse(&json).map_err(TokenError::Json)?;
        if wire.version != VERSION {
            return Err(TokenError::Version(wire.version));
        }
        let revision = match wire.revision {
            0 => return Err(TokenError::Revision),
            negative if negative < 0 => TokenRevision::Newest,
            positive => TokenRevision::At(Revision::new(positive.unsigned_abs())),
        };
        if wire.start.is_empty() {
            return Err(TokenError::EmptyStart);
        }
        let relative = wire.start.strip_prefix('/').unwrap_or(&wire.start);
        if !is_clean(relative) {
            return Err(TokenError::UncleanStart(wire.start));
        }
        Ok(Self { revision, start: relative.to_owned() })
    }

    /// The first key of the next chunk of a list over `prefix` (`/registry/pods/` or `/registry/pods/default/`). It
    /// always starts with the prefix.
    pub fn start_key(&self, prefix: &str) -> StoreKey {
        StoreKey::new(format!("{prefix}{}", self.start))
    }
}

/// The three members of the JSON, with Go's zero values for absent ones.
#[derive(Default)]
struct WireToken {
    version: String,
    revision: i64,
    start: String,
}

impl WireToken {
    fn parse(json: &[u8]) -> Result<Self, String> {
        let document = go_json::scan(json)?;
        let mut token = Self::default();
        match document.kind {
            Kind::Null => return Ok(token),
            Kind::Object => {}
            other => {
                let kind = other.go_name();
                return Err(format!("json: cannot unmarshal {kind} into Go value of type storage.continueToken"));
            }
        }
        let mut first_error = None;
        for field in &document.fields {
            // Go continues after a value of the wrong type and reports the first one.
            if let Err(error) = token.set(field) {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(token), Err)
    }

    fn set(&mut self, field: &Field<'_>) -> Result<(), String> {
        if field.kind == Kind::Null {
            return Ok(());
        }
        let name = field.name();
        if name.eq_ignore_ascii_case("v") {
            self.version = field.string().ok_or_else(|| mismatch(field.kind.go_name(), "v", "string"))?;
        } else if name.eq_ignore_ascii_case("start") {
            self.start = field.string().ok_or_else(|| mismatch(field.kind.go_name(), "start", "string"))?;
        } else if name.eq_ignore_ascii_case("rv") {
            let Some(number) = field.number() else { return Err(mismatch(field.kind.go_name(), "rv", "int64")) };
            self.revision = number.parse().map_err(|_| mismatch(&format!("number {number}"), "rv", "int64"))?;
        }
        Ok(())
    }
}

fn mismatch(found: &str, field: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {found} into Go struct field continueToken.{field} of type {wanted}")
}

/// Returns true if Go's `path.Clean` keeps `/` + `relative` unchanged.
fn is_clean(relative: &str) -> bool {
    relative.is_empty() || relative.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

/// Decodes unpadded base64url as Go does: skips line breaks and ignores unused last bits. The error is Go's offset.
fn decode_base64(text: &str) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let mut bits = 0u32;
    let mut digits = 0;
    for (offset, byte) in text.bytes().enumerate() {
        if matches!(byte, b'\r' | b'\n') {
            continue;
        }
        bits = (bits << 6) | base64_url_digit(byte).ok_or(offset)?;
        digits += 1;
        if digits == 4 {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            (bits, digits) = (0, 0);
        }
    }
    match digits {
        1 => return Err(text.len() - 1),
        2 => out.extend_from_slice(&(bits << 12).to_be_bytes()[1..2]),
        3 => out.extend_from_slice(&(bits << 6).to_be_bytes()[1..3]),
        _ => {}
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(token: &str, expect: (TokenRevision, &str)) {
        let decoded = ContinueToken::decode(token).unwrap();
        assert_eq!((decoded.revision, decoded.start.as_str()), expect);
    }

    #[track_caller]
    fn check_refused(json: &str, expect: &str) {
        let error = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(json)).unwrap_err();
        assert_eq!(error.to_string(), format!("continue key is not valid: {expect}"), "of {json}");
    }

    #[track_caller]
    fn check_start(start: &str, expect: Option<&str>) {
        let json = format!(r#"{{"v":"meta.k8s.io/v1","rv":7,"start":{}}}"#, go_json::quote(start));
        let decoded = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(json));
        assert_eq!(decoded.as_ref().map(|token| token.start.as_str()).ok(), expect, "start {start:?}");
        if expect.is_none() {
            assert_eq!(decoded, Err(TokenError::UncleanStart(start.to_owned())));
        }
    }

    /// One fixture for each form that a released server writes. Never remove one.
    #[test]
    fn every_released_form_decodes() {
        let at = TokenRevision::At(Revision::new(359));
        check("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzU5LCJzdGFydCI6Ii9jMlx1MDAwMCJ9", (at, "c2\0"));
        check("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzU5LCJzdGFydCI6ImMyXHUwMDAwIn0", (at, "c2\0"));
        check("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYzJcdTAwMDAifQ", (TokenRevision::Newest, "c2\0"));
    }

    #[test]
    fn encoding_is_byte_for_byte_the_references() {
        let token = ContinueToken::after(Revision::new(359), "c2");
        assert_eq!(token.encode(), "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzU5LCJzdGFydCI6Ii9jMlx1MDAwMCJ9");
        assert_eq!(token.newest().encode(), "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYzJcdTAwMDAifQ");
    }

    #[test]
    fn refused_tokens_get_the_errors_of_go_in_order() {
        check_refused("hello", "invalid character 'h' looking for beginning of value");
        check_refused("{}{", "invalid character '{' after top-level value");
        check_refused("{}", "server does not recognize this encoded version ");
        check_refused("null", "server does not recognize this encoded version ");
        check_refused(
            r#"{"v":"meta.k8s.io/v9","rv":1,"start":"a"}"#,
            "server does not recognize this encoded version meta.k8s.io/v9",
        );
        check_refused(
            r#"{"v":"meta.k8s.io/v1","rv":0,"start":""}"#,
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        );
        check_refused(
            r#"{"v":"meta.k8s.io/v1","rv":5,"start":""}"#,
            "encoded start key empty (version meta.k8s.io/v1)",
        );
        check_refused(r#"{"v":"meta.k8s.io/v1","rv":359,"start":"../secrets/a"}"#, "../secrets/a");
        check_refused("[]", "json: cannot unmarshal array into Go value of type storage.continueToken");
        check_refused(
            r#"{"rv":"5","start":7}"#,
            "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
        );
        check_refused(
            r#"{"rv":1.5}"#,
            "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
        );
    }

    #[test]
    fn bad_base64_names_the_offending_byte() {
        for (text, expect) in [("$$$", 0), ("aGVsbG8=", 7), ("ab+/", 2), ("abcde", 4), ("a", 0)] {
            assert_eq!(ContinueToken::decode(text), Err(TokenError::Base64 { offset: expect }), "of {text}");
        }
    }

    #[test]
    fn member_names_ignore_case_and_unknown_members() {
        let json = r#"{"x":{"v":[1]},"V":"meta.k8s.io/v1","Rv":3,"START":"\/a\u0000","start":null}"#;
        check(&URL_SAFE_NO_PAD.encode(json), (TokenRevision::At(Revision::new(3)), "a\0"));
    }

    #[test]
    fn only_clean_keys_are_accepted() {
        for bad in ["..", ".", "../x", "a/../b", "a/./b", "a//b", "//x", "a/", "/../a", "/a/.."] {
            check_start(bad, None);
        }
        for (good, relative) in [("/", ""), ("a", "a"), ("/a/b", "a/b"), (r"a\..\b", r"a\..\b"), ("...", "...")] {
            check_start(good, Some(relative));
        }
        check_start("%2e%2e/x", Some("%2e%2e/x"));
        check_start("a b", Some("a b"));
    }

    proptest! {
        /// Invariant 6: no token reads outside the range of its URL.
        #[test]
        fn inv06_no_token_leaves_its_prefix(bytes in proptest::collection::vec(any::<u8>(), 0..80), start in ".{0,20}") {
            let forged = format!(r#"{{"v":"meta.k8s.io/v1","rv":1,"start":{}}}"#, go_json::quote(&start));
            for text in [URL_SAFE_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(forged)] {
                if let Ok(token) = ContinueToken::decode(&text) {
                    let key = token.start_key("/registry/pods/default/");
                    prop_assert!(key.as_str().starts_with("/registry/pods/default/"));
                    prop_assert!(!key.as_str().split('/').any(|segment| segment == ".." || segment == "."));
                }
            }
        }

        #[test]
        fn decoding_undoes_encoding(revision in 1..i64::MAX as u64, key in "[a-z0-9<>&\u{2028}é.-]{1,8}(/[a-z0-9-]{1,8})?") {
            prop_assume!(is_clean(&key));
            let token = ContinueToken::after(Revision::new(revision), &key);
            prop_assert_eq!(ContinueToken::decode(&token.encode()).unwrap(), token.clone());
            prop_assert_eq!(ContinueToken::decode(&token.newest().encode()).unwrap(), token.newest());
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,60}") {
            let _ = ContinueToken::decode(&text);
            let _ = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(&text));
        }
    }
}
