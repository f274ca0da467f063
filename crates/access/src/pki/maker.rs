//! Loads each pair of files of a data directory, or creates it if that loses nothing.
//!
//! Nothing is written yet. New files are added to [`PendingFiles`], in the order in which they must reach the disk.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use keelson_meta::Random;

use super::files::Durability;
use super::losses::{self, Losses};
use super::{
    ADMIN_NAME, FRONT_PROXY_CA, KeyAndCertificate, PendingFiles, PkiError, PkiOptions, SERVING_NAME, SigningKey, issue,
    load, service_account,
};
use crate::user::MASTERS;

/// Loads or creates each pair of files.
pub(super) struct PairLoader<'a> {
    directory: PathBuf,
    names: Vec<String>,
    now: SystemTime,
    random: &'a dyn Random,
    losses: Losses,
    /// The files to write.
    pub(super) unsaved: RefCell<PendingFiles>,
}

impl<'a> PairLoader<'a> {
    pub(super) fn new(
        data_dir: &Path,
        names: Vec<String>,
        now: SystemTime,
        random: &'a dyn Random,
        accept_loss: bool,
    ) -> Self {
        let directory = data_dir.join("pki");
        let unsaved = RefCell::new(PendingFiles::below(data_dir, &directory));
        Self { directory, names, now, random, losses: Losses::new(data_dir, accept_loss), unsaved }
    }

    /// Adds a file to write.
    fn keep(&self, path: PathBuf, content: &str, durability: Durability) -> Result<(), PkiError> {
        self.unsaved.borrow_mut().keep(path, content, durability)
    }

    pub(super) fn authority(&self, stem: &str, common_name: &str) -> Result<KeyAndCertificate, PkiError> {
        let path = |extension: &str| self.directory.join(format!("{stem}.{extension}"));
        let (certificate, key) = (path("crt"), path("key"));
        match (load(&certificate)?, load(&key)?) {
            (Some(certificate_pem), Some(key_pem)) => {
                let pair = KeyAndCertificate { certificate_pem, key_pem };
                if issue::is_pair(&pair) { Ok(pair) } else { Err(PkiError::KeyMismatch { key, certificate }) }
            }
            (Some(lost_pem), None) => {
                let missing = PkiError::KeyMissing { key: key.clone(), certificate: certificate.clone() };
                self.losses.accepting(missing)?;
                let mut pair = self.new_authority(common_name)?;
                // Certificates signed by the lost key stay valid.
                pair.certificate_pem = losses::joined(&pair.certificate_pem, &lost_pem);
                self.keep_authority((key, certificate), pair)
            }
            (None, key_pem) => {
                let is_front_proxy = stem == FRONT_PROXY_CA;
                let missing: &[&Path] = if key_pem.is_some() { &[&certificate] } else { &[&certificate, &key] };
                self.losses.check(missing, is_front_proxy)?;
                let Some(key_pem) = key_pem else {
                    return self.keep_authority((key, certificate), self.new_authority(common_name)?);
                };
                // A key without a certificate results from a crash between the two writes, or comes from the operator.
                // It is never overwritten.
                let name = issue::authority_name(common_name, self.random);
                let pair = issue::authority_of(key_pem, &name, self.now, self.random)?;
                self.keep(certificate, &pair.certificate_pem, Durability::Durable)?;
                Ok(pair)
            }
        }
    }

    fn keep_authority(
        &self,
        (key, certificate): (PathBuf, PathBuf),
        pair: KeyAndCertificate,
    ) -> Result<KeyAndCertificate, PkiError> {
        // ORDER: the key is written first, so that a certificate never exists without its key.
        self.keep(key, &pair.key_pem, Durability::Durable)?;
        self.keep(certificate, &pair.certificate_pem, Durability::Durable)?;
        Ok(pair)
    }

    pub(super) fn admin(&self, ca: &KeyAndCertificate) -> Result<KeyAndCertificate, PkiError> {
        self.leaf(ca, "admin", ADMIN_NAME, &[], &issue::Purpose::Client { groups: &[MASTERS] })
    }

    pub(super) fn serving(&self, ca: &KeyAndCertificate) -> Result<KeyAndCertificate, PkiError> {
        self.leaf(ca, "apiserver", SERVING_NAME, &self.names, &issue::Purpose::Server { names: &self.names })
    }

    /// Loads a leaf certificate, or creates a new one if anything is wrong with it. No client relies on a single one.
    pub(super) fn leaf(
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
        self.keep(key, &pair.key_pem, Durability::Replaceable)?;
        self.keep(certificate, &pair.certificate_pem, Durability::Replaceable)?;
        Ok(pair)
    }

    fn new_authority(&self, common_name: &str) -> Result<KeyAndCertificate, PkiError> {
        issue::authority(&issue::authority_name(common_name, self.random), self.now, self.random)
    }

    pub(super) fn service_account(&self, options: &PkiOptions) -> Result<SigningKey, PkiError> {
        let keys = service_account::Paths::new(Some(&self.directory), options);
        if let Some(given) = keys.read_given()? {
            return Ok(given);
        }
        let (private, public) = (self.directory.join("sa.key"), self.directory.join("sa.pub"));
        match (load(&private)?, service_account::load_public(&public)?) {
            (Some(private_pem), Some(public_pem)) => {
                losses::check_public_keys(&public, &public_pem)?;
                SigningKey::read(private_pem, keys.also_verified_by(public_pem)?).map_err(unusable(&private))
            }
            (Some(private_pem), None) => {
                let also_verified_by = keys.also_verified_by(String::new())?;
                let key = SigningKey::read(private_pem, also_verified_by).map_err(unusable(&private))?;
                if self.losses.has_run() {
                    let file = public.display();
                    tracing::warn!(
                        "{file} is missing or empty and is recreated; tokens of other keys in it are refused"
                    );
                }
                self.keep(public, &key.public_pem, Durability::Replaceable)?;
                Ok(key)
            }
            (None, Some(lost_pem)) => {
                self.losses.accepting(PkiError::KeyMissing { key: private.clone(), certificate: public.clone() })?;
                // Tokens signed by the lost key stay valid.
                self.new_service_account((private, public), lost_pem, &keys)
            }
            (None, None) => {
                self.losses.check(&[&private, &public], false)?;
                self.new_service_account((private, public), String::new(), &keys)
            }
        }
    }

    fn new_service_account(
        &self,
        (private, public): (PathBuf, PathBuf),
        lost_pem: String,
        keys: &service_account::Paths,
    ) -> Result<SigningKey, PkiError> {
        let made = SigningKey::generate()?;
        self.keep(private, &made.private_pem, Durability::Durable)?;
        // The file is for programs that verify tokens. The server derives its public key from the private one.
        self.keep(public, &losses::joined(&made.public_pem, &lost_pem), Durability::Durable)?;
        Ok(SigningKey { also_verified_by: keys.also_verified_by(lost_pem)?, ..made })
    }
}

/// Adds the path of the file to the error.
fn unusable(path: &Path) -> impl FnOnce(PkiError) -> PkiError {
    let path = path.to_owned();
    move |error| PkiError::Unusable { path, reason: error.to_string() }
}
