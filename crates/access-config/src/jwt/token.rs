//! The compact form of a token: a header, claims and a signature (RFC 7515, section 7.1; RFC 7519).
//!
//! The content is untrusted until the signature is verified.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_codec::json;
use keelson_meta::clock::rfc3339;
use keelson_meta::go_format::kind;
use keelson_meta::json::Value;

use super::{Algorithm, KeySet};

/// The longest accepted token, in bytes.
const MOST_BYTES: usize = 64 * 1024;
/// The tolerance for `nbf` in the future, as in upstream, since clocks differ.
const LEEWAY: Duration = Duration::from_mins(5);
/// The last second of the year 9999, which is the last one that can be formatted. Later times are replaced by it.
const LAST: u64 = 253_402_300_799;

/// A parsed token whose signature has not been verified.
#[derive(Debug)]
pub(crate) struct Token<'t> {
    /// The signed part.
    signed: &'t str,
    signature: Vec<u8>,
    header: Value,
    /// The claims, an object.
    pub(crate) claims: Value,
}

impl<'t> Token<'t> {
    /// Parses a token; `None` if it is invalid.
    pub(crate) fn read(token: &'t str) -> Option<Self> {
        if token.len() > MOST_BYTES {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        let object = |part: &str| {
            let value = json::parse(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()?.value;
            value.is_object().then_some(value)
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        Some(Self { signed, signature, header: object(header)?, claims: object(claims)? })
    }

    /// The issuer in the claims. It is unverified.
    pub(crate) fn issuer(&self) -> &str {
        self.claims["iss"].as_str().unwrap_or_default()
    }

    /// Checks the types of the claims. Messages are upstream's.
    pub(crate) fn check_types(&self) -> Result<(), String> {
        let wrong = |value: &Value, name: &str, wanted: &str| {
            let found = kind(value);
            Err(format!(
                "oidc: failed to unmarshal claims: json: cannot unmarshal {found} into Go struct field idToken.{name} of type {wanted}"
            ))
        };
        for name in ["iss", "sub"] {
            match &self.claims[name] {
                Value::Null | Value::String(_) => {}
                other => return wrong(other, name, "string"),
            }
        }
        for name in ["exp", "nbf", "iat"] {
            match &self.claims[name] {
                Value::Null | Value::Number(_) => {}
                other => return wrong(other, name, "json.Number"),
            }
        }
        match &self.claims["aud"] {
            Value::Null | Value::String(_) => Ok(()),
            Value::Array(all) if all.iter().all(Value::is_string) => Ok(()),
            other => wrong(other, "aud", "[]string"),
        }
    }

    /// The audiences in the claims.
    pub(crate) fn audiences(&self) -> Vec<&str> {
        match &self.claims["aud"] {
            Value::String(one) => vec![one],
            Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// The expiry; `None` if there is none, and then the token counts as expired.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        time(&self.claims["exp"])
    }

    /// Checks that the token is valid now. Messages are upstream's.
    pub(crate) fn check_time(&self, now: SystemTime) -> Result<(), String> {
        match self.expires() {
            Some(expires) if now <= expires => {}
            expires => {
                let told = expires.map_or("0001-01-01 00:00:00 +0000 UTC".to_owned(), go_time);
                return Err(format!("oidc: token is expired (Token Expiry: {told})"));
            }
        }
        match time(&self.claims["nbf"]) {
            Some(begins) if now + LEEWAY < begins => Err(format!(
                "oidc: current time {} before the nbf (not before) time: {}",
                go_time(now),
                go_time(begins)
            )),
            _ => Ok(()),
        }
    }

    /// The signature algorithm in the header.
    pub(crate) fn algorithm(&self) -> &str {
        self.header["alg"].as_str().unwrap_or_default()
    }

    /// Returns true if the header has no critical extensions (RFC 7515, section 4.1.11).
    pub(crate) fn is_plain(&self) -> bool {
        self.header["crit"].is_null() && self.header["b64"].is_null()
    }

    /// Returns true if one of these keys signed the token.
    pub(crate) fn is_signed_by(&self, keys: &KeySet, algorithm: Algorithm) -> bool {
        let id = self.header["kid"].as_str().unwrap_or_default();
        keys.verifies(id, algorithm, self.signed.as_bytes(), &self.signature)
    }
}

/// A time in seconds since 1970, rounded down.
fn time(value: &Value) -> Option<SystemTime> {
    let number = value.as_number()?;
    let seconds = number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64))?;
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?.min(LAST)))
}

fn go_time(time: SystemTime) -> String {
    rfc3339(time).replace('T', " ").replace('Z', " +0000 UTC")
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    fn written(header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{}", part(header), part(claims), URL_SAFE_NO_PAD.encode("s"))
    }

    #[test]
    fn a_token_has_three_parts_with_two_json_objects() {
        let good = written(&json!({ "alg": "RS256" }), &json!({ "iss": "i", "aud": "a" }));
        let token = Token::read(&good).unwrap();
        assert_eq!((token.issuer(), token.algorithm(), token.audiences()), ("i", "RS256", vec!["a"]));
        let (signed, signature) = good.rsplit_once('.').unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let array = written(&json!([]), &json!({}));
        for bad in [
            "",
            "a",
            "a.b",
            "a.b.c",
            "..",
            signed,
            &format!("{good}.x"),
            &format!("{header}=.{claims}.{signature}"),
            &array,
        ] {
            assert!(Token::read(bad).is_none(), "{bad}");
        }
        assert!(Token::read(&"a".repeat(MOST_BYTES + 1)).is_none());
    }

    #[test]
    fn a_token_has_its_time() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let check = |claims: Value, expected: Result<(), &str>| {
            let token = written(&json!({}), &claims);
            let checked = Token::read(&token).unwrap().check_time(now);
            assert_eq!(checked, expected.map_err(str::to_owned), "{claims}");
        };
        check(json!({ "exp": 1_800_000_000 }), Ok(()));
        check(json!({ "exp": 1_800_000_000.5, "nbf": 1_800_000_300 }), Ok(()));
        check(json!({ "exp": i64::MAX }), Ok(()));
        let expired = |message: &str| format!("oidc: token is expired (Token Expiry: {message})");
        check(json!({ "exp": 1_799_999_999 }), Err(&expired("2027-01-15 07:59:59 +0000 UTC")));
        for never in [json!({}), json!({ "exp": null }), json!({ "exp": -5 })] {
            check(never, Err(&expired("0001-01-01 00:00:00 +0000 UTC")));
        }
        check(
            json!({ "exp": 1_900_000_000, "nbf": 1_800_000_301 }),
            Err(
                "oidc: current time 2027-01-15 08:00:00 +0000 UTC before the nbf (not before) time: 2027-01-15 08:05:01 +0000 UTC",
            ),
        );
    }

    #[test]
    fn claims_of_other_types_are_reported() {
        let check = |claims: Value, expected: Option<&str>| {
            let token = written(&json!({}), &claims);
            let told = Token::read(&token).unwrap().check_types().err();
            assert_eq!(told.as_deref().map(|told| told.rsplit_once("unmarshal ").unwrap().1), expected, "{claims}");
        };
        check(json!({ "sub": "s", "aud": ["a"], "exp": 1 }), None);
        check(json!({ "sub": 5 }), Some("number into Go struct field idToken.sub of type string"));
        check(json!({ "aud": [5] }), Some("array into Go struct field idToken.aud of type []string"));
        check(json!({ "exp": "1" }), Some("string into Go struct field idToken.exp of type json.Number"));
    }
}
