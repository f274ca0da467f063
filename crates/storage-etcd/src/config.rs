//! The settings of an etcd: members, prefix, TLS and login.
//!
//! All settings are in one URL: `etcd://user:password@host:2379,other:2379/prefix?ca=FILE&cert=FILE&key=FILE`. Secrets
//! can be in files instead. Unknown settings are errors.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_meta::random::SystemRandom;
use keelson_meta::{Clock, Random, SystemClock};
use tokio::io::{AsyncRead, AsyncWrite};

const SCHEME: &str = "etcd://";
const DEFAULT_PORT: u16 = 2379;
const DEFAULT_PREFIX: &str = "/registry";
/// The default time limit of a call, including attempts on other endpoints.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The configuration for [`EtcdStore::open`](crate::EtcdStore::open).
#[derive(Clone)]
pub struct EtcdConfig {
    /// The `host:port` of each member, without duplicates. The store uses one until it fails, then the next.
    pub endpoints: Vec<String>,
    /// Determines which member is used first.
    pub order: Order,
    /// The prefix of all keys, without a trailing slash: `/registry`.
    pub prefix: String,
    /// The TLS settings; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The login, if etcd has authentication.
    pub login: Option<Login>,
    /// The time limit of a call, including attempts on other endpoints.
    pub timeout: Duration,
    /// True to compress requests and responses with gzip.
    pub compression: bool,
    /// Opens the connections to members; `None` for direct ones.
    pub dial: Option<Arc<dyn DialMember>>,
    /// The clock for the expiry of leases.
    pub clock: Arc<dyn Clock>,
    /// Random numbers for the choice of the first member.
    pub random: Arc<dyn Random>,
}

/// A connection to an etcd member, before the TLS handshake.
pub trait MemberStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> MemberStream for S {}

/// Opens connections to members, such as through a proxy.
pub trait DialMember: Send + Sync {
    /// Opens a connection to this host and port.
    fn dial(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn MemberStream>>>;
}

/// The order in which several endpoints, or several addresses of a name, are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Starts at a random one, so that servers with equal settings use different members.
    #[default]
    Any,
    /// Starts at the first one, so that the operator can choose a near member.
    Given,
}

/// PEM files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authorities that sign the servers' certificates; `None` for the system's.
    pub ca: Option<PathBuf>,
    /// The client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the servers' certificates; `None` for the endpoint's host.
    pub server_name: Option<String>,
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoints, order, prefix, tls, login, timeout, compression, dial: _, clock: _, random: _ } = self;
        let mut shown = f.debug_struct("EtcdConfig");
        shown
            .field("endpoints", endpoints)
            .field("order", order)
            .field("prefix", prefix)
            .field("tls", tls)
            .field("login", login);
        shown.field("timeout", timeout).field("compression", compression).finish_non_exhaustive()
    }
}

/// An error in a URL. Its text never contains a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is not an `etcd://` URL.
    #[error("an etcd store is written etcd://HOST:PORT[,HOST:PORT...][/PREFIX][?SETTING=VALUE&...]")]
    Form,
    /// There is no endpoint, or one is not `HOST:PORT`.
    #[error(
        "{0:?} is not an etcd endpoint: write HOST:PORT, an IPv6 address as [ADDRESS]:PORT, and no http:// before it"
    )]
    Endpoint(String),
    /// The prefix is not valid.
    #[error("{0:?} is not a prefix for keys: write /NAME or /NAME/NAME, without a slash at the end")]
    Prefix(String),
    /// The setting is unknown.
    #[error("{0:?} is not a setting of an etcd store: {KNOWN}")]
    Setting(String),
    /// A setting has an invalid value.
    #[error("{setting}={value} can't be: {must}")]
    Value {
        /// The setting.
        setting: &'static str,
        /// The value.
        value: String,
        /// The valid form.
        must: &'static str,
    },
    /// A file that the URL names can't be read.
    #[error("{setting}={path} can't be read: {cause}")]
    File {
        /// The setting.
        setting: &'static str,
        /// The file.
        path: String,
        /// The error of the system.
        cause: String,
    },
}

const KNOWN: &str =
    "known parameters are ca, cert, key, tls, server-name, user, password, password-file, timeout, order, compression";

