//! The settings of a connection to PostgreSQL: a URL with libpq's parameters, which PostgreSQL's users know.
//!
//! A parameter that this client does not support is an error. Keep-alives and timeouts have defaults that differ from
//! libpq's.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::StoreKey;
use keelson_supervision::Supervisor;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use super::error::PostgresError;
use super::tls::{Tls, TlsMode};

/// The timeout of one attempt to connect to a host, unless the URL sets another.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The port of PostgreSQL, unless the URL sets another.
const DEFAULT_PORT: u16 = 5432;
/// The time without data after which TCP probes a connection, the interval of the probes, and their number.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// The time after which a connection with unacknowledged bytes is closed.
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);

/// The settings of a [`PostgresStore`](crate::PostgresStore).
#[derive(Clone, Debug)]
pub struct PostgresConfig {
    pub(crate) connection: Config,
    pub(crate) tls: Tls,
    /// The number of concurrent reads of ranges. Each has its own connection.
    pub readers: usize,
    /// The size of recent changes that are kept in memory for tails, in bytes. Older changes are read from the table.
    pub recent_bytes: usize,
    /// The newest revision is raised to this one if it is smaller. Set for a store that replaces another one.
    pub least_revision: Revision,
    /// Refuses a database without tables instead of creating them.
    pub existing: bool,
    /// Accepts a loss of rows and continues with the remaining ones.
    pub accept_loss: bool,
    /// The first object of a new store, which is created in one transaction with the tables.
    pub first: Option<(StoreKey, Bytes)>,
    /// Is notified when a task of the store ends.
    pub supervisor: Supervisor,
}

impl PostgresConfig {
    /// The default settings (3 readers, 8 MiB of recent changes) for
    /// `postgres://user:password@host1:port1,host2:port2/database?parameter=value`.
    ///
    /// The parameters are libpq's: `sslmode` (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`),
    /// `sslrootcert`, `sslcert`, `sslkey`, `connect_timeout`, `application_name`, `options`, `keepalives*`,
    /// `tcp_user_timeout`, `load_balance_hosts`. Of several hosts, the store uses the first that accepts writes, as
    /// with `target_session_attrs=read-write`. If there is none, reads use a read-only primary.
    ///
    /// # Errors
    /// The URL is invalid, or a certificate file in it can't be read.
    pub fn from_url(url: &str) -> Result<Self, PostgresError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut files = TlsFiles::default();
        let mut rest = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(plus_kept(query).as_bytes()) {
            match &*name {
                "sslmode" => files.mode = Some(value.into_owned()),
                "sslrootcert" => files.roots = Some(value.into_owned()),
                "sslcert" => files.certificate = Some(value.into_owned()),
                "sslkey" => files.key = Some(value.into_owned()),
                _ => drop(rest.append_pair(&name, &value)),
            }
        }
        // The crate that parses the URL decodes only %20 as a space.
        let rest = rest.finish().replace('+', "%20");
        let mut connection: Config =
            format!("{base}?{rest}").parse().map_err(|error| PostgresError::Url(reason(&error)))?;
        if connection.get_dbname().is_none() {
            return Err(PostgresError::Url("it names no database".to_owned()));
        }
        let tls = files.read()?;
        set_defaults(&mut connection, &tls);
        Ok(Self {
            connection,
            tls,
            readers: 3,
            recent_bytes: 8 * 1024 * 1024,
            least_revision: Revision::ZERO,
            existing: false,
            accept_loss: false,
            first: None,
            supervisor: Supervisor::default(),
        })
    }

    /// The address of the database without the login: `host:port,host:port/database`.
    pub fn place(&self) -> String {
        let named = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let hosts = self.connection.get_hosts().iter().map(named);
        let addresses = self.connection.get_hostaddrs().iter().map(ToString::to_string);
        let mut places: Vec<String> = hosts.collect();
        if places.is_empty() {
            places = addresses.collect();
        }
        let ports = self.connection.get_ports();
        for (number, place) in places.iter_mut().enumerate() {
            // A single port applies to all hosts.
            if let Some(port) = ports.get(number).or(ports.first()).filter(|port| **port != DEFAULT_PORT) {
                place.push_str(&format!(":{port}"));
            }
        }
        format!("{}/{}", places.join(","), self.connection.get_dbname().unwrap_or_default())
    }
}

