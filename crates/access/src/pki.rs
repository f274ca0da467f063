//! The server's keys and certificates: made at the first start, kept in the data directory, renewed when they must be.
//!
//! Below `<data directory>/pki`: `ca`, `apiserver` and `admin` as `.crt` and `.key`, `front-proxy-ca` and `front-proxy-client`
//! likewise, and the pair that signs service-account tokens as `sa.key` and `sa.pub`. The authorities and the service-account key
//! are never replaced; what they signed is, at a start within 30 days of its end or when it must answer to other names. So that
//! they can be changed, `ca.crt`, `front-proxy-ca.crt` and `sa.pub` may hold more: further authorities and keys that are trusted too.

pub mod files;
mod issue;
mod names;

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use keelson_meta::{Clock, Random};
use rustls::ServerConfig;

use crate::front_proxy::{FrontProxy, RequestHeaders};
use crate::kubeconfig::Kubeconfig;
use crate::tls::{self, TlsError};
use crate::user::MASTERS;
use files::Durability;

pub use issue::KeyAndCertificate;

/// The user name in the administrator's certificate.
pub const ADMIN_NAME: &str = "keelson-admin";
/// The name in the certificate with which the server passes requests on to others.
pub const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// The names of the authorities.
const CA_NAME: &str = "keelson-ca";
const FRONT_PROXY_CA_NAME: &str = "keelson-front-proxy-ca";

/// What the server's keys and certificates should be.
#[derive(Clone, Debug, Default)]
pub struct PkiOptions {
    /// More names and addresses that the serving certificate answers to.
    pub extra_names: Vec<String>,
    /// Files with a serving certificate (and its chain) and key, instead of one of our own.
    pub serving: Option<(PathBuf, PathBuf)>,
    /// A file with the certificates that sign clients', beside our own.
    pub client_ca: Option<PathBuf>,
    /// How the server proves to aggregated servers that it may say who asks.
    pub front_proxy: FrontProxyOptions,
}

/// What the operator says of front proxies.
#[derive(Clone, Debug, Default)]
pub struct FrontProxyOptions {
    /// Files with the certificate and key that aggregated servers are shown, instead of ones of our own.
    pub client: Option<(PathBuf, PathBuf)>,
    /// A file with the authorities that sign such certificates, beside our own unless one is given.
    pub client_ca: Option<PathBuf>,
    /// What aggregated servers are told besides.
    pub headers: RequestHeaders,
}

/// Why there are no usable keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// The authority has lost its key. A new one would lock out everybody who trusts the old.
    #[error("{key} is missing though {certificate} exists: restore it, or remove both to have new ones made")]
    KeyMissing {
        /// The file that is not there.
        key: PathBuf,
        /// The file that is.
        certificate: PathBuf,
    },
    /// What the authority would sign, nobody could verify.
    #[error("{key} is not the key of the first certificate in {certificate}, which is the one that signs")]
    KeyMismatch {
        /// The file with the key.
        key: PathBuf,
        /// The file with the certificate.
        certificate: PathBuf,
    },
    /// The serving certificate is to answer to something that no client can ask for.
    #[error("{name:?} is neither a DNS name nor an IP address, so a certificate can't answer to it")]
    BadName {
        /// What was given as a name.
        name: String,
    },
    /// A key or certificate cannot be made or parsed.
    #[error("a certificate cannot be made: {0}")]
    Issue(#[from] rcgen::Error),
    /// TLS cannot work with what there is.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The server's keys and certificates.
#[derive(Clone, Debug)]
pub struct Pki {
    /// Our own authority's certificate, and behind it those of others that are trusted like it.
    pub ca_pem: String,
    /// What the listener presents.
    pub serving: KeyAndCertificate,
    /// The administrator's certificate, in group `system:masters`.
    pub admin: KeyAndCertificate,
    /// The pair that signs service-account tokens.
    pub service_account: SigningKey,
    /// The certificates that sign clients'.
    pub client_ca_pem: String,
    /// The certificates by which clients know the server: the authority's, or the given serving certificate itself.
    pub server_ca_pem: String,
    /// How it passes requests on to others.
    pub front_proxy: FrontProxy,
}

/// A pair of keys that signs and verifies tokens.
#[derive(Clone)]
pub struct SigningKey {
    /// The private key, in PEM.
    pub private_pem: String,
    /// The public key, in PEM.
    pub public_pem: String,
    /// Public keys by which tokens are verified too, in PEM, if any: those of earlier pairs, or of coming ones.
    pub also_verified_by: String,
}

/// Keys must never reach a log.
impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("public_pem", &self.public_pem).finish_non_exhaustive()
    }
}

