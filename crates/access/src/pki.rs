//! The server's keys and certificates. They are created at the first start, stored in the data directory, and renewed
//! before they expire.
//!
//! The directory `<data directory>/pki` has `ca`, `apiserver`, `admin`, `front-proxy-ca` and `front-proxy-client`, each
//! as `.crt` and `.key`, and the service account keys `sa.key` and `sa.pub`. Only the operator replaces the authorities
//! and the service account key. Certificates signed by them are renewed within 30 days of expiry, also while the server
//! runs, and at a start with changed names. For rotations, `ca.crt`, `front-proxy-ca.crt` and `sa.pub` may have further
//! trusted authorities and keys.

mod again;
mod ends;
pub mod files;
mod issue;
pub(crate) mod key_text;
mod losses;
mod maker;
mod names;
mod renewal;
mod service_account;
#[cfg(test)]
mod tests;
mod unsaved;

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use keelson_meta::{Clock, Random};

use crate::client_signer::ClientSigner;
use crate::front_proxy::{FrontProxy, RequestHeaders};
use crate::kubeconfig::Kubeconfig;
use crate::tls::{self, TlsError, TlsProfile};
use crate::user::MASTERS;
use files::Durability;
use maker::PairLoader;

pub use ends::{CertificateEnd, ending_within, first_end, last_begin};
pub use issue::KeyAndCertificate;
pub use key_text::KeyTextError;
pub use renewal::{Renewal, RenewalTime};
pub use service_account::TokenKeyFiles;
pub use unsaved::{PendingFiles, WrittenFiles};

/// The user name in the administrator's certificate.
pub const ADMIN_NAME: &str = "keelson-admin";
/// The common name of the certificate for forwarded requests.
pub const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// The prefixes of the authorities' names.
const CA_NAME: &str = "keelson-ca";
const FRONT_PROXY_CA_NAME: &str = "keelson-front-proxy-ca";
/// The file name of the front proxy authority, without extension.
const FRONT_PROXY_CA: &str = "front-proxy-ca";

/// Settings for the server's keys and certificates.
#[derive(Clone, Debug, Default)]
pub struct PkiOptions {
    /// Further names and addresses for the serving certificate.
    pub extra_names: Vec<String>,
    /// Files with a serving certificate (and its chain) and key, in place of generated ones.
    pub serving: Option<(PathBuf, PathBuf)>,
    /// Further serving certificates by name.
    pub named: Vec<NamedFiles>,
    /// The protocol versions and cipher suites of the listener.
    pub tls: TlsProfile,
    /// A file with authorities of client certificates, in addition to the generated one.
    pub client_ca: Option<PathBuf>,
    /// Settings of the server as a front proxy.
    pub front_proxy: FrontProxyOptions,
    /// Files with service account keys, in place of or in addition to the generated ones.
    pub service_account: TokenKeyFiles,
    /// True to replace lost keys that a server has used. Otherwise their loss is an error.
    pub accept_loss: bool,
    /// True to not wait until new keys are on the disk, for servers of tests. A crash of the machine may lose them.
    pub no_fsync: bool,
}

/// Files with a serving certificate (and its chain) and key, for clients that name one of these servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFiles {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
    /// DNS names, `*.` with a domain, and addresses of this host; empty for the DNS names of the certificate.
    pub names: Vec<String>,
}

/// A serving certificate for some names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPair {
    /// The certificate with its key.
    pub pair: KeyAndCertificate,
    /// The names; empty for the DNS names of the certificate.
    pub names: Vec<String>,
}

/// The operator's settings for front proxies.
#[derive(Clone, Debug, Default)]
pub struct FrontProxyOptions {
    /// Files with the client certificate and key for aggregated servers, in place of generated ones.
    pub client: Option<(PathBuf, PathBuf)>,
    /// A file with authorities of front proxy certificates. They are added to the generated authority, unless `client`
    /// is set.
    pub client_ca: Option<PathBuf>,
    /// The names and header fields to publish.
    pub headers: RequestHeaders,
}

