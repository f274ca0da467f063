//! Compares the keys that servers of a store sign with and accept. Servers publish the fingerprints of these keys.
//!
//! The first entry of a list signs, and all entries are accepted. So a rotation first adds the new key on all servers,
//! and then signs with it.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::pki::Pki;
use crate::tls::TlsError;
use crate::token::TokenIssuer;

/// The prefix of the annotations that contain the fingerprints.
const PREFIX: &str = "keelson.io/";
/// The SHA-256 fingerprints of the certificates in `ca.crt`.
const AUTHORITIES: &str = "certificate-authorities";
/// The fingerprints of further accepted authorities of client certificates.
const CLIENT_AUTHORITIES: &str = "client-certificate-authorities";
/// Marks a serving certificate that the operator gave, so that the server's own authority did not sign it.
const GIVEN: &str = "serving-certificate";
const GIVEN_VALUE: &str = "given";
/// The ids of the token keys, as in the issuer's key set.
const TOKEN_KEYS: &str = "service-account-keys";
/// The token issuer that signs.
const ISSUER: &str = "service-account-issuer";
/// All accepted token issuers, if there are several.
const ISSUERS: &str = "service-account-issuers";

/// The keys that one server signs with and accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    authorities: Vec<String>,
    client_authorities: Vec<String>,
    serves_given: bool,
    token_keys: Vec<String>,
    /// The accepted issuers of tokens. The first one signs.
    issuers: Vec<String>,
}

/// A credential of one server that another refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mismatch {
    /// Client certificates.
    ClientCertificates,
    /// Serving certificates, which clients of the other server refuse.
    ServingCertificates,
    /// Service account tokens signed with an unknown key.
    TokenKeys,
    /// Service account tokens of another issuer.
    TokenIssuers,
}

impl Trust {
    /// The keys of a server.
    ///
    /// # Errors
    /// A certificate cannot be parsed.
    pub fn new(pki: &Pki, issuer: &TokenIssuer) -> Result<Self, TlsError> {
        let authorities = fingerprints(&pki.ca_pem)?;
        let mut client_authorities = fingerprints(&pki.client_ca_pem)?;
        client_authorities.retain(|known| !authorities.contains(known));
        Ok(Self {
            authorities,
            client_authorities,
            serves_given: pki.server_ca_pem != pki.ca_pem,
            token_keys: issuer.key_ids(),
            issuers: issuer.names().to_vec(),
        })
    }

    /// The annotations to publish.
    pub fn to_annotations(&self) -> BTreeMap<String, String> {
        let given = if self.serves_given { GIVEN_VALUE } else { "" };
        let all = [
            (AUTHORITIES, self.authorities.join(",")),
            (CLIENT_AUTHORITIES, self.client_authorities.join(",")),
            (GIVEN, given.to_owned()),
            (TOKEN_KEYS, self.token_keys.join(",")),
            (ISSUER, self.issuers.first().cloned().unwrap_or_default()),
            (ISSUERS, if self.issuers.len() > 1 { self.issuers.join(" ") } else { String::new() }),
        ];
        let stated = all.into_iter().filter(|(_, value)| !value.is_empty());
        stated.map(|(name, value)| (format!("{PREFIX}{name}"), value)).collect()
    }

    /// Parses the annotations of another server; `None` if there are none.
    pub fn read(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let text = |name: &str| annotations.get(&format!("{PREFIX}{name}")).map(String::as_str);
        let list = |name: &str| text(name).into_iter().flat_map(|list| list.split(',')).map(str::to_owned).collect();
        text(AUTHORITIES)?;
        Some(Self {
            authorities: list(AUTHORITIES),
            client_authorities: list(CLIENT_AUTHORITIES),
            serves_given: text(GIVEN) == Some(GIVEN_VALUE),
            token_keys: list(TOKEN_KEYS),
            // A server of an earlier release states one.
            issuers: text(ISSUERS).or(text(ISSUER)).unwrap_or_default().split(' ').map(str::to_owned).collect(),
        })
    }

    /// The credentials that one of two servers issues and the other refuses, in either direction.
    pub fn mismatches(&self, other: &Self) -> Vec<Mismatch> {
        let either = |missing: fn(&Self, &Self) -> bool| missing(self, other) || missing(other, self);
        let found = [
            (Mismatch::ClientCertificates, either(Self::refuses_clients_of)),
            (Mismatch::ServingCertificates, either(Self::is_refused_by_clients_of)),
            (Mismatch::TokenKeys, either(Self::refuses_tokens_of)),
            (Mismatch::TokenIssuers, either(Self::refuses_issuer_of)),
        ];
        found.into_iter().filter(|(_, is)| *is).map(|(mismatch, _)| mismatch).collect()
    }

    /// Returns true if both servers accept the further client authorities of each other. A difference does not exclude
    /// a server, but one of the servers refuses clients of these authorities.
    pub fn has_same_clients(&self, other: &Self) -> bool {
        let accepts = |one: &Self, of: &Self| of.client_authorities.iter().all(|signer| one.accepts_clients_by(signer));
        accepts(self, other) && accepts(other, self)
    }

