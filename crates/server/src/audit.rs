//! Audit: reads the policy, opens the backends, and runs their workers until all requests are answered.
//!
//! The settings are validated before the server starts, with upstream's error texts. Without a policy there is no
//! audit. Policies and events are in `keelson_access::audit`.

mod config;
mod log_file;
mod webhook;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use keelson_access::audit::{AuditCounts, AuditMode, AuditWorker, Auditor, Backend, Policy};
use keelson_access::{FileChanges, FileReads};
use keelson_access_config::WebhookEndpoint;
use keelson_codec::yaml;
use keelson_http::metrics::{MetricKind, Sample};
use keelson_meta::{Clock, Random};
use keelson_outbound::Outbound;
use keelson_supervision::TaskGroup;
use tokio_util::sync::CancellationToken;

pub use self::config::{
    AuditBackendConfig, AuditConfig, AuditLogConfig, AuditLogFormat, AuditWebhookConfig, audit_mode,
};
use self::log_file::AuditLog;
use self::webhook::AuditWebhook;

/// The audit of a server that starts.
pub(crate) struct Auditing {
    auditor: Arc<Auditor>,
    workers: Vec<(&'static str, AuditWorker)>,
    webhook: Option<Arc<AuditWebhook>>,
    answered: CancellationToken,
    /// The policy file, which is read again when it changes.
    policy_file: Option<PathBuf>,
}

impl Auditing {
    /// Returns the policy in the settings, if there is one.
    ///
    /// # Errors
    /// When the policy or another setting is invalid.
    pub(crate) fn policy(config: &AuditConfig) -> anyhow::Result<Option<Policy>> {
        config.check().map_err(|why| anyhow!(why))?;
        let has_backend = config.log.path.is_some() || config.webhook.config_file.is_some();
        match (&config.policy_file, has_backend) {
            (None, true) => tracing::warn!("nothing is audited without --audit-policy-file"),
            (Some(_), false) => {
                tracing::warn!("nothing is audited without --audit-log-path or --audit-webhook-config-file");
            }
            (None, false) | (Some(_), true) => {}
        }
        let Some(file) = &config.policy_file else { return Ok(None) };
        read_policy(file).map(Some).map_err(|why| anyhow!("loading audit policy file: {why}"))
    }

    /// Opens the backends in the settings. `None` without any.
    ///
    /// # Errors
    /// A backend cannot be opened.
    pub(crate) fn open(
        config: &AuditConfig,
        policy: Option<Policy>,
        clock: &Arc<dyn Clock>,
        random: &Arc<dyn Random>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(policy) = policy else { return Ok(None) };
        let counts = Arc::new(AuditCounts::default());
        let (mut backends, mut workers) = (Vec::new(), Vec::new());
        let answered = CancellationToken::new();
        if let Some(path) = &config.log.path {
            let log = Arc::new(
                AuditLog::open(path, &config.log)
                    .with_context(|| format!("opening the audit log {}", path.display()))?,
            );
            let AuditBackendConfig { mode, batching, truncation } = config.log.backend;
            let (backend, worker) = Backend::new(mode, batching, truncation, log, counts.clone());
            backends.push(backend);
            workers.push(("audit-log", worker));
        }
        let mut webhook = None;
        if let Some(file) = &config.webhook.config_file {
            WebhookEndpoint::read(file).context("reading --audit-webhook-config-file")?;
            let sink = AuditWebhook::new(file.clone(), &config.webhook, random.clone(), answered.clone());
            let sink = Arc::new(sink);
            let AuditBackendConfig { mode, batching, truncation } = config.webhook.backend;
            let (backend, worker) = Backend::new(mode, batching, truncation, sink.clone(), counts.clone());
            backends.push(backend);
            workers.push(("audit-webhook", worker));
            webhook = Some(sink);
        }
        if backends.is_empty() {
            return Ok(None);
        }
        let auditor = Arc::new(Auditor::new(policy, backends, counts, clock.clone()));
        Ok(Some(Self { auditor, workers, webhook, answered, policy_file: config.policy_file.clone() }))
    }
}

/// The audit of a running server.
#[derive(Default)]
pub(crate) struct RunningAudit {
    /// The auditor of requests. `None` without a policy.
    pub(crate) auditor: Option<Arc<Auditor>>,
    /// Cancelled when all requests are answered. Then the workers write the remaining events.
    pub(crate) answered: CancellationToken,
    /// The reads of the policy file.
    pub(crate) policy_reads: FileReads,
}

impl RunningAudit {
    /// Starts the workers. Webhooks are called through `outbound`.
    pub(crate) fn start(auditing: Option<Auditing>, tasks: &TaskGroup, outbound: &Arc<Outbound>) -> Self {
        let Some(auditing) = auditing else { return Self::default() };
        let Auditing { auditor, workers, webhook, answered, policy_file } = auditing;
        if let Some(webhook) = webhook {
            webhook.connect(outbound);
            let stopping = tasks.stopping().clone();
            tasks.spawn("audit-webhook-files", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(async move { webhook.follow().await }).await;
            });
        }
        for (name, worker) in workers {
            tasks.spawn(name, worker.run(answered.clone().cancelled_owned()));
        }
        let policy_reads = FileReads::default();
        if let Some(file) = policy_file {
            let (stopping, following) =
                (tasks.stopping().clone(), follow_policy(file, auditor.clone(), policy_reads.clone()));
            tasks.spawn("audit-policy", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(following).await;
            });
        }
        Self { auditor: Some(auditor), answered, policy_reads }
    }
}

