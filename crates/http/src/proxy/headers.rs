//! Header fields of forwarded requests and of their responses.
//!
//! Of a request, fields of the connection and credentials are not forwarded. Only this server writes the fields that
//! aggregated servers trust from a front proxy. All other fields are forwarded unchanged.
//!
//! Of a response, only a list of fields is forwarded. Browsers apply many fields to their origin, which is this
//! server's.

use std::net::IpAddr;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use keelson_access::User;
use keelson_access::user::AUTHENTICATED;
use keelson_outbound::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};

use crate::respond;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
pub(crate) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
/// The prefix of the fields that impersonate another user.
pub(super) const IMPERSONATION: &str = "impersonate-";
/// The prefix of the fields with a token for one of a gateway's clusters. No other server may see it.
pub const CLUSTER_TOKEN_PREFIX: &str = "keelson-authorization-";

/// The prefix of a token among the subprotocols of a websocket, since browsers cannot send it in a header.
pub(crate) const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
/// Upgrades to these are not forwarded. In such a protocol a client could send requests to an aggregated server as this
/// server does, with any user.
const OWN_PROTOCOLS: [&str; 4] = ["h2", "h2c", "http", "tls"];
/// The maximum number of proxies before this server. A request with more is in a loop.
const MOST_HOPS: usize = 16;
/// The characters that receivers trim from the value of a field.
const DROPPED_AROUND: [char; 2] = [' ', '\t'];

/// Fields of one connection (RFC 9110 section 7.6.1, and fields of older peers).
const OF_CONNECTION: [HeaderName; 8] =
    [CONNECTION, PROXY_CONNECTION, KEEP_ALIVE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE];

/// Request fields that are not forwarded. Cookies that one aggregated server sets would reach all others.
const KEPT_BACK: [HeaderName; 7] =
    [AUTHORIZATION, COOKIE, EXPECT, HOST, FORWARDED_HOST, FORWARDED_PROTO, FORWARDED_URI];

/// The response fields that are forwarded, sorted: those that Kubernetes clients read, those of queries, and those that
/// describe the body. Aggregated servers built with the library send those of queries too.
const PASSED_BACK: [&str; 19] = [
    "accept-ranges",
    "allow",
    "content-encoding",
    "content-language",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "keelson-failed-evaluations",
    "keelson-looked-at",
    "keelson-objects-scanned",
    "keelson-total-count",
    "last-modified",
    "location",
    "retry-after",
    "trailer",
    "vary",
    "warning",
];
/// The prefixes of further forwarded fields.
const PASSED_BACK_PREFIXES: [&str; 2] = ["grpc-", "x-kubernetes-"];
/// The prefix of fields that only this server sets: the flow of the request here.
const OWN_PREFIX: &str = "x-kubernetes-pf-";
/// The prefix of further fields that are forwarded from a peer.
const PREFIX_OF_PEERS: &str = "keelson-";
/// The fields of an upgrade response that are forwarded, sorted.
const PASSED_BACK_OF_UPGRADES: [&str; 6] = [
    "connection",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "upgrade",
    "x-stream-protocol-version",
];

/// The fields from which aggregated servers take the user, so that clients must not set them.
#[derive(Debug)]
pub struct IdentityHeaders {
    names: Vec<HeaderName>,
    prefixes: Vec<String>,
}

impl IdentityHeaders {
    /// The fields that this server sets, and others that aggregated servers trust, by name and by prefix.
    pub fn new(mut names: Vec<HeaderName>, mut prefixes: Vec<String>) -> Self {
        names.extend([REMOTE_USER, REMOTE_UID, REMOTE_GROUP]);
        prefixes.iter_mut().for_each(|prefix| prefix.make_ascii_lowercase());
        prefixes.retain(|prefix| !prefix.is_empty());
        prefixes.extend([REMOTE_EXTRA_PREFIX, IMPERSONATION, CLUSTER_TOKEN_PREFIX].map(str::to_owned));
        Self { names, prefixes }
    }