/// The reason why keys and certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The key of the authority is missing. A new authority would lock out all clients that trust the old one.
    #[error("{key} is missing though {certificate} exists: put it back from a copy")]
    KeyMissing {
        /// The missing file.
        key: PathBuf,
        /// The existing file.
        certificate: PathBuf,
    },
    /// Files that a server has used are missing. New ones would lock out the clients that rely on them.
    #[error("missing: {missing}. {} shows that a server has run with it, so clients rely on it: put it back from a copy", witness.display())]
    Lost {
        /// The missing files.
        missing: String,
        /// A file that was created from the missing ones.
        witness: PathBuf,
    },
    /// The key does not match the certificate of the authority, so its signatures could not be verified.
    #[error("{key} is not the key of the first certificate in {certificate}, which is the one that signs")]
    KeyMismatch {
        /// The file with the key.
        key: PathBuf,
        /// The file with the certificate.
        certificate: PathBuf,
    },
    /// A certificate and its key do not match, or one of them is missing. The other file may be written next.
    #[error("{certificate} and {key} are not a certificate and its key")]
    NoPair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The front proxy authority changed. A running server cannot change it, since it signs nothing with it.
    #[error("{certificate} begins with another authority than at the start of the server, which takes another start")]
    OtherSigner {
        /// The file whose first certificate changed.
        certificate: PathBuf,
    },
    /// A name for the serving certificate is invalid, so that no client could use it.
    #[error("{name:?} is neither a DNS name nor an IP address, so a certificate can't answer to it")]
    BadName {
        /// The given name.
        name: String,
    },
    /// Another server has created keys in the directory in the meantime.
    #[error("another server has just created keys in {path}: start this server again to use them")]
    MadeMeanwhile {
        /// The directory.
        path: PathBuf,
    },
    /// A private key can't be used.
    #[error("a private key can't be used: {0}")]
    Key(KeyTextError),
    /// A file has no valid key, or a truncated one.
    #[error("{path} can't be used: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A key or certificate cannot be created or parsed.
    #[error("a certificate cannot be made: {0}")]
    Issue(#[from] rcgen::Error),
    /// A file of trusted authorities is invalid.
    #[error("{path}: {source}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: TlsError,
    },
    /// TLS does not accept the keys or certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The server's keys and certificates.
#[derive(Clone, Debug)]
pub struct Pki {
    /// The certificate of the server's authority, followed by further trusted authorities.
    pub ca_pem: String,
    /// The key of the server's authority.
    ca_key: Secret,
    /// The certificate of the listener.
    pub serving: KeyAndCertificate,
    /// Further certificates of the listener.
    pub named: Vec<NamedPair>,
    /// The administrator's certificate, with the group `system:masters`.
    pub admin: KeyAndCertificate,
    /// The keys of service account tokens.
    pub service_account: SigningKey,
    /// The authorities of client certificates.
    pub client_ca_pem: String,
    /// The certificates with which clients verify the server: those of the authority, or the given serving certificate
    /// itself.
    pub server_ca_pem: String,
    /// The credentials for forwarded requests.
    pub front_proxy: FrontProxy,
    /// The front proxy authority; `None` if the operator gives the certificate.
    front_proxy_ca: Option<Signer>,
}

/// An authority with its key.
#[derive(Clone, Debug)]
struct Signer(KeyAndCertificate);

/// Keys that sign and verify service account tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// The private key, in PEM.
    pub private_pem: String,
    /// The public key, in PEM.
    pub public_pem: String,
    /// Further public keys that verify tokens, in PEM: those before or after a rotation.
    pub also_verified_by: String,
}

impl SigningKey {
    /// Generates a new key pair.
    fn generate() -> Result<Self, PkiError> {
        let (private_pem, public_pem) = issue::signing_key()?;
        Ok(Self { private_pem, public_pem, also_verified_by: String::new() })
    }

