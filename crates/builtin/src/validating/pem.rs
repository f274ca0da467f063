//! Parses PEM blocks (RFC 7468), as far as validation needs.
//!
//! Certificates and keys are stored as they are sent. The server does not check that they match.

use crate::validating::base64;

/// A block of PEM.
pub(crate) struct Block {
    /// The label of the block.
    pub(crate) label: String,
    /// True if headers precede the content.
    pub(crate) has_headers: bool,
    /// The decoded content.
    pub(crate) content: Vec<u8>,
    /// True if the content is one DER sequence, as in a certificate.
    pub(crate) is_sequence: bool,
}

/// Returns the next block and the remaining bytes. Invalid blocks are skipped.
pub(crate) fn next(bytes: &[u8]) -> (Option<Block>, &[u8]) {
    const BEGIN: &[u8] = b"-----BEGIN ";
    const DASHES: &[u8] = b"-----";
    let mut rest = bytes;
    while let Some(start) = find(rest, BEGIN) {
        let at_line = start == 0 || rest[start - 1] == b'\n';
        rest = &rest[start + BEGIN.len()..];
        let Some(label) = find(rest, DASHES).map(|end| String::from_utf8_lossy(&rest[..end]).into_owned()) else {
            break;
        };
        let end = format!("\n-----END {label}-----");
        let body = &rest[label.len() + DASHES.len()..];
        let Some(length) = find(body, end.as_bytes()).filter(|_| at_line && !label.contains('\n')) else { continue };
        let (content, after) = (&body[..length], &body[length + end.len()..]);
        let text = String::from_utf8_lossy(content);
        let has_headers = text.lines().any(|line| line.contains(':'));
        let lines = text.lines().filter(|line| !line.contains(':')).map(str::trim);
        let coded: String = lines.collect();
        // A block that cannot be decoded is skipped.
        let Some(decoded) = base64::decoded(&coded) else { continue };
        let is_sequence = is_sequence(&decoded);
        return (Some(Block { label, has_headers, content: decoded, is_sequence }), after);
    }
    (None, &[])
}

/// Returns true if the bytes are one DER sequence, according to its tag and length.
fn is_sequence(bytes: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    const LONG: u8 = 0x80;
    let [SEQUENCE, first, rest @ ..] = bytes else { return false };
    if *first < LONG {
        return rest.len() == usize::from(*first);
    }
    let digits = usize::from(*first - LONG);
    let Some((length, content)) = rest.split_at_checked(digits).filter(|_| (1..=4).contains(&digits)) else {
        return false;
    };
    length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)) == content.len()
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_der_sequence_must_have_its_stated_length() {
        assert!(is_sequence(b"\x30\x02ab") && is_sequence(&[&b"\x30\x82\x01\x00"[..], &[7; 256]].concat()));
        for bad in [&b""[..], b"\x30", b"\x30\x03ab", b"\x31\x02ab", b"\x30\x82\x01", b"\x30\x80ab"] {
            assert!(!is_sequence(bad), "{bad:?}");
        }
    }

    #[test]
    fn pem_blocks_are_read_one_after_another() {
        let text =
            b"words\n-----BEGIN A-----\nYQ==\n-----END A-----\n-----BEGIN B-----\nx: y\n\nYQ==\n-----END B-----\n\
                     -----BEGIN C-----\n*\n-----END C-----\n";
        let (first, rest) = next(text);
        assert!(first.is_some_and(|block| block.label == "A" && !block.has_headers && block.content == b"a"));
        let (second, rest) = next(rest);
        assert!(second.is_some_and(|block| block.label == "B" && block.has_headers));
        assert!(next(rest).0.is_none(), "a damaged block is none");
    }
}
