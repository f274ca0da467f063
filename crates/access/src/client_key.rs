//! The public key of a client certificate of any version, and the verification of the handshake signature that proves
//! possession of the private key.
//!
//! webpki refuses certificates of version 1, which `openssl x509 -req` creates without extensions. So this file parses
//! the key only.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{AlgorithmIdentifier, SubjectPublicKeyInfoDer, alg_id};
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved};

use crate::der::{self, BIT_STRING, INTEGER, SEQUENCE};

/// The tag of the version field, which certificates of version 1 omit (RFC 5280, section 4.1).
const VERSION: u8 = 0xa0;
/// The accepted modulus sizes of RSA keys in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The cryptography provider for TLS handshakes and certificate paths.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A public key, borrowed from its certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublicKey<'a> {
    /// The algorithm and its parameters: the content of an `AlgorithmIdentifier`.
    algorithm: &'a [u8],
    bits: &'a [u8],
    info: &'a [u8],
}

impl<'a> PublicKey<'a> {
    /// The public key in a certificate; `None` if it cannot be parsed.
    pub(crate) fn from_certificate(certificate: &'a [u8]) -> Option<Self> {
        let (certificate, _) = der::content(SEQUENCE, certificate)?;
        let (content, _) = der::content(SEQUENCE, certificate)?;
        let rest = match der::content(VERSION, content) {
            Some((_, behind)) => behind,
            None => content,
        };
        let (_, mut rest) = der::content(INTEGER, rest)?;
        // Signature algorithm, issuer, validity, subject.
        for _ in 0..4 {
            (_, rest) = der::content(SEQUENCE, rest)?;
        }
        Self::from_info(der::read(rest)?.0.raw)
    }

    /// The public key in a `SubjectPublicKeyInfo`.
    pub(crate) fn from_info(info: &'a [u8]) -> Option<Self> {
        let (content, _) = der::content(SEQUENCE, info)?;
        let (algorithm, rest) = der::content(SEQUENCE, content)?;
        let (bits, _) = der::content(BIT_STRING, rest)?;
        // The first byte is the number of unused bits.
        Some(Self { algorithm, bits: bits.strip_prefix(&[0])?, info })
    }

    /// Returns true if signatures of the key can be verified. Certificates with other keys authenticate no user.
    pub(crate) fn is_supported(&self, algorithms: &WebPkiSupportedAlgorithms) -> bool {
        let is_known = algorithms.all.iter().any(|known| self.is_for(known.public_key_alg_id()));
        let is_rsa = self.is_for(alg_id::RSA_ENCRYPTION);
        is_known && (!is_rsa || self.modulus_bits().is_some_and(|bits| RSA_BITS.contains(&bits)))
    }

    /// Verifies the signature of a message, by the algorithm that the signature names.
    ///
    /// # Errors
    /// The algorithm does not fit the key, or the signature is invalid.
    pub(crate) fn verify(
        &self,
        algorithms: &WebPkiSupportedAlgorithms,
        signed_with: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureFault> {
        let fits = |id: AlgorithmIdentifier| id.as_ref() == signed_with;
        let mut known = algorithms.all.iter().filter(|known| self.is_for(known.public_key_alg_id()));
        let algorithm = known.find(|known| fits(known.signature_alg_id())).ok_or(SignatureFault::Algorithm)?;
        algorithm.verify_signature(self.bits, message, signature).map_err(|_| SignatureFault::Signature)
    }

    /// Verifies the handshake signature of TLS 1.2, whose scheme names the hash but not the curve.
    pub(crate) fn verify_tls12(
        &self,
        algorithms: &WebPkiSupportedAlgorithms,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let of_scheme = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let (_, of_scheme) = of_scheme.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let mut of_key = of_scheme.iter().filter(|known| self.is_for(known.public_key_alg_id()));
        let is_signed = of_key.any(|known| known.verify_signature(self.bits, message, signed.signature()).is_ok());
        if is_signed { Ok(HandshakeSignatureValid::assertion()) } else { Err(CertificateError::BadSignature.into()) }
    }

    /// Verifies the handshake signature of TLS 1.3.
    pub(crate) fn verify_tls13(
        &self,
        algorithms: &WebPkiSupportedAlgorithms,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(self.info), signed, algorithms)
    }

    fn is_for(&self, id: AlgorithmIdentifier) -> bool {
        id.as_ref() == self.algorithm
    }

    /// The length of the modulus of an RSA key, in bits.
    fn modulus_bits(&self) -> Option<usize> {
        let (numbers, _) = der::content(SEQUENCE, self.bits)?;
        let (modulus, _) = der::content(INTEGER, numbers)?;
        let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
        let digits = &modulus[zeros..];
        Some(digits.len() * 8 - digits.first()?.leading_zeros() as usize)
    }
}

/// The reason why a signature is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureFault {
    /// The algorithm is not accepted for this type of key.
    Algorithm,
    /// The signature does not match the key and the message.
    Signature,
}
