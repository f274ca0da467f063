//! The settings of audit. Invalid ones are refused before the server starts, with upstream's error texts.
//!
//! Defaults are upstream's, except for the mode of the log. It is `batch`, so that no request waits for the log by
//! default.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use keelson_access::audit::{AuditMode, Batching, Throttle, Truncation};

use super::mode_named;

/// The settings of audit.
#[derive(Clone, Debug, Default)]
pub struct AuditConfig {
    /// The policy. Without one there is no audit.
    pub policy_file: Option<PathBuf>,
    /// The log.
    pub log: AuditLogConfig,
    /// The webhook.
    pub webhook: AuditWebhookConfig,
}

/// The delivery of events to a backend.
#[derive(Clone, Copy, Debug)]
pub struct AuditBackendConfig {
    /// The mode, which determines whether requests wait for this backend.
    pub mode: AuditMode,
    /// The batching of events.
    pub batching: Batching,
    /// The limits of events and batches. `None` for no limits.
    pub truncation: Option<Truncation>,
}

/// The settings of the log.
#[derive(Clone, Debug)]
pub struct AuditLogConfig {
    /// The file, or `-` for standard output. No log if absent.
    pub path: Option<PathBuf>,
    /// The maximum age of rotated files in days. 0 for no limit.
    pub max_age_days: i64,
    /// The maximum number of rotated files. 0 for no limit.
    pub max_backups: i64,
    /// The size at which the file is rotated, in megabytes. 0 means 100.
    pub max_megabytes: i64,
    /// True if rotated files are compressed.
    pub compress: bool,
    /// The form of a line.
    pub format: AuditLogFormat,
    /// The delivery of events.
    pub backend: AuditBackendConfig,
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditLogFormat {
    /// JSON with the whole event.
    Json,
    /// Upstream's older text format, with the most important fields.
    Legacy,
}

/// The settings of the webhook.
#[derive(Clone, Debug)]
pub struct AuditWebhookConfig {
    /// The kubeconfig with the webhook's address. No webhook if absent.
    pub config_file: Option<PathBuf>,
    /// The time before the first retry of a batch.
    pub initial_backoff: Duration,
    /// The delivery of events.
    pub backend: AuditBackendConfig,
}

impl Default for AuditLogConfig {
    fn default() -> Self {
        // Waiting events are written at once, so that a request in a blocking mode waits briefly. One write may have
        // many lines.
        let batching = Batching { buffer: 10_000, most: 400, wait: Duration::ZERO, throttle: None, at_once: 1 };
        Self {
            path: None,
            max_age_days: 0,
            max_backups: 0,
            max_megabytes: 0,
            compress: false,
            format: AuditLogFormat::Json,
            backend: AuditBackendConfig { mode: AuditMode::Batch, batching, truncation: None },
        }
    }
}

impl Default for AuditWebhookConfig {
    fn default() -> Self {
        let throttle = Some(Throttle { rate: 10.0, burst: 15 });
        let batching = Batching { buffer: 10_000, most: 400, wait: Duration::from_secs(30), throttle, at_once: 8 };
        Self {
            config_file: None,
            initial_backoff: Duration::from_secs(10),
            backend: AuditBackendConfig { mode: AuditMode::Batch, batching, truncation: None },
        }
    }
}

impl AuditConfig {
    /// Returns true if events are written to standard output. No other output may use it then.
    pub fn writes_to_standard_output(&self) -> bool {
        self.policy_file.is_some() && self.log.is_standard_output()
    }
}

impl AuditLogConfig {
    /// Returns true if the log is standard output.
    pub(super) fn is_standard_output(&self) -> bool {
        self.path.as_deref() == Some(Path::new("-"))
    }
}

/// Parses a mode.
///
/// # Errors
/// Lists the valid modes, in upstream's words.
pub fn audit_mode(plugin: &str, name: &str) -> Result<AuditMode, String> {
    let allowed = "allowed modes are \"batch,blocking,blocking-strict\"";
    mode_named(name).ok_or_else(|| format!("invalid audit {plugin} mode {name}, {allowed}"))
}

impl FromStr for AuditLogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "json" => Ok(Self::Json),
            "legacy" => Ok(Self::Legacy),
            _ => Err(format!("invalid audit log format {name}, allowed formats are \"legacy,json\"")),
        }
    }
}

impl AuditConfig {
    /// Returns an error for invalid settings.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.log.path.is_some() {
            check_backend("log", &self.log.backend)?;
            let numbers =
                [("age", self.log.max_age_days), ("backup", self.log.max_backups), ("size", self.log.max_megabytes)];
            for (name, number) in numbers {
                if number < 0 {
                    return Err(format!("--audit-log-max{name} {number} can't be a negative number"));
                }
            }
        }
        if self.webhook.config_file.is_some() {
            check_backend("webhook", &self.webhook.backend)?;
        }
        Ok(())
    }
}

fn check_backend(plugin: &str, backend: &AuditBackendConfig) -> Result<(), String> {
    let must = "must be a positive number";
    if backend.mode == AuditMode::Batch {
        let Batching { buffer, most, throttle, .. } = backend.batching;
        if buffer == 0 {
            return Err(format!("invalid audit batch {plugin} buffer size 0, {must}"));
        }
        if most == 0 {
            return Err(format!("invalid audit batch {plugin} max batch size 0, {must}"));
        }
        if let Some(Throttle { rate, burst }) = throttle {
            if rate <= 0.0 || !rate.is_finite() {
                return Err(format!("invalid audit batch {plugin} throttle QPS {rate}, {must}"));
            }
            if burst == 0 {
                return Err(format!("invalid audit batch {plugin} throttle burst 0, {must}"));
            }
        }
    }
    if let Some(Truncation { event, batch }) = backend.truncation {
        if event == 0 {
            return Err(format!("invalid audit truncate {plugin} max event size 0, {must}"));
        }
        if batch < event {
            let why = format!("must be greater than max event size ({event})");
            return Err(format!("invalid audit truncate {plugin} max batch size {batch}, {why}"));
        }
    }
    Ok(())
}
