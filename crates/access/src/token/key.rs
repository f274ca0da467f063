//! The keys of tokens: one key signs, and further keys verify. Keys are RSA (PKCS #1 with SHA-256), or ECDSA on one of
//! three curves with its hash. Signatures have the fixed-size form of tokens (RFC 7518, section 3).
//!
//! A token has the id of its key. Like upstream, the id is the hash of the `SubjectPublicKeyInfo`. Claims are in
//! `claims`.

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED, ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_meta::json::{Value, json};
use x509_parser::oid_registry::{OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_PKCS1_RSAENCRYPTION};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::pki::SigningKey;
use crate::pki::key_text::{self, KeyTextError};

/// The modulus sizes of RSA keys in bytes: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// The reason why a key can't sign or verify tokens.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The private key cannot be parsed.
    #[error("the key that signs service-account tokens can't be used: {0}")]
    Private(KeyTextError),
    /// The private key is of a type that cannot sign tokens.
    #[error(
        "the key that signs service-account tokens is neither RSA of 2048 to 8192 bits nor ECDSA on P-256, P-384 or P-521"
    )]
    Kind,
    /// The public keys cannot be parsed.
    #[error("the public keys by which service-account tokens are verified can't be used: {0}")]
    Public(KeyTextError),
    /// A public key is of a type that cannot verify tokens.
    #[error(
        "a public key by which service-account tokens are verified is neither RSA of 2048 to 8192 bits nor ECDSA on P-256, P-384 \
         or P-521"
    )]
    PublicKind,
    /// The system's cryptography failed.
    #[error("a token can't be signed")]
    Sign,
}

/// The algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Algorithm {
    Es256,
    Es384,
    Es512,
    Rs256,
}

/// The algorithms by curve, each with its hash.
const CURVES: [&EcdsaSigningAlgorithm; 3] =
    [&ECDSA_P256_SHA256_FIXED_SIGNING, &ECDSA_P384_SHA384_FIXED_SIGNING, &ECDSA_P521_SHA512_FIXED_SIGNING];

impl Algorithm {
    /// The name in tokens and key sets.
    const fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Rs256 => "RS256",
        }
    }

    /// The name of the curve, and the length of a coordinate in bytes.
    const fn curve(self) -> Option<(&'static str, usize)> {
        match self {
            Self::Es256 => Some(("P-256", 32)),
            Self::Es384 => Some(("P-384", 48)),
            Self::Es512 => Some(("P-521", 66)),
            Self::Rs256 => None,
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &ECDSA_P384_SHA384_FIXED,
            Self::Es512 => &ECDSA_P521_SHA512_FIXED,
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
        }
    }
}

pub(super) struct TokenKey {
    pair: Pair,
    /// The public key of the signing key, and the other accepted keys.
    verifying: Vec<VerifyingKey>,
}

enum Pair {
    Ecdsa(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

struct VerifyingKey {
    algorithm: Algorithm,
    /// An uncompressed point (a prefix byte and two coordinates), or the numbers of an RSA key (PKCS #1).
    public: Vec<u8>,
    /// The id, a hash of the public key.
    id: String,
}

impl Pair {
    fn read(pem: &str) -> Result<Self, KeyError> {
        let der = key_text::private_der(pem).map_err(KeyError::Private)?;
        let mut curves = CURVES.into_iter();
        if let Some(pair) = curves.find_map(|curve| EcdsaKeyPair::from_private_key_der(curve, &der).ok()) {
            return Ok(Self::Ecdsa(Box::new(pair)));
        }
        let pair = RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der)).map_err(|_| KeyError::Kind)?;
        if RSA_BYTES.contains(&pair.public_modulus_len()) { Ok(Self::Rsa(Box::new(pair))) } else { Err(KeyError::Kind) }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match self {
            Self::Ecdsa(pair) => {
                let signature = pair.sign(&SystemRandom::new(), message).map_err(|_| KeyError::Sign)?;
                Ok(signature.as_ref().to_vec())
            }
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let signed = pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature);
                signed.map_err(|_| KeyError::Sign)?;
                Ok(signature)
            }
        }
    }
}

