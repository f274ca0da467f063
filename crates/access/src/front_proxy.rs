//! Authentication information for aggregated servers: the authorities of client and front proxy certificates, and the
//! header fields in which a front proxy names the user.
//!
//! One config map has this information for all servers of a store. Each server adds its entries and removes only
//! expired certificates. So servers with different authorities do not overwrite each other, and keys can be rotated one
//! server after another. The keys of the config map are upstream's, since aggregated servers read them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::pki::{KeyAndCertificate, Pki};
use crate::tls::TlsError;

const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";
const ALLOWED_NAMES: &str = "requestheader-allowed-names";
const USERNAME: &str = "requestheader-username-headers";
const UID: &str = "requestheader-uid-headers";
const GROUP: &str = "requestheader-group-headers";
const EXTRA_PREFIX: &str = "requestheader-extra-headers-prefix";

/// The time for which an expired certificate is still published, because clocks differ.
const EXPIRED_FOR: Duration = Duration::from_secs(5 * 60);
/// The length of a line of PEM in characters (RFC 7468 section 2).
const PEM_LINE: usize = 64;

/// The credentials of this server as a front proxy, and the related information for aggregated servers.
#[derive(Clone, Debug)]
pub struct FrontProxy {
    /// The client certificate of this server.
    pub client: KeyAndCertificate,
    /// The authorities of front proxy certificates, in PEM; empty to publish none.
    pub ca_pem: String,
    /// The authorities of `ca_pem` that come from the server's own directory.
    pub(crate) own_ca_pem: String,
    /// The allowed names and header fields of front proxies.
    pub headers: RequestHeaders,
}

/// The allowed names of front proxies, and the header fields in which they name the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaders {
    /// The allowed common names; an empty list allows any.
    pub allowed_names: Vec<String>,
    /// The fields for the user name.
    pub username: Vec<String>,
    /// The fields for the uid.
    pub uid: Vec<String>,
    /// The fields for groups.
    pub group: Vec<String>,
    /// The prefixes of fields for extra values.
    pub extra_prefix: Vec<String>,
}

impl Default for RequestHeaders {
    fn default() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            allowed_names: Vec::new(),
            username: one("X-Remote-User"),
            uid: one("X-Remote-Uid"),
            group: one("X-Remote-Group"),
            extra_prefix: one("X-Remote-Extra-"),
        }
    }
}

impl RequestHeaders {
    const NONE: Self = Self {
        allowed_names: Vec::new(),
        username: Vec::new(),
        uid: Vec::new(),
        group: Vec::new(),
        extra_prefix: Vec::new(),
    };

    /// Each list with its key in the config map.
    fn lists(&self) -> [(&'static str, &Vec<String>); 5] {
        [
            (ALLOWED_NAMES, &self.allowed_names),
            (USERNAME, &self.username),
            (UID, &self.uid),
            (GROUP, &self.group),
            (EXTRA_PREFIX, &self.extra_prefix),
        ]
    }

    fn lists_mut(&mut self) -> [(&'static str, &mut Vec<String>); 5] {
        [
            (ALLOWED_NAMES, &mut self.allowed_names),
            (USERNAME, &mut self.username),
            (UID, &mut self.uid),
            (GROUP, &mut self.group),
            (EXTRA_PREFIX, &mut self.extra_prefix),
        ]
    }
}

/// The published authentication information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationInfo {
    clients: Vec<CertificateDer<'static>>,
    proxies: Vec<CertificateDer<'static>>,
    headers: RequestHeaders,
}

impl AuthenticationInfo {
    /// The information of a server with these keys and certificates.
    ///
    /// # Errors
    /// An authority cannot be parsed.
    pub fn new(pki: &Pki) -> Result<Self, TlsError> {
        let read = |what, pem: &str| {
            let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
            read.map_err(|error| TlsError::Pem { what, reason: error.to_string() })
        };
        Ok(Self {
            clients: read("the client CA", &pki.client_ca_pem)?,
            proxies: read("the CA of front proxies", &pki.front_proxy.ca_pem)?,
            headers: pki.front_proxy.headers.clone(),
        })
    }

    /// Parses the data of a config map. Invalid parts are omitted.
    pub fn read(data: &BTreeMap<String, String>) -> Self {
        let text = |key: &str| data.get(key).map_or("", String::as_str);
        let certificates =
            |key: &str| CertificateDer::pem_slice_iter(text(key).as_bytes()).filter_map(Result::ok).collect();
        let mut headers = RequestHeaders::NONE;
        for (key, list) in headers.lists_mut() {
            *list = serde_json::from_str(text(key)).unwrap_or_default();
        }
        Self { clients: certificates(CLIENT_CA), proxies: certificates(PROXY_CA), headers }
    }

    /// Adds the information of another server, and removes expired certificates.
    #[must_use]
    pub fn with(mut self, other: &Self, now: SystemTime) -> Self {
        add(&mut self.clients, &other.clients);
        add(&mut self.proxies, &other.proxies);
        for ((_, list), (_, more)) in self.headers.lists_mut().into_iter().zip(other.headers.lists()) {
            add(list, more);
        }
        self.clients.retain(|certificate| holds(certificate, now));
        self.proxies.retain(|certificate| holds(certificate, now));
        self
    }

