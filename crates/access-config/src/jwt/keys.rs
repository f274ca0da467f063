//! The public keys of an issuer, from a JSON Web Key Set (RFC 7517).
//!
//! Keys of unknown types are skipped. An issuer may use them for other purposes.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_codec::json;
use keelson_meta::json::Value;

use super::{Algorithm, Family};

/// The largest number of keys in a set. A signature without a key id is tried with all of them.
const MOST_KEYS: usize = 64;
/// The longest accepted RSA modulus, in bytes: 8192 bits.
const MOST_MODULUS: usize = 1024;

/// The keys of an issuer.
#[derive(Debug, Default)]
pub(crate) struct KeySet(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: String,
    public: PublicKey,
}

#[derive(Debug)]
enum PublicKey {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point of the curve for this hash size.
    Ec {
        bits: u16,
        point: Vec<u8>,
    },
}

impl KeySet {
    /// Parses a key set.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let set = json::parse(bytes).map_err(|error| error.to_string())?.value;
        let keys = set["keys"].as_array().ok_or("it has no keys")?;
        Ok(Self(keys.iter().filter_map(Key::read).take(MOST_KEYS).collect()))
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the key with this id verifies the signature. With an empty id, all keys are tried.
    pub(crate) fn verifies(&self, id: &str, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let named = self.0.iter().filter(|key| id.is_empty() || key.id == id);
        named.into_iter().any(|key| key.public.verifies(algorithm, message, signature))
    }
}

impl Key {
    /// Parses a key; `None` if it cannot be used to verify signatures.
    fn read(key: &Value) -> Option<Self> {
        let text = |name: &str| key[name].as_str().unwrap_or_default();
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name).trim_end_matches('=')).ok();
        if !matches!(text("use"), "" | "sig") {
            return None;
        }
        let public = match text("kty") {
            "RSA" => {
                let (modulus, exponent) = (unpadded(&bytes("n")?), unpadded(&bytes("e")?));
                if modulus.is_empty() || modulus.len() > MOST_MODULUS || exponent.is_empty() || exponent.len() > 8 {
                    return None;
                }
                PublicKey::Rsa { modulus, exponent }
            }
            "EC" => {
                let (bits, length) = match text("crv") {
                    "P-256" => (256, 32),
                    "P-384" => (384, 48),
                    "P-521" => (512, 66),
                    _ => return None,
                };
                let mut point = vec![4];
                for coordinate in ["x", "y"] {
                    let coordinate = bytes(coordinate).filter(|bytes| bytes.len() <= length)?;
                    point.resize(point.len() + length - coordinate.len(), 0);
                    point.extend(coordinate);
                }
                PublicKey::Ec { bits, point }
            }
            _ => return None,
        };
        Some(Self { id: text("kid").to_owned(), public })
    }
}

/// A number without leading zeros.
fn unpadded(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number[zeros..].to_vec()
}

