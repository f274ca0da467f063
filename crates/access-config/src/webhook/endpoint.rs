//! The address of a webhook by a kubeconfig, with the authorities for its certificate and this server's credentials.
//!
//! The current context applies. The paths of all files are returned, so that changes can be detected.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Uri};
use keelson_outbound::{ClientCertificate, ClientConfig, Destination, Outbound, RestClient, clean_path};

use crate::document::ConfigurationError;
use crate::kubeconfig::{Kubeconfig, check_supported, unusable};

/// The address of a webhook, with this server's credentials for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookEndpoint {
    /// The kubeconfig and the files that it names.
    files: Vec<PathBuf>,
    config: ClientConfig,
    /// The path of the URL, without a trailing slash.
    path: String,
    /// The server name in the certificate, if it differs from the host of the URL.
    server_name: Option<String>,
    certificate: Option<ClientCertificate>,
    authorization: Option<HeaderValue>,
}

impl WebhookEndpoint {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, contradicts itself, or uses a feature that is not supported.
    pub fn read(file: &Path) -> Result<Self, ConfigurationError> {
        let mut endpoint = Self::of(&Kubeconfig::read(file)?).map_err(|why| unusable(file, &why))?;
        endpoint.files.insert(0, file.to_owned());
        Ok(endpoint)
    }

    fn of(kubeconfig: &Kubeconfig<'_>) -> Result<Self, String> {
        let (cluster, user) = kubeconfig.current()?;
        let server = cluster["server"].as_str().unwrap_or_default();
        let url: Option<Uri> = server.parse().ok().filter(|url: &Uri| url.scheme_str() == Some("https"));
        let url = url.ok_or_else(|| format!("the server {server:?} is not of the form https://host[/path]"))?;
        check_supported(user)?;
        if !cluster["proxy-url"].is_null() {
            return Err("proxy-url is not supported".to_owned());
        }
        let ca_bundle = kubeconfig.data(cluster, "certificate-authority")?.unwrap_or_default();
        let insecure_skip_tls_verify = cluster["insecure-skip-tls-verify"].as_bool().unwrap_or_default();
        if insecure_skip_tls_verify && !ca_bundle.is_empty() {
            return Err("specifying a root certificates file with the insecure flag is not allowed".to_owned());
        }
        let config =
            ClientConfig { destination: Destination::Url(server.to_owned()), ca_bundle, insecure_skip_tls_verify };
        Ok(Self {
            files: kubeconfig.named_files(cluster, user),
            config,
            path: clean_path(url.path()),
            server_name: cluster["tls-server-name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
            certificate: kubeconfig.certificate(user)?,
            authorization: kubeconfig.authorization(user)?,
        })
    }

    /// The kubeconfig and the files that it names.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Creates a client with `outbound`. Does not connect yet.
    ///
    /// # Errors
    /// The errors of [`Outbound::client_as`].
    pub fn connect(&self, outbound: &Outbound) -> Result<RestClient, String> {
        outbound.client_as(&self.config, self.server_name.as_deref(), self.certificate.clone())
    }

    /// The path of requests, with the timeout as a query parameter.
    pub fn path(&self, time: Duration) -> String {
        format!("{}?timeout={}s", self.path, time.as_secs().max(1))
    }

    /// The header fields of requests with JSON bodies and JSON responses.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json, */*")),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ]);
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("kubeconfig"), text).unwrap();
        std::fs::write(directory.path().join("token"), "from-file\n").unwrap();
        directory
    }

    fn read(text: &str) -> Result<WebhookEndpoint, String> {
        WebhookEndpoint::read(&written(text).path().join("kubeconfig")).map_err(|error| error.to_string())
    }

    const CONTEXT: &str = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n";

    #[test]
    fn the_current_context_has_the_address_of_a_webhook() {
        let endpoint = read(&format!(
            "{CONTEXT}clusters: [{{name: k, cluster: {{server: 'https://h/p', certificate-authority-data: YQ==, tls-server-name: other}}}}]\n\
             users: [{{name: u, user: {{tokenFile: token}}}}]\n"
        ))
        .unwrap();
        assert_eq!(
            (endpoint.path(Duration::from_secs(30)).as_str(), endpoint.config.ca_bundle.as_slice()),
            ("/p?timeout=30s", &b"a"[..])
        );
        assert_eq!(endpoint.server_name.as_deref(), Some("other"));
        assert_eq!(endpoint.authorization.as_ref().unwrap(), "Bearer from-file");
        let files: Vec<_> = endpoint.files().iter().map(|file| file.file_name().unwrap().to_owned()).collect();
        assert_eq!(files, ["kubeconfig", "token"], "embedded values name no file");
        let basic = format!(
            "{CONTEXT}clusters: [{{name: k, cluster: {{server: 'https://h'}}}}]\nusers: [{{name: u, user: {{username: a, password: b}}}}]\n"
        );
        assert_eq!(read(&basic).unwrap().authorization.unwrap(), "Basic YTpi");
    }

    #[test]
    fn unusable_kubeconfigs_are_refused_with_a_reason() {
        let check = |rest: &str, expected: &str| {
            let error = read(&format!("{CONTEXT}{rest}")).unwrap_err();
            assert!(error.ends_with(expected), "{error}");
        };
        let cluster = "clusters: [{name: k, cluster: {server: 'https://h'}}]\n";
        check("", "there is no cluster \"k\"");
        check(cluster, "there is no user \"u\"");
        check(
            &format!("{cluster}users: [{{name: u, user: {{exec: {{}}}}}}]\n"),
            "credentials by exec are not supported",
        );
        check(&format!("{cluster}users: [{{name: u, user: {{client-certificate-data: YQ==}}}}]\n"), "belong together");
        check("clusters: [{name: k, cluster: {server: 'http://h'}}]\nusers: [{name: u}]\n", "https://host[/path]");
        assert!(read("kind: Config\n").unwrap_err().ends_with("it has no current context"));
    }
}
