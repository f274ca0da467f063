//! The administrator's kubeconfig, with the address of the server and the credentials.
//!
//! Certificates and keys are embedded, so that no other file is needed. The file grants full access.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The content of a kubeconfig. Certificates and keys are PEM.
#[derive(Clone, Copy, Debug)]
pub struct Kubeconfig<'a> {
    /// The name of the cluster and of the context.
    pub cluster: &'a str,
    /// The name of the user.
    pub user: &'a str,
    /// `https://host:port`
    pub server: &'a str,
    /// The certificates that verify the server.
    pub ca_pem: &'a str,
    /// The client certificate.
    pub certificate_pem: &'a str,
    /// The key of the client certificate.
    pub key_pem: &'a str,
    /// The default namespace of the client.
    pub namespace: Option<&'a str>,
}

impl Kubeconfig<'_> {
    /// The kubeconfig as YAML.
    pub fn to_yaml(&self) -> String {
        let Self { ca_pem, certificate_pem, key_pem, .. } = *self;
        let (ca, certificate, key) =
            (STANDARD.encode(ca_pem), STANDARD.encode(certificate_pem), STANDARD.encode(key_pem));
        let [cluster, user, server] = [self.cluster, self.user, self.server].map(scalar);
        // Without authorities, clients use those of the system.
        let authority = if ca.is_empty() { String::new() } else { format!("    certificate-authority-data: {ca}\n") };
        let namespace = self.namespace.map(|name| format!("    namespace: {}\n", scalar(name))).unwrap_or_default();
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: {cluster}\n\
             \x20 cluster:\n\
             \x20   server: {server}\n\
             {authority}\
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
             {namespace}\
             current-context: {cluster}\n"
        )
    }
}

/// A string as a YAML scalar, in quotes if it could be read as another type.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '/' | '_');
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_plain);
    let is_url = text.starts_with("https://") && !text.contains([' ', '#', '"']);
    let is_read_otherwise =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&&*text.to_lowercase());
    if (is_word && !is_read_otherwise) || is_url { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_could_mean_something_else() {
        for plain in ["keelson-admin", "https://127.0.0.1:6443", "https://[::1]:6443", "a.b/c"] {
            assert_eq!(scalar(plain), plain);
        }
        for (text, quoted) in
            [("system:x", r#""system:x""#), ("ann@x", r#""ann@x""#), ("yes", r#""yes""#), ("1", r#""1""#)]
        {
            assert_eq!(scalar(text), quoted);
        }
        let config = Kubeconfig {
            cluster: "c",
            user: "a: b",
            server: "https://h:1",
            ca_pem: "",
            certificate_pem: "",
            key_pem: "",
            namespace: Some("web"),
        };
        let text = config.to_yaml();
        assert!(text.contains("    user: \"a: b\"\n    namespace: web\ncurrent-context: c\n"), "{text}");
    }
}