    /// Creates a signing key from a private key and further public keys that verify tokens.
    ///
    /// # Errors
    /// The private key cannot be parsed.
    pub(crate) fn read(private_pem: String, also_verified_by: String) -> Result<Self, PkiError> {
        let public_pem = issue::public_key(&private_pem)?;
        Ok(Self { private_pem, public_pem, also_verified_by })
    }
}

/// Omits the private key, which must never be logged.
impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("public_pem", &self.public_pem).finish_non_exhaustive()
    }
}

/// Loads the keys and certificates of a data directory, creates missing ones, renews expiring ones, and writes the
/// changes.
///
/// # Errors
/// A file cannot be read or written, or its content is invalid. Existing files are not overwritten then.
pub fn ensure(data_dir: &Path, options: &PkiOptions, clock: &dyn Clock, random: &dyn Random) -> Result<Pki, PkiError> {
    let (pki, unsaved) = prepare(data_dir, options, clock, random)?;
    let _ = unsaved.save()?;
    Ok(pki)
}

/// Loads the keys and certificates of a data directory, creates missing ones and renews expiring ones. The caller
/// writes the changes.
///
/// # Errors
/// A file cannot be read, or its content is invalid.
pub fn prepare(
    data_dir: &Path,
    options: &PkiOptions,
    clock: &dyn Clock,
    random: &dyn Random,
) -> Result<(Pki, PendingFiles), PkiError> {
    let names = names::serving_names(options)?;
    let maker = PairLoader::new(data_dir, names, clock.now(), random, options.accept_loss);
    losses::warn_of_readable_keys(data_dir);
    let ca = maker.authority("ca", CA_NAME)?;
    let admin = maker.admin(&ca)?;
    let service_account = maker.service_account(options)?;
    let serving = match &options.serving {
        Some((certificate, key)) => KeyAndCertificate { certificate_pem: read(certificate)?, key_pem: read(key)? },
        None => maker.serving(&ca)?,
    };
    let server_ca_pem =
        if options.serving.is_some() { serving.certificate_pem.clone() } else { ca.certificate_pem.clone() };
    let client_ca_pem = client_ca(&ca.certificate_pem, options)?;
    let (front_proxy, front_proxy_ca) = front_proxy(&options.front_proxy, || {
        let ca = maker.authority(FRONT_PROXY_CA, FRONT_PROXY_CA_NAME)?;
        let client =
            maker.leaf(&ca, FRONT_PROXY_NAME, FRONT_PROXY_NAME, &[], &issue::Purpose::Client { groups: &[] })?;
        Ok((ca, client))
    })?;
    let (ca_pem, ca_key) = (ca.certificate_pem, Secret(ca.key_pem));
    let pki = Pki {
        ca_pem,
        ca_key,
        serving,
        named: named_pairs(options)?,
        admin,
        service_account,
        client_ca_pem,
        server_ca_pem,
        front_proxy,
        front_proxy_ca,
    };
    let mut unsaved = maker.unsaved.into_inner();
    unsaved.no_fsync = options.no_fsync;
    Ok((pki, unsaved))
}

/// The serving certificate of an aggregated server, which signs no certificates for clients. File names are those of
/// [`ensure`]. Without a directory it exists only in memory.
///
/// # Errors
/// The errors of [`ensure`].
pub fn serving(
    data_dir: Option<&Path>,
    options: &PkiOptions,
    clock: &dyn Clock,
    random: &dyn Random,
) -> Result<ServingPki, PkiError> {
    if let Some((certificate, key)) = &options.serving {
        let pair = KeyAndCertificate { certificate_pem: read(certificate)?, key_pem: read(key)? };
        return Ok(ServingPki { ca_pem: pair.certificate_pem.clone(), pair, signer: None });
    }
    let (names, now) = (names::serving_names(options)?, clock.now());
    let Some(data_dir) = data_dir else {
        let ca = issue::authority(&issue::authority_name(CA_NAME, random), now, random)?;
        let pair = issue::leaf(&ca, SERVING_NAME, &issue::Purpose::Server { names: &names }, now, random)?;
        return Ok(ServingPki { ca_pem: ca.certificate_pem.clone(), pair, signer: Some(Signer(ca)) });
    };
    let maker = PairLoader::new(data_dir, names, now, random, options.accept_loss);
    let ca = maker.authority("ca", CA_NAME)?;
    let pair = maker.serving(&ca)?;
    let _ = maker.unsaved.into_inner().save()?;
    Ok(ServingPki { ca_pem: ca.certificate_pem.clone(), pair, signer: Some(Signer(ca)) })
}

