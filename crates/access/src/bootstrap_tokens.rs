//! Bootstrap tokens, with which a new machine requests its first certificate.
//!
//! A token `id.secret` is stored as a secret of type `bootstrap.kubernetes.io/token` in `kube-system`, and
//! authenticates as `system:bootstrap:<id>`. The rules are upstream's
//! (`plugin/pkg/auth/authenticator/token/bootstrap`).

use std::collections::BTreeSet;
use std::time::SystemTime;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_meta::Object;
use keelson_meta::clock::parse_rfc3339;
use keelson_meta::json::Value;

use crate::user::{AUTHENTICATED, User};

/// The namespace of the secrets.
pub const NAMESPACE: &str = "kube-system";
const NAME_PREFIX: &str = "bootstrap-token-";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";
const USER_PREFIX: &str = "system:bootstrap:";
/// The lengths of the two parts of a token, in characters.
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// The longest suffix of a group name.
const GROUP_LENGTH: usize = 256;

/// A token of the form `id.secret`.
#[derive(Clone, Copy)]
pub struct BootstrapToken<'t> {
    id: &'t str,
    secret: &'t str,
}

impl<'t> BootstrapToken<'t> {
    /// Parses a token; `None` for any other form.
    pub fn parse(token: &'t str) -> Option<Self> {
        let (id, secret) = token.split_once('.')?;
        let is_word = |text: &str, length| {
            text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        (is_word(id, ID_LENGTH) && is_word(secret, SECRET_LENGTH)).then_some(Self { id, secret })
    }

    /// The name of the secret that stores the token.
    pub fn secret_name(&self) -> String {
        format!("{NAME_PREFIX}{}", self.id)
    }

    /// The user of the token, checked against its stored secret. `None` if the secret differs or is expired. Compares
    /// in constant time.
    pub fn user(&self, secret: &Object, now: SystemTime) -> Option<User> {
        let text = |key: &str| {
            let coded = secret.get(&["data", key]).and_then(Value::as_str)?;
            String::from_utf8(BASE64.decode(coded).ok()?).ok()
        };
        let is_of_type = secret.get(&["type"]).is_some_and(|kind| kind == TYPE);
        let is_usable = text("usage-bootstrap-authentication").as_deref() == Some("true");
        let known = text("token-secret").unwrap_or_default();
        let is_same = verify_slices_are_equal(known.as_bytes(), self.secret.as_bytes()).is_ok();
        let is_over = match text("expiration") {
            Some(until) => parse_rfc3339(&until).is_none_or(|until| until <= now),
            None => false,
        };
        if !is_of_type
            || secret.deletion_timestamp().is_some()
            || text("token-id").as_deref() != Some(self.id)
            || !is_same
            || is_over
            || !is_usable
        {
            return None;
        }
        let extra: BTreeSet<String> = match text("auth-extra-groups") {
            Some(list) if !list.is_empty() => list.split(',').map(str::to_owned).collect(),
            _ => BTreeSet::new(),
        };
        if !extra.iter().all(|group| is_group(group)) {
            return None;
        }
        let groups = [GROUP.to_owned()].into_iter().chain(extra).chain([AUTHENTICATED.to_owned()]).collect();
        Some(User { name: format!("{USER_PREFIX}{}", self.id), groups, ..User::default() })
    }
}

/// Returns true for a group that a token may grant: one below `system:bootstrappers:`.
fn is_group(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':')) else { return false };
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b':' | b'-');
    let ends_well = rest.bytes().last().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    rest.len() <= GROUP_LENGTH && ends_well && rest.bytes().all(is_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keelson_meta::json::json;

    use super::*;

    fn user(change: &[(&str, Option<&str>)], kind: &str) -> Option<User> {
        let mut data = vec![
            ("token-id", "abc123"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, value) in change {
            data.retain(|(known, _)| known != key);
            data.extend(value.map(|value| (*key, value)));
        }
        let data: std::collections::BTreeMap<_, _> =
            data.into_iter().map(|(key, value)| (key, BASE64.encode(value))).collect();
        let secret = Object::from_value(json!({"metadata": {"name": "x"}, "type": kind, "data": data})).unwrap();
        let token = BootstrapToken::parse("abc123.0123456789abcdef").unwrap();
        token.user(&secret, SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000))
    }

    #[test]
    fn the_token_of_a_secret_authenticates_its_user() {
        let known =
            user(&[("auth-extra-groups", Some("system:bootstrappers:x,system:bootstrappers:a-b"))], TYPE).unwrap();
        let groups = [GROUP, "system:bootstrappers:a-b", "system:bootstrappers:x", AUTHENTICATED];
        assert_eq!((&*known.name, known.groups), ("system:bootstrap:abc123", groups.map(str::to_owned).to_vec()));
        assert!(user(&[("expiration", Some("2030-01-01T00:00:00Z"))], TYPE).is_some());
        for (key, value) in [
            ("token-id", Some("abc124")),
            ("token-secret", Some("0123456789abcdee")),
            ("token-secret", None),
            ("usage-bootstrap-authentication", None),
            ("usage-bootstrap-authentication", Some("false")),
            ("expiration", Some("2020-01-01T00:00:00Z")),
            ("expiration", Some("soon")),
            ("auth-extra-groups", Some("system:masters")),
            ("auth-extra-groups", Some("system:bootstrappers:a b")),
            ("auth-extra-groups", Some("system:bootstrappers:")),
        ] {
            assert!(user(&[(key, value)], TYPE).is_none(), "{key} {value:?}");
        }
        assert!(user(&[], "Opaque").is_none());
    }

    #[test]
    fn malformed_bootstrap_tokens_are_rejected() {
        for text in [
            "",
            "abc123",
            "abc123.0123456789abcde",
            "abc123.0123456789abcdeg.x",
            "ABC123.0123456789abcdef",
            "abc12.0123456789abcdef0",
        ] {
            assert!(BootstrapToken::parse(text).is_none(), "{text}");
        }
    }
}