/// Reads the policy again whenever its file changes. An invalid file leaves the old policy in effect. Never ends.
async fn follow_policy(file: PathBuf, auditor: Arc<Auditor>, reads: FileReads) {
    let mut changes = FileChanges::new(&file).await;
    loop {
        changes.changed().await;
        let read = file.clone();
        let policy = keelson_supervision::spawn_blocking(move || read_policy(&read)).await;
        match policy.map_err(|error| error.to_string()).and_then(|policy| policy) {
            Ok(policy) => {
                auditor.change(policy);
                reads.note(true);
                tracing::info!(file = %file.display(), "the audit policy was read again");
            }
            Err(why) => {
                reads.note(false);
                tracing::error!(why, "the audit policy is invalid; the previous one stays in use");
            }
        }
    }
}

fn read_policy(file: &Path) -> Result<Policy, String> {
    let text = std::fs::read(file)
        .map_err(|error| format!("failed to read file path {:?}: {error}", file.display().to_string()))?;
    let document = yaml::parse(&text).map_err(|error| format!("failed decoding: {error}"));
    let policy = document.and_then(|document| Policy::parse(&document.value));
    policy.map_err(|why| format!("{why}: from file {}", file.display()))
}

/// The metrics of audit, under upstream's names.
pub(crate) fn samples(auditor: &Auditor) -> Vec<Sample> {
    let counts = auditor.counts();
    let counter = |name, help, labels, value: u64| Sample {
        name,
        help,
        kind: MetricKind::Counter,
        labels,
        #[allow(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
        value: value as f64,
    };
    let mut samples = vec![counter(
        "apiserver_audit_event_total",
        "Audit events handed to the backends",
        Vec::new(),
        auditor.events(),
    )];
    samples.extend(counts.lost().map(|(plugin, lost)| {
        let labels = vec![("plugin", plugin.to_owned())];
        counter("apiserver_audit_error_total", "Audit events that were lost, by the part that lost them", labels, lost)
    }));
    samples.extend(counts.levels().map(|(level, requests)| {
        let labels = vec![("level", level.to_owned())];
        counter("apiserver_audit_level_total", "Requests by the level at which they are audited", labels, requests)
    }));
    samples.push(counter(
        "apiserver_audit_requests_rejected_total",
        "Requests that were refused because their first audit event could not be written",
        Vec::new(),
        counts.rejected(),
    ));
    samples
}

/// The mode with this name.
pub(crate) fn mode_named(name: &str) -> Option<AuditMode> {
    Some(match name {
        "batch" => AuditMode::Batch,
        "blocking" => AuditMode::Blocking,
        "blocking-strict" => AuditMode::BlockingStrict,
        _ => return None,
    })
}