/// Keeps each `+`, which is a plus in a URL of libpq and not a space.
fn plus_kept(query: &str) -> String {
    query.replace('+', "%2B")
}

fn reason(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn set_defaults(connection: &mut Config, tls: &Tls) {
    connection.ssl_mode(tls.mode.negotiation());
    // A replica could return an older state than the acknowledged one.
    connection.target_session_attrs(TargetSessionAttrs::ReadWrite);
    if connection.get_connect_timeout().is_none() {
        connection.connect_timeout(CONNECT_TIMEOUT);
    }
    if connection.get_application_name().is_none() {
        connection.application_name("keelson");
    }
    if connection.get_keepalives_interval().is_none() {
        connection.keepalives_idle(KEEPALIVE_IDLE);
        connection.keepalives_interval(KEEPALIVE_INTERVAL);
        connection.keepalives_retries(KEEPALIVE_RETRIES);
    }
    if connection.get_tcp_user_timeout().is_none() {
        connection.tcp_user_timeout(UNACKNOWLEDGED);
    }
}

/// The settings with the hosts rotated, so that the host at index `first` is tried first. The crate tries all hosts in
/// order and can't skip one.
pub(crate) fn beginning_with(first: usize, settings: &Config) -> Config {
    let hosts = settings.get_hosts().len();
    let mut next = Config::new();
    for place in (0..hosts).map(|place| (first + place) % hosts) {
        add_host(settings, place, &mut next);
    }
    copy_but_hosts(settings, &mut next);
    next
}

fn add_host(settings: &Config, place: usize, to: &mut Config) {
    match &settings.get_hosts()[place] {
        Host::Tcp(name) => to.host(name),
        #[cfg(unix)]
        Host::Unix(path) => to.host_path(path),
    };
    if let Some(address) = settings.get_hostaddrs().get(place) {
        to.hostaddr(*address);
    }
    // A single port applies to all hosts.
    if let Some(port) = settings.get_ports().get(place).or(settings.get_ports().first()) {
        to.port(*port);
    }
}

/// Copies all settings except the hosts with their addresses and ports.
fn copy_but_hosts(settings: &Config, next: &mut Config) {
    settings.get_user().map(|user| next.user(user));
    settings.get_password().map(|password| next.password(password));
    settings.get_dbname().map(|name| next.dbname(name));
    settings.get_options().map(|options| next.options(options));
    settings.get_application_name().map(|name| next.application_name(name));
    settings.get_connect_timeout().map(|time| next.connect_timeout(*time));
    settings.get_tcp_user_timeout().map(|time| next.tcp_user_timeout(*time));
    settings.get_keepalives_interval().map(|time| next.keepalives_interval(time));
    settings.get_keepalives_retries().map(|count| next.keepalives_retries(count));
    next.keepalives(settings.get_keepalives())
        .keepalives_idle(settings.get_keepalives_idle())
        .ssl_mode(settings.get_ssl_mode())
        .ssl_negotiation(settings.get_ssl_negotiation())
        .target_session_attrs(settings.get_target_session_attrs())
        .channel_binding(settings.get_channel_binding())
        .load_balance_hosts(settings.get_load_balance_hosts());
}

/// The settings with only one of the hosts, counted from 0.
pub(crate) fn alone(host: usize, settings: &Config) -> Config {
    let mut only = Config::new();
    let turned = beginning_with(host, settings);
    copy_but_hosts(&turned, &mut only);
    add_host(&turned, 0, &mut only);
    only
}

/// The TLS settings of the URL.
#[derive(Default)]
struct TlsFiles {
    mode: Option<String>,
    roots: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl TlsFiles {
    fn read(self) -> Result<Tls, PostgresError> {
        let mode = match self.mode.as_deref() {
            Some("disable") => TlsMode::Disable,
            None | Some("allow" | "prefer") => TlsMode::Prefer,
            // As in libpq, `require` with root certificates verifies that one of them has signed the server's
            // certificate.
            Some("require") if self.roots.is_none() => TlsMode::Require,
            Some("require" | "verify-ca") => TlsMode::VerifyCa,
            Some("verify-full") => TlsMode::VerifyFull,
            Some(other) => return Err(PostgresError::Url(format!("unknown sslmode {other:?}"))),
        };
        if matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyFull) && self.roots.is_none() {
            return Err(PostgresError::Url("to verify the server, sslrootcert must name a file".to_owned()));
        }
        if self.certificate.is_some() != self.key.is_some() {
            return Err(PostgresError::Url("sslcert and sslkey go together".to_owned()));
        }
        let roots = self.roots.as_deref().map(contents).transpose()?;
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some((contents(certificate)?, contents(key)?)),
            _ => None,
        };
        Tls::new(mode, roots, identity)
    }
}

