//! Counts of issued certificates whose request asked for a duration, for upstream's metrics.
//!
//! A certificate is counted at the status update that stores it. Signers may ignore the requested duration.

use std::sync::LazyLock;
use std::time::Duration;

use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_meta::metering::{Count, Series};
use x509_parser::parse_x509_certificate;

use crate::validating::{base64, pem};

/// The prefix of the signers of Kubernetes. All others share a series, since clients choose their names.
const OWN_SIGNERS: &str = "kubernetes.io/";
/// The label of other signers.
const OTHER: &str = "other";
/// The least difference from the requested duration that counts as another one: signers date certificates back.
const BACKDATED: Duration = Duration::from_mins(5);

/// The certificates by signer.
pub static ISSUED_CERTIFICATES: LazyLock<Series<String, IssuedCertificates>> =
    LazyLock::new(|| Series::new(IssuedCertificates::default));

/// The certificates of one signer whose requests asked for a duration.
#[derive(Debug, Default)]
pub struct IssuedCertificates {
    /// All such certificates.
    pub all: Count,
    /// The certificates with the requested duration.
    pub honored: Count,
}

/// Counts the certificate that a request has got, if it asked for a duration.
pub(super) fn count(before: &Object, after: &Object) {
    let certificate = |of: &Object| {
        let text = of.get(&["status", "certificate"]).and_then(Value::as_str).unwrap_or_default();
        (!text.is_empty()).then(|| base64::decoded(text).unwrap_or_default())
    };
    let spec = |field: &str| before.get(&["spec", field]);
    let (None, Some(issued)) = (certificate(before), certificate(after)) else { return };
    let Some(seconds) = spec("expirationSeconds").and_then(Value::as_i64) else { return };
    let signer = spec("signerName").and_then(Value::as_str).unwrap_or_default();
    let signer = if signer.starts_with(OWN_SIGNERS) { signer } else { OTHER };
    let Some(counts) = ISSUED_CERTIFICATES.get_or_create(signer, || signer.to_owned()) else { return };
    counts.all.increment();
    let requested = Duration::from_secs(seconds.unsigned_abs());
    if duration(&issued).is_some_and(|got| got.abs_diff(requested) < BACKDATED + requested / 20) {
        counts.honored.increment();
    }
}

/// The duration of the first certificate in a PEM text.
fn duration(pem_text: &[u8]) -> Option<Duration> {
    let (block, _) = pem::next(pem_text);
    let block = block?;
    let (_, certificate) = parse_x509_certificate(&block.content).ok()?;
    let validity = certificate.validity();
    let seconds = validity.not_after.timestamp().checked_sub(validity.not_before.timestamp())?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}
