//! Kubeconfig files that say where a webhook is, whose certificate it has, and by what it knows its caller.
//!
//! The current context counts. Files that it names are read with it, those of relative paths from its directory, and are told so that
//! they can be followed. Programs that make credentials are not run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Uri};
use keelson_access::read_bounded;
use keelson_codec::yaml;
use keelson_meta::json::Value;
use keelson_outbound::{ClientCertificate, ClientConfig, Destination, Outbound, RestClient, clean_path};

use crate::document::ConfigurationError;

/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// Where a webhook is, and how this server shows who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookEndpoint {
    /// The kubeconfig, and the files that it names.
    files: Vec<PathBuf>,
    config: ClientConfig,
    /// The path of the URL, without an end that says nothing.
    path: String,
    /// The name that the certificate has to have, where it is not that of the URL.
    server_name: Option<String>,
    certificate: Option<ClientCertificate>,
    authorization: Option<HeaderValue>,
}

impl WebhookEndpoint {
    /// Reads a file.
    ///
    /// # Errors
    /// When it can't be read, contradicts itself, or asks for what is not supported.
    pub fn read(file: &Path) -> Result<Self, ConfigurationError> {
        let bytes = read_bounded(file, MOST_BYTES)?;
        let unusable = |why: String| ConfigurationError::Unusable(format!("{}: {why}", file.display()));
        let document = yaml::parse(&bytes).map_err(|error| unusable(error.to_string()))?.value;
        let directory = file.parent().unwrap_or(Path::new("."));
        let mut endpoint = Kubeconfig { document, directory }.endpoint().map_err(unusable)?;
        endpoint.files.insert(0, file.to_owned());
        Ok(endpoint)
    }

    /// The files that say all this.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Has it called through `outbound`. Nothing is dialled yet.
    ///
    /// # Errors
    /// Those of [`Outbound::client_as`].
    pub fn connect(&self, outbound: &Outbound) -> Result<RestClient, String> {
        outbound.client_as(&self.config, self.server_name.as_deref(), self.certificate.clone())
    }

    /// The path that requests are sent to, which tells how long each of them may take.
    pub fn path(&self, time: Duration) -> String {
        format!("{}?timeout={}s", self.path, time.as_secs().max(1))
    }

    /// The header fields of requests, whose bodies and answers are JSON.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json, */*")),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ]);
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        headers
    }
}

struct Kubeconfig<'f> {
    document: Value,
    directory: &'f Path,
}

