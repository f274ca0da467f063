//! Reloads keys and certificates while a server runs: its own, and those that it trusts.
//!
//! No files are created. For a missing file the loaded content stays. If one file is invalid, all loaded content stays,
//! since a certificate and its key are written one after the other. The front proxy authority stays that of the start,
//! because a running server signs nothing with it.

use std::path::{Path, PathBuf};

use super::{
    KeyAndCertificate, Pki, PkiError, PkiOptions, Secret, client_ca, issue, load, named_pairs, proxy_authorities, read,
    read_authorities, service_account,
};

/// The files to reload.
pub(super) struct Files {
    /// The certificate and key of the authority.
    ca: Option<(PathBuf, PathBuf)>,
    /// The files with service account keys.
    service_account: service_account::Paths,
    front_proxy_ca: Option<PathBuf>,
    serving: Option<(PathBuf, PathBuf)>,
    front_proxy: Option<(PathBuf, PathBuf)>,
}

impl Files {
    fn new(data_dir: Option<&Path>, options: &PkiOptions) -> Self {
        let own = |name: &str| data_dir.map(|directory| directory.join("pki").join(name));
        let pair = |stem: &str| own(&format!("{stem}.crt")).zip(own(&format!("{stem}.key")));
        let is_own_proxy = options.front_proxy.client.is_none();
        Self {
            ca: pair("ca"),
            service_account: service_account::Paths::new(
                data_dir.map(|directory| directory.join("pki")).as_deref(),
                options,
            ),
            front_proxy_ca: own("front-proxy-ca.crt").filter(|_| is_own_proxy),
            // Without a data directory the server generates its certificates in memory.
            serving: data_dir.and_then(|_| options.serving.clone()).or_else(|| pair("apiserver")),
            front_proxy: options.front_proxy.client.clone().or_else(|| pair(super::FRONT_PROXY_NAME)),
        }
    }
}

impl Pki {
    /// The files of a server with these settings, whether they exist or not.
    pub fn files(data_dir: Option<&Path>, options: &PkiOptions) -> Vec<PathBuf> {
        let files = Files::new(data_dir, options);
        let pairs = [files.ca, files.serving, files.front_proxy];
        let pairs = pairs.into_iter().flatten().flat_map(|(one, other)| [one, other]);
        let authorities = [files.front_proxy_ca, options.client_ca.clone(), options.front_proxy.client_ca.clone()];
        let named = options.named.iter().flat_map(|files| [files.certificate.clone(), files.key.clone()]);
        pairs.chain(named).chain(files.service_account.all()).chain(authorities.into_iter().flatten()).collect()
    }

    /// Reloads all files.
    ///
    /// # Errors
    /// A file is invalid.
    pub fn read_again(&self, data_dir: Option<&Path>, options: &PkiOptions) -> Result<Self, PkiError> {
        let files = Files::new(data_dir, options);
        let mut next = self.clone();
        if let Some((certificate, key)) = &files.ca {
            next.read_authority(certificate, key)?;
        }
        // A missing file changes nothing, so that tokens of earlier keys stay valid.
        next.service_account = files.service_account.read_again(&self.service_account)?;
        if let Some(path) = files.front_proxy_ca {
            next.front_proxy.own_ca_pem = bundle(&path, &self.front_proxy.own_ca_pem)?;
        }
        if let Some((certificate, key)) = &files.serving {
            next.serving = pair(certificate, key)?;
        }
        next.named = named_pairs(options)?;
        if let Some((certificate, key)) = &files.front_proxy {
            next.front_proxy.client = pair(certificate, key)?;
        }
        next.client_ca_pem = client_ca(&next.ca_pem, options)?;
        next.front_proxy.ca_pem = proxy_authorities(&next.front_proxy.own_ca_pem, &options.front_proxy)?;
        let is_given = data_dir.is_some() && options.serving.is_some();
        next.server_ca_pem = if is_given { next.serving.certificate_pem.clone() } else { next.ca_pem.clone() };
        Ok(next)
    }

    /// Reads the authority with further trusted ones. The key must match.
    fn read_authority(&mut self, certificate: &Path, key: &Path) -> Result<(), PkiError> {
        // A missing file changes nothing.
        let (Some(_), Some(key_pem)) = (load(certificate)?, load(key)?) else { return Ok(()) };
        let pair = KeyAndCertificate { certificate_pem: read_authorities("an authority", certificate)?, key_pem };
        if !issue::is_pair(&pair) {
            return Err(PkiError::KeyMismatch { key: key.to_owned(), certificate: certificate.to_owned() });
        }
        (self.ca_pem, self.ca_key) = (pair.certificate_pem, Secret(pair.key_pem));
        Ok(())
    }
}

/// Reads a file of authorities. The first one must not change.
fn bundle(path: &Path, known: &str) -> Result<String, PkiError> {
    // A missing file changes nothing.
    let Some(pem) = load(path)? else { return Ok(known.to_owned()) };
    if issue::is_same_certificate(&pem, known) {
        read_authorities("an authority", path)
    } else {
        Err(PkiError::OtherSigner { certificate: path.to_owned() })
    }
}

fn pair(certificate: &Path, key: &Path) -> Result<KeyAndCertificate, PkiError> {
    let pair = KeyAndCertificate { certificate_pem: read(certificate)?, key_pem: read(key)? };
    if issue::is_pair(&pair) {
        Ok(pair)
    } else {
        Err(PkiError::NoPair { certificate: certificate.to_owned(), key: key.to_owned() })
    }
}
