//! Parses keys in PEM, in all forms that kube-apiserver reads. Private keys: PKCS #8, PKCS #1 and SEC 1. Public keys:
//! `SubjectPublicKeyInfo`, PKCS #1 and certificates.
//!
//! A file may have other blocks before the key. For example, `openssl ecparam -genkey` writes a block with the curve.

use rcgen::{KeyPair, PublicKeyData as _};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::PkiError;
use crate::der::{self, BIT_STRING, OBJECT_ID, SEQUENCE, element};

/// The labels of private key blocks.
const PRIVATE: [&str; 3] = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];
/// The algorithm rsaEncryption with its parameters (RFC 8017 appendix A).
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const NULL: &[u8] = &[0x05, 0x00];

/// The reason why a text has no usable key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// The text is not PEM.
    #[error("it is not PEM: {0}")]
    Pem(String),
    /// The text is PEM without a private key.
    #[error("it holds no private key (PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY)")]
    NoPrivateKey,
    /// The key is encrypted.
    #[error("its key is encrypted with a passphrase, which a server can't ask for")]
    Encrypted,
    /// The type of key is not supported.
    #[error("its key is neither RSA of 2048 to 8192 bits, nor ECDSA on P-256, P-384 or P-521, nor Ed25519")]
    Kind,
    /// The content of a block for a public key is invalid.
    #[error("its block {0} can't be read")]
    Block(String),
}

/// The first private key of a text, as DER in any form.
pub(crate) fn private_der(text: &str) -> Result<Vec<u8>, KeyTextError> {
    for block in Pem::iter_from_buffer(text.as_bytes()) {
        let block = block.map_err(|error| KeyTextError::Pem(error.to_string()))?;
        if PRIVATE.contains(&block.label.as_str()) {
            return Ok(block.contents);
        }
        if block.label == "ENCRYPTED PRIVATE KEY" {
            return Err(KeyTextError::Encrypted);
        }
    }
    Err(KeyTextError::NoPrivateKey)
}

/// The first private key of a text, for signing certificates.
pub(crate) fn key_pair(text: &str) -> Result<KeyPair, PkiError> {
    let der = private_der(text).map_err(PkiError::Key)?;
    KeyPair::try_from(der).map_err(|_| PkiError::Key(KeyTextError::Kind))
}

/// All public keys of a text as `SubjectPublicKeyInfo`, including those of certificates and private keys. Other blocks
/// are skipped.
pub(crate) fn public_infos(text: &str) -> Result<Vec<Vec<u8>>, KeyTextError> {
    let mut infos = Vec::new();
    for block in Pem::iter_from_buffer(text.as_bytes()) {
        let Pem { label, contents } = block.map_err(|error| KeyTextError::Pem(error.to_string()))?;
        let info = match label.as_str() {
            // Like upstream, a block with any of these labels may have any of these forms.
            "PUBLIC KEY" | "RSA PUBLIC KEY" | "CERTIFICATE" => certified(&contents)
                .or_else(|| is_info(&contents).then(|| contents.clone()))
                .or_else(|| is_rsa(&contents).then(|| rsa_info(&contents))),
            label if PRIVATE.contains(&label) => {
                Some(KeyPair::try_from(contents).map_err(|_| KeyTextError::Kind)?.subject_public_key_info())
            }
            _ => continue,
        };
        infos.push(info.ok_or(KeyTextError::Block(label))?);
    }
    Ok(infos)
}

/// The key of a certificate.
fn certified(der: &[u8]) -> Option<Vec<u8>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate.public_key().raw.to_vec())
}

/// Returns true if the content starts with an algorithm, as a `SubjectPublicKeyInfo` does.
fn is_info(der: &[u8]) -> bool {
    der::content(SEQUENCE, der)
        .and_then(|(content, _)| der::read(content))
        .is_some_and(|(first, _)| first.tag == SEQUENCE)
}

/// Returns true if the content starts with an integer, as an RSA key does.
fn is_rsa(der: &[u8]) -> bool {
    let first = der::content(SEQUENCE, der).and_then(|(content, _)| der::read(content));
    first.is_some_and(|(first, _)| first.tag == der::INTEGER)
}

/// Converts an RSA public key (PKCS #1) to a `SubjectPublicKeyInfo`.
fn rsa_info(key: &[u8]) -> Vec<u8> {
    let algorithm = element(SEQUENCE, &[&element(OBJECT_ID, &[RSA_ENCRYPTION]), NULL]);
    element(SEQUENCE, &[&algorithm, &element(BIT_STRING, &[&[0], key])])
}
