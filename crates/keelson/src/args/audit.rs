//! Flags for audit, under upstream's names.
//!
//! `keelson_server::AuditConfig` validates their combinations.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use keelson_server::{
    AuditBackendConfig, AuditConfig, AuditLogConfig, AuditLogFormat, AuditMode, AuditWebhookConfig, Batching, Throttle,
    Truncation, audit_mode,
};

use super::kinds::{OptionalDuration, duration, duration_or_never};

#[derive(ClapArgs)]
pub(crate) struct Audit {
    /// The audit policy (audit.k8s.io/v1, kind Policy). Without one nothing is audited.
    #[arg(long, env = "KEELSON_AUDIT_POLICY_FILE")]
    audit_policy_file: Option<PathBuf>,
    #[command(flatten)]
    log: Log,
    #[command(flatten)]
    webhook: Webhook,
}

#[derive(ClapArgs)]
struct Log {
    /// A file for audit events, one a line. The value - means standard output.
    #[arg(long, env = "KEELSON_AUDIT_LOG_PATH")]
    audit_log_path: Option<PathBuf>,
    /// The age of older files of the audit log in days; 0 for no limit.
    #[arg(long, env = "KEELSON_AUDIT_LOG_MAXAGE", default_value_t = 0, allow_negative_numbers = true)]
    audit_log_maxage: i64,
    /// The number of older files of the audit log; 0 for no limit.
    #[arg(long, env = "KEELSON_AUDIT_LOG_MAXBACKUP", default_value_t = 0, allow_negative_numbers = true)]
    audit_log_maxbackup: i64,
    /// The size at which the audit log begins the next file, in megabytes; 0 means 100.
    #[arg(long, env = "KEELSON_AUDIT_LOG_MAXSIZE", default_value_t = 0, allow_negative_numbers = true)]
    audit_log_maxsize: i64,
    /// Compress older files of the audit log with gzip.
    #[arg(long, env = "KEELSON_AUDIT_LOG_COMPRESS")]
    audit_log_compress: bool,
    /// The form of the audit log: json, or legacy for lines of text.
    #[arg(long, env = "KEELSON_AUDIT_LOG_FORMAT", default_value = "json")]
    audit_log_format: AuditLogFormat,
    /// The mode in which requests wait for the audit log: batch (they do not), blocking, or blocking-strict, which refuses a
    /// request whose first event cannot be written.
    #[arg(long, env = "KEELSON_AUDIT_LOG_MODE", default_value = "batch", value_parser = log_mode)]
    audit_log_mode: AuditMode,
    /// The number of events that wait for the audit log in the mode batch; further ones are lost.
    #[arg(long, env = "KEELSON_AUDIT_LOG_BATCH_BUFFER_SIZE", default_value_t = 10_000)]
    audit_log_batch_buffer_size: u32,
    /// The largest number of events written at once.
    #[arg(long, env = "KEELSON_AUDIT_LOG_BATCH_MAX_SIZE", default_value_t = 400)]
    audit_log_batch_max_size: u32,
    /// The time that events wait for further ones; 0 for no wait.
    #[arg(long, env = "KEELSON_AUDIT_LOG_BATCH_MAX_WAIT", default_value = "20ms", value_parser = duration_or_never)]
    audit_log_batch_max_wait: OptionalDuration,
    /// Limit the rate of batches by the two following flags.
    #[arg(long, env = "KEELSON_AUDIT_LOG_BATCH_THROTTLE_ENABLE")]
    audit_log_batch_throttle_enable: bool,
    /// The number of batches written in a second.
    #[arg(long, env = "KEELSON_AUDIT_LOG_BATCH_THROTTLE_QPS", default_value_t = 10.0)]
    audit_log_batch_throttle_qps: f32,
    /// The number of batches written at once after a pause.
    #[arg(long, env = "KEELSON_AUDIT_LOG_BATCH_THROTTLE_BURST", default_value_t = 15)]
    audit_log_batch_throttle_burst: u32,
    /// Limit the sizes of events and batches of the audit log.
    #[arg(long, env = "KEELSON_AUDIT_LOG_TRUNCATE_ENABLED")]
    audit_log_truncate_enabled: bool,
    /// The largest batch in bytes; one that is larger is split.
    #[arg(long, env = "KEELSON_AUDIT_LOG_TRUNCATE_MAX_BATCH_SIZE", default_value_t = 10_485_760)]
    audit_log_truncate_max_batch_size: u32,
    /// The largest event in bytes; one that is larger loses its objects, and is lost if that does not help.
    #[arg(long, env = "KEELSON_AUDIT_LOG_TRUNCATE_MAX_EVENT_SIZE", default_value_t = 102_400)]
    audit_log_truncate_max_event_size: u32,
}