/// The serving certificate of an aggregated server, with the authority for its clients.
#[derive(Clone, Debug)]
pub struct ServingPki {
    /// The certificate of the listener.
    pub pair: KeyAndCertificate,
    /// The certificates with which clients verify the server: those of the authority, or the given serving certificate
    /// itself.
    pub ca_pem: String,
    /// The authority; `None` if the certificate was given.
    signer: Option<Signer>,
}

/// A new service account key: private and public key in PEM.
pub(crate) fn new_signing_key() -> Result<(String, String), PkiError> {
    issue::signing_key()
}

/// A new authority with a unique name.
pub(crate) fn new_authority(now: SystemTime, random: &dyn Random) -> Result<KeyAndCertificate, PkiError> {
    issue::authority(&issue::authority_name(CA_NAME, random), now, random)
}

/// Keys and certificates that exist only in memory, for servers with the memory store.
///
/// # Errors
/// A key cannot be generated, or a file named by `options` cannot be read.
pub fn ephemeral(options: &PkiOptions, clock: &dyn Clock, random: &dyn Random) -> Result<Pki, PkiError> {
    let now = clock.now();
    let ca = issue::authority(&issue::authority_name(CA_NAME, random), now, random)?;
    let admin = issue::leaf(&ca, ADMIN_NAME, &issue::Purpose::Client { groups: &[MASTERS] }, now, random)?;
    let serving = issue::leaf(
        &ca,
        SERVING_NAME,
        &issue::Purpose::Server { names: &names::serving_names(options)? },
        now,
        random,
    )?;
    let keys = service_account::Paths::new(None, options);
    let service_account = match keys.read_given()? {
        Some(given) => given,
        None => SigningKey { also_verified_by: keys.also_verified_by(String::new())?, ..SigningKey::generate()? },
    };
    let (front_proxy, front_proxy_ca) = front_proxy(&options.front_proxy, || {
        let ca = issue::authority(&issue::authority_name(FRONT_PROXY_CA_NAME, random), now, random)?;
        let client = issue::leaf(&ca, FRONT_PROXY_NAME, &issue::Purpose::Client { groups: &[] }, now, random)?;
        Ok((ca, client))
    })?;
    Ok(Pki {
        front_proxy,
        front_proxy_ca,
        client_ca_pem: client_ca(&ca.certificate_pem, options)?,
        server_ca_pem: ca.certificate_pem.clone(),
        ca_pem: ca.certificate_pem,
        ca_key: Secret(ca.key_pem),
        serving,
        named: named_pairs(options)?,
        admin,
        service_account,
    })
}

/// The authorities of front proxy certificates: the server's own, if any, and the operator's.
fn proxy_authorities(own_pem: &str, options: &FrontProxyOptions) -> Result<String, PkiError> {
    let mut pem = own_pem.to_owned();
    if let Some(path) = &options.client_ca {
        pem.push_str(&read_authorities("the CA of front proxies", path)?);
    }
    Ok(pem)
}