    /// Removes everything about front proxies.
    #[must_use]
    pub fn of_clients(self) -> Self {
        Self { proxies: Vec::new(), ..self }
    }

    /// The authorities of client certificates.
    pub fn clients(&self) -> &[CertificateDer<'static>] {
        &self.clients
    }

    /// The authorities of front proxy certificates.
    pub fn proxies(&self) -> &[CertificateDer<'static>] {
        &self.proxies
    }

    /// The header fields in which front proxies name the user.
    pub const fn headers(&self) -> &RequestHeaders {
        &self.headers
    }

    /// The data of the config map. Without front proxy authorities it has no keys for front proxies.
    pub fn to_data(&self) -> BTreeMap<String, String> {
        let mut data = BTreeMap::new();
        if !self.clients.is_empty() {
            data.insert(CLIENT_CA.to_owned(), pem(&self.clients));
        }
        if self.proxies.is_empty() {
            return data;
        }
        data.insert(PROXY_CA.to_owned(), pem(&self.proxies));
        for (key, list) in self.headers.lists() {
            // Like upstream, this list is omitted if empty, and the others are written as empty lists.
            if key != UID || !list.is_empty() {
                data.insert(key.to_owned(), serde_json::Value::from(list.as_slice()).to_string());
            }
        }
        data
    }
}

fn add<T: PartialEq + Clone>(list: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !list.contains(one) {
            list.push(one.clone());
        }
    }
}

fn holds(certificate: &CertificateDer<'_>, now: SystemTime) -> bool {
    let from = time::OffsetDateTime::from(now - EXPIRED_FOR).unix_timestamp();
    X509Certificate::from_der(certificate).is_ok_and(|(_, read)| read.validity().not_after.timestamp() > from)
}

fn pem(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        let coded = BASE64.encode(certificate);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for start in (0..coded.len()).step_by(PEM_LINE) {
            text.push_str(&coded[start..coded.len().min(start + PEM_LINE)]);
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use keelson_meta::clock::ManualClock;
    use keelson_meta::random::SystemRandom;

    use super::*;
    use crate::pki::{PkiOptions, ephemeral};

    const START: Duration = Duration::from_secs(1_800_000_000);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn at(time: SystemTime) -> (Pki, AuthenticationInfo) {
        let pki = ephemeral(&PkiOptions::default(), &ManualClock::new(time), &SystemRandom).unwrap();
        let info = AuthenticationInfo::new(&pki).unwrap();
        (pki, info)
    }

    #[test]
    fn authentication_info_reads_back() {
        let (pki, info) = at(SystemTime::UNIX_EPOCH + START);
        let data = info.to_data();
        assert_eq!(AuthenticationInfo::read(&data), info);
        assert_eq!(data[CLIENT_CA], pki.client_ca_pem.replace("\r\n", "\n"));
        assert_eq!(data[PROXY_CA], pki.front_proxy.ca_pem.replace("\r\n", "\n"));
        assert_eq!(data[ALLOWED_NAMES], r#"["front-proxy-client"]"#);
        assert_eq!((&*data[USERNAME], &*data[UID]), (r#"["X-Remote-User"]"#, r#"["X-Remote-Uid"]"#));
        assert_eq!((&*data[GROUP], &*data[EXTRA_PREFIX]), (r#"["X-Remote-Group"]"#, r#"["X-Remote-Extra-"]"#));
        let damaged = BTreeMap::from([
            (CLIENT_CA.to_owned(), "no certificate".to_owned()),
            (USERNAME.to_owned(), "{".to_owned()),
        ]);
        assert_eq!(AuthenticationInfo::read(&damaged).with(&info, SystemTime::UNIX_EPOCH + START), info);
    }

    #[test]
    fn published_authorities_are_merged_and_expired_ones_removed() {
        let now = SystemTime::UNIX_EPOCH + START;
        let (_, one) = at(now);
        let (_, other) = at(now + DAY);
        let both = one.clone().with(&other, now);
        assert_eq!(both.to_data()[PROXY_CA].matches("BEGIN").count(), 2);
        assert_eq!(both.to_data()[CLIENT_CA].matches("BEGIN").count(), 2);
        assert_eq!(both.headers, one.headers, "equal entries are listed once");
        assert_eq!(both.clone().with(&one, now), both);
        // Authorities are valid for ten years; the second server's expires a day later.
        let ends = now + DAY * 3650;
        assert_eq!(both.clone().with(&one, ends + EXPIRED_FOR - Duration::from_secs(1)), both);
        assert_eq!(both.with(&one, ends + EXPIRED_FOR).proxies, other.proxies);
    }

    #[test]
    fn without_a_front_proxy_authority_nothing_is_published() {
        let (mut pki, _) = at(SystemTime::UNIX_EPOCH + START);
        pki.front_proxy.ca_pem.clear();
        let data = AuthenticationInfo::new(&pki).unwrap().to_data();
        assert_eq!(data.keys().collect::<Vec<_>>(), [CLIENT_CA]);
    }
}