impl TokenKey {
    pub(super) fn read(key: &SigningKey) -> Result<Self, KeyError> {
        let pair = Pair::read(&key.private_pem)?;
        let mut verifying: Vec<VerifyingKey> = Vec::new();
        for pem in [&key.public_pem, &key.also_verified_by] {
            for public in key_text::public_infos(pem).map_err(KeyError::Public)? {
                let public = VerifyingKey::read(&public)?;
                if verifying.iter().all(|known| known.id != public.id) {
                    verifying.push(public);
                }
            }
        }
        Ok(Self { pair, verifying })
    }

    /// The ids of the accepted keys; the signing key is first.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.verifying.iter().map(|key| key.id.as_str())
    }

    /// The header of a new token (RFC 7515, section 4).
    pub(super) fn header(&self) -> Value {
        let (algorithm, id) = self.verifying.first().map_or(("", ""), |key| (key.algorithm.name(), &key.id));
        json!({ "alg": algorithm, "kid": id })
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.pair.sign(message)
    }

    /// Returns true if the key with this id verifies the signature with this algorithm. Without an id, all keys are
    /// tried.
    pub(super) fn verifies(&self, id: Option<&str>, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        self.verifying.iter().filter(|key| id.is_none_or(|id| id == key.id) && key.algorithm.name() == algorithm).any(
            |key| UnparsedPublicKey::new(key.algorithm.verification(), &key.public).verify(message, signature).is_ok(),
        )
    }

    /// The public keys as JSON Web Keys.
    pub(super) fn public(&self) -> Vec<Value> {
        self.verifying.iter().map(VerifyingKey::public).collect()
    }

    /// The algorithms of the keys, without duplicates, sorted by name.
    pub(super) fn algorithms(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.verifying.iter().map(|key| key.algorithm.name()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl VerifyingKey {
    fn read(info: &[u8]) -> Result<Self, KeyError> {
        let (_, read) = SubjectPublicKeyInfo::from_der(info).map_err(|_| KeyError::PublicKind)?;
        let public = read.subject_public_key.data.to_vec();
        let id = encode(digest::digest(&digest::SHA256, info));
        let curve = read.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        let curves = [
            (OID_EC_P256, Algorithm::Es256),
            (OID_NIST_EC_P384, Algorithm::Es384),
            (OID_NIST_EC_P521, Algorithm::Es512),
        ];
        let of_curve = curves.into_iter().find(|(known, _)| curve.as_ref() == Some(known));
        let algorithm = match of_curve {
            Some((_, algorithm)) => {
                let coordinate = algorithm.curve().map_or(0, |(_, coordinate)| coordinate);
                (public.len() == 1 + 2 * coordinate).then_some(algorithm)
            }
            None => (read.algorithm.algorithm == OID_PKCS1_RSAENCRYPTION
                && rsa_numbers(&public).is_some_and(|(modulus, _)| RSA_BYTES.contains(&modulus.len())))
            .then_some(Algorithm::Rs256),
        };
        Ok(Self { algorithm: algorithm.ok_or(KeyError::PublicKind)?, public, id })
    }

    fn public(&self) -> Value {
        match self.algorithm.curve() {
            Some((curve, coordinate)) => {
                let coordinates = self.public.get(1..).unwrap_or_default();
                let (x, y) = coordinates.split_at(coordinate.min(coordinates.len()));
                json!({
                    "use": "sig",
                    "kty": "EC",
                    "kid": self.id,
                    "crv": curve,
                    "alg": self.algorithm.name(),
                    "x": encode(x),
                    "y": encode(y),
                })
            }
            None => {
                let (modulus, exponent) = rsa_numbers(&self.public).unwrap_or_default();
                json!({
                    "use": "sig",
                    "kty": "RSA",
                    "kid": self.id,
                    "alg": self.algorithm.name(),
                    "n": encode(modulus),
                    "e": encode(exponent),
                })
            }
        }
    }
}

/// The modulus and exponent of an RSA key, without leading zeros.
fn rsa_numbers(public: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let trimmed = |number: &[u8]| number.iter().copied().skip_while(|byte| *byte == 0).collect();
    let (_, key) = x509_parser::public_key::RSAPublicKey::from_der(public).ok()?;
    Some((trimmed(key.modulus), trimmed(key.exponent)))
}

/// Encodes bytes as in tokens (base64url).
pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

pub(super) fn decode_json(text: &str) -> Option<Value> {
    serde_json::from_slice(&decode(text)?).ok()
}
