//! A certificate signing request for a user and its groups (RFC 2986), with a new key.
//!
//! This module encodes the subject name itself, because `rcgen` does not write several organizations, one for each
//! group.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SigningKey as _};

use crate::error::Error;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The tag of a request's attributes. The list is empty here.
const ATTRIBUTES: u8 = 0xa0;
/// The OIDs 2.5.4.3 and 2.5.4.10 of X.520.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// RFC 5758, section 3.2.
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

/// A request in PEM, and its key in PEM.
pub(crate) struct CertificateRequest {
    pub(crate) request_pem: String,
    pub(crate) key_pem: String,
}

impl CertificateRequest {
    pub(crate) fn new(user: &str, groups: &[String]) -> Result<Self, Error> {
        let unusable = |error: rcgen::Error| {
            Error::Certificate(format!("making a certificate request for {user} failed: {error}"))
        };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(unusable)?;
        let content = element(
            SEQUENCE,
            &[
                &element(INTEGER, &[&[0]]),
                &name(user, groups),
                &key.subject_public_key_info(),
                &element(ATTRIBUTES, &[]),
            ],
        );
        let signature = key.sign(&content).map_err(unusable)?;
        let algorithm = element(SEQUENCE, &[&element(OBJECT_ID, &[ECDSA_WITH_SHA256])]);
        let request = element(SEQUENCE, &[&content, &algorithm, &element(BIT_STRING, &[&[0], &signature])]);
        Ok(Self { request_pem: pem("CERTIFICATE REQUEST", &request), key_pem: key.serialize_pem() })
    }
}

fn name(user: &str, groups: &[String]) -> Vec<u8> {
    let attribute = |kind: &[u8], text: &str| {
        let pair = [element(OBJECT_ID, &[kind]), element(UTF8_STRING, &[text.as_bytes()])];
        element(SET, &[&element(SEQUENCE, &[&pair[0], &pair[1]])])
    };
    let mut parts: Vec<_> = groups.iter().map(|group| attribute(ORGANIZATION, group)).collect();
    parts.push(attribute(COMMON_NAME, user));
    element(SEQUENCE, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Encodes an element with its length in the shortest form (X.690).
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let digits: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            // A length has at most eight digits.
            out.push(0x80 | digits.len() as u8);
            out.extend(digits);
        }
    }
    out.extend(parts.iter().copied().flatten());
    out
}

fn pem(label: &str, der: &[u8]) -> String {
    const LINE: usize = 64;
    let coded = STANDARD.encode(der);
    let lines: Vec<_> = coded.as_bytes().chunks(LINE).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