impl EtcdConfig {
    /// A configuration with these endpoints, without TLS and users, under `/registry`.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            order: Order::Any,
            prefix: DEFAULT_PREFIX.to_owned(),
            tls: None,
            login: None,
            timeout: DEFAULT_TIMEOUT,
            compression: false,
            dial: None,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        }
    }

    /// Parses a URL.
    ///
    /// Settings: `ca`, `cert` and `key` name PEM files, and any of them, or `tls=true`, enables TLS. `server-name` is
    /// the name in the certificates instead of the host. `user` comes with `password` or `password-file` (or as
    /// `user:password@` before the hosts, percent-encoded). `timeout` is in seconds. `order=given` starts with the
    /// first endpoint. `compression=gzip` enables compression.
    ///
    /// # Errors
    /// The fault, as a sentence for the user who wrote the URL.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let rest = url.strip_prefix(SCHEME).ok_or(ConfigError::Form)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, prefix) = place.find('/').map_or((place, ""), |at| place.split_at(at));
        let (login, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let mut config = Self::new(endpoints(hosts)?);
        config.prefix = parse_prefix(prefix)?;
        let mut settings = Settings::read(query)?;
        if let Some(login) = login {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            settings.user = Some(decoded(user));
            settings.password = Some(decoded(password)).filter(|password| !password.is_empty()).or(settings.password);
        }
        settings.apply(config)
    }
}

/// The parsed query.
#[derive(Default)]
struct Settings {
    tls: bool,
    files: TlsFiles,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    user: Option<String>,
    password: Option<String>,
    timeout: Option<Duration>,
    order: Order,
    compression: bool,
}

impl Settings {
    fn read(query: &str) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            settings.set(&name, value.into_owned())?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), ConfigError> {
        match name {
            "tls" => self.tls = one_of("tls", value, &["false", "true"], "true or false")? == 1,
            "ca" => self.files.ca = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "server-name" => self.files.server_name = Some(value),
            "user" => self.user = Some(value),
            "password" => self.password = Some(value),
            "password-file" => self.password = Some(read_password(&value)?),
            "timeout" => self.timeout = Some(seconds(value)?),
            "order" => {
                self.order = [Order::Any, Order::Given][one_of("order", value, &["any", "given"], "any or given")?];
            }
            "compression" => {
                self.compression = one_of("compression", value, &["none", "gzip"], "gzip or none")? == 1;
            }
            other => return Err(ConfigError::Setting(other.to_owned())),
        }
        Ok(())
    }

    fn apply(mut self, mut config: EtcdConfig) -> Result<EtcdConfig, ConfigError> {
        self.files.identity = match (self.cert, self.key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(cert), None) => return Err(alone("cert", cert.display(), "a client certificate needs its key=FILE")),
            (None, Some(key)) => return Err(alone("key", key.display(), "a key needs its certificate, cert=FILE")),
        };
        if self.tls || self.files != TlsFiles::default() {
            config.tls = Some(self.files);
        }
        config.login = match (self.user, self.password) {
            (Some(user), Some(password)) => Some(Login { user, password }),
            (Some(user), None) => return Err(alone("user", user, "a user needs a password or password-file")),
            (None, Some(_)) => return Err(alone("password", "...", "a password needs a user")),
            (None, None) => None,
        };
        config.timeout = self.timeout.unwrap_or(config.timeout);
        config.order = self.order;
        config.compression = self.compression;
        Ok(config)
    }
}

fn alone(setting: &'static str, value: impl fmt::Display, must: &'static str) -> ConfigError {
    ConfigError::Value { setting, value: value.to_string(), must }
}

/// Parses the endpoints and removes duplicates, since a duplicate would be tried twice.
fn endpoints(hosts: &str) -> Result<Vec<String>, ConfigError> {
    let mut found = Vec::new();
    for endpoint in hosts.split(',').map(endpoint) {
        let endpoint = endpoint?;
        if !found.contains(&endpoint) {
            found.push(endpoint);
        }
    }
    Ok(found)
}

fn endpoint(text: &str) -> Result<String, ConfigError> {
    let refused = || ConfigError::Endpoint(text.to_owned());
    let named = match text.rsplit_once(':') {
        // An IPv6 address without a port ends in a bracket.
        Some((host, port)) if !port.ends_with(']') => {
            port.parse::<u16>().map_err(|_| refused())?;
            if host.is_empty() {
                return Err(refused());
            }
            text.to_owned()
        }
        _ => format!("{text}:{DEFAULT_PORT}"),
    };
    let valid = !text.is_empty() && named.parse::<http::uri::Authority>().is_ok_and(|found| found.as_str() == named);
    if valid { Ok(named) } else { Err(refused()) }
}

