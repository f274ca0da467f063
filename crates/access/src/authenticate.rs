//! Authentication of a client, by the certificate that it presented.
//!
//! That the client has its key was shown in the TLS handshake; who signed it is judged in `delegated`. A connection may outlive its
//! certificate, so the validity period is kept and checked again at each request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use crate::front_proxy::RequestHeaders;
use crate::user::{CREDENTIAL_ID, User};

/// The attribute of a subject that holds the uid of a user, as upstream has it.
const USER_UID: &str = "1.3.6.1.4.1.57683.2";

/// What a certificate says of a client, and how long the proof of it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Nobody, where no authority of clients has signed it.
    user: Option<Arc<User>>,
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
        let subject = certificate.subject();
        // Of several names the last one counts, as for upstream: whoever has signed them must mean the same.
        let name = texts(subject.iter_common_name()).last().ok_or(IdentityError::Nameless)?;
        let groups = texts(subject.iter_organization()).collect();
        let uids = subject.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == USER_UID);
        let uid = texts(uids).next();
        let hash = digest::digest(&digest::SHA256, der);
        let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={hash}")])]);
        Ok(Self {
            user: Some(Arc::new(User { name, uid, groups, extra }.authenticated())),
            asks_for: None,
            not_before: instant(certificate.validity().not_before.timestamp()),
            not_after: instant(certificate.validity().not_after.timestamp()),
        })
    }

    /// What a certificate proves that nobody believes: nothing, ever.
    pub const fn nobody() -> Self {
        Self { user: None, asks_for: None, not_before: SystemTime::UNIX_EPOCH, not_after: SystemTime::UNIX_EPOCH }
    }

    /// The same as a front proxy, which says in these header fields who asks.
    #[must_use]
    pub fn asking_for_others(self, headers: Arc<RequestHeaders>) -> Self {
        Self { asks_for: Some(headers), ..self }
    }

    /// The same where no authority of clients has signed the certificate: it makes nobody a user.
    #[must_use]
    pub fn without_user(self) -> Self {
        Self { user: None, ..self }
    }

    /// Whether it is a front proxy, which may say who asks.
    pub const fn is_front_proxy(&self) -> bool {
        self.asks_for.is_some()
    }

    /// The header fields in which it says who asks, if it is a front proxy and the certificate is valid at this time.
    pub fn asks_for_at(&self, now: SystemTime) -> Option<&RequestHeaders> {
        self.asks_for.as_deref().filter(|_| self.is_valid_at(now))
    }

    /// When the certificate ends.
    pub const fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The name of the user, if it makes its client one.
    pub fn user_name(&self) -> Option<&str> {
        self.user.as_ref().map(|user| user.name.as_str())
    }

    /// Whether the certificate has this common name.
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