    /// The client's fields that are forwarded.
    pub(crate) fn cleared(&self, headers: &HeaderMap) -> HeaderMap {
        let mut cleared = HeaderMap::with_capacity(headers.capacity());
        for (name, value) in headers {
            if KEPT_BACK.contains(name) || *name == TRAILER || self.is_trusted(name.as_str()) {
                continue;
            }
            if *name != SEC_WEBSOCKET_PROTOCOL {
                cleared.append(name, value.clone());
            } else if let Some(value) = without_token(value) {
                cleared.append(name, value);
            }
        }
        let wants_trailers = list(headers, &TE).any(|item| item.eq_ignore_ascii_case("trailers"));
        drop_of_connection(&mut cleared);
        if wants_trailers {
            cleared.insert(TE, HeaderValue::from_static("trailers"));
        }
        cleared
    }

    /// Returns true for a trusted field, also for servers that do not distinguish an underscore from a dash.
    fn is_trusted(&self, name: &str) -> bool {
        if name.contains('_') {
            return self.is_trusted(&name.replace('_', "-"));
        }
        self.names.iter().any(|known| known == name)
            || self.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }
}

/// The subprotocols of a websocket without the token. `None` if there are no others.
fn without_token(value: &HeaderValue) -> Option<HeaderValue> {
    let Ok(text) = value.to_str() else { return Some(value.clone()) };
    if !text.contains(TOKEN_PROTOCOL) {
        return Some(value.clone());
    }
    let kept: Vec<_> = text.split(',').map(str::trim).filter(|item| !item.starts_with(TOKEN_PROTOCOL)).collect();
    if kept.is_empty() { None } else { HeaderValue::from_str(&kept.join(", ")).ok() }
}

/// Removes the fields of the connection.
pub(super) fn drop_of_connection(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = list(headers, &CONNECTION).filter_map(|name| name.parse().ok()).collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &OF_CONNECTION {
        headers.remove(name);
    }
}

/// Keeps the fields of a response that are forwarded.
pub(super) fn keep_of_answer(headers: &mut HeaderMap, is_peer: bool) {
    // RFC 9112, section 6.3: the length of a chunked body is ignored.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    drop_of_connection(headers);
    keep_passed_back(headers, is_peer);
}

/// Keeps the forwarded fields among a response's fields or trailers, and limits their warnings.
pub(super) fn keep_passed_back(headers: &mut HeaderMap, is_peer: bool) {
    keep(headers, |name| {
        PASSED_BACK.binary_search(&name).is_ok()
            || PASSED_BACK_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !name.starts_with(OWN_PREFIX)
            || is_peer && name.starts_with(PREFIX_OF_PEERS)
    });
    respond::bound_passed_warnings(headers);
}

/// Keeps the forwarded fields of an upgrade response.
pub(super) fn keep_of_upgrade(headers: &mut HeaderMap) {
    keep(headers, |name| PASSED_BACK_OF_UPGRADES.binary_search(&name).is_ok());
}

/// Removes the fields whose names `is_kept` does not accept.
pub(crate) fn keep(headers: &mut HeaderMap, is_kept: impl Fn(&str) -> bool) {
    let dropped: Vec<HeaderName> = headers.keys().filter(|name| !is_kept(name.as_str())).cloned().collect();
    for name in dropped {
        headers.remove(name);
    }
}

/// Returns true if a client requests an upgrade that is forwarded.
pub(super) fn wants_upgrade(headers: &HeaderMap) -> bool {
    let is_own = |protocol: &str| {
        let name = protocol.split('/').next().unwrap_or_default().to_ascii_lowercase();
        OWN_PROTOCOLS.contains(&name.as_str())
    };
    headers.contains_key(UPGRADE)
        && list(headers, &CONNECTION).any(|item| item.eq_ignore_ascii_case("upgrade"))
        && !list(headers, &UPGRADE).any(is_own)
}

/// Returns true if a request passed so many proxies that it must be in a loop.
pub(super) fn goes_in_circles(headers: &HeaderMap) -> bool {
    list(headers, &FORWARDED_FOR).count() >= MOST_HOPS
}

/// Requests an upgrade to the client's protocol.
pub(crate) fn keep_upgrade(headers: &mut HeaderMap, of_client: &HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    for protocol in of_client.get_all(UPGRADE) {
        headers.append(UPGRADE, protocol.clone());
    }
}

