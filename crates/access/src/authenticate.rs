//! Authentication by client certificates.
//!
//! The TLS handshake proves that the client has the key. `delegated` decides if the signer is trusted. A connection may
//! outlive its certificate, so each request checks the validity period again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use crate::front_proxy::RequestHeaders;
use crate::trust::fingerprint;
use crate::user::{CREDENTIAL_ID, User};

/// The subject attribute with the uid of a user, as in upstream.
const USER_UID: &str = "1.3.6.1.4.1.57683.2";

/// The identity in a client certificate, with the validity period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// `None` if no client authority has signed the certificate.
    user: Option<Arc<User>>,
    /// The header fields that name the user, if the client is a front proxy.
    asks_for: Option<Arc<RequestHeaders>>,
    not_before: SystemTime,
    not_after: SystemTime,
}

/// The reason why a certificate identifies no user.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The bytes are not a certificate.
    #[error("the client certificate cannot be read: {0}")]
    Malformed(String),
    /// The subject has no common name.
    #[error("the client certificate has no common name")]
    Nameless,
}

impl ClientIdentity {
    /// Reads a certificate: the common name is the user, each organization is a group.
    ///
    /// # Errors
    /// The certificate cannot be parsed or has no common name.
    pub fn from_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|error| IdentityError::Malformed(error.to_string()))?;
        let subject = certificate.subject();
        // Like upstream, the last of several common names applies.
        let name = texts(subject.iter_common_name()).last().ok_or(IdentityError::Nameless)?;
        let groups = texts(subject.iter_organization()).collect();
        let uids = subject.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == USER_UID);
        let uid = texts(uids).next();
        let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={}", fingerprint(der))])]);
        Ok(Self {
            user: Some(Arc::new(User { name, uid, groups, extra }.authenticated())),
            asks_for: None,
            not_before: instant(certificate.validity().not_before.timestamp()),
            not_after: instant(certificate.validity().not_after.timestamp()),
        })
    }

    /// An identity without a user, which is never valid.
    pub const fn nobody() -> Self {
        Self { user: None, asks_for: None, not_before: SystemTime::UNIX_EPOCH, not_after: SystemTime::UNIX_EPOCH }
    }

    /// The identity of a front proxy, which names the user in these header fields.
    #[must_use]
    pub fn asking_for_others(self, headers: Arc<RequestHeaders>) -> Self {
        Self { asks_for: Some(headers), ..self }
    }

    /// Removes the user, because no client authority has signed the certificate.
    #[must_use]
    pub fn without_user(self) -> Self {
        Self { user: None, ..self }
    }

    /// Returns true for a front proxy, which may name another user.
    pub const fn is_front_proxy(&self) -> bool {
        self.asks_for.is_some()
    }

    /// The header fields that name the user, if the client is a front proxy with a certificate valid at this time.
    pub fn asks_for_at(&self, now: SystemTime) -> Option<&RequestHeaders> {
        self.asks_for.as_deref().filter(|_| self.is_valid_at(now))
    }

    /// The expiry of the certificate.
    pub const fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The user name, if there is a user.
    pub fn user_name(&self) -> Option<&str> {
        self.user.as_ref().map(|user| user.name.as_str())
    }

    /// Returns true if the user has this name.
    pub fn is_named(&self, name: &str) -> bool {
        self.user.as_ref().is_some_and(|user| user.name == name)
    }

    /// The user, if the certificate is valid at this time.
    pub fn user_at(&self, now: SystemTime) -> Option<&Arc<User>> {
        self.user.as_ref().filter(|_| self.is_valid_at(now))
    }

    fn is_valid_at(&self, now: SystemTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

fn texts<'a>(attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> impl Iterator<Item = String> {
    attributes.filter_map(|attribute| attribute.as_str().ok()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn instant(unix_seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(unix_seconds.unsigned_abs());
    if unix_seconds < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}
