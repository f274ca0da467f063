//! The keys of service account tokens: one key signs, and further keys are accepted.
//!
//! The keys are in `sa.key` and `sa.pub` of the data directory, or in files of the operator, as with kubeadm. The keys
//! in `sa.pub` are always accepted. So an operator can replace the server's own key, and return to it.

use std::path::{Path, PathBuf};

use super::{PkiError, PkiOptions, SigningKey, load, read};

/// The operator's files with token keys.
#[derive(Clone, Debug, Default)]
pub struct TokenKeyFiles {
    /// The private key that signs, in place of `sa.key`.
    pub signing: Option<PathBuf>,
    /// Further accepted keys: public ones, private ones or certificates.
    pub verifying: Vec<PathBuf>,
}

/// The files with the keys of a server.
pub(super) struct Paths {
    /// The private key. The flag is true if it is the operator's, which must exist.
    private: Option<(PathBuf, bool)>,
    /// Further accepted keys in the data directory.
    own_public: Option<PathBuf>,
    verifying: Vec<PathBuf>,
}

impl Paths {
    /// The files in the directory of keys, and those of the operator.
    pub(super) fn new(keys: Option<&Path>, options: &PkiOptions) -> Self {
        let TokenKeyFiles { signing, verifying } = options.service_account.clone();
        let own = |name: &str| keys.map(|keys| keys.join(name));
        let private = signing.map(|given| (given, true)).or_else(|| own("sa.key").map(|own| (own, false)));
        Self { private, own_public: own("sa.pub"), verifying }
    }

    /// All these files.
    pub(super) fn all(self) -> impl Iterator<Item = PathBuf> {
        let private = self.private.map(|(path, _)| path);
        private.into_iter().chain(self.own_public).chain(self.verifying)
    }

    /// The accepted keys besides the signing key: `own` from the data directory, and the operator's.
    pub(super) fn also_verified_by(&self, own: String) -> Result<String, PkiError> {
        let mut pem = own;
        for path in &self.verifying {
            pem.push('\n');
            pem.push_str(&read(path)?);
        }
        Ok(pem)
    }

    /// Reads all keys, if the operator gives the signing key.
    pub(super) fn read_given(&self) -> Result<Option<SigningKey>, PkiError> {
        let Some((path, true)) = &self.private else { return Ok(None) };
        let own = self.own_public_pem()?.unwrap_or_default();
        SigningKey::read(read(path)?, self.also_verified_by(own)?).map(Some)
    }

    /// Reloads all keys. A missing or empty file of the data directory changes nothing.
    pub(super) fn read_again(&self, known: &SigningKey) -> Result<SigningKey, PkiError> {
        let private_pem = match &self.private {
            Some((path, true)) => Some(read(path)?),
            Some((path, false)) => load(path)?,
            None => None,
        };
        let also_verified_by = match (&self.own_public, self.own_public_pem()?) {
            (Some(_), None) => known.also_verified_by.clone(),
            (_, own) => self.also_verified_by(own.unwrap_or_default())?,
        };
        SigningKey::read(private_pem.unwrap_or_else(|| known.private_pem.clone()), also_verified_by)
    }

    fn own_public_pem(&self) -> Result<Option<String>, PkiError> {
        self.own_public.as_deref().map_or(Ok(None), load_public)
    }
}

/// The public keys in a file; `None` if it is missing or empty.
pub(super) fn load_public(path: &Path) -> Result<Option<String>, PkiError> {
    Ok(load(path)?.filter(|pem| !pem.trim().is_empty()))
}
