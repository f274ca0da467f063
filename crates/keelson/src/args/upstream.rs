//! Flags of kube-apiserver for lifetimes, defaults and headers, under their names.
//!
//! `crates/keelson/src/kube_apiserver/flags.rs` lists all flags of kube-apiserver with their class.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgAction, Args as ClapArgs};
use keelson_server::{Config, HeaderValue, LeadershipTimes, TokenTimes};

use super::kinds::{List, ListValues as _, OptionalDuration, duration, duration_or_never, list, some_duration, switch};

/// The shortest and the longest accepted maximum for lifetimes of tokens, in seconds.
const TOKEN_SECONDS: [u64; 2] = [60 * 60, 1 << 32];
/// The allowed endpoint reconcilers. All but `none` mean the addresses of live servers.
const RECONCILERS: [&str; 3] = ["lease", "master-count", "none"];

#[derive(ClapArgs)]
pub(crate) struct Upstream {
    /// Accept privileged containers. With false, pods and templates that have one are refused. The program kube-apiserver refuses
    /// them unless the flag is given.
    #[arg(
        long,
        env = "KEELSON_ALLOW_PRIVILEGED",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        value_parser = switch
    )]
    allow_privileged: bool,
    /// The seconds for which pods tolerate a node that is not ready, unless they state others.
    #[arg(long, env = "KEELSON_DEFAULT_NOT_READY_TOLERATION_SECONDS", default_value_t = 300)]
    default_not_ready_toleration_seconds: i64,
    /// The seconds for which pods tolerate an unreachable node, unless they state others.
    #[arg(long, env = "KEELSON_DEFAULT_UNREACHABLE_TOLERATION_SECONDS", default_value_t = 300)]
    default_unreachable_toleration_seconds: i64,
    /// The writer of the addresses of the service kubernetes: lease or master-count for this server, none for others.
    #[arg(long, env = "KEELSON_ENDPOINT_RECONCILER_TYPE", default_value = "lease", value_parser = RECONCILERS)]
    endpoint_reconciler_type: String,
    /// The host, with or without a port, in the URLs of discovery and of the keys of tokens. The address unless given.
    #[arg(long, env = "KEELSON_EXTERNAL_HOSTNAME", value_parser = NonEmptyStringValueParser::new())]
    external_hostname: Option<String>,
    /// The time after its last write at which an event is deleted (such as 1h). 0 keeps events.
    #[arg(long, env = "KEELSON_EVENT_TTL", default_value = "0", value_parser = duration_or_never)]
    event_ttl: OptionalDuration,
    /// The shortest time of a watch without a timeout of its own, in seconds. The longest is twice that.
    #[arg(long, env = "KEELSON_MIN_REQUEST_TIMEOUT", default_value_t = 1800)]
    min_request_timeout: u64,
    /// Let the tokens that kubelets request for pods last a year, with a warning after the requested time.
    #[arg(
        long,
        env = "KEELSON_SERVICE_ACCOUNT_EXTEND_TOKEN_EXPIRATION",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        value_parser = switch
    )]
    service_account_extend_token_expiration: bool,
    /// The longest lifetime of a service account token, from 1h. Longer requests are shortened. 0 for no limit.
    #[arg(long, env = "KEELSON_SERVICE_ACCOUNT_MAX_TOKEN_EXPIRATION", default_value = "0", value_parser = duration)]
    service_account_max_token_expiration: Duration,
    /// The time for which the server that runs the controllers keeps that role without a renewal, where several servers share a store.
    #[arg(long, env = "KEELSON_COORDINATED_LEADERSHIP_LEASE_DURATION", default_value = "15s", value_parser = some_duration)]
    coordinated_leadership_lease_duration: Duration,
    /// The time after which it gives the role up because renewals fail. Shorter than the lease.
    #[arg(long, env = "KEELSON_COORDINATED_LEADERSHIP_RENEW_DEADLINE", default_value = "10s", value_parser = some_duration)]
    coordinated_leadership_renew_deadline: Duration,
    /// The interval of renewals, and of attempts of the other servers.
    #[arg(long, env = "KEELSON_COORDINATED_LEADERSHIP_RETRY_PERIOD", default_value = "2s", value_parser = some_duration)]
    coordinated_leadership_retry_period: Duration,
    /// The directives of the header Strict-Transport-Security of responses: max-age=SECONDS, includeSubDomains, preload.
    #[arg(long, env = "KEELSON_STRICT_TRANSPORT_SECURITY_DIRECTIVES", value_parser = list::<String>)]
    strict_transport_security_directives: Vec<List<String>>,
}

impl Upstream {
    /// Applies the flags to the settings of a server.
    pub(crate) fn read_into(self, config: &mut Config) -> anyhow::Result<()> {
        let seconds = [self.default_not_ready_toleration_seconds, self.default_unreachable_toleration_seconds];
        config.registry.allow_privileged = self.allow_privileged;
        config.registry.toleration_seconds = seconds;
        config.registry.min_watch_timeout = Duration::from_secs(self.min_request_timeout.max(1));
        config.publishes_endpoints = self.endpoint_reconciler_type != "none";
        config.external_hostname = self.external_hostname;
        config.event_ttl = self.event_ttl.0;
        let longest = self.service_account_max_token_expiration.as_secs();
        ensure!(
            longest == 0 || (TOKEN_SECONDS[0]..=TOKEN_SECONDS[1]).contains(&longest),
            "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"
        );
        config.token_times = TokenTimes {
            longest: i64::try_from(longest).ok().filter(|longest| *longest > 0),
            extends: self.service_account_extend_token_expiration,
        };
        config.leadership = LeadershipTimes {
            lease: self.coordinated_leadership_lease_duration,
            renewal: self.coordinated_leadership_renew_deadline,
            interval: self.coordinated_leadership_retry_period,
        };
        let LeadershipTimes { lease, renewal, interval } = config.leadership;
        ensure!(
            lease.as_secs() > 0 && Duration::from_secs(lease.as_secs()) > renewal && renewal > interval,
            "--coordinated-leadership-lease-duration must be longer than --coordinated-leadership-renew-deadline, and that longer \
             than --coordinated-leadership-retry-period"
        );
        config.transport_security = transport_security(&self.strict_transport_security_directives.joined())?;
        Ok(())
    }
}

fn transport_security(directives: &[String]) -> anyhow::Result<Option<HeaderValue>> {
    let is_allowed = |directive: &String| {
        let age = directive.strip_prefix("max-age=");
        matches!(directive.as_str(), "includeSubDomains" | "preload")
            || age.is_some_and(|age| age.parse::<u64>().is_ok())
    };
    ensure!(
        directives.iter().all(is_allowed),
        "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload"
    );
    if directives.is_empty() {
        return Ok(None);
    }
    HeaderValue::from_str(&directives.join("; ")).map(Some).context("--strict-transport-security-directives")
}
