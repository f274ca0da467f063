//! The file that tells clients where the server is and proves who they are.
//!
//! Certificates and keys are embedded, so that the one file is enough. It is written for the operator, who can do everything
//! with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What a kubeconfig holds. Certificates and keys are PEM and are embedded, so that the file works wherever it is copied.
#[derive(Clone, Copy, Debug)]
pub struct Kubeconfig<'a> {
    /// The name of cluster and context.
    pub cluster: &'a str,
    /// The name of the user.
    pub user: &'a str,
    /// `https://host:port`
    pub server: &'a str,
    /// The certificates that sign the server's.
    pub ca_pem: &'a str,
    /// The client's certificate.
    pub certificate_pem: &'a str,
    /// The client's key.
    pub key_pem: &'a str,
}

impl Kubeconfig<'_> {
    /// The file's text, in YAML.
    pub fn to_yaml(&self) -> String {
        let Self { cluster, user, server, ca_pem, certificate_pem, key_pem } = *self;
        let (ca, certificate, key) =
            (STANDARD.encode(ca_pem), STANDARD.encode(certificate_pem), STANDARD.encode(key_pem));
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: {cluster}\n\
             \x20 cluster:\n\
             \x20   server: {server}\n\
             \x20   certificate-authority-data: {ca}\n\
             users:\n\
             - name: {user}\n\
             \x20 user:\n\
             \x20   client-certificate-data: {certificate}\n\
             \x20   client-key-data: {key}\n\
             contexts:\n\
             - name: {cluster}\n\
             \x20 context:\n\
             \x20   cluster: {cluster}\n\
             \x20   user: {user}\n\
             current-context: {cluster}\n"
        )
    }
}