/// Reads the operator's serving certificates by name.
fn named_pairs(options: &PkiOptions) -> Result<Vec<NamedPair>, PkiError> {
    let read = |files: &NamedFiles| {
        let pair = KeyAndCertificate { certificate_pem: read(&files.certificate)?, key_pem: read(&files.key)? };
        if issue::is_pair(&pair) {
            Ok(NamedPair { pair, names: files.names.clone() })
        } else {
            Err(PkiError::NoPair { certificate: files.certificate.clone(), key: files.key.clone() })
        }
    };
    options.named.iter().map(read).collect()
}

/// The authorities of client certificates: the server's own, and the operator's.
fn client_ca(own_pem: &str, options: &PkiOptions) -> Result<String, PkiError> {
    let mut pem = own_pem.to_owned();
    if let Some(path) = &options.client_ca {
        pem.push_str(&read_authorities("the client CA", path)?);
    }
    Ok(pem)
}

/// The server as a front proxy, with a generated pair and authority unless the operator gives a pair.
fn front_proxy(
    options: &FrontProxyOptions,
    own: impl FnOnce() -> Result<(KeyAndCertificate, KeyAndCertificate), PkiError>,
) -> Result<(FrontProxy, Option<Signer>), PkiError> {
    let mut headers = options.headers.clone();
    let (own_ca, client) = match &options.client {
        Some((certificate, key)) => {
            (None, KeyAndCertificate { certificate_pem: read(certificate)?, key_pem: read(key)? })
        }
        None => {
            // If there are other authorities and no names are given, all names are allowed.
            if options.client_ca.is_none() || !headers.allowed_names.is_empty() {
                headers.allowed_names.push(FRONT_PROXY_NAME.to_owned());
            }
            let (ca, client) = own()?;
            (Some(Signer(ca)), client)
        }
    };
    let own_ca_pem = own_ca.as_ref().map_or_else(String::new, |ca| ca.0.certificate_pem.clone());
    let ca_pem = proxy_authorities(&own_ca_pem, options)?;
    Ok((FrontProxy { client, ca_pem, own_ca_pem, headers }, own_ca))
}

/// A private key in PEM, which must never be logged.
#[derive(Clone, PartialEq, Eq)]
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Pki {
    /// Returns true if another authority signs client certificates in `other`.
    pub fn has_other_signer(&self, other: &Self) -> bool {
        self.ca_key != other.ca_key || !issue::is_same_certificate(&self.ca_pem, &other.ca_pem)
    }

    /// A signer for client certificates that uses the server's own authority.
    ///
    /// # Errors
    /// The authority is invalid.
    pub fn client_signer(&self) -> Result<ClientSigner, PkiError> {
        ClientSigner::new(&self.ca_pem, &self.ca_key.0)
    }

    /// The administrator's kubeconfig for the server at `url`.
    pub fn kubeconfig(&self, url: &str) -> String {
        Kubeconfig {
            cluster: "keelson",
            user: ADMIN_NAME,
            server: url,
            ca_pem: &self.server_ca_pem,
            certificate_pem: &self.admin.certificate_pem,
            key_pem: &self.admin.key_pem,
            namespace: None,
        }
        .to_yaml()
    }

    /// Adds the administrator's kubeconfig for the server at `url` to the files to write, unless the file already has
    /// this content.
    ///
    /// # Errors
    /// The existing file cannot be read.
    pub fn keep_kubeconfig(&self, path: &Path, url: &str, unsaved: &mut PendingFiles) -> Result<(), PkiError> {
        unsaved.keep_note(path.to_owned(), &self.kubeconfig(url))
    }
}

const SERVING_NAME: &str = "keelson";

fn read(path: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(path).map_err(|source| file_error(path, source))
}

/// Reads trusted certificates of others. An empty file or an invalid certificate is an error. Otherwise the mistake
/// would only show when a client is refused.
///
/// # Errors
/// The file cannot be read, or has no valid certificates.
pub fn read_authorities(what: &'static str, path: &Path) -> Result<String, PkiError> {
    let pem = read(path)?;
    tls::authorities(what, &pem).map_err(|source| PkiError::Authorities { path: path.to_owned(), source })?;
    Ok(pem)
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
