//! Creates keys for a rotation, which the operator puts into files.
//!
//! The keys have the same form as the keys of a first start. This module reads and writes no files.

use std::time::SystemTime;

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_meta::Random;

use crate::pki::{self, KeyAndCertificate, PkiError};
use crate::token_seal::KEY_BYTES;

/// A new key for service account tokens, and its public key, both in PEM.
///
/// # Errors
/// The operating system provides no random numbers.
pub fn service_account_key() -> Result<(String, String), PkiError> {
    pki::new_signing_key()
}

/// A new authority like the server's own, with a unique name.
///
/// # Errors
/// The operating system provides no random numbers.
pub fn authority(now: SystemTime, random: &dyn Random) -> Result<KeyAndCertificate, PkiError> {
    pki::new_authority(now, random)
}

/// A new line for the file of keys that seal continue tokens; `None` if the operating system provides no random
/// numbers.
pub fn token_seal_key() -> Option<String> {
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key).ok()?;
    Some(BASE64.encode(key))
}

#[cfg(test)]
mod tests {
    use keelson_meta::random::SystemRandom;

    use super::*;

    #[test]
    fn new_keys_differ_and_fit() {
        let (private, public) = service_account_key().unwrap();
        assert!(private.contains("PRIVATE KEY") && public.contains("PUBLIC KEY"));
        assert_ne!(private, service_account_key().unwrap().0);
        let authority = authority(SystemTime::now(), &SystemRandom).unwrap();
        assert!(authority.certificate_pem.contains("BEGIN CERTIFICATE") && authority.key_pem.contains("PRIVATE KEY"));
        let seals = [token_seal_key().unwrap(), token_seal_key().unwrap()];
        assert!(seals[0] != seals[1] && seals[0].len() == 44, "{seals:?}");
    }
}