/// Loads what the data directory holds, makes what is missing, and renews what is nearly over.
///
/// # Errors
/// When a file cannot be read or written, or holds what cannot be used. Nothing that exists is overwritten then.
pub fn ensure(data_dir: &Path, options: &PkiOptions, clock: &dyn Clock, random: &dyn Random) -> Result<Pki, PkiError> {
    let names = names::of(options)?;
    files::ensure_directory(data_dir).map_err(|source| file_error(data_dir, source))?;
    let directory = data_dir.join("pki");
    files::ensure_directory(&directory).map_err(|source| file_error(&directory, source))?;
    let maker = Maker { directory, names, now: clock.now(), random };
    let ca = maker.authority("ca", CA_NAME)?;
    let admin = maker.admin(&ca)?;
    let service_account = maker.service_account()?;
    let serving = match &options.serving {
        Some((certificate, key)) => KeyAndCertificate { certificate_pem: read(certificate)?, key_pem: read(key)? },
        None => maker.serving(&ca)?,
    };
    let server_ca_pem =
        if options.serving.is_some() { serving.certificate_pem.clone() } else { ca.certificate_pem.clone() };
    let mut client_ca_pem = ca.certificate_pem.clone();
    if let Some(path) = &options.client_ca {
        client_ca_pem.push_str(&read(path)?);
    }
    let front_proxy = front_proxy(&options.front_proxy, || {
        let ca = maker.authority("front-proxy-ca", FRONT_PROXY_CA_NAME)?;
        let client =
            maker.leaf(&ca, FRONT_PROXY_NAME, FRONT_PROXY_NAME, &[], &issue::Purpose::Client { groups: &[] })?;
        Ok((ca.certificate_pem, client))
    })?;
    Ok(Pki { ca_pem: ca.certificate_pem, serving, admin, service_account, client_ca_pem, server_ca_pem, front_proxy })
}

/// Keys and certificates that live as long as the process: for servers in memory.
///
/// # Errors
/// When they cannot be made, or files that `options` name cannot be read.
pub fn ephemeral(options: &PkiOptions, clock: &dyn Clock, random: &dyn Random) -> Result<Pki, PkiError> {
    let now = clock.now();
    let ca = issue::authority(CA_NAME, now, random)?;
    let admin = issue::leaf(&ca, ADMIN_NAME, &issue::Purpose::Client { groups: &[MASTERS] }, now, random)?;
    let serving = issue::leaf(&ca, SERVING_NAME, &issue::Purpose::Server { names: &names::of(options)? }, now, random)?;
    let (private_pem, public_pem) = issue::signing_key()?;
    let front_proxy = front_proxy(&options.front_proxy, || {
        let ca = issue::authority(FRONT_PROXY_CA_NAME, now, random)?;
        let client = issue::leaf(&ca, FRONT_PROXY_NAME, &issue::Purpose::Client { groups: &[] }, now, random)?;
        Ok((ca.certificate_pem, client))
    })?;
    Ok(Pki {
        front_proxy,
        client_ca_pem: ca.certificate_pem.clone(),
        server_ca_pem: ca.certificate_pem.clone(),
        ca_pem: ca.certificate_pem,
        serving,
        admin,
        service_account: SigningKey { private_pem, public_pem, also_verified_by: String::new() },
    })
}

/// The server as a front proxy, with a pair and an authority of its own unless the operator gives a pair.
fn front_proxy(
    options: &FrontProxyOptions,
    own: impl FnOnce() -> Result<(String, KeyAndCertificate), PkiError>,
) -> Result<FrontProxy, PkiError> {
    let mut headers = options.headers.clone();
    let (mut ca_pem, client) = match &options.client {
        Some((certificate, key)) => {
            (String::new(), KeyAndCertificate { certificate_pem: read(certificate)?, key_pem: read(key)? })
        }
        None => {
            // Where others sign for front proxies too and no names are given, any name is allowed.
            if options.client_ca.is_none() || !headers.allowed_names.is_empty() {
                headers.allowed_names.push(FRONT_PROXY_NAME.to_owned());
            }
            own()?
        }
    };
    if let Some(path) = &options.client_ca {
        ca_pem.push_str(&read(path)?);
    }
    Ok(FrontProxy { client, ca_pem, headers })
}

impl Pki {
    /// The listener's TLS settings.
    ///
    /// # Errors
    /// When certificates and keys cannot be used.
    pub fn server_config(&self) -> Result<ServerConfig, PkiError> {
        Ok(tls::server_config(&self.serving.certificate_pem, &self.serving.key_pem, &self.client_ca_pem)?)
    }