impl Kubeconfig<'_> {
    fn endpoint(&self) -> Result<WebhookEndpoint, String> {
        let name = self.document["current-context"].as_str().unwrap_or_default();
        let context = self.named("contexts", "context", name).ok_or("it has no current context")?;
        let cluster_name = context["cluster"].as_str().unwrap_or_default();
        let cluster = self.named("clusters", "cluster", cluster_name);
        let cluster = cluster.ok_or_else(|| format!("there is no cluster {cluster_name:?}"))?;
        let user_name = context["user"].as_str().unwrap_or_default();
        let user = match self.named("users", "user", user_name) {
            Some(user) => user,
            None if user_name.is_empty() => &Value::Null,
            None => return Err(format!("there is no user {user_name:?}")),
        };
        let server = cluster["server"].as_str().unwrap_or_default();
        let url: Option<Uri> = server.parse().ok().filter(|url: &Uri| url.scheme_str() == Some("https"));
        let url = url.ok_or_else(|| format!("the server {server:?} is not of the form https://host[/path]"))?;
        for unknown in ["exec", "auth-provider"] {
            if !user[unknown].is_null() {
                return Err(format!("credentials by {unknown} are not supported"));
            }
        }
        if !cluster["proxy-url"].is_null() {
            return Err("proxy-url is not supported".to_owned());
        }
        let ca_bundle = self.data(cluster, "certificate-authority")?.unwrap_or_default();
        let insecure_skip_tls_verify = cluster["insecure-skip-tls-verify"].as_bool().unwrap_or_default();
        if insecure_skip_tls_verify && !ca_bundle.is_empty() {
            return Err("specifying a root certificates file with the insecure flag is not allowed".to_owned());
        }
        let config =
            ClientConfig { destination: Destination::Url(server.to_owned()), ca_bundle, insecure_skip_tls_verify };
        Ok(WebhookEndpoint {
            files: self.named_files(cluster, user),
            config,
            path: clean_path(url.path()),
            server_name: cluster["tls-server-name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
            certificate: self.certificate(user)?,
            authorization: self.authorization(user)?,
        })
    }

    fn named(&self, list: &str, what: &str, name: &str) -> Option<&Value> {
        let list = self.document[list].as_array()?;
        list.iter().find(|one| one["name"].as_str() == Some(name)).map(|one| &one[what])
    }

    /// The files that are named where something does not stand in the kubeconfig itself.
    fn named_files(&self, cluster: &Value, user: &Value) -> Vec<PathBuf> {
        let may_name = [
            (cluster, "certificate-authority", "certificate-authority-data"),
            (user, "client-certificate", "client-certificate-data"),
            (user, "client-key", "client-key-data"),
            (user, "tokenFile", "token"),
        ];
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let named = may_name.into_iter().filter(|(of, _, instead)| !is_text(&of[*instead]));
        named
            .filter_map(|(of, name, _)| of[name].as_str())
            .filter(|path| !path.is_empty())
            .map(|path| self.path(path))
            .collect()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    fn file(&self, path: &str) -> Result<Vec<u8>, String> {
        read_bounded(&self.path(path), MOST_BYTES).map_err(|error| error.to_string())
    }

    /// What stands in `NAME-data`, or else in the file `NAME`.
    fn data(&self, of: &Value, name: &str) -> Result<Option<Vec<u8>>, String> {
        if let Some(data) = of[format!("{name}-data").as_str()].as_str().filter(|data| !data.is_empty()) {
            return BASE64.decode(data).map(Some).map_err(|_| format!("its {name}-data is not base64"));
        }
        of[name].as_str().filter(|path| !path.is_empty()).map(|path| self.file(path)).transpose()
    }

    fn certificate(&self, user: &Value) -> Result<Option<ClientCertificate>, String> {
        let text = |name: &str| -> Result<Option<String>, String> {
            let data = self.data(user, name)?;
            data.map(|data| String::from_utf8(data).map_err(|_| format!("its {name} is not PEM"))).transpose()
        };
        match (text("client-certificate")?, text("client-key")?) {
            (Some(certificate_pem), Some(key_pem)) => {
                let certificate = ClientCertificate { certificate_pem, key_pem };
                certificate.check().map_err(|why| format!("its client certificate can't be presented: {why}"))?;
                Ok(Some(certificate))
            }
            (None, None) => Ok(None),
            _ => Err("a client certificate and its key belong together".to_owned()),
        }
    }

    fn authorization(&self, user: &Value) -> Result<Option<HeaderValue>, String> {
        let text = |name: &str| user[name].as_str().unwrap_or_default();
        let token = match (text("token"), text("tokenFile")) {
            ("", "") => String::new(),
            ("", file) => String::from_utf8_lossy(&self.file(file)?).trim().to_owned(),
            (token, _) => token.to_owned(),
        };
        let value = match (token.as_str(), text("username")) {
            ("", "") => return Ok(None),
            ("", name) => format!("Basic {}", BASE64.encode(format!("{name}:{}", text("password")))),
            (token, _) => format!("Bearer {token}"),
        };
        let value = HeaderValue::try_from(value).map_err(|_| "its credentials can't be sent".to_owned());
        value.map(|mut value| {
            value.set_sensitive(true);
            Some(value)
        })
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
    fn the_current_context_says_where_a_webhook_is() {
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
        assert_eq!(files, ["kubeconfig", "token"], "what stands in it is in no other file");
        let basic = format!(
            "{CONTEXT}clusters: [{{name: k, cluster: {{server: 'https://h'}}}}]\nusers: [{{name: u, user: {{username: a, password: b}}}}]\n"
        );
        assert_eq!(read(&basic).unwrap().authorization.unwrap(), "Basic YTpi");
    }

    #[test]
    fn a_file_that_can_not_be_used_says_why() {
        let check = |rest: &str, expected: &str| {
            let told = read(&format!("{CONTEXT}{rest}")).unwrap_err();
            assert!(told.ends_with(expected), "{told}");
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
