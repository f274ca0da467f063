//! JSON Web Tokens of others (RFC 7515, 7517, 7518): parsed, and verified by the public keys that an issuer publishes.
//!
//! Only signatures by private keys are known here: there is no `none` and no shared secret, whatever a token says of itself, and the
//! kind of the key decides which algorithms it may be used with.

mod keys;
mod token;

pub(crate) use keys::KeySet;
pub(crate) use token::Token;

/// The algorithms of signatures that are known, by the names that tokens have for them.
pub const SIGNING_ALGORITHMS: [&str; 9] =
    ["ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"];

/// An algorithm of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Algorithm {
    pub(crate) family: Family,
    /// How many bits its hash has.
    pub(crate) bits: u16,
}

/// How a signature is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// RSASSA-PKCS1-v1_5.
    Rsa,
    /// RSASSA-PSS.
    RsaPss,
    /// ECDSA on the curve of as many bits (521 for 512).
    Ecdsa,
}

impl Algorithm {
    /// The algorithm of a name; `None` for any that is not among [`SIGNING_ALGORITHMS`].
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
    fn only_signatures_by_private_keys_are_known() {
        assert!(SIGNING_ALGORITHMS.iter().all(|name| Algorithm::named(name).is_some()));
        for name in ["none", "None", "", "HS256", "HS512", "EdDSA", "ES256K", "RS1", "rs256", "RS2560", "é"] {
            assert_eq!(Algorithm::named(name), None, "{name}");
        }
    }
}