    /// The administrator's kubeconfig for a server at `url`.
    pub fn kubeconfig(&self, url: &str) -> String {
        Kubeconfig {
            cluster: "keelson",
            user: ADMIN_NAME,
            server: url,
            ca_pem: &self.server_ca_pem,
            certificate_pem: &self.admin.certificate_pem,
            key_pem: &self.admin.key_pem,
        }
        .to_yaml()
    }

    /// Writes the administrator's kubeconfig, unless the file says the same already.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path, url: &str) -> Result<(), PkiError> {
        let text = self.kubeconfig(url);
        if load(path)?.as_deref() == Some(&text) { Ok(()) } else { write(path, &text, Durability::Replaceable) }
    }
}

const SERVING_NAME: &str = "keelson";

/// Loads or makes each pair of files.
struct Maker<'a> {
    directory: PathBuf,
    names: Vec<String>,
    now: SystemTime,
    random: &'a dyn Random,
}

impl Maker<'_> {
    fn authority(&self, stem: &str, common_name: &str) -> Result<KeyAndCertificate, PkiError> {
        let path = |extension: &str| self.directory.join(format!("{stem}.{extension}"));
        let (certificate, key) = (path("crt"), path("key"));
        match (load(&certificate)?, load(&key)?) {
            (Some(certificate_pem), Some(key_pem)) => {
                let pair = KeyAndCertificate { certificate_pem, key_pem };
                if issue::is_pair(&pair) { Ok(pair) } else { Err(PkiError::KeyMismatch { key, certificate }) }
            }
            (Some(_), None) => Err(PkiError::KeyMissing { key, certificate }),
            // A key alone is what a crash between the two writes leaves: nobody trusts it yet.
            (None, _) => {
                let pair = issue::authority(common_name, self.now, self.random)?;
                // ORDER: the key first, so that a certificate never stands without it.
                write(&key, &pair.key_pem, Durability::Durable)?;
                write(&certificate, &pair.certificate_pem, Durability::Durable)?;
                Ok(pair)
            }
        }
    }

    fn admin(&self, ca: &KeyAndCertificate) -> Result<KeyAndCertificate, PkiError> {
        self.leaf(ca, "admin", ADMIN_NAME, &[], &issue::Purpose::Client { groups: &[MASTERS] })
    }

    fn serving(&self, ca: &KeyAndCertificate) -> Result<KeyAndCertificate, PkiError> {
        self.leaf(ca, "apiserver", SERVING_NAME, &self.names, &issue::Purpose::Server { names: &self.names })
    }

    /// Leaves are made anew whenever something about them is wrong: nobody trusts one by itself.
    fn leaf(
        &self,
        ca: &KeyAndCertificate,
        stem: &str,
        common_name: &str,
        names: &[String],
        purpose: &issue::Purpose<'_>,
    ) -> Result<KeyAndCertificate, PkiError> {
        let path = |extension: &str| self.directory.join(format!("{stem}.{extension}"));
        let (certificate, key) = (path("crt"), path("key"));
        if let (Some(certificate_pem), Some(key_pem)) = (load(&certificate)?, load(&key)?) {
            let pair = KeyAndCertificate { certificate_pem, key_pem };
            if issue::is_current(&pair, &ca.certificate_pem, names, self.now) {
                return Ok(pair);
            }
        }
        let pair = issue::leaf(ca, common_name, purpose, self.now, self.random)?;
        write(&key, &pair.key_pem, Durability::Replaceable)?;
        write(&certificate, &pair.certificate_pem, Durability::Replaceable)?;
        Ok(pair)
    }

    fn service_account(&self) -> Result<SigningKey, PkiError> {
        let (private, public) = (self.directory.join("sa.key"), self.directory.join("sa.pub"));
        if let Some(private_pem) = load(&private)? {
            let public_pem = issue::public_key(&private_pem)?;
            let also_verified_by = load(&public)?.unwrap_or_default();
            return Ok(SigningKey { private_pem, public_pem, also_verified_by });
        }
        let (private_pem, public_pem) = issue::signing_key()?;
        write(&private, &private_pem, Durability::Durable)?;
        // For those who verify tokens elsewhere; the server itself derives it.
        write(&public, &public_pem, Durability::Replaceable)?;
        Ok(SigningKey { private_pem, public_pem, also_verified_by: String::new() })
    }
}

fn read(path: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(path).map_err(|source| file_error(path, source))
}

