//! Bearer tokens of requests: from the `Authorization` header, or from the subprotocols of a websocket, since browsers
//! cannot set headers there.
//!
//! The rules are upstream's. A header that contains no bearer token is ignored. An invalid token in the subprotocols is
//! refused.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use keelson_meta::ApiError;

use crate::proxy::TOKEN_PROTOCOL;

/// The token of a request, if it has one.
///
/// # Errors
/// [`ApiError::Unauthorized`] for websocket protocols with two tokens, with a malformed token, or with a token and no other protocol.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, ApiError> {
    match of_field(headers) {
        Some(token) => Ok(Some(Cow::Borrowed(token))),
        None => Ok(of_websocket(headers)?.map(Cow::Owned)),
    }
}

/// The token of the first field (RFC 6750, section 2.1): the text after one blank, up to the next. `None` if that is
/// empty.
fn of_field(headers: &HeaderMap) -> Option<&str> {
    let mut parts = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split(' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The warning about a token that is ignored because of the blanks before it.
pub(super) const IGNORED: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// Returns true if more than one blank precedes the token of the first field, so that it is ignored.
pub(super) fn is_set_off_too_far(headers: &HeaderMap) -> bool {
    let text = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = text.trim().splitn(3, ' ');
    let (scheme, token, rest) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    scheme.eq_ignore_ascii_case("bearer") && token == Some("") && rest.is_some()
}

fn of_websocket(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let has = |name, wanted: &str| {
        let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.any(|text| text.split(',').any(|item| item.trim().eq_ignore_ascii_case(wanted)))
    };
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) || !has(CONNECTION, "upgrade") || !has(UPGRADE, "websocket") {
        return Ok(None);
    }
    let (mut token, mut others) = (None, false);
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    for protocol in values.flat_map(|text| text.split(',')).map(str::trim) {
        let Some(encoded) = protocol.strip_prefix(TOKEN_PROTOCOL) else {
            others = true;
            continue;
        };
        let decoded = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        if token.replace(decoded.ok_or(ApiError::Unauthorized)?).is_some() {
            return Err(ApiError::Unauthorized);
        }
    }
    match token.filter(|token| !token.is_empty()) {
        Some(_) if !others => Err(ApiError::Unauthorized),
        token => Ok(token),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn tokens_stand_behind_their_scheme() {
        let check = |value: &str, expected: Option<&str>| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(token(&headers).unwrap().as_deref(), expected, "{value}");
        };
        check("Bearer a.b.c", Some("a.b.c"));
        check("BEARER a b", Some("a"));
        for none in ["bearer  a", "Bearer\ta", "Bearer", "Bearer ", "Basic a", "a", ""] {
            check(none, None);
        }
        let mut two = HeaderMap::new();
        for value in ["Basic x", "Bearer a"] {
            two.append(AUTHORIZATION, value.parse().unwrap());
        }
        assert_eq!(token(&two).unwrap(), None, "the first field counts");
    }

    #[test]
    fn a_websocket_has_its_token_among_its_protocols() {
        let check = |upgrade: &str, protocols: &[&str], expected: Result<Option<&str>, ()>| {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, "keep-alive, Upgrade".parse().unwrap());
            headers.insert(UPGRADE, upgrade.parse().unwrap());
            for value in protocols {
                let value = value.replace("TOKEN:", TOKEN_PROTOCOL);
                headers.append(HeaderName::from_static("sec-websocket-protocol"), value.parse().unwrap());
            }
            let found = token(&headers).map_err(|error| assert_eq!(error, ApiError::Unauthorized));
            assert_eq!(found, expected.map(|token| token.map(Cow::Borrowed)), "{protocols:?}");
        };
        check("websocket", &["TOKEN:dG9r, v4.channel.k8s.io"], Ok(Some("tok")));
        check("WebSocket", &["v4.channel.k8s.io", "TOKEN:dG9r"], Ok(Some("tok")));
        check("other", &["TOKEN:dG9r, v4.channel.k8s.io"], Ok(None));
        check("websocket", &["v4.channel.k8s.io"], Ok(None));
        check("websocket", &["TOKEN:, v4.channel.k8s.io"], Ok(None));
        check("websocket", &["TOKEN:dG9r"], Err(()));
        check("websocket", &["TOKEN:dG9r, TOKEN:dG9r, v4.channel.k8s.io"], Err(()));
        check("websocket", &["TOKEN:*, v4.channel.k8s.io"], Err(()));
        check("websocket", &["TOKEN:_w, v4.channel.k8s.io"], Err(()));
    }
}
