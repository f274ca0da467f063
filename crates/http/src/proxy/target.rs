//! Paths and queries of forwarded requests, as upstream's proxy writes them.
//!
//! Escapes are decoded and escaped again, so that an aggregated server reads the path that was authorized. The pairs of
//! a query are sorted by their keys. Pairs that cannot be decoded, or contain a semicolon, are dropped, as by every
//! reader in Go.

use keelson_outbound::clean_path;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// The characters that Go escapes in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');
/// The characters that Go escapes in a query, where a space is a plus sign.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');

/// A path, unescaped and escaped again.
pub(super) fn path(escaped: &str) -> String {
    let decoded: Vec<u8> = percent_decode_str(escaped).collect();
    percent_encode(&decoded, PATH).to_string()
}

/// Escapes a decoded path.
pub(crate) fn escaped_path(path: &str) -> String {
    percent_encode(path.as_bytes(), PATH).to_string()
}

/// The path without empty and relative segments. A final slash stays.
pub(super) fn cleaned(path: &str) -> String {
    let cleaned = clean_path(path);
    if path.ends_with('/') && cleaned != "/" { cleaned + "/" } else { cleaned }
}

/// A query, sorted, unescaped and escaped again.
pub(super) fn query(query: &str) -> String {
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.contains(';'))
        .filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((unescaped(key)?, unescaped(value)?))
        })
        .collect();
    // Pairs with the same key keep their order.
    pairs.sort_by(|left, right| left.0.cmp(&right.0));
    let written = pairs.iter().map(|(key, value)| format!("{}={}", escaped(key), escaped(value)));
    written.collect::<Vec<_>>().join("&")
}

fn escaped(bytes: &[u8]) -> String {
    percent_encode(bytes, QUERY).to_string().replace(' ', "+")
}

/// Decodes percent escapes. `None` if a percent sign is not followed by two hexadecimal digits.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let is_escape =
        |place: usize| bytes.get(place + 1..place + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    let whole = bytes.iter().enumerate().all(|(place, byte)| *byte != b'%' || is_escape(place));
    whole.then(|| percent_decode_str(&text.replace('+', " ")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_as_go_does() {
        let check = |given: &str, expected: &str| assert_eq!(path(given), expected, "{given}");
        check("/apis/g/v1/a%2Fb", "/apis/g/v1/a/b");
        check("/a%20%C3%A9", "/a%20%C3%A9");
        check("/a+b:c;d=@$&,~", "/a+b:c;d=@$&,~");
        check("/a//b/../c/", "/a//b/../c/");
        check("/!*'()%3f%25%FF", "/%21%2A%27%28%29%3F%25%FF");
    }

    #[test]
    fn paths_are_cleaned() {
        let check = |given: &str, expected: &str| assert_eq!(cleaned(given), expected, "{given}");
        check("/a//b/./c/../d/", "/a/b/d/");
        check("/a", "/a");
        check("/", "/");
        check("/../..", "/");
    }

    #[test]
    fn queries_are_sorted_and_rewritten() {
        let check = |given: &str, expected: &str| assert_eq!(query(given), expected, "{given}");
        check("", "");
        check("b=2&a=1&a=0&c&d=%20+%2B%26&=e", "=e&a=1&a=0&b=2&c=&d=++%2B%26");
        check("a=1;b=2&c=3", "c=3");
        check("a=%zz&%2=1&c=3&&", "c=3");
        check("labelSelector=a%3Db,c&x=a=b", "labelSelector=a%3Db%2Cc&x=a%3Db");
    }
}