fn parse_prefix(path: &str) -> Result<String, ConfigError> {
    if path.is_empty() || path == "/" {
        return Ok(DEFAULT_PREFIX.to_owned());
    }
    let prefix = decoded(path);
    let whole = prefix.split('/').skip(1).all(|part| !part.is_empty() && !part.contains(char::is_control));
    if whole { Ok(prefix) } else { Err(ConfigError::Prefix(prefix)) }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The index of a value among the allowed ones.
fn one_of(setting: &'static str, value: String, allowed: &[&str; 2], must: &'static str) -> Result<usize, ConfigError> {
    let place = allowed.iter().position(|known| *known == value);
    place.ok_or(ConfigError::Value { setting, value, must })
}

fn seconds(value: String) -> Result<Duration, ConfigError> {
    const MUST: &str = "seconds, 1 to 300";
    let given = value.strip_suffix('s').unwrap_or(&value).parse().ok().filter(|given| (1..=300).contains(given));
    given.map(Duration::from_secs).ok_or(ConfigError::Value { setting: "timeout", value, must: MUST })
}

/// Returns the first line of a file.
fn read_password(path: &str) -> Result<String, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|cause| ConfigError::File {
        setting: "password-file",
        path: path.to_owned(),
        cause: cause.to_string(),
    })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> EtcdConfig {
        EtcdConfig::from_url(url).unwrap()
    }

    #[track_caller]
    fn refused(url: &str, text: &str) {
        let error = EtcdConfig::from_url(url).unwrap_err().to_string();
        assert!(error.contains(text), "{url}: {error}");
    }

    #[test]
    fn a_url_names_everything() {
        let config = parse(
            "etcd://key%3Aper:p%40ss@a:1,b,[::1]:3/clusters/one?ca=/x/ca.pem&cert=c.pem&key=k.pem&timeout=3s&compression=gzip",
        );
        assert_eq!(config.endpoints, ["a:1", "b:2379", "[::1]:3"]);
        assert_eq!((&*config.prefix, config.order), ("/clusters/one", Order::Any));
        let login = config.login.unwrap();
        assert_eq!((&*login.user, &*login.password), ("key:per", "p@ss"));
        let tls = config.tls.unwrap();
        assert_eq!(tls.ca, Some("/x/ca.pem".into()));
        assert_eq!(tls.identity, Some(("c.pem".into(), "k.pem".into())));
        assert_eq!((config.timeout, config.compression), (Duration::from_secs(3), true));
    }

    #[test]
    fn missing_url_parts_have_defaults() {
        for url in ["etcd://h", "etcd://h:2379/", "etcd://h:2379/registry", "etcd://h?compression=none&tls=false"] {
            let config = parse(url);
            assert_eq!((config.endpoints, &*config.prefix), (vec!["h:2379".to_owned()], "/registry"), "{url}");
            assert!(config.tls.is_none() && config.login.is_none() && !config.compression, "{url}");
        }
        assert_eq!(parse("etcd://h?tls=true").tls, Some(TlsFiles::default()));
    }

    #[test]
    fn members_are_taken_in_their_order_and_each_once() {
        assert_eq!(parse("etcd://b,a:2379,c,a,b:2379,b:1").endpoints, ["b:2379", "a:2379", "c:2379", "b:1"]);
        assert_eq!(parse("etcd://[::1],[::1]:2379,127.0.0.1").endpoints, ["[::1]:2379", "127.0.0.1:2379"]);
        assert_eq!(parse("etcd://a,b?order=given").order, Order::Given);
    }

    #[test]
    fn faults_are_reported() {
        refused("http://h", "is written etcd://");
        refused("etcd://", "is not an etcd endpoint");
        refused("etcd://h,:1", "\":1\" is not an etcd endpoint");
        refused("etcd://h:99999", "write HOST:PORT");
        refused("etcd://a,,b", "\"\" is not an etcd endpoint");
        refused("etcd://a,::1", "\"::1\" is not an etcd endpoint: write HOST:PORT, an IPv6 address as [ADDRESS]:PORT");
        refused("etcd://a,http://b:2379", "\"http:\" is not an etcd endpoint");
        refused("etcd://h?order=first", "order=first can't be: any or given");
        refused("etcd://h/a/", "is not a prefix");
        refused("etcd://h/a//b", "is not a prefix");
        refused("etcd://h?cafile=x", "\"cafile\" is not a setting");
        refused("etcd://h?cert=c", "needs its key");
        refused("etcd://h?key=c", "needs its certificate");
        refused("etcd://h?tls=yes", "tls=yes can't be: true or false");
        refused("etcd://h?timeout=0", "seconds, 1 to 300");
        refused("etcd://u@h", "needs a password");
        refused("etcd://h?password=secret", "password=... can't be: a password needs a user");
        refused("etcd://h?user=u&password-file=/nowhere/at/all", "can't be read");
    }

    #[test]
    fn passwords_are_not_shown() {
        assert!(!format!("{:?}", parse("etcd://u:secret@h")).contains("secret"));
    }
}
