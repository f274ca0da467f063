//! Detects keys that are missing from a used data directory, which the server does not recreate silently.
//!
//! Authorities and the token key are written before everything that is created from them. So if a certificate signed by
//! them or the administrator's kubeconfig exists, they existed too, and clients rely on them. Missing leaf certificates
//! of the server are recreated, since no client relies on a single one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;

use super::PkiError;

/// The permission bits of users other than the owner.
const OTHERS: u32 = 0o077;
/// The private keys of a server, in the directory `pki`.
const PRIVATE: [&str; 6] =
    ["ca.key", "sa.key", "front-proxy-ca.key", "front-proxy-client.key", "apiserver.key", "admin.key"];
/// Files in the data directory that are written after the key of the authority. One of them is the record of the store.
/// So an emptied `pki/` is detected even if the kubeconfig is elsewhere.
const OF_AUTHORITY: [&str; 6] =
    ["pki/admin.crt", "pki/admin.key", "pki/apiserver.crt", "pki/apiserver.key", "kubeconfig", "keelson.store"];
/// Files in the data directory that are written after the key of the front proxy authority.
const OF_FRONT_PROXY_AUTHORITY: [&str; 2] = ["pki/front-proxy-client.crt", "pki/front-proxy-client.key"];

/// The keys that a data directory must have.
pub(super) struct Losses {
    authority: Option<PathBuf>,
    front_proxy_authority: Option<PathBuf>,
    accept: bool,
}

impl Losses {
    /// Inspects a data directory.
    pub(super) fn new(data_dir: &Path, accept: bool) -> Self {
        let first = |names: &[&str]| names.iter().map(|name| data_dir.join(name)).find(|path| path.exists());
        Self { authority: first(&OF_AUTHORITY), front_proxy_authority: first(&OF_FRONT_PROXY_AUTHORITY), accept }
    }

    /// Refuses to recreate files that others depend on, unless the operator accepts the loss.
    ///
    /// # Errors
    /// A server has used the files.
    pub(super) fn check(&self, missing: &[&Path], is_front_proxy: bool) -> Result<(), PkiError> {
        let witness = if is_front_proxy { &self.front_proxy_authority } else { &self.authority };
        let Some(witness) = witness else { return Ok(()) };
        let names: Vec<_> = missing.iter().map(|path| path.display().to_string()).collect();
        let lost = PkiError::Lost { missing: names.join(" and "), witness: witness.clone() };
        self.accepting(lost)
    }

    /// Returns true if a server has run in the directory.
    pub(super) fn has_run(&self) -> bool {
        self.authority.is_some()
    }

    /// Returns the loss as an error, or logs it if the operator accepts it.
    ///
    /// # Errors
    /// The loss, unless it is accepted.
    pub(super) fn accepting(&self, lost: PkiError) -> Result<(), PkiError> {
        if self.accept {
            tracing::warn!(%lost, "continuing with new keys; certificates and tokens of the old ones may be refused");
            return Ok(());
        }
        Err(lost)
    }
}

/// Refuses a truncated file of public keys.
///
/// # Errors
/// The file is truncated.
pub(super) fn check_public_keys(path: &Path, pem: &str) -> Result<(), PkiError> {
    let unusable = |reason: String| PkiError::Unusable { path: path.to_owned(), reason };
    if !pem.contains("-----BEGIN ") {
        return Err(unusable("it holds no key in PEM".to_owned()));
    }
    let mut keys = SubjectPublicKeyInfoDer::pem_slice_iter(pem.as_bytes());
    keys.try_for_each(|key| key.map(drop).map_err(|error| unusable(error.to_string())))
}

/// Logs a warning for each private key in a data directory that users other than the owner can read.
pub(super) fn warn_of_readable_keys(data_dir: &Path) {
    let keys = PRIVATE.iter().map(|name| data_dir.join("pki").join(name));
    for path in keys.chain([data_dir.join("kubeconfig")]) {
        if let Some(mode) = mode(&path).filter(|mode| mode & OTHERS != 0) {
            let path = path.display();
            tracing::warn!(
                mode = format!("{mode:04o}"),
                "{path} holds a private key and is not for its owner alone; run: chmod 600 {path}"
            );
        }
    }
}

fn mode(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.permissions().mode() & 0o7777)
}

/// Two PEM texts, concatenated.
pub(super) fn joined(first: &str, second: &str) -> String {
    let gap = if first.ends_with('\n') { "" } else { "\n" };
    format!("{first}{gap}{second}")
}
