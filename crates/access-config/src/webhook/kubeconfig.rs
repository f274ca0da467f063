//! Kubeconfig files of webhooks: the address, the authorities for its certificate, and this server's credentials.
//!
//! The current context applies. The files that it names are read too; relative paths start at the directory of the
//! kubeconfig. Their paths are returned, so that changes can be detected. Credential plugins (`exec`) are not run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use keelson_access::read_bounded;
use keelson_codec::yaml;
use keelson_meta::json::{Map, Value};
use keelson_outbound::{ClientCertificate, ClientConfig, Credentials, Destination, Outbound, RestClient, clean_path};

use crate::document::ConfigurationError;

/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

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
        let mut endpoint = Kubeconfig::read(file)?.endpoint().map_err(|why| unusable(file, &why))?;
        endpoint.files.insert(0, file.to_owned());
        Ok(endpoint)
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

/// A parsed kubeconfig, with the directory for relative paths.
pub(super) struct Kubeconfig<'f> {
    document: Value,
    directory: &'f Path,
}

impl<'f> Kubeconfig<'f> {
    /// Parses a kubeconfig file.
    ///
    /// # Errors
    /// The file cannot be read or is not YAML.
    pub(super) fn read(file: &'f Path) -> Result<Self, ConfigurationError> {
        let bytes = read_bounded(file, MOST_BYTES)?;
        let document = yaml::parse(&bytes).map_err(|error| unusable(file, &error.to_string()))?.value;
        Ok(Self { document, directory: file.parent().unwrap_or(Path::new(".")) })
    }

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
        check_supported(user)?;
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

    /// The users by name, in the order of the file.
    pub(super) fn users(&self) -> impl Iterator<Item = (&str, &Value)> {
        let users = self.document["users"].as_array().into_iter().flatten();
        users.map(|one| (one["name"].as_str().unwrap_or_default(), &one["user"]))
    }

    /// The name of the user of the current context.
    pub(super) fn current_user(&self) -> Option<&str> {
        let context = self.document["current-context"].as_str().filter(|name| !name.is_empty())?;
        self.named("contexts", "context", context)?["user"].as_str()
    }

    /// The credentials of a user.
    ///
    /// # Errors
    /// The credentials cannot be read or are invalid, or their type is not supported.
    pub(super) fn credentials(&self, user: &Value) -> Result<Credentials, String> {
        check_supported(user)?;
        let mut headers = impersonation(user)?;
        headers.extend(self.authorization(user)?.map(|value| (AUTHORIZATION, value)));
        Ok(Credentials { certificate: self.certificate(user)?, headers })
    }

    fn named(&self, list: &str, what: &str, name: &str) -> Option<&Value> {
        let list = self.document[list].as_array()?;
        list.iter().find(|one| one["name"].as_str() == Some(name)).map(|one| &one[what])
    }

    /// The files that are named for values outside of the kubeconfig.
    pub(super) fn named_files(&self, cluster: &Value, user: &Value) -> Vec<PathBuf> {
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

    /// The value of `NAME-data`, or else the content of the file in the field `NAME`.
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

/// Refuses credentials from credential plugins.
fn check_supported(user: &Value) -> Result<(), String> {
    match ["exec", "auth-provider"].into_iter().find(|kind| !user[*kind].is_null()) {
        Some(kind) => Err(format!("credentials by {kind} are not supported")),
        None => Ok(()),
    }
}

/// The header fields of impersonation.
fn impersonation(user: &Value) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let Some(name) = user["as"].as_str().filter(|name| !name.is_empty()) else { return Ok(headers) };
    let mut add = |field: &str, value: &str| {
        let name = HeaderName::try_from(field).map_err(|_| format!("its {field} can't be sent"))?;
        let value = HeaderValue::try_from(value).map_err(|_| format!("its {field} can't be sent"))?;
        headers.append(name, value);
        Ok::<(), String>(())
    };
    add("impersonate-user", name)?;
    for group in user["as-groups"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        add("impersonate-group", group)?;
    }
    for (key, values) in user["as-user-extra"].as_object().into_iter().flat_map(Map::iter) {
        for value in values.as_array().into_iter().flatten().filter_map(Value::as_str) {
            add(&format!("impersonate-extra-{}", escaped(key)), value)?;
        }
    }
    Ok(headers)
}

/// The key of an extra value as the name of a header field. Other characters become `%` and their code.
fn escaped(key: &str) -> String {
    let mut escaped = String::new();
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// The error for an unusable file.
pub(super) fn unusable(file: &Path, why: &str) -> ConfigurationError {
    ConfigurationError::Unusable(format!("{}: {why}", file.display()))
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
        assert_eq!(files, ["kubeconfig", "token"], "embedded values name no file");
        let basic = format!(
            "{CONTEXT}clusters: [{{name: k, cluster: {{server: 'https://h'}}}}]\nusers: [{{name: u, user: {{username: a, password: b}}}}]\n"
        );
        assert_eq!(read(&basic).unwrap().authorization.unwrap(), "Basic YTpi");
    }

    #[test]
    fn a_file_that_can_not_be_used_says_why() {
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