#[derive(ClapArgs)]
struct Webhook {
    /// The kubeconfig of the webhook that receives audit events.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_CONFIG_FILE")]
    audit_webhook_config_file: Option<PathBuf>,
    /// The time before a batch is sent to the webhook a second time; it is sent at most five times.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_INITIAL_BACKOFF", default_value = "10s", value_parser = duration)]
    audit_webhook_initial_backoff: Duration,
    /// The mode in which requests wait for the webhook: batch (they do not), blocking, or blocking-strict, which refuses a request
    /// whose first event cannot be sent.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_MODE", default_value = "batch", value_parser = webhook_mode)]
    audit_webhook_mode: AuditMode,
    /// The number of events that wait for the webhook in the mode batch; further ones are lost.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_BATCH_BUFFER_SIZE", default_value_t = 10_000)]
    audit_webhook_batch_buffer_size: u32,
    /// The largest number of events sent at once.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_BATCH_MAX_SIZE", default_value_t = 400)]
    audit_webhook_batch_max_size: u32,
    /// The time that events wait for further ones.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_BATCH_MAX_WAIT", default_value = "30s", value_parser = duration_or_never)]
    audit_webhook_batch_max_wait: OptionalDuration,
    /// Limit the rate of batches by the two following flags.
    #[arg(
        long,
        env = "KEELSON_AUDIT_WEBHOOK_BATCH_THROTTLE_ENABLE",
        default_value_t = true,
        num_args = 0..=1,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    audit_webhook_batch_throttle_enable: bool,
    /// The number of batches sent in a second.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_BATCH_THROTTLE_QPS", default_value_t = 10.0)]
    audit_webhook_batch_throttle_qps: f32,
    /// The number of batches sent at once after a pause.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_BATCH_THROTTLE_BURST", default_value_t = 15)]
    audit_webhook_batch_throttle_burst: u32,
    /// Limit the sizes of events and batches for the webhook.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_TRUNCATE_ENABLED")]
    audit_webhook_truncate_enabled: bool,
    /// The largest batch in bytes; one that is larger is split.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_TRUNCATE_MAX_BATCH_SIZE", default_value_t = 10_485_760)]
    audit_webhook_truncate_max_batch_size: u32,
    /// The largest event in bytes; one that is larger loses its objects, and is lost if that does not help.
    #[arg(long, env = "KEELSON_AUDIT_WEBHOOK_TRUNCATE_MAX_EVENT_SIZE", default_value_t = 102_400)]
    audit_webhook_truncate_max_event_size: u32,
}

fn log_mode(name: &str) -> Result<AuditMode, String> {
    audit_mode("log", name)
}

fn webhook_mode(name: &str) -> Result<AuditMode, String> {
    audit_mode("webhook", name)
}

impl Audit {
    pub(crate) fn into_config(self) -> AuditConfig {
        AuditConfig {
            policy_file: self.audit_policy_file,
            log: self.log.into_config(),
            webhook: self.webhook.into_config(),
        }
    }
}

impl Log {
    fn into_config(self) -> AuditLogConfig {
        let batching = Batching {
            buffer: self.audit_log_batch_buffer_size as usize,
            most: self.audit_log_batch_max_size as usize,
            wait: self.audit_log_batch_max_wait.0.unwrap_or_default(),
            throttle: self.audit_log_batch_throttle_enable.then_some(Throttle {
                rate: self.audit_log_batch_throttle_qps,
                burst: self.audit_log_batch_throttle_burst as usize,
            }),
            at_once: AuditLogConfig::default().backend.batching.at_once,
        };
        let truncation = self.audit_log_truncate_enabled.then_some(Truncation {
            event: self.audit_log_truncate_max_event_size as usize,
            batch: self.audit_log_truncate_max_batch_size as usize,
        });
        AuditLogConfig {
            path: self.audit_log_path,
            max_age_days: self.audit_log_maxage,
            max_backups: self.audit_log_maxbackup,
            max_megabytes: self.audit_log_maxsize,
            compress: self.audit_log_compress,
            format: self.audit_log_format,
            backend: AuditBackendConfig { mode: self.audit_log_mode, batching, truncation },
        }
    }
}

impl Webhook {
    fn into_config(self) -> AuditWebhookConfig {
        let batching = Batching {
            buffer: self.audit_webhook_batch_buffer_size as usize,
            most: self.audit_webhook_batch_max_size as usize,
            wait: self.audit_webhook_batch_max_wait.0.unwrap_or_default(),
            throttle: self.audit_webhook_batch_throttle_enable.then_some(Throttle {
                rate: self.audit_webhook_batch_throttle_qps,
                burst: self.audit_webhook_batch_throttle_burst as usize,
            }),
            at_once: AuditWebhookConfig::default().backend.batching.at_once,
        };
        let truncation = self.audit_webhook_truncate_enabled.then_some(Truncation {
            event: self.audit_webhook_truncate_max_event_size as usize,
            batch: self.audit_webhook_truncate_max_batch_size as usize,
        });
        AuditWebhookConfig {
            config_file: self.audit_webhook_config_file,
            initial_backoff: self.audit_webhook_initial_backoff,
            backend: AuditBackendConfig { mode: self.audit_webhook_mode, batching, truncation },
        }
    }
}
