//! Base64 in objects.
//!
//! The schema refuses invalid base64 in fields. Here the padding may be absent, as in PEM blocks.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

const FORGIVING: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Decodes a text; `None` if it is invalid.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    FORGIVING.decode(digits(text)).ok()
}

/// The length of the decoded bytes.
pub(crate) fn decoded_length(text: &str) -> usize {
    digits(text).len() * 3 / 4
}

fn digits(text: &str) -> &str {
    text.trim_end_matches('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_may_be_left_out_and_spare_bits_are_ignored() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("YQ", b"a"),
            ("YQ==", b"a"),
            ("YR==", b"a"),
            ("YWI=", b"ab"),
            ("YWJj", b"abc"),
            ("YWJj+/8=", b"abc\xfb\xff"),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(bytes), "{text}");
            assert_eq!(decoded_length(text), bytes.len(), "{text}");
        }
        for damaged in ["Y", "Y*==", "YWJj\n", "Y=Q", "YW-j"] {
            assert_eq!(decoded(damaged), None, "{damaged}");
        }
    }
}
