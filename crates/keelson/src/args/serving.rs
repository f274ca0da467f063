//! Flags of kube-apiserver for connections: the end of a server, times, TLS, and pages of other origins.
//!
//! Names and values are kube-apiserver's, so that its manifests can be used unchanged.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args as ClapArgs;
use keelson_server::{AllowedOrigins, Config, NamedFiles, ShutdownTimes, TlsProfile};

use super::kinds::{List, ListValues as _, duration, list, list_between, some_duration};

/// The largest share of requests that may close their connection, as upstream.
const MOST_GOAWAY: f64 = 0.02;

#[derive(ClapArgs)]
pub(crate) struct ServingArgs {
    /// The longest time until a response begins (such as 1m). Watches have none, and a request may ask for a shorter one.
    #[arg(long, env = "KEELSON_REQUEST_TIMEOUT", default_value = "1m", value_parser = some_duration)]
    request_timeout: Duration,
    /// The share of HTTP/2 requests after which the connection closes (GOAWAY), so that clients spread over several servers: at most 0.02,
    /// such as 0.001.
    #[arg(long, env = "KEELSON_GOAWAY_CHANCE", default_value_t = 0.0, value_parser = chance)]
    goaway_chance: f64,
    /// The time for which requests are still served after SIGTERM. /readyz fails in it, so that load balancers choose other servers.
    #[arg(long, env = "KEELSON_SHUTDOWN_DELAY_DURATION", default_value = "0", value_parser = duration)]
    shutdown_delay_duration: Duration,
    /// Keep the port open after that delay, and refuse requests with 429 and Retry-After, until those in flight have ended.
    #[arg(long, env = "KEELSON_SHUTDOWN_SEND_RETRY_AFTER")]
    shutdown_send_retry_after: bool,
    /// The longest time over which watches are ended one after the other. 0 ends all at once.
    #[arg(long, env = "KEELSON_SHUTDOWN_WATCH_TERMINATION_GRACE_PERIOD", default_value = "0", value_parser = duration)]
    shutdown_watch_termination_grace_period: Duration,
    /// Regular expressions of origins whose pages may read responses (CORS), such as ^https://console\.example\.org$. Each must
    /// match the whole host: with ^ or //, and with $ or :.
    #[arg(long, env = "KEELSON_CORS_ALLOWED_ORIGINS", value_parser = list::<String>)]
    cors_allowed_origins: Vec<List<String>>,
    /// One more serving certificate (PEM) with its key, for clients that name the server: CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,NAME.
    /// Names are DNS names, *. with a domain, or addresses of this host. Without them the names of the certificate count. May be repeated.
    #[arg(long, env = "KEELSON_TLS_SNI_CERT_KEY", value_parser = named_files)]
    tls_sni_cert_key: Vec<List<NamedFiles>>,
    /// The oldest version of TLS: VersionTLS12 or VersionTLS13. VersionTLS10 and VersionTLS11 mean VersionTLS12.
    #[arg(long, env = "KEELSON_TLS_MIN_VERSION", default_value = "", hide_default_value = true)]
    tls_min_version: String,
    /// The cipher suites of TLS 1.2 by Go's names, all strong ones unless given. Weak ones are never served.
    #[arg(long, env = "KEELSON_TLS_CIPHER_SUITES", value_parser = list::<String>)]
    tls_cipher_suites: Vec<List<String>>,
    /// The groups of key exchanges by their numbers: 23 (P-256), 24 (P-384), 29 (X25519), 4588 (X25519MLKEM768). All unless given.
    #[arg(long, env = "KEELSON_TLS_CURVE_PREFERENCES", value_parser = list::<u16>)]
    tls_curve_preferences: Vec<List<u16>>,
    /// Serve HTTP/1.1 only.
    #[arg(long, env = "KEELSON_DISABLE_HTTP2_SERVING")]
    disable_http2_serving: bool,
    /// The number of concurrent requests on one HTTP/2 connection. 0 is 250.
    #[arg(long, env = "KEELSON_HTTP2_MAX_STREAMS_PER_CONNECTION", default_value_t = 0)]
    http2_max_streams_per_connection: u32,
}

impl ServingArgs {
    /// Applies the flags to the settings of a server.
    pub(crate) fn read_into(self, config: &mut Config) -> anyhow::Result<()> {
        let (suites, groups) = (self.tls_cipher_suites.joined(), self.tls_curve_preferences.joined());
        let (mut profile, left_out) =
            TlsProfile::parse(&self.tls_min_version, &suites, &groups).map_err(|why| anyhow!(why)).context("TLS")?;
        if !left_out.is_empty() {
            tracing::warn!(names = left_out.join(","), "cipher suites or groups of the flags are not served");
        }
        profile.only_http1 = self.disable_http2_serving;
        config.pki.tls = profile;
        config.pki.named = self.tls_sni_cert_key.joined();
        if self.http2_max_streams_per_connection > 0 {
            config.streams = self.http2_max_streams_per_connection;
        }
        config.request_timeout = self.request_timeout;
        config.goaway_chance = self.goaway_chance;
        config.shutdown = ShutdownTimes {
            delay: self.shutdown_delay_duration,
            sends_retry_after: self.shutdown_send_retry_after,
            watch_grace: self.shutdown_watch_termination_grace_period,
        };
        config.origins = AllowedOrigins::new(&self.cors_allowed_origins.joined()).map_err(anyhow::Error::msg)?;
        Ok(())
    }
}

/// Pairs of files with their names. Several are separated by semicolons, as upstream.
fn named_files(text: &str) -> Result<List<NamedFiles>, String> {
    list_between(text, ';', |item| {
        let (files, names) = item.rsplit_once(':').unwrap_or((item, ""));
        let (certificate, key) = files
            .split_once(',')
            .filter(|(certificate, key)| !certificate.is_empty() && !key.is_empty() && !key.contains(','))
            .ok_or("expected comma separated certificate and key file paths")?;
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(NamedFiles { certificate: certificate.into(), key: key.into(), names })
    })
}

fn chance(text: &str) -> Result<f64, String> {
    let chance: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (0.0..=MOST_GOAWAY).contains(&chance) {
        Ok(chance)
    } else {
        Err("--goaway-chance can not be less than 0 or greater than 0.02".to_owned())
    }
}