/// Appends the client's address to `X-Forwarded-For`.
pub(crate) fn forward(headers: &mut HeaderMap, address: Option<IpAddr>) -> Option<()> {
    let Some(address) = address else { return Some(()) };
    let before: Vec<_> = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
    let mut value = before.join(&b", "[..]);
    if !value.is_empty() {
        value.extend_from_slice(b", ");
    }
    value.extend_from_slice(address.to_canonical().to_string().as_bytes());
    headers.insert(FORWARDED_FOR, HeaderValue::from_bytes(&value).ok()?);
    Some(())
}

/// Sets the original host, protocol and path, as upstream's proxy does.
pub(super) fn add_forwarded_headers(headers: &mut HeaderMap, host: &str, path: &str) -> Option<()> {
    headers.insert(FORWARDED_HOST, host.parse().ok()?);
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
    headers.insert(FORWARDED_URI, path.parse().ok()?);
    Some(())
}

/// Sets the user. `None` for a user that header fields cannot contain.
///
/// Receivers trim spaces and tabs from a value (RFC 9110, section 5.5). They would change the group ` system:masters`
/// to another one.
pub(super) fn identify(headers: &mut HeaderMap, user: &User) -> Option<()> {
    let value = field_value;
    headers.insert(REMOTE_USER, value(&user.name)?);
    if let Some(uid) = user.uid.as_deref().filter(|uid| !uid.is_empty()) {
        headers.insert(REMOTE_UID, value(uid)?);
    }
    for group in &user.groups {
        headers.append(REMOTE_GROUP, value(group)?);
    }
    for (key, values) in &user.extra {
        let name: HeaderName = format!("{REMOTE_EXTRA_PREFIX}{}", escaped_key(key)).parse().ok()?;
        for text in values {
            headers.append(&name, value(text)?);
        }
    }
    Some(())
}

/// Sets the fields that impersonate a user. `None` for a user that header fields cannot contain.
///
/// The other server adds the groups of all users itself. Extra values describe the credential of this connection, which
/// the other server has not seen.
pub(super) fn impersonate(headers: &mut HeaderMap, user: &User) -> Option<()> {
    headers.insert(IMPERSONATE_USER, field_value(&user.name)?);
    for group in user.groups.iter().filter(|group| *group != AUTHENTICATED) {
        headers.append(IMPERSONATE_GROUP, field_value(group)?);
    }
    Some(())
}

/// A text as the value of a field. `None` if it would not arrive unchanged.
fn field_value(text: &str) -> Option<HeaderValue> {
    let arrives = !text.starts_with(DROPPED_AROUND) && !text.ends_with(DROPPED_AROUND);
    HeaderValue::from_bytes(text.as_bytes()).ok().filter(|_| arrives)
}

