//! Log lines about client certificates: refusals, and upcoming expiry.
//!
//! Clients can open many connections, so the number of lines is limited. Refusals share one line per interval, and an
//! expiring certificate is logged once a day for each user.

use std::collections::HashSet;
use std::fmt::Display;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::authenticate::ClientIdentity;

/// The shortest interval between two lines about refusals. Refusals in between are counted.
const REFUSALS: Duration = Duration::from_secs(10);
/// The remaining validity from which a certificate is logged as expiring.
pub(crate) const ENDS_SOON: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The interval in which a user is logged once.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The largest number of users that are logged in that interval.
const MOST_USERS: usize = 256;
/// The longest subject in a line, in characters.
const MOST_SUBJECT: usize = 200;

/// The times of the last lines.
#[derive(Debug, Default)]
pub(crate) struct ClientCertificateLog {
    refusals: Mutex<Refusals>,
    ending: Mutex<Ending>,
}

#[derive(Debug, Default)]
struct Refusals {
    last: Option<Instant>,
    /// The number of refusals since the last line.
    more: u64,
}

#[derive(Debug, Default)]
struct Ending {
    since: Option<Instant>,
    named: HashSet<String>,
}

impl ClientCertificateLog {
    /// Logs the refusal of a certificate.
    pub(crate) fn refused(&self, certificate: &[u8], reason: &dyn Display) {
        let mut refusals = self.refusals.lock();
        if refusals.last.is_some_and(|last| last.elapsed() < REFUSALS) {
            refusals.more += 1;
            return;
        }
        let more = std::mem::take(&mut refusals.more);
        refusals.last = Some(Instant::now());
        drop(refusals);
        let subject = X509Certificate::from_der(certificate).map(|(_, read)| read.subject().to_string());
        let subject: String = subject.unwrap_or_default().chars().take(MOST_SUBJECT).collect();
        // Quoted, since a client could inject lines otherwise.
        tracing::warn!(?subject, %reason, refused_since_last_line = more, "a client certificate is refused");
    }

    /// Logs the coming expiry of a client's certificate.
    pub(crate) fn accepted(&self, identity: &ClientIdentity, now: SystemTime) {
        let left = identity.not_after().duration_since(now).unwrap_or_default();
        let Some(user) = identity.user_name().filter(|_| left < ENDS_SOON) else { return };
        if self.ending.lock().is_new(user) {
            let (user, days) = (user.chars().take(MOST_SUBJECT).collect::<String>(), left.as_secs() / DAY.as_secs());
            tracing::warn!(?user, days, "the client certificate of a user ends soon; the user needs a new one");
        }
    }
}

impl Ending {
    fn is_new(&mut self, user: &str) -> bool {
        if self.since.is_none_or(|since| since.elapsed() > DAY) {
            (self.since, self.named) = (Some(Instant::now()), HashSet::new());
        }
        self.named.len() < MOST_USERS && self.named.insert(user.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_once_and_not_too_many_of_them() {
        let mut ending = Ending::default();
        assert!(ending.is_new("ann") && !ending.is_new("ann"));
        let named = (0..1000).filter(|number| ending.is_new(&format!("user-{number}"))).count();
        assert_eq!(named, MOST_USERS - 1);
    }

    #[test]
    fn refusals_share_a_line() {
        let log = ClientCertificateLog::default();
        for _ in 0..3 {
            log.refused(b"none", &"it can't be read");
        }
        assert_eq!(log.refusals.lock().more, 2);
    }
}