impl PublicKey {
    fn verifies(&self, Algorithm { family, bits }: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { modulus, exponent } => {
                let parameters: &RsaParameters = match (family, bits) {
                    (Family::Rsa, 256) => &RSA_PKCS1_2048_8192_SHA256,
                    (Family::Rsa, 384) => &RSA_PKCS1_2048_8192_SHA384,
                    (Family::Rsa, 512) => &RSA_PKCS1_2048_8192_SHA512,
                    (Family::RsaPss, 256) => &RSA_PSS_2048_8192_SHA256,
                    (Family::RsaPss, 384) => &RSA_PSS_2048_8192_SHA384,
                    (Family::RsaPss, 512) => &RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(parameters, message, signature).is_ok()
            }
            Self::Ec { bits: own, point } => {
                if family != Family::Ecdsa || *own != bits {
                    return false;
                }
                let parameters = match bits {
                    256 => &ECDSA_P256_SHA256_FIXED,
                    384 => &ECDSA_P384_SHA384_FIXED,
                    _ => &ECDSA_P521_SHA512_FIXED,
                };
                UnparsedPublicKey::new(parameters, point).verify(message, signature).is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
        EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RSA_PSS_SHA384,
        RsaKeyPair,
    };
    use keelson_meta::json::json;

    use super::*;

    const MESSAGE: &[u8] = b"signed";

    fn encode(bytes: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The modulus and exponent of an RSA public key (PKCS #1): a sequence of two integers.
    fn numbers(der: &[u8]) -> [Vec<u8>; 2] {
        let mut rest = &der[4..];
        [(), ()].map(|()| {
            let (length, begin) = match rest[1] {
                0x82 => (usize::from(rest[2]) * 256 + usize::from(rest[3]), 4),
                0x81 => (usize::from(rest[2]), 3),
                short => (usize::from(short), 2),
            };
            let (number, behind) = rest[begin..].split_at(length);
            rest = behind;
            number.iter().copied().skip_while(|byte| *byte == 0).collect()
        })
    }

    #[expect(clippy::needless_pass_by_value, reason = "the values of a test are made where they are given")]
    fn set(keys: Value) -> KeySet {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    }

    fn named(name: &str) -> Algorithm {
        Algorithm::named(name).unwrap()
    }

    #[test]
    fn a_curve_verifies_its_own_algorithm_alone() {
        let curves: [(&str, &str, &EcdsaSigningAlgorithm); 3] = [
            ("P-256", "ES256", &ECDSA_P256_SHA256_FIXED_SIGNING),
            ("P-384", "ES384", &ECDSA_P384_SHA384_FIXED_SIGNING),
            ("P-521", "ES512", &ECDSA_P521_SHA512_FIXED_SIGNING),
        ];
        for (curve, algorithm, signing) in curves {
            let pair = EcdsaKeyPair::generate(signing).unwrap();
            let point = pair.public_key().as_ref();
            let (x, y) = point[1..].split_at((point.len() - 1) / 2);
            let keys = set(json!([{ "kty": "EC", "crv": curve, "kid": "k", "x": encode(x), "y": encode(y) }]));
            let signature = pair.sign(&SystemRandom::new(), MESSAGE).unwrap();
            let verifies =
                |id: &str, name: &str, message: &[u8]| keys.verifies(id, named(name), message, signature.as_ref());
            assert!(verifies("k", algorithm, MESSAGE) && verifies("", algorithm, MESSAGE), "{curve}");
            assert!(!verifies("other", algorithm, MESSAGE) && !verifies("k", algorithm, b"forged"), "{curve}");
            for other in super::super::SIGNING_ALGORITHMS.iter().filter(|other| **other != algorithm) {
                assert!(!verifies("k", other, MESSAGE), "{curve} {other}");
            }
        }
    }

    #[test]
    fn a_key_of_rsa_verifies_both_forms_of_its_signatures() {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let [modulus, exponent] = numbers(pair.public_key().as_ref());
        let padded = [&[0][..], &modulus].concat();
        let keys = set(json!([
            { "kty": "RSA", "kid": "k", "use": "sig", "alg": "RS256", "n": encode(padded), "e": encode(exponent) },
        ]));
        let encodings: [(&str, &'static dyn aws_lc_rs::signature::RsaEncoding); 3] =
            [("RS256", &RSA_PKCS1_SHA256), ("RS512", &RSA_PKCS1_SHA512), ("PS384", &RSA_PSS_SHA384)];
        for (algorithm, encoding) in encodings {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(encoding, &SystemRandom::new(), MESSAGE, &mut signature).unwrap();
            for name in super::super::SIGNING_ALGORITHMS {
                assert_eq!(keys.verifies("k", named(name), MESSAGE, &signature), name == algorithm, "{name}");
            }
        }
    }

    #[test]
    fn keys_that_are_of_no_use_are_passed_over() {
        let useless = json!([
            { "kty": "oct", "k": "c2VjcmV0" },
            { "kty": "OKP", "crv": "Ed25519", "x": "AA" },
            { "kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB" },
            { "kty": "RSA", "n": "", "e": "AQAB" },
            { "kty": "EC", "crv": "P-256", "x": encode([1; 33]), "y": encode([1; 32]) },
            { "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA" },
            5,
        ]);
        assert_eq!(set(useless).len(), 0);
        assert!(KeySet::parse(b"{}").is_err() && KeySet::parse(b"no").is_err());
    }
}
