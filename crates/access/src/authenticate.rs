//! Authentication of a client, by the certificate that it presented.
//!
//! The chain and the signature were verified in the TLS handshake. A connection may outlive its certificate, so the
//! validity period is kept and checked again at each request.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use crate::front_proxy::RequestHeaders;
use crate::user::{AUTHENTICATED, User};

/// A user, and how long the proof of it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    user: Arc<User>,
    /// Where it says who asks, if it is a front proxy.
    asks_for: Option<Arc<RequestHeaders>>,
    not_before: SystemTime,
    not_after: SystemTime,
}

/// Why a certificate names nobody.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It is not a certificate.
    #[error("the client certificate cannot be read: {0}")]
    Malformed(String),
    /// It has no common name.
    #[error("the client certificate has no common name")]
    Nameless,
}

impl ClientIdentity {
    /// Reads a certificate: the common name is the user, each organization is a group.
    ///
    /// # Errors
    /// When it cannot be parsed or names nobody.
    pub fn from_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|error| IdentityError::Malformed(error.to_string()))?;
        let name = texts(certificate.subject().iter_common_name()).next().ok_or(IdentityError::Nameless)?;
        let mut groups: Vec<String> = texts(certificate.subject().iter_organization()).collect();
        groups.push(AUTHENTICATED.to_owned());
        Ok(Self {
            user: Arc::new(User { name, groups, ..User::default() }),
            asks_for: None,
            not_before: instant(certificate.validity().not_before.timestamp()),
            not_after: instant(certificate.validity().not_after.timestamp()),
        })
    }

    /// The same as a front proxy, which says in these header fields who asks.
    #[must_use]
    pub fn asking_for_others(self, headers: Arc<RequestHeaders>) -> Self {
        Self { asks_for: Some(headers), ..self }
    }

    /// The header fields in which it says who asks, if it is a front proxy.
    pub fn asks_for(&self) -> Option<&RequestHeaders> {
        self.asks_for.as_deref()
    }

    /// Whether the certificate has this common name.
    pub fn is_named(&self, name: &str) -> bool {
        self.user.name == name
    }

    /// The user, if the certificate is valid at this time.
    pub fn user_at(&self, now: SystemTime) -> Option<&Arc<User>> {
        (self.not_before <= now && now <= self.not_after).then_some(&self.user)
    }
}

fn texts<'a>(attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> impl Iterator<Item = String> {
    attributes.filter_map(|attribute| attribute.as_str().ok()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn instant(unix_seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(unix_seconds.unsigned_abs());
    if unix_seconds < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}
