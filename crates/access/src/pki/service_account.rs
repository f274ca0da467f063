//! The keys of service account tokens: one that signs, and others whose tokens are taken too.
//!
//! They are `sa.key` and `sa.pub` of the data directory, or the files that the operator names, as kubeadm's. The keys of `sa.pub` count
//! in both cases, so that a server may move from its own key to another, and back.

use std::path::{Path, PathBuf};

use super::{PkiError, PkiOptions, SigningKey, load, read};

/// The files with keys of tokens that the operator names.
#[derive(Clone, Debug, Default)]
pub struct TokenKeyFiles {
    /// The private key that signs, in the place of `sa.key`.
    pub signing: Option<PathBuf>,
    /// More keys whose tokens are taken: public ones, private ones or certificates.
    pub verifying: Vec<PathBuf>,
}

/// The files with the keys of a server.
pub(super) struct Paths {
    /// The private key, and whether it is the operator's: then it has to be there.
    pub(super) private: Option<(PathBuf, bool)>,
    /// Keys that verify, of the data directory.
    own_public: Option<PathBuf>,
    verifying: Vec<PathBuf>,
}

impl Paths {
    /// The files of a directory of keys, and of the operator.
    pub(super) fn of(keys: Option<&Path>, options: &PkiOptions) -> Self {
        let TokenKeyFiles { signing, verifying } = options.service_account.clone();
        let own = |name: &str| keys.map(|keys| keys.join(name));
        let private = signing.map(|given| (given, true)).or_else(|| own("sa.key").map(|own| (own, false)));
        Self { private, own_public: own("sa.pub"), verifying }
    }

    /// All of them.
    pub(super) fn all(self) -> impl Iterator<Item = PathBuf> {
        let private = self.private.map(|(path, _)| path);
        private.into_iter().chain(self.own_public).chain(self.verifying)
    }

    /// The keys whose tokens are taken beside those of the one that signs.
    pub(super) fn also_verified_by(&self) -> Result<String, PkiError> {
        let mut pem = match &self.own_public {
            Some(path) => load(path)?.unwrap_or_default(),
            None => String::new(),
        };
        for path in &self.verifying {
            pem.push('\n');
            pem.push_str(&read(path)?);
        }
        Ok(pem)
    }

    /// The private key, if its file is there.
    pub(super) fn private_pem(&self) -> Result<Option<String>, PkiError> {
        match &self.private {
            None => Ok(None),
            Some((path, true)) => read(path).map(Some),
            Some((path, false)) => load(path),
        }
    }

    /// All keys, if there is one that signs.
    pub(super) fn read(&self) -> Result<Option<SigningKey>, PkiError> {
        let Some(private) = self.private_pem()? else { return Ok(None) };
        SigningKey::read(private, self.also_verified_by()?).map(Some)
    }
}
