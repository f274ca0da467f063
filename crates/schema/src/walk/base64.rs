//! Validates and normalizes base64 as Go's decoder does: it skips line breaks, requires padding, and ignores unused
//! bits.
//!
//! The text is not decoded into bytes. It is rewritten only if Go would write it differently.

use keelson_meta::base64_digit;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns the text as Go would write it. `None` if that is the same text.
///
/// # Errors
/// Go's message, with the offset at which decoding failed.
pub(super) fn canonical(text: &str) -> Result<Option<String>, String> {
    let bytes = text.as_bytes();
    let plain = bytes.len().is_multiple_of(4) && bytes.iter().all(|b| base64_digit(*b).is_some());
    if plain {
        return Ok(None);
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(quantum) = quantum(bytes, &mut at)? {
        push(&mut out, &quantum);
    }
    Ok((out != text).then_some(out))
}

/// Encodes bytes in base64.
pub(super) fn encoded(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let bits = part.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        // The last digit has bits that belong to no byte.
        let digits = part.len() + 1;
        push(&mut out, &Quantum { bits: bits << (digits * 6 - part.len() * 8), digits });
    }
    out
}

/// Up to four digits with six bits each. The number of digits determines the number of bytes.
struct Quantum {
    bits: u32,
    digits: usize,
}

fn quantum(bytes: &[u8], at: &mut usize) -> Result<Option<Quantum>, String> {
    let mut quantum = Quantum { bits: 0, digits: 0 };
    while quantum.digits < 4 {
        let Some(byte) = next(bytes, at) else {
            return if quantum.digits == 0 { Ok(None) } else { Err(corrupt(at.saturating_sub(quantum.digits))) };
        };
        if byte == b'=' {
            return padding(bytes, at, quantum).map(Some);
        }
        let digit = base64_digit(byte).ok_or_else(|| corrupt(*at - 1))?;
        quantum.bits = quantum.bits << 6 | digit;
        quantum.digits += 1;
    }
    Ok(Some(quantum))
}

/// Reads the padding from its first `=`. Only line breaks, and after two digits a second `=`, may follow.
fn padding(bytes: &[u8], at: &mut usize, quantum: Quantum) -> Result<Quantum, String> {
    let first = *at - 1;
    match quantum.digits {
        0 | 1 => return Err(corrupt(first)),
        2 => match next(bytes, at) {
            Some(b'=') => {}
            Some(_) => return Err(corrupt(*at - 2)),
            None => return Err(corrupt(bytes.len())),
        },
        _ => {}
    }
    match next(bytes, at) {
        None => Ok(quantum),
        Some(_) => Err(corrupt(*at - 1)),
    }
}

fn next(bytes: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if !matches!(byte, b'\n' | b'\r') {
            return Some(byte);
        }
    }
}

fn push(out: &mut String, Quantum { bits, digits }: &Quantum) {
    let (bits, digits) = (*bits, *digits);
    // Bits that belong to no whole byte are dropped.
    let bits = match digits {
        2 => (bits >> 4) << 4,
        3 => (bits >> 2) << 2,
        _ => bits,
    };
    for i in (0..digits).rev() {
        out.push(char::from(ALPHABET[(bits >> (6 * i)) as usize & 63]));
    }
    out.extend(std::iter::repeat_n('=', 4 - digits));
}

fn corrupt(offset: usize) -> String {
    format!("illegal base64 data at input byte {offset}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_base64_is_unchanged() {
        for text in ["", "YWJj", "YWI=", "YQ==", "+/+/"] {
            assert_eq!(canonical(text), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn line_breaks_and_spare_bits_are_removed() {
        assert_eq!(canonical("YW\nJj\r\n"), Ok(Some("YWJj".to_owned())));
        assert_eq!(canonical("YR=="), Ok(Some("YQ==".to_owned())));
        assert_eq!(canonical("YWJ=\n"), Ok(Some("YWI=".to_owned())));
    }

    #[test]
    fn bytes_are_encoded() {
        for (bytes, text) in [
            (&[][..], ""),
            (&[97], "YQ=="),
            (&[97, 98], "YWI="),
            (&[97, 98, 99], "YWJj"),
            (&[97, 98, 99, 255], "YWJj/w=="),
            (&[0, 0, 62, 251, 240], "AAA++/A="),
        ] {
            assert_eq!(encoded(bytes), text, "{bytes:?}");
        }
    }

    #[test]
    fn errors_name_the_offset_as_go_does() {
        for (text, offset) in
            [("not base64!", 3), ("YWJ", 0), ("YQ=a", 2), ("=", 0), ("YQ==x", 4), ("YQ=", 3), ("YWJjZ", 4)]
        {
            assert_eq!(canonical(text), Err(corrupt(offset)), "{text:?}");
        }
    }
}
