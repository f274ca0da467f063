//! Digits of base64 (RFC 4648), for parsers that report the offset of a fault as Go does.
//!
//! Other code uses the library for base64.

/// The value of a digit of the standard alphabet.
#[inline]
pub fn base64_digit(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

/// The value of a digit of the URL-safe alphabet.
#[inline]
pub fn base64_url_digit(byte: u8) -> Option<u32> {
    match byte {
        b'-' => base64_digit(b'+'),
        b'_' => base64_digit(b'/'),
        b'+' | b'/' => None,
        _ => base64_digit(byte),
    }
}

#[cfg(test)]
mod tests {
    use base64::alphabet::{STANDARD, URL_SAFE};

    use super::*;

    #[test]
    fn digits_are_those_of_the_alphabets() {
        let place = |alphabet: &str, byte: u8| {
            alphabet.bytes().zip(0..).find(|(digit, _)| *digit == byte).map(|(_, value)| value)
        };
        for byte in 0..=u8::MAX {
            assert_eq!(base64_digit(byte), place(STANDARD.as_str(), byte), "{byte}");
            assert_eq!(base64_url_digit(byte), place(URL_SAFE.as_str(), byte), "{byte}");
        }
    }
}
