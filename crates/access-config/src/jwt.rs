//! JSON Web Tokens of other issuers (RFC 7515, 7517, 7518): parsing, and verification with the issuer's public keys.
//!
//! Only asymmetric signatures are supported. A token with the algorithm `none` or with a shared secret is never
//! accepted. A key only verifies algorithms of its own type.

mod keys;
mod token;

pub(crate) use keys::KeySet;
pub(crate) use token::Token;

/// The supported signature algorithms, by their names in tokens.
pub const SIGNING_ALGORITHMS: [&str; 9] =
    ["ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"];

/// A signature algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Algorithm {
    pub(crate) family: Family,
    /// The size of the hash in bits.
    pub(crate) bits: u16,
}

/// The type of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// RSASSA-PKCS1-v1_5.
    Rsa,
    /// RSASSA-PSS.
    RsaPss,
    /// ECDSA on the curve for this hash size (P-521 for 512).
    Ecdsa,
}

impl Algorithm {
    /// The algorithm with this name; `None` if it is not in [`SIGNING_ALGORITHMS`].
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (family, bits) = name.split_at_checked(2)?;
        let family = match family {
            "RS" => Family::Rsa,
            "PS" => Family::RsaPss,
            "ES" => Family::Ecdsa,
            _ => return None,
        };
        let bits = match bits {
            "256" => 256,
            "384" => 384,
            "512" => 512,
            _ => return None,
        };
        Some(Self { family, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_asymmetric_signature_algorithms_are_supported() {
        assert!(SIGNING_ALGORITHMS.iter().all(|name| Algorithm::named(name).is_some()));
        for name in ["none", "None", "", "HS256", "HS512", "EdDSA", "ES256K", "RS1", "rs256", "RS2560", "é"] {
            assert_eq!(Algorithm::named(name), None, "{name}");
        }
    }
}
