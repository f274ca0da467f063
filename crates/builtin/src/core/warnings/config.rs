//! Warnings about TLS secrets without a certificate and key in PEM. The two are not compared with each other.
//!
//! The secret is stored unchanged, since clients may use it in another way.

use crate::validating::at::At;
use crate::validating::base64;
use crate::validating::pem;

pub(crate) fn of_secret(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    if at.field("type").text() != "kubernetes.io/tls" {
        return;
    }
    let data = at.field("data");
    let of = |name| labels(&base64::decoded(data.field(name).text()).unwrap_or_default());
    let (certificate, key) = (of("tls.crt"), of("tls.key"));
    if !certificate.iter().any(|label| label == "CERTIFICATE") {
        warnings.push(match certificate.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [only] if only.ends_with("PRIVATE KEY") => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may \
                 have been switched"
                    .to_owned()
            }
            others => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: [{}]",
                others.join(" ")
            ),
        });
    } else if !key.iter().any(|label| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY")) {
        warnings.push(match key.as_slice() {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [only] if only == "CERTIFICATE" => {
                "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
            }
            others => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks \
                 of the following types: [{}]",
                others.join(" ")
            ),
        });
    }
}

/// The labels of the PEM blocks in a text.
fn labels(bytes: &[u8]) -> Vec<String> {
    let mut labels = Vec::new();
    let mut rest = bytes;
    while let (Some(block), after) = pem::next(rest) {
        labels.push(block.label);
        rest = after;
    }
    labels
}