/// Returns the name and the content of a file.
fn contents(file: &str) -> Result<(String, Vec<u8>), PostgresError> {
    match fs::read(file) {
        Ok(bytes) => Ok((file.to_owned(), bytes)),
        Err(error) => Err(PostgresError::Certificate { file: file.to_owned(), reason: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        PostgresConfig::from_url(url).map(|_| ()).expect_err(url).to_string()
    }

    #[test]
    fn a_url_of_libpq_is_understood() {
        let url =
            "postgres://me:se%2Bcret@a:1,b:2/db?sslmode=disable&application_name=x+y&options=-c%20search_path%3Ds";
        let config = PostgresConfig::from_url(url).unwrap().connection;
        assert_eq!(config.get_password(), Some(&b"se+cret"[..]));
        assert_eq!(config.get_ports(), [1, 2]);
        assert_eq!(config.get_application_name(), Some("x+y"));
        assert_eq!(config.get_options(), Some("-c search_path=s"));
        assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn rotating_hosts_keeps_all_other_settings() {
        let url = "postgres://me:secret@a:1,b:2,c:3/db?connect_timeout=2&options=-c%20x%3Dy&keepalives_idle=7\
            &keepalives_interval=3&keepalives_retries=4&tcp_user_timeout=6&application_name=n&channel_binding=require\
            &load_balance_hosts=random";
        let settings = PostgresConfig::from_url(url).unwrap().connection;
        let second = beginning_with(1, &settings);
        assert_eq!(second.get_ports(), [2, 3, 1]);
        let host = |place: usize| settings.get_hosts()[place].clone();
        assert_eq!(second.get_hosts(), [host(1), host(2), host(0)]);
        assert_eq!(beginning_with(2, &second), settings);
        let third = alone(2, &settings);
        assert_eq!((third.get_ports(), third.get_hosts()), (&[3][..], &[host(2)][..]));
        assert_eq!(third.get_password(), settings.get_password());
        let one_port = PostgresConfig::from_url("postgres:///db?host=a&host=/run&port=5").unwrap().connection;
        assert_eq!(beginning_with(1, &one_port).get_ports(), [5, 5]);
    }

    #[test]
    fn invalid_urls_are_refused_with_a_reason() {
        assert!(refused("postgres://host/").contains("names no database"));
        assert!(refused("postgres://host/db?sslmode=maybe").contains("maybe"));
        assert!(refused("postgres://host/db?sslmode=verify-full").contains("sslrootcert"));
        assert!(refused("postgres://host/db?sslcert=c").contains("sslkey"));
        assert!(refused("postgres://host/db?sslrootcert=nowhere.pem").contains("nowhere.pem"));
        assert!(refused("postgres://host/db?colour=red").contains("colour"));
    }
}
