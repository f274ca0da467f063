//! JSON in Go's form, byte for byte.
//!
//! `ETag`s are hashes of the JSON, so they equal those of kube-apiserver only if every byte does.

use serde::Serialize;

/// The compact JSON of a document with `<`, `>`, `&` and the two Unicode line separators escaped as in Go.
pub(crate) fn to_vec(document: &impl Serialize) -> Vec<u8> {
    let plain = serde_json::to_vec(document).expect("documents have string keys and no failing serializers");
    if plain.iter().any(|byte| matches!(byte, b'<' | b'>' | b'&' | 0xe2)) { escape(&plain) } else { plain }
}

/// Appends pieces of JSON separated by commas.
pub(crate) fn join<'p>(out: &mut Vec<u8>, pieces: impl Iterator<Item = &'p [u8]>) {
    for (position, piece) in pieces.enumerate() {
        if position > 0 {
            out.push(b',');
        }
        out.extend_from_slice(piece);
    }
}

/// Escapes characters without parsing: in compact JSON these bytes occur only inside strings.
fn escape(plain: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(plain.len() + 16);
    let mut rest = plain;
    while let Some((&first, after)) = rest.split_first() {
        let (text, length): (&[u8], usize) = match (first, after) {
            (b'<', _) => (b"\\u003c", 1),
            (b'>', _) => (b"\\u003e", 1),
            (b'&', _) => (b"\\u0026", 1),
            (0xe2, [0x80, 0xa8, ..]) => (b"\\u2028", 3),
            (0xe2, [0x80, 0xa9, ..]) => (b"\\u2029", 3),
            _ => (&rest[..1], 1),
        };
        escaped.extend_from_slice(text);
        rest = &rest[length..];
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_go_does() {
        assert_eq!(to_vec(&"a<b>&\u{2028}\u{2029}é€"), "\"a\\u003cb\\u003e\\u0026\\u2028\\u2029é€\"".as_bytes());
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        assert_eq!(to_vec(&["pods", "a\"b"]), br#"["pods","a\"b"]"#);
    }
}
