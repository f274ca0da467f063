//! The one reader of kubeconfig files: contexts, clusters, and the credentials of users.
//!
//! The files that a kubeconfig names are read too. Relative paths start at its directory. Credential plugins (`exec`)
//! are not run.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use keelson_access::read_bounded;
use keelson_codec::yaml;
use keelson_meta::json::{Map, Value};
use keelson_outbound::{ClientCertificate, Credentials};

use crate::document::ConfigurationError;

/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// The bearer token of a user.
#[derive(Clone, PartialEq, Eq)]
pub enum UserToken {
    /// A token in the kubeconfig.
    Fixed(String),
    /// A file with the token, which may be replaced at any time.
    File(PathBuf),
}

/// A parsed kubeconfig, with the directory for relative paths.
pub struct Kubeconfig<'f> {
    document: Value,
    directory: &'f Path,
}

impl<'f> Kubeconfig<'f> {
    /// Parses a kubeconfig file.
    ///
    /// # Errors
    /// The file cannot be read or is not YAML.
    pub fn read(file: &'f Path) -> Result<Self, ConfigurationError> {
        let bytes = read_bounded(file, MOST_BYTES)?;
        let document = yaml::parse(&bytes).map_err(|error| unusable(file, &error.to_string()))?.value;
        Ok(Self { document, directory: file.parent().unwrap_or(Path::new(".")) })
    }

    /// The cluster and the user of the current context. The user is null if the context names none.
    ///
    /// # Errors
    /// There is no current context, or it names a cluster or a user that does not exist.
    pub fn current(&self) -> Result<(&Value, &Value), String> {
        let name = self.document["current-context"].as_str().unwrap_or_default();
        let context = self.named("contexts", "context", name).ok_or("it has no current context")?;
        let cluster_name = context["cluster"].as_str().unwrap_or_default();
        let cluster = self.named("clusters", "cluster", cluster_name);
        let cluster = cluster.ok_or_else(|| format!("there is no cluster {cluster_name:?}"))?;
        let user_name = context["user"].as_str().unwrap_or_default();
        match self.named("users", "user", user_name) {
            Some(user) => Ok((cluster, user)),
            None if user_name.is_empty() => Ok((cluster, &Value::Null)),
            None => Err(format!("there is no user {user_name:?}")),
        }
    }

    /// The users by name, in the order of the file.
    pub(crate) fn users(&self) -> impl Iterator<Item = (&str, &Value)> {
        let users = self.document["users"].as_array().into_iter().flatten();
        users.map(|one| (one["name"].as_str().unwrap_or_default(), &one["user"]))
    }

    /// The name of the user of the current context.
    pub(crate) fn current_user(&self) -> Option<&str> {
        let context = self.document["current-context"].as_str().filter(|name| !name.is_empty())?;
        self.named("contexts", "context", context)?["user"].as_str()
    }

    /// The credentials of a user.
    ///
    /// # Errors
    /// The credentials cannot be read or are invalid, or their type is not supported.
    pub(crate) fn credentials(&self, user: &Value) -> Result<Credentials, String> {
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
    pub(crate) fn named_files(&self, cluster: &Value, user: &Value) -> Vec<PathBuf> {
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

    /// The value of `NAME-data`, or else the content of the file in the field `NAME`.
    ///
    /// # Errors
    /// The data is not base64, or the file can't be read.
    pub fn data(&self, of: &Value, name: &str) -> Result<Option<Vec<u8>>, String> {
        if let Some(data) = of[format!("{name}-data").as_str()].as_str().filter(|data| !data.is_empty()) {
            return BASE64.decode(data).map(Some).map_err(|_| format!("its {name}-data is not base64"));
        }
        of[name].as_str().filter(|path| !path.is_empty()).map(|path| read(&self.path(path))).transpose()
    }

    /// The client certificate of a user.
    ///
    /// # Errors
    /// The certificate or its key can't be read or presented, or one of them is missing.
    pub fn certificate(&self, user: &Value) -> Result<Option<ClientCertificate>, String> {
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

    /// The bearer token of a user. A token in the kubeconfig takes precedence over a file.
    pub fn token(&self, user: &Value) -> Option<UserToken> {
        let text = |name: &str| user[name].as_str().unwrap_or_default();
        match (text("token"), text("tokenFile")) {
            ("", "") => None,
            ("", file) => Some(UserToken::File(self.path(file))),
            (token, _) => Some(UserToken::Fixed(token.to_owned())),
        }
    }

    pub(crate) fn authorization(&self, user: &Value) -> Result<Option<HeaderValue>, String> {
        let text = |name: &str| user[name].as_str().unwrap_or_default();
        let token = match self.token(user) {
            None => String::new(),
            Some(UserToken::File(file)) => String::from_utf8_lossy(&read(&file)?).trim().to_owned(),
            Some(UserToken::Fixed(token)) => token,
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

fn read(file: &Path) -> Result<Vec<u8>, String> {
    read_bounded(file, MOST_BYTES).map_err(|error| error.to_string())
}

/// Refuses credentials from credential plugins.
pub(crate) fn check_supported(user: &Value) -> Result<(), String> {
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
pub(crate) fn unusable(file: &Path, why: &str) -> ConfigurationError {
    ConfigurationError::Unusable(format!("{}: {why}", file.display()))
}
