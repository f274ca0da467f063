//! The key that signs tokens: ECDSA on P-256 with SHA-256, in the fixed form that tokens carry.

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use serde_json::{Value, json};

use crate::pki::SigningKey;

/// How long a coordinate of a point of P-256 is, in bytes.
const COORDINATE: usize = 32;

/// A key can't sign.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It can't be read.
    #[error("the key that signs service-account tokens can't be read: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// It is a key of another kind.
    #[error("the key that signs service-account tokens is no ECDSA key on the curve P-256: {0}")]
    Kind(String),
    /// The system's cryptography failed.
    #[error("a token can't be signed")]
    Sign,
}

pub(super) struct TokenKey {
    pair: EcdsaKeyPair,
    id: String,
}

impl TokenKey {
    pub(super) fn read(key: &SigningKey) -> Result<Self, KeyError> {
        let private = PrivateKeyDer::from_pem_slice(key.private_pem.as_bytes())?;
        let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, private.secret_der())
            .map_err(|rejected| KeyError::Kind(rejected.to_string()))?;
        let public = SubjectPublicKeyInfoDer::from_pem_slice(key.public_pem.as_bytes())?;
        let id = encode(digest::digest(&digest::SHA256, &public));
        Ok(Self { pair, id })
    }

    /// The hash of the public key, by which it is found among others.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let signature = self.pair.sign(&SystemRandom::new(), message).map_err(|_| KeyError::Sign)?;
        Ok(signature.as_ref().to_vec())
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.point()).verify(message, signature).is_ok()
    }

    /// The public key as a JSON Web Key.
    pub(super) fn public(&self, algorithm: &str) -> Value {
        let coordinates = self.point().get(1..).unwrap_or_default();
        let (x, y) = coordinates.split_at(COORDINATE.min(coordinates.len()));
        json!({
            "use": "sig",
            "kty": "EC",
            "kid": self.id,
            "crv": "P-256",
            "alg": algorithm,
            "x": encode(x),
            "y": encode(y),
        })
    }

    /// The public key as an uncompressed point: a mark, and two coordinates.
    fn point(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }
}

/// The form of bytes in tokens.
pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

pub(super) fn decode_json(text: &str) -> Option<Value> {
    serde_json::from_slice(&decode(text)?).ok()
}
