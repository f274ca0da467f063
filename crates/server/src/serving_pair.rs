//! A serving certificate outside of a data directory, as kube-apiserver creates one in its `--cert-dir`.
//!
//! The server treats it as a certificate of the operator, and does not renew it.

use keelson_access::pki::{self, KeyAndCertificate, PkiError, PkiOptions};
use keelson_meta::SystemClock;
use keelson_meta::random::SystemRandom;

/// A serving key with its certificate and that of its authority, whose key is discarded. The certificate is valid for
/// the usual names of the server and for `names`, which may be addresses.
///
/// # Errors
/// When a name is invalid, or the key cannot be created.
pub fn serving_pair(names: &[String]) -> Result<KeyAndCertificate, PkiError> {
    let options = PkiOptions { extra_names: names.to_vec(), ..PkiOptions::default() };
    let made = pki::serving(None, &options, &SystemClock, &SystemRandom)?;
    let certificate_pem = format!("{}{}", made.pair.certificate_pem, made.ca_pem);
    Ok(KeyAndCertificate { certificate_pem, ..made.pair })
}