    fn refuses_clients_of(&self, other: &Self) -> bool {
        !other.authorities.first().is_some_and(|signer| self.accepts_clients_by(signer))
    }

    fn accepts_clients_by(&self, signer: &String) -> bool {
        self.authorities.contains(signer) || self.client_authorities.contains(signer)
    }

    /// An operator who gives a serving certificate must distribute its authority to clients.
    fn is_refused_by_clients_of(&self, other: &Self) -> bool {
        let known = |signer: &String| other.authorities.contains(signer);
        !self.serves_given && !other.serves_given && !self.authorities.first().is_some_and(known)
    }

    fn refuses_tokens_of(&self, other: &Self) -> bool {
        !other.token_keys.first().is_some_and(|signer| self.token_keys.contains(signer))
    }
}

impl Trust {
    fn refuses_issuer_of(&self, other: &Self) -> bool {
        !other.issuers.first().is_some_and(|signer| self.issuers.contains(signer))
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClientCertificates => "client certificates",
            Self::ServingCertificates => "serving certificates",
            Self::TokenKeys => "tokens of service accounts",
            Self::TokenIssuers => "the issuers of service account tokens",
        })
    }
}

fn fingerprints(pem: &str) -> Result<Vec<String>, TlsError> {
    let read = |certificate: Result<CertificateDer<'_>, _>| match certificate {
        Ok(certificate) => Ok(fingerprint(&certificate)),
        Err(error) => Err(TlsError::Pem { what: "a certificate authority", reason: format!("{error}") }),
    };
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(read).collect()
}

/// The format of `openssl x509 -fingerprint -sha256`, in lower case and without colons.
pub(crate) fn fingerprint(der: &[u8]) -> String {
    digest::digest(&digest::SHA256, der).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mismatch::{ClientCertificates, ServingCertificates, TokenIssuers, TokenKeys};

    /// A server that signs with the first entry of each list.
    fn server(authorities: &str, clients: &str, token_keys: &str) -> Trust {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Trust {
            authorities: list(authorities),
            client_authorities: list(clients),
            serves_given: false,
            token_keys: list(token_keys),
            issuers: vec!["https://issuer".to_owned()],
        }
    }

    fn check(one: &Trust, other: &Trust, expect: &[Mismatch]) {
        assert_eq!(one.mismatches(other), expect, "{one:?} {other:?}");
        assert_eq!(other.mismatches(one), expect, "{other:?} {one:?}");
    }

    #[test]
    fn differences_in_keys_and_issuers_between_servers_are_detected() {
        let one = server("a", "", "k");
        check(&one, &one, &[]);
        check(&one, &server("b", "", "l"), &[ClientCertificates, ServingCertificates, TokenKeys]);
        check(&one, &server("a", "", "l"), &[TokenKeys]);
        let of = |issuers: [&str; 2]| Trust { issuers: issuers.map(str::to_owned).to_vec(), ..one.clone() };
        check(&one, &of(["https://other", "https://another"]), &[TokenIssuers]);
        // A rename accepts the new issuer on all servers first.
        check(&one, &of(["https://issuer", "https://other"]), &[]);
        check(&of(["https://issuer", "https://other"]), &of(["https://other", "https://issuer"]), &[]);
        check(&one, &of(["https://other", "https://issuer"]), &[TokenIssuers]);
        // Each server accepts clients of the other, but these clients trust only one of the servers.
        check(&server("a", "b", "k"), &server("b", "a", "k"), &[ServingCertificates]);
        let given = |trust: Trust| Trust { serves_given: true, ..trust };
        check(&given(server("a", "b", "k")), &server("b", "a", "k"), &[]);
    }

    #[test]
    fn foreign_client_authorities_differ_from_rotated_keys() {
        let same = [("a", "c", "a", "c"), ("a", "", "a b", ""), ("a", "b", "a b", ""), ("a", "c d", "a", "d c")];
        let different = [("a", "c", "a", ""), ("a", "c", "a", "d"), ("a", "c d", "a b", "c")];
        let all = same.map(|case| (case, true)).into_iter().chain(different.map(|case| (case, false)));
        for ((authorities, clients, others, other_clients), expect) in all {
            let (one, other) = (server(authorities, clients, "k"), server(others, other_clients, "k"));
            assert_eq!(one.has_same_clients(&other), expect, "{one:?} {other:?}");
            assert_eq!(other.has_same_clients(&one), expect, "{other:?} {one:?}");
        }
    }

    #[test]
    fn keys_can_be_changed_one_server_after_another() {
        let steps = [server("a", "", "k"), server("a b", "", "k l"), server("b a", "", "l k"), server("b", "", "l")];
        for pair in steps.windows(2) {
            check(&pair[0], &pair[1], &[]);
        }
        // A server signs with the new key before all others accept it.
        check(&steps[0], &steps[2], &[ClientCertificates, ServingCertificates, TokenKeys]);
    }

    #[test]
    fn a_publication_reads_back_and_a_server_without_one_is_unknown() {
        for trust in [server("a b", "c", "k l"), Trust { serves_given: true, ..server("a", "", "k") }] {
            assert_eq!(Trust::read(&trust.to_annotations()), Some(trust));
        }
        assert_eq!(Trust::read(&BTreeMap::new()), None);
    }
}
