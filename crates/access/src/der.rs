//! Reads and writes the subset of DER (ITU-T X.690) that certificates and certificate requests need.
//!
//! Names are written here because a user in several groups has several organizations, and `rcgen` keeps only the last.

use rcgen::{KeyPair, SigningKey as _};
use time::OffsetDateTime;

use crate::pki::PkiError;

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
const BOOLEAN: u8 = 0x01;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const OBJECT_ID: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// The attribute types 2.5.4.3 and 2.5.4.10 of X.520.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The first year that needs the longer form of times (RFC 5280, section 4.1.2.5).
const LONG_YEAR: i32 = 2050;

/// An element with this tag, whose content is the concatenation of the parts.
pub(crate) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes = length.to_be_bytes();
            let digits: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
            // A length has at most eight bytes.
            out.push(0x80 | digits.len() as u8);
            out.extend(digits);
        }
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// A parsed element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// The whole element, with tag and length.
    pub(crate) raw: &'a [u8],
}

/// Parses the first element, and returns it with the remaining bytes. Returns `None` for an incomplete element, a tag
/// of several bytes, or a length of more than four bytes.
pub(crate) fn read(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    const LONGEST_LENGTH: usize = 4;
    let (tag, behind) = bytes.split_first()?;
    let (first, behind) = behind.split_first()?;
    let (length, behind) = match usize::from(*first) {
        short @ 0..0x80 => (short, behind),
        long => {
            let digits = Some(long - 0x80).filter(|digits| (1..=LONGEST_LENGTH).contains(digits))?;
            let (digits, behind) = behind.split_at_checked(digits)?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), behind)
        }
    };
    let (content, rest) = behind.split_at_checked(length)?;
    Some((Element { tag: *tag, content, raw: &bytes[..bytes.len() - rest.len()] }, rest))
}

/// The content of the first element if it has this tag, with the remaining bytes.
pub(crate) fn content(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (element, rest) = read(bytes)?;
    (element.tag == tag).then_some((element.content, rest))
}

/// An extension of a certificate (RFC 5280, section 4.1).
pub(crate) fn extension(id: &[u8], is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if is_critical { element(BOOLEAN, &[&[0xff]]) } else { Vec::new() };
    element(SEQUENCE, &[&element(OBJECT_ID, &[id]), &critical, &element(OCTET_STRING, &[value])])
}

/// A name with a common name and organizations, the form of Kubernetes clients.
pub(crate) fn name(common_name: &str, organizations: &[String]) -> Vec<u8> {
    let attribute = |kind: &[u8], text: &str| {
        let pair = [element(OBJECT_ID, &[kind]), element(UTF8_STRING, &[text.as_bytes()])];
        element(SET, &[&element(SEQUENCE, &[&pair[0], &pair[1]])])
    };
    let mut parts: Vec<Vec<u8>> = organizations.iter().map(|text| attribute(ORGANIZATION, text)).collect();
    parts.push(attribute(COMMON_NAME, common_name));
    element(SEQUENCE, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// A time in whole seconds.
pub(crate) fn time(at: OffsetDateTime) -> Vec<u8> {
    let at = at.to_offset(time::UtcOffset::UTC);
    let rest =
        format!("{:02}{:02}{:02}{:02}{:02}Z", u8::from(at.month()), at.day(), at.hour(), at.minute(), at.second());
    if at.year() < LONG_YEAR {
        element(UTC_TIME, &[format!("{:02}{rest}", at.year().rem_euclid(100)).as_bytes()])
    } else {
        element(GENERALIZED_TIME, &[format!("{:04}{rest}", at.year()).as_bytes()])
    }
}

/// The identifier of the signature algorithm for a key.
pub(crate) fn algorithm(key: &KeyPair) -> Result<Vec<u8>, PkiError> {
    const NULL: &[u8] = &[0x05, 0x00];
    // RFC 5758 section 3.2, RFC 4055 section 5, RFC 8410 section 3.
    let known: [(_, &[u8], &[u8]); 5] = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02], &[]),
        (&rcgen::PKCS_ECDSA_P384_SHA384, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03], &[]),
        (&rcgen::PKCS_ECDSA_P521_SHA512, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04], &[]),
        (&rcgen::PKCS_RSA_SHA256, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], NULL),
        (&rcgen::PKCS_ED25519, &[0x2b, 0x65, 0x70], &[]),
    ];
    let found = known.into_iter().find(|(known, ..)| key.is_compatible(known));
    let (_, id, parameters) = found.ok_or(PkiError::Issue(rcgen::Error::UnsupportedSignatureAlgorithm))?;
    Ok(element(SEQUENCE, &[&element(OBJECT_ID, &[id]), parameters]))
}

/// The content with its signature.
pub(crate) fn signed(content: &[u8], key: &KeyPair) -> Result<Vec<u8>, PkiError> {
    let signature = key.sign(content)?;
    Ok(element(SEQUENCE, &[content, &algorithm(key)?, &element(BIT_STRING, &[&[0], &signature])]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_read_back_and_cut_ones_do_not() {
        for length in [0, 3, 127, 128, 300, 70_000] {
            let content = vec![7; length];
            let mut bytes = element(OCTET_STRING, &[&content]);
            for cut in [0, 1, bytes.len() - 1] {
                assert!(read(&bytes[..cut]).is_none(), "{length} {cut}");
            }
            bytes.push(9);
            let (found, rest) = read(&bytes).unwrap();
            assert_eq!(
                (found.tag, found.content, found.raw.len(), rest),
                (OCTET_STRING, &*content, bytes.len() - 1, &[9][..])
            );
            assert!(super::content(SEQUENCE, &bytes).is_none());
        }
        // An indefinite length, a length of five bytes, and a length beyond the end.
        for bad in
            [&[SEQUENCE, 0x80, 0, 0][..], &[SEQUENCE, 0x85, 0, 0, 0, 0, 0], &[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff]]
        {
            assert!(read(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn lengths_and_times_are_written_as_short_as_can_be() {
        assert_eq!(element(OCTET_STRING, &[b"ab", b"c"]), [4, 3, b'a', b'b', b'c']);
        assert_eq!(element(OCTET_STRING, &[&[0; 200]])[..3], [4, 0x81, 200]);
        assert_eq!(element(OCTET_STRING, &[&[0; 300]])[..4], [4, 0x82, 1, 44]);
        let at = |seconds| String::from_utf8(time(OffsetDateTime::from_unix_timestamp(seconds).unwrap())[2..].to_vec());
        assert_eq!(at(1_800_000_000).unwrap(), "270115080000Z");
        assert_eq!(at(4_000_000_000).unwrap(), "20961002070640Z");
    }
}