fn load(path: &Path) -> Result<Option<String>, PkiError> {
    files::read_if_exists(path).map_err(|source| file_error(path, source))
}

fn write(path: &Path, content: &str, durability: Durability) -> Result<(), PkiError> {
    files::write_private(path, content.as_bytes(), durability).map_err(|source| file_error(path, source))
}

fn file_error(path: &Path, source: io::Error) -> PkiError {
    PkiError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authenticate::ClientIdentity;
    use keelson_meta::clock::ManualClock;
    use keelson_meta::random::SystemRandom;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    const START: Duration = Duration::from_secs(1_800_000_000);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    struct Home {
        directory: tempfile::TempDir,
        clock: ManualClock,
    }

    impl Home {
        fn new() -> Self {
            let clock = ManualClock::new(SystemTime::UNIX_EPOCH + START);
            Self { directory: tempfile::tempdir().unwrap(), clock }
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("data")
        }

        fn ensure(&self, extra_names: &[&str]) -> Result<Pki, PkiError> {
            let extra_names = extra_names.iter().map(ToString::to_string).collect();
            let options = PkiOptions { extra_names, ..PkiOptions::default() };
            ensure(&self.path(), &options, &self.clock, &SystemRandom)
        }
    }

    #[test]
    fn later_starts_reuse_what_the_first_made() {
        let home = Home::new();
        let first = home.ensure(&[]).unwrap();
        let second = home.ensure(&[]).unwrap();
        assert_eq!(first.ca_pem, second.ca_pem);
        assert_eq!(first.serving, second.serving);
        assert_eq!(first.admin, second.admin);
        assert_eq!(first.service_account.private_pem, second.service_account.private_pem);
        assert_eq!(first.service_account.public_pem, second.service_account.public_pem);
        second.server_config().unwrap();
    }

    #[test]
    fn only_the_owner_can_read_what_is_written() {
        let home = Home::new();
        let pki = home.ensure(&[]).unwrap();
        pki.write_kubeconfig(&home.path().join("kubeconfig"), "https://127.0.0.1:6443").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&home.path()), 0o700);
        assert_eq!(mode(&home.path().join("kubeconfig")), 0o600);
        let directory = home.path().join("pki");
        assert_eq!(mode(&directory), 0o700);
        let files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 12, "{files:?}");
        assert!(files.iter().all(|path| mode(path) == 0o600));
    }

    #[test]
    fn the_serving_certificate_follows_its_names() {
        let home = Home::new();
        let first = home.ensure(&[]).unwrap();
        let second = home.ensure(&["api.example.org", "192.0.2.7"]).unwrap();
        assert_ne!(first.serving, second.serving);
        assert_eq!(first.ca_pem, second.ca_pem);
        assert_eq!(second.serving, home.ensure(&["api.example.org", "192.0.2.7"]).unwrap().serving);
    }

    #[test]
    fn certificates_are_renewed_before_their_end_and_the_authority_stays() {
        let home = Home::new();
        let first = home.ensure(&[]).unwrap();
        home.clock.advance(DAY * 300);
        assert_eq!(first.serving, home.ensure(&[]).unwrap().serving);
        home.clock.advance(DAY * 40);
        let renewed = home.ensure(&[]).unwrap();
        assert_ne!(first.serving, renewed.serving);
        assert_ne!(first.admin, renewed.admin);
        assert_eq!(first.ca_pem, renewed.ca_pem);
    }

    #[test]
    fn a_leaf_that_lost_its_key_is_made_anew_and_an_authority_is_not() {
        let home = Home::new();
        let first = home.ensure(&[]).unwrap();
        fs::remove_file(home.path().join("pki/admin.key")).unwrap();
        assert_ne!(first.admin, home.ensure(&[]).unwrap().admin);
        fs::remove_file(home.path().join("pki/ca.key")).unwrap();
        assert!(matches!(home.ensure(&[]), Err(PkiError::KeyMissing { .. })));
    }

    #[test]
    fn an_authority_is_changed_by_trusting_the_next_one_first() {
        let (home, next) = (Home::new(), Home::new());
        let (old, new) = (home.ensure(&[]).unwrap(), next.ensure(&[]).unwrap());
        let file = |name: &str| home.path().join("pki").join(name);
        fs::write(file("ca.crt"), format!("{}{}", old.ca_pem, new.ca_pem)).unwrap();
        let both = home.ensure(&[]).unwrap();
        assert_eq!((&both.serving, &both.admin), (&old.serving, &old.admin), "nothing is signed anew");
        assert_eq!(both.client_ca_pem.matches("BEGIN CERTIFICATE").count(), 2);
        assert!(both.kubeconfig("https://k").len() > old.kubeconfig("https://k").len(), "clients trust both");
        fs::write(file("ca.crt"), format!("{}{}", new.ca_pem, old.ca_pem)).unwrap();
        assert!(matches!(home.ensure(&[]), Err(PkiError::KeyMismatch { .. })));
        fs::copy(next.path().join("pki/ca.key"), file("ca.key")).unwrap();
        let changed = home.ensure(&[]).unwrap();
        assert_ne!(changed.admin, old.admin);
        changed.server_config().unwrap();
    }

    #[test]
    fn the_administrator_is_a_master_while_the_certificate_holds() {
        let home = Home::new();
        let pki = home.ensure(&[]).unwrap();
        let der = CertificateDer::from_pem_slice(pki.admin.certificate_pem.as_bytes()).unwrap();
        let identity = ClientIdentity::from_certificate(&der).unwrap();
        let user = identity.user_at(home.clock.now()).unwrap();
        assert_eq!(user.name, ADMIN_NAME);
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        assert!(identity.user_at(home.clock.now() + DAY * 366).is_none());
    }

    #[test]
    fn a_front_proxy_has_an_authority_of_its_own_which_signs_for_nobody_else() {
        let home = Home::new();
        let first = home.ensure(&[]).unwrap();
        assert_eq!(first.front_proxy.headers.allowed_names, [FRONT_PROXY_NAME]);
        assert_ne!(first.front_proxy.ca_pem, first.ca_pem);
        assert!(!first.client_ca_pem.contains(&first.front_proxy.ca_pem), "its certificates make nobody a user");
        let second = home.ensure(&[]).unwrap();
        assert_eq!((&second.front_proxy.ca_pem, &second.front_proxy.client), {
            (&first.front_proxy.ca_pem, &first.front_proxy.client)
        });
        home.clock.advance(DAY * 340);
        let renewed = home.ensure(&[]).unwrap();
        assert_eq!(renewed.front_proxy.ca_pem, first.front_proxy.ca_pem);
        assert_ne!(renewed.front_proxy.client, first.front_proxy.client);
    }

    #[test]
    fn an_operator_can_give_the_certificate_of_the_front_proxy_and_who_signs_such() {
        let (home, other) = (Home::new(), Home::new());
        other.ensure(&[]).unwrap();
        let file = |name: &str| other.path().join("pki").join(name);
        let given = |client: bool, names: &[&str]| {
            let front_proxy = FrontProxyOptions {
                client: client.then(|| (file("front-proxy-client.crt"), file("front-proxy-client.key"))),
                client_ca: Some(file("front-proxy-ca.crt")),
                headers: RequestHeaders {
                    allowed_names: names.iter().map(ToString::to_string).collect(),
                    ..RequestHeaders::default()
                },
            };
            let options = PkiOptions { front_proxy, ..PkiOptions::default() };
            ensure(&home.path(), &options, &home.clock, &SystemRandom).unwrap().front_proxy
        };
        let of_others = given(true, &[]);
        assert_eq!(of_others.client.certificate_pem, fs::read_to_string(file("front-proxy-client.crt")).unwrap());
        assert_eq!(of_others.ca_pem, fs::read_to_string(file("front-proxy-ca.crt")).unwrap());
        assert!(of_others.headers.allowed_names.is_empty());
        assert!(!home.path().join("pki/front-proxy-ca.crt").exists());
        let own = given(false, &["a"]);
        assert_eq!(own.ca_pem.matches("BEGIN CERTIFICATE").count(), 2);
        assert_eq!(own.headers.allowed_names, ["a", FRONT_PROXY_NAME]);
        assert!(given(false, &[]).headers.allowed_names.is_empty());
    }

    #[test]
    fn a_given_serving_certificate_is_used_as_it_is() {
        let home = Home::new();
        let other = Home::new();
        other.ensure(&[]).unwrap();
        let file = |name: &str| other.path().join("pki").join(name);
        let options = PkiOptions {
            serving: Some((file("apiserver.crt"), file("apiserver.key"))),
            client_ca: Some(file("ca.crt")),
            ..PkiOptions::default()
        };
        let pki = ensure(&home.path(), &options, &home.clock, &SystemRandom).unwrap();
        assert_eq!(pki.serving.certificate_pem, fs::read_to_string(file("apiserver.crt")).unwrap());
        assert_eq!(pki.client_ca_pem.matches("BEGIN CERTIFICATE").count(), 2);
        pki.server_config().unwrap();
    }
}
