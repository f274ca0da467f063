//! The key that signs tokens: ECDSA on P-256 with SHA-256, in the fixed form that tokens carry.
//!
//! A key has an id, by which a token says who signed it. What a token claims is in `claims`.

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_meta::json::{Value, json};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use x509_parser::oid_registry::OID_EC_P256;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

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
    /// One of the keys that verify is of another kind.
    #[error(
        "sa.pub, by which service-account tokens are verified, holds a key that is no ECDSA key on the curve P-256"
    )]
    PublicKind,
    /// The system's cryptography failed.
    #[error("a token can't be signed")]
    Sign,
}

pub(super) struct TokenKey {
    pair: EcdsaKeyPair,
    /// Its own public key, and the others that are accepted.
    verifying: Vec<VerifyingKey>,
}

struct VerifyingKey {
    /// The public key as an uncompressed point: a mark, and two coordinates.
    point: Vec<u8>,
    /// The hash of the public key, by which it is found among others.
    id: String,
}

impl TokenKey {
    pub(super) fn read(key: &SigningKey) -> Result<Self, KeyError> {
        let private = PrivateKeyDer::from_pem_slice(key.private_pem.as_bytes())?;
        let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, private.secret_der())
            .map_err(|rejected| KeyError::Kind(rejected.to_string()))?;
        let mut verifying: Vec<VerifyingKey> = Vec::new();
        for pem in [&key.public_pem, &key.also_verified_by] {
            for public in SubjectPublicKeyInfoDer::pem_slice_iter(pem.as_bytes()) {
                let public = VerifyingKey::read(&public?)?;
                if verifying.iter().all(|known| known.id != public.id) {
                    verifying.push(public);
                }
            }
        }
        Ok(Self { pair, verifying })
    }

    /// The ids of the keys that are accepted. The first one is that of the key that signs.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.verifying.iter().map(|key| key.id.as_str())
    }

    /// The id of the key that signs.
    pub(super) fn id(&self) -> &str {
        self.ids().next().unwrap_or_default()
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let signature = self.pair.sign(&SystemRandom::new(), message).map_err(|_| KeyError::Sign)?;
        Ok(signature.as_ref().to_vec())
    }

    /// Whether the key of this id has signed, or any where there is none.
    pub(super) fn verifies(&self, id: Option<&str>, message: &[u8], signature: &[u8]) -> bool {
        self.verifying
            .iter()
            .filter(|key| id.is_none_or(|id| id == key.id))
            .any(|key| UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &key.point).verify(message, signature).is_ok())
    }

    /// The public keys as JSON Web Keys.
    pub(super) fn public(&self, algorithm: &str) -> Vec<Value> {
        self.verifying.iter().map(|key| key.public(algorithm)).collect()
    }
}

impl VerifyingKey {
    fn read(public: &[u8]) -> Result<Self, KeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(public).map_err(|_| KeyError::PublicKind)?;
        let curve = info.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        let point = info.subject_public_key.data.to_vec();
        if curve != Some(OID_EC_P256) || point.len() != 1 + 2 * COORDINATE {
            return Err(KeyError::PublicKind);
        }
        Ok(Self { point, id: encode(digest::digest(&digest::SHA256, public)) })
    }

    fn public(&self, algorithm: &str) -> Value {
        let coordinates = self.point.get(1..).unwrap_or_default();
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
