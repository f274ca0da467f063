//! The user of a request: from its client certificate, its bearer token, or the headers of a front proxy.
//!
//! The listener verifies client certificates. A request with an invalid certificate or token is refused, not treated as
//! anonymous. A client without either is anonymous.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use futures::future::BoxFuture;
use http::HeaderMap;
use http::header::{HOST, HeaderName, ORIGIN, USER_AGENT};
use keelson_access::{ClientIdentity, RequestHeaders, User};
use keelson_meta::ApiError;
use keelson_registry::{ServiceAccountTokens, TokenFault};
use percent_encoding::percent_decode_str;

use super::bearer;
use crate::websocket;

/// The header in which a browser says which site made the request (Fetch Metadata Request Headers, section 2.3).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The start of the `User-Agent` of every browser.
const BROWSERS: &str = "Mozilla/";

/// Finds the users of bearer tokens.
pub trait TokenAuthenticator: Send + Sync {
    /// The user of a token, with a warning for the client if the token should be replaced.
    ///
    /// # Errors
    /// [`ApiError::Unauthorized`] for an invalid or unknown token.
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<(User, Option<&'static str>), ApiError>>;
}

impl TokenAuthenticator for ServiceAccountTokens {
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<(User, Option<&'static str>), ApiError>> {
        Box::pin(async move {
            let known = self.authenticate_and_warn(token, &[]).await;
            known.map(|((user, _), warning)| (user, warning)).map_err(|fault| match fault {
                TokenFault::Refused(why) => {
                    tracing::debug!(%why, "a bearer token is refused");
                    ApiError::Unauthorized
                }
                TokenFault::Unknown(error) => error,
            })
        })
    }
}

/// The certificate identity of a request. Requests that a browser makes for a page of another site get none, since such
/// pages must not act as the user. The browser presents its user's certificate for these requests too, but marks them
/// in fields that no page can set. Front proxies pass on the fields of their clients.
pub(super) fn identity_for(identity: Option<Arc<ClientIdentity>>, headers: &HeaderMap) -> Option<Arc<ClientIdentity>> {
    identity.filter(|identity| identity.is_front_proxy() || !is_of_another_site(headers))
}

/// Returns true for a request that a browser makes for a page of another site. Some browsers send no fetch metadata
/// with a websocket handshake, and any page can read the messages, so the `Origin` decides there. Other programs may
/// send any `Origin`.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    const ANOTHER: [&[u8]; 2] = [b"cross-site", b"same-site"];
    if let Some(site) = headers.get(FETCH_SITE) {
        return ANOTHER.contains(&site.as_bytes());
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_own = || text(ORIGIN).split_once("://").is_some_and(|(_, page)| page.eq_ignore_ascii_case(text(HOST)));
    websocket::is_wanted(headers) && text(USER_AGENT).starts_with(BROWSERS) && !is_own()
}

/// The user that a front proxy names, or that of a client certificate, or else of a bearer token with a warning about
/// the token. A client with none of these is anonymous.
///
/// # Errors
/// [`ApiError::Unauthorized`] for invalid credentials: an expired or untrusted certificate without a valid token, or an unknown
/// token.
pub(super) async fn user(
    identity: Option<&ClientIdentity>,
    tokens: Option<&dyn TokenAuthenticator>,
    headers: &HeaderMap,
    now: SystemTime,
) -> Result<(Arc<User>, Option<&'static str>), ApiError> {
    if let Some(identity) = identity {
        if let Some(user) = identity.asks_for_at(now).and_then(|fields| user_asked_for(fields, headers)) {
            return Ok((Arc::new(user), None));
        }
        if let Some(user) = identity.user_at(now) {
            return Ok((user.clone(), None));
        }
    }
    match (bearer::token(headers)?, tokens) {
        (Some(token), Some(tokens)) => tokens.user(&token).await.map(|(user, warning)| (Arc::new(user), warning)),
        (Some(_), None) => Err(ApiError::Unauthorized),
        (None, _) if identity.is_some() => Err(ApiError::Unauthorized),
        (None, _) => Ok((Arc::new(User::anonymous()), None)),
    }
}

/// The user in the headers of a front proxy. `None` without a name. As upstream, the name comes from the first
/// non-empty field, and groups from all fields. The user counts as authenticated.
pub(super) fn user_asked_for(fields: &RequestHeaders, headers: &HeaderMap) -> Option<User> {
    let texts = |name: &String| {
        let values = headers.get_all(name.as_str()).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect::<Vec<_>>()
    };
    let first = |names: &[String]| names.iter().flat_map(texts).find(|text| !text.trim().is_empty());
    let name = first(&fields.username)?;
    let groups = fields.group.iter().flat_map(texts).collect();
    let mut extra = BTreeMap::<String, Vec<String>>::new();
    for (field, value) in headers {
        let key = fields.extra_prefix.iter().find_map(|prefix| {
            let (begin, rest) = field.as_str().split_at_checked(prefix.len())?;
            begin.eq_ignore_ascii_case(prefix).then_some(rest)
        });
        if let Some(key) = key {
            extra.entry(extra_key(key)).or_default().push(String::from_utf8_lossy(value.as_bytes()).into_owned());
        }
    }
    Some(User { name, uid: first(&fields.uid), groups, extra }.authenticated())
}

/// The key of an extra value, from the suffix of a header name. Keys escape characters that a header name cannot
/// contain. An invalid escape stays unchanged. Escaped letters keep their case, unlike the rest of a header name.
pub(super) fn extra_key(escaped: &str) -> String {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = escaped.as_bytes();
    let mut escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if escapes.any(|(at, _)| !is_hex(bytes.get(at + 1)) || !is_hex(bytes.get(at + 2))) {
        return escaped.to_owned();
    }
    percent_decode_str(escaped).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;
    use keelson_access::user::{AUTHENTICATED, UNAUTHENTICATED};

    use super::*;

    #[tokio::test]
    async fn missing_credentials_are_anonymous_and_invalid_tokens_refused() {
        let now = SystemTime::UNIX_EPOCH;
        let mut headers = HeaderMap::new();
        assert_eq!(*user(None, None, &headers, now).await.unwrap().0, User::anonymous());
        let nobody = ClientIdentity::nobody();
        assert_eq!(user(Some(&nobody), None, &headers, now).await.unwrap_err(), ApiError::Unauthorized);
        headers.insert(AUTHORIZATION, "Bearer x".parse().unwrap());
        assert_eq!(user(None, None, &headers, now).await.unwrap_err(), ApiError::Unauthorized);
    }

    #[test]
    fn front_proxy_headers_name_the_user_and_groups() {
        let fields = RequestHeaders::default();
        let check = |sent: &[(&str, &str)], expected: Option<User>| {
            let mut headers = HeaderMap::new();
            for (name, value) in sent {
                headers.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            assert_eq!(user_asked_for(&fields, &headers), expected, "{sent:?}");
        };
        let groups = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let known = User { name: "ann".to_owned(), groups: groups(&[AUTHENTICATED]), ..User::default() };
        check(&[("X-Remote-Group", "a")], None);
        check(&[("X-Remote-User", "")], None);
        check(&[("X-Remote-User", "ann")], Some(known.clone()));
        let user = User { uid: Some("u1".to_owned()), groups: groups(&["a", "b", AUTHENTICATED]), ..known.clone() };
        let sent = [("X-Remote-User", "ann"), ("X-Remote-Uid", "u1"), ("X-Remote-Group", "a"), ("X-Remote-Group", "b")];
        check(&sent, Some(user));
        let nobody =
            User { name: "system:anonymous".to_owned(), groups: groups(&[UNAUTHENTICATED]), ..User::default() };
        check(&[("X-Remote-User", "system:anonymous"), ("X-Remote-Group", UNAUTHENTICATED)], Some(nobody.clone()));
        check(&[("X-Remote-User", "system:anonymous")], Some(User { groups: Vec::new(), ..nobody }));
        let extra = BTreeMap::from([("example.org/a b".to_owned(), groups(&["1", "2"]))]);
        let sent = [
            ("X-Remote-User", "ann"),
            ("X-Remote-Extra-example.org%2Fa%20b", "1"),
            ("x-remote-extra-Example.org%2fa%20b", "2"),
        ];
        check(&sent, Some(User { extra, ..known }));
    }

    #[test]
    fn cross_site_requests_are_recognized_by_browser_headers() {
        let check = |sent: &[(&str, &str)], expected: bool| {
            let mut headers = HeaderMap::new();
            for (name, value) in sent {
                headers.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            assert_eq!(is_of_another_site(&headers), expected, "{sent:?}");
        };
        check(&[("Sec-Fetch-Site", "cross-site")], true);
        check(&[("Sec-Fetch-Site", "same-site")], true);
        check(&[("Sec-Fetch-Site", "same-origin")], false);
        const BROWSER: (&str, &str) = ("User-Agent", "Mozilla/5.0 (X11)");
        let websocket = |agent, origin| {
            [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Host", "a:6443"), agent, ("Origin", origin)]
        };
        check(&websocket(BROWSER, "https://b"), true);
        check(&websocket(BROWSER, "https://a"), true);
        check(&websocket(BROWSER, "null"), true);
        check(&websocket(BROWSER, "https://A:6443"), false);
        check(&websocket(("User-Agent", "curl/8"), "https://b"), false);
        check(&[BROWSER, ("Origin", "https://b")], false);
    }

    #[test]
    fn extra_keys_in_header_names_are_percent_decoded() {
        let check = |escaped: &str, expected: &str| assert_eq!(extra_key(escaped), expected);
        check("scopes", "scopes");
        check("example.org%2fa%20b", "example.org/a b");
        check("%41bc", "Abc");
        check("a%2fb%2", "a%2fb%2");
        check("a%2fb%zz", "a%2fb%zz");
    }
}
