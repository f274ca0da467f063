//! The operator's settings of TLS, by kube-apiserver's flags and with Go's names.
//!
//! Suites and groups that this server lacks are weak or rare. They are left out, so that a list of flags never makes a
//! server weaker than its default. As in Go, a list of suites concerns TLS 1.2 only.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, SupportedProtocolVersion, version};

/// Names of protocol versions. Older ones than TLS 1.2 mean TLS 1.2.
const VERSIONS: [(&str, bool); 4] =
    [("VersionTLS10", false), ("VersionTLS11", false), ("VersionTLS12", false), ("VersionTLS13", true)];

/// Suites of TLS 1.2, by Go's names.
const SUITES: [(&str, CipherSuite); 8] = [
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Suites of TLS 1.3, which are always served.
const SUITES_OF_13: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// Suites that Go knows and this server does not serve.
const NOT_SERVED: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Protocol versions, cipher suites and groups of a listener. The default has all that the server can serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsProfile {
    /// True for TLS 1.3 only.
    only_13: bool,
    /// The allowed suites of TLS 1.2; empty for all.
    suites: Vec<CipherSuite>,
    /// The allowed groups by their numbers; empty for all.
    groups: Vec<u16>,
    /// True to serve HTTP/1.1 only.
    pub only_http1: bool,
}

impl TlsProfile {
    /// Reads the least version, the suites, and the numbers of groups. Empty ones mean the defaults. Returns also the
    /// names and numbers that this server does not serve.
    ///
    /// # Errors
    /// A name is unknown, or no group is left.
    pub fn parse(least: &str, suites: &[String], groups: &[u16]) -> Result<(Self, Vec<String>), String> {
        let version = VERSIONS.iter().find(|(name, _)| *name == least);
        let mut only_13 = match version {
            Some((_, only_13)) => *only_13,
            None if least.is_empty() => false,
            None => return Err(format!("unknown tls version {least:?}")),
        };
        let (mut served, mut left_out) = (Vec::new(), Vec::new());
        for name in suites {
            if let Some((_, suite)) = SUITES.iter().find(|(known, _)| known == name) {
                served.push(*suite);
            } else if NOT_SERVED.contains(&name.as_str()) {
                left_out.push(name.clone());
            } else if !SUITES_OF_13.contains(&name.as_str()) {
                return Err(format!("Cipher suite {name} not supported or doesn't exist"));
            }
        }
        // A list without a usable suite of TLS 1.2 leaves TLS 1.3.
        only_13 |= !suites.is_empty() && served.is_empty();
        let known: Vec<u16> = aws_lc_rs::ALL_KX_GROUPS.iter().map(|group| u16::from(group.name())).collect();
        let (groups, missing): (Vec<u16>, Vec<u16>) = groups.iter().partition(|group| known.contains(group));
        if groups.is_empty() && !missing.is_empty() {
            return Err(format!("none of the groups {missing:?} is served, only {known:?}"));
        }
        left_out.extend(missing.iter().map(u16::to_string));
        Ok((Self { only_13, suites: served, groups, only_http1: false }, left_out))
    }

    /// The cryptography of a listener.
    pub(super) fn provider(&self) -> CryptoProvider {
        // The provider is named. With two linked providers and no default, the process default would fail at run time.
        let mut provider = aws_lc_rs::default_provider();
        if !self.suites.is_empty() {
            provider.cipher_suites.retain(|suite| suite.tls13().is_some() || self.suites.contains(&suite.suite()));
        }
        if !self.groups.is_empty() {
            provider.kx_groups = aws_lc_rs::ALL_KX_GROUPS.to_vec();
            provider.kx_groups.retain(|group| self.groups.contains(&u16::from(group.name())));
        }
        provider
    }

    /// The protocol versions of a listener.
    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        if self.only_13 { &BOTH[..1] } else { &BOTH }
    }

    /// The protocols that clients may choose in the handshake.
    pub(super) fn protocols(&self) -> Vec<Vec<u8>> {
        let both: [&[u8]; 2] = [b"h2", b"http/1.1"];
        both[usize::from(self.only_http1)..].iter().map(|name| name.to_vec()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(least: &str, suites: &[&str], groups: &[u16]) -> Result<(TlsProfile, Vec<String>), String> {
        let suites: Vec<String> = suites.iter().map(|suite| (*suite).to_owned()).collect();
        TlsProfile::parse(least, &suites, groups)
    }

    #[test]
    fn profiles_serve_no_more_than_the_default() {
        let (all, left_out) = parsed("", &[], &[]).unwrap();
        assert_eq!((all.versions().len(), left_out.len(), &all), (2, 0, &TlsProfile::default()));
        let suites =
            ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_AES_128_GCM_SHA256"];
        let (some, left_out) = parsed("VersionTLS12", &suites, &[29, 25]).unwrap();
        assert_eq!(left_out, ["TLS_RSA_WITH_AES_128_CBC_SHA", "25"]);
        let provider = some.provider();
        assert_eq!(provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).count(), 1);
        assert_eq!((provider.kx_groups.len(), some.versions().len()), (1, 2));
        let (weak, _) = parsed("VersionTLS10", &["TLS_RSA_WITH_RC4_128_SHA"], &[]).unwrap();
        assert_eq!(weak.versions(), &[&version::TLS13]);
        assert_eq!(parsed("VersionTLS13", &[], &[]).unwrap().0.versions(), &[&version::TLS13]);
    }

    #[test]
    fn unknown_names_are_refused() {
        assert_eq!(parsed("TLS13", &[], &[]).unwrap_err(), "unknown tls version \"TLS13\"");
        assert_eq!(parsed("", &["NOPE"], &[]).unwrap_err(), "Cipher suite NOPE not supported or doesn't exist");
        assert!(parsed("", &[], &[9999]).unwrap_err().contains("none of the groups [9999]"));
    }
}
