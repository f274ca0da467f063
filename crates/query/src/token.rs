//! Continue tokens of queries: the revision of the first chunk, the query, and the position in its order.
//!
//! A token is base64url without padding of
//! `{"v":"keelson.io/v1alpha1","rv":REVISION,"query":"HASH","place":"BYTES","key":"KEY"}`. The version differs from
//! that of ordinary tokens, so the decoder of one kind refuses the other. A token only selects a position in the result
//! of its request. It never determines which objects are visible. A forged token starts elsewhere in the same list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_meta::Revision;
use serde::{Deserialize, Serialize};
use thiserror::Error;

const VERSION: &str = "keelson.io/v1alpha1";

/// The revision at which a list continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRevision {
    /// The revision of the first chunk.
    At(Revision),
    /// The newest revision. The server sent such a token with a 410; the rest of the list may be inconsistent with the
    /// first chunks.
    Newest,
}

/// The position of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryToken {
    /// The revision to read.
    pub revision: TokenRevision,
    /// A hash of the query and the range of its URL.
    pub query: u64,
    /// The sort key of the last object.
    pub place: Vec<u8>,
    /// The key of that object, `<namespace>/<name>` or `<name>`.
    pub key: String,
}

/// The reason for refusing a token. Its `Display` is the text after `invalid continue token: `.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// The token does not belong to a query.
    #[error("it does not belong to a query with keelson.io parameters")]
    Form,
    /// The token belongs to another query or URL.
    #[error("it belongs to another query")]
    OtherQuery,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    v: &'a str,
    rv: i64,
    query: String,
    place: String,
    key: String,
}

impl QueryToken {
    /// The encoded token.
    pub fn encode(&self) -> String {
        let rv = match self.revision {
            TokenRevision::At(revision) => i64::try_from(revision.get()).unwrap_or(i64::MAX),
            TokenRevision::Newest => -1,
        };
        let place = URL_SAFE_NO_PAD.encode(&self.place);
        let wire = Wire { v: VERSION, rv, query: format!("{:016x}", self.query), place, key: self.key.clone() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// Decodes a token of the query with this hash.
    ///
    /// # Errors
    /// An invalid token, or one of another query.
    pub fn decode(text: &str, query: u64) -> Result<Self, TokenError> {
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Form)?;
        let wire: Wire<'_> = serde_json::from_slice(&json).map_err(|_| TokenError::Form)?;
        let revision = match wire.rv {
            -1 => TokenRevision::Newest,
            number => TokenRevision::At(Revision::new(u64::try_from(number).map_err(|_| TokenError::Form)?)),
        };
        if wire.v != VERSION || revision == TokenRevision::At(Revision::ZERO) {
            return Err(TokenError::Form);
        }
        let place = URL_SAFE_NO_PAD.decode(&wire.place).map_err(|_| TokenError::Form)?;
        let of = u64::from_str_radix(&wire.query, 16).map_err(|_| TokenError::Form)?;
        if of != query {
            return Err(TokenError::OtherQuery);
        }
        Ok(Self { revision, query, place, key: wire.key })
    }

    /// Returns the token for the newest revision.
    #[must_use]
    pub fn newest(&self) -> Self {
        Self { revision: TokenRevision::Newest, ..self.clone() }
    }
}

/// A hash that identifies a query: FNV-1a, equal on every server and in every release.
pub fn fingerprint(text: &str) -> u64 {
    keelson_meta::fnv1a(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_of_other_kinds_are_refused() {
        // A token of an ordinary list.
        let ordinary = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzU5LCJzdGFydCI6Ii9jMlx1MDAwMCJ9";
        for text in [ordinary, "", "%", "e30"] {
            assert_eq!(QueryToken::decode(text, 7), Err(TokenError::Form), "{text}");
        }
        let token = QueryToken { revision: TokenRevision::Newest, query: 7, place: vec![1], key: "a".to_owned() };
        assert_eq!(QueryToken::decode(&token.encode(), 8), Err(TokenError::OtherQuery));
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(revision in 1..i64::MAX as u64, query: u64, place: Vec<u8>, key in ".{0,12}") {
            let token = QueryToken { revision: TokenRevision::At(Revision::new(revision)), query, place, key };
            prop_assert_eq!(QueryToken::decode(&token.encode(), query), Ok(token.clone()));
            prop_assert_eq!(QueryToken::decode(&token.newest().encode(), query), Ok(token.newest()));
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,60}") {
            let _ = QueryToken::decode(&text, 0);
            let _ = QueryToken::decode(&URL_SAFE_NO_PAD.encode(&text), 0);
        }
    }
}