/// A key as the suffix of a field name. Invalid characters and percent signs are escaped.
fn escaped_key(key: &str) -> String {
    const ALLOWED: &[u8] = b"!#$&'*+-.^_`|~";
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || ALLOWED.contains(&byte) {
            name.push(byte.into());
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    name
}

/// The items of a field whose value is a list.
pub(crate) fn list<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    fn texts(headers: &HeaderMap) -> Vec<String> {
        let mut texts: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        texts.sort();
        texts
    }

    #[test]
    fn connection_and_credential_headers_are_dropped() {
        let believed = IdentityHeaders::new(vec!["x-auth-user".parse().unwrap()], vec!["X-Auth-Extra-".to_owned()]);
        let passed = believed.cleared(&headers(&[
            ("connection", "X-Drop, keep-alive"),
            ("x-drop", "1"),
            ("keep-alive", "5"),
            ("te", "gzip, trailers"),
            ("trailer", "x"),
            ("proxy-authorization", "x"),
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("expect", "100-continue"),
            ("host", "h"),
            ("upgrade", "websocket"),
            ("x-remote-user", "root"),
            ("x-remote-extra-scopes", "all"),
            ("x-auth-user", "root"),
            ("x-auth-extra-a", "b"),
            ("impersonate-user", "root"),
            ("keelson-authorization-one", "Bearer x"),
            ("keelson_authorization-one", "Bearer x"),
            ("x_remote_user", "root"),
            ("x-remote_extra-scopes", "all"),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.dG9rZW4, v4.channel.k8s.io"),
            ("x-forwarded-host", "evil"),
            ("accept", "a/b"),
            ("forwarded", "for=a"),
        ]));
        let expected = ["accept: a/b", "forwarded: for=a", "sec-websocket-protocol: v4.channel.k8s.io", "te: trailers"];
        assert_eq!(texts(&passed), expected);
    }

    #[test]
    fn a_content_length_beside_chunked_encoding_is_dropped() {
        let passed_back = |fields: &[(&str, &str)]| {
            let mut headers = headers(fields);
            keep_of_answer(&mut headers, false);
            headers.contains_key(CONTENT_LENGTH)
        };
        assert!(passed_back(&[("content-length", "2")]));
        assert!(!passed_back(&[("content-length", "2"), ("transfer-encoding", "chunked")]));
    }

    #[test]
    fn of_an_answer_a_list_of_fields_passes() {
        assert!(PASSED_BACK.is_sorted() && PASSED_BACK_OF_UPGRADES.is_sorted(), "they are searched by halves");
        let fields = [
            ("audit-id", "a"),
            ("cache-control", "max-age=31536000, immutable"),
            ("clear-site-data", "*"),
            ("etag", "e"),
            ("expires", "0"),
            ("keelson-cluster", "1"),
            ("keelson-total-count", "2"),
            ("location", "/a"),
            ("no-vary-search", "params"),
            ("secure-session-registration", "(ES256)"),
            ("set-cookie", "a=b"),
            ("set-cookie", "c=d"),
            ("strict-transport-security", "max-age=0"),
            ("upgrade", "h2c"),
            ("vary", "accept"),
            ("warning", "299 - w"),
            ("x-custom", "1"),
            ("x-frame-options", "DENY"),
            ("x-kubernetes-other", "o"),
            ("x-kubernetes-pf-flowschema-uid", "u"),
            ("x-remote-user", "root"),
        ];
        let check = |is_peer: bool, expected: &[&str]| {
            let mut answer = headers(&fields);
            keep_of_answer(&mut answer, is_peer);
            assert_eq!(texts(&answer), expected);
        };
        let passed = [
            "etag: e",
            "keelson-total-count: 2",
            "location: /a",
            "vary: accept",
            "warning: 299 - w",
            "x-kubernetes-other: o",
        ];
        check(false, &passed);
        check(true, &[&passed[..1], &["keelson-cluster: 1"], &passed[1..]].concat());
        let mut upgraded = headers(&[("upgrade", "websocket"), ("sec-websocket-accept", "a"), ("set-cookie", "a=b")]);
        keep_of_upgrade(&mut upgraded);
        assert_eq!(texts(&upgraded), ["sec-websocket-accept: a", "upgrade: websocket"]);
    }

    #[test]
    fn a_user_is_reported_with_all_that_is_known() {
        let user = User {
            name: "b\u{f6}b".to_owned(),
            uid: Some("u".to_owned()),
            groups: vec!["a".to_owned(), "b".to_owned()],
            extra: BTreeMap::from([("example.org/Key%".to_owned(), vec!["V w".to_owned(), "x".to_owned()])]),
        };
        let mut told = HeaderMap::new();
        identify(&mut told, &user).unwrap();
        assert_eq!(told[REMOTE_USER].as_bytes(), "b\u{f6}b".as_bytes());
        told.remove(REMOTE_USER);
        let expected = [
            "x-remote-extra-example.org%2fkey%25: V w",
            "x-remote-extra-example.org%2fkey%25: x",
            "x-remote-group: a",
            "x-remote-group: b",
            "x-remote-uid: u",
        ];
        assert_eq!(texts(&told), expected);
        for bad in ["a\nb", " ann", "ann ", "\tann", "ann\t", " "] {
            let user = User { name: bad.to_owned(), ..User::default() };
            assert!(identify(&mut HeaderMap::new(), &user).is_none(), "{bad:?}");
            let user = User { name: "ann".to_owned(), groups: vec![bad.to_owned()], ..User::default() };
            assert!(identify(&mut HeaderMap::new(), &user).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn an_upgrade_is_requested_by_two_fields() {
        assert!(wants_upgrade(&headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")])));
        assert!(!wants_upgrade(&headers(&[("upgrade", "websocket")])));
        assert!(!wants_upgrade(&headers(&[("connection", "upgrade")])));
        for own in ["h2c", "H2C", "HTTP/2.0", "TLS/1.3", "websocket, h2c"] {
            assert!(!wants_upgrade(&headers(&[("connection", "upgrade"), ("upgrade", own)])), "{own}");
        }
    }
}
