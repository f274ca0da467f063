//! Tokens from other issuers: the OpenID Connect issuers and the token webhook of the settings.
//!
//! As upstream, they get a token after the server's own authenticators, the issuers before the webhook.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use keelson_access::ForeignTokens;
use keelson_access_config::{AuthenticationConfiguration, ConfiguredIssuers, OidcFlags, ReviewVersion, WebhookTokens};
use keelson_outbound::Outbound;
use keelson_supervision::TaskGroup;
use tokio_util::sync::CancellationToken;

use crate::config::Config;

/// The sources of accepted tokens other than the server itself.
#[derive(Clone, Debug, Default)]
pub struct AuthenticationSources {
    /// An `AuthenticationConfiguration` file with issuers and with the paths open to anonymous requests. It is read
    /// again when it changes.
    pub file: Option<PathBuf>,
    /// A single issuer from flags, if there is no file.
    pub oidc: Option<OidcFlags>,
    /// A webhook that authenticates tokens.
    pub webhook: Option<TokenWebhook>,
}

impl AuthenticationSources {
    /// Validates the settings without contacting an issuer.
    pub(crate) fn check(&self, config: &Config) -> anyhow::Result<()> {
        let own = config.token_issuers();
        let stated = match (&self.file, &self.oidc) {
            (Some(_), Some(_)) => bail!("authentication-config file and oidc-* flags are mutually exclusive"),
            (Some(file), None) => AuthenticationConfiguration::of_file(file, &own)?,
            (None, Some(flags)) => AuthenticationConfiguration::of_flags(flags, &own)?,
            (None, None) => return Ok(()),
        };
        if config.anonymous.is_some() && stated.anonymous.is_some() {
            bail!(
                "--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file"
            );
        }
        Ok(())
    }
}

/// A webhook that authenticates tokens.
#[derive(Clone, Debug)]
pub struct TokenWebhook {
    /// A kubeconfig with the webhook's address.
    pub file: PathBuf,
    /// The version of TokenReview that it supports.
    pub version: ReviewVersion,
    /// The time for which results are cached.
    pub keep: Duration,
}

/// The authenticators of tokens from other issuers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignIssuers {
    pub(crate) issuers: Option<Arc<ConfiguredIssuers>>,
    webhook: Option<Arc<WebhookTokens>>,
}

impl ForeignIssuers {
    /// The authenticators of the settings.
    ///
    /// # Errors
    /// The settings are invalid. No issuer is contacted yet.
    pub(crate) fn new(config: &Config, outbound: &Arc<Outbound>) -> anyhow::Result<Self> {
        let AuthenticationSources { file, oidc, webhook } = &config.authentication;
        let own = config.token_issuers();
        let (outbound_too, clock) = (outbound.clone(), config.clock.clone());
        let issuers = match (file, oidc) {
            (Some(file), _) => Some(ConfiguredIssuers::of_file(file, own.clone(), outbound_too, clock)?),
            (None, Some(flags)) => Some(ConfiguredIssuers::of_flags(flags, own.clone(), outbound_too, clock)?),
            (None, None) => None,
        };
        let webhook = webhook.as_ref().map(|TokenWebhook { file, version, keep }| {
            WebhookTokens::of_file(file, *version, *keep, config.audiences(), outbound, config.random.clone())
        });
        let webhook = webhook.transpose().context("reading --authentication-token-webhook-config-file")?.map(Arc::new);
        Ok(Self { issuers: issuers.map(Arc::new), webhook })
    }

    /// All authenticators, in the order in which they are tried.
    pub(crate) fn all(&self) -> Vec<Arc<dyn ForeignTokens>> {
        let issuers = self.issuers.iter().map(|issuers| issuers.clone() as Arc<dyn ForeignTokens>);
        let webhook = self.webhook.iter().map(|webhook| webhook.clone() as Arc<dyn ForeignTokens>);
        issuers.chain(webhook).collect()
    }

    /// Follows the issuers and the files of the webhook until the server stops.
    pub(crate) fn follow(&self, background: &TaskGroup, stopping: &CancellationToken) {
        if let Some(webhook) = self.webhook.clone() {
            let stopping = stopping.clone();
            background.spawn("token-webhook", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(async move { webhook.follow().await }).await;
            });
        }
        let Some(issuers) = self.issuers.clone() else { return };
        let stopping = stopping.clone();
        background.spawn("authentication-config", async move {
            let _: Option<()> = stopping.run_until_cancelled_owned(issuers.follow()).await;
        });
    }

    /// Returns a function that is true for paths open to anonymous requests: by the configuration, or else by the flag.
    pub(crate) fn takes_anonymous(&self, config: &Config) -> impl Fn(&str) -> bool + Send + Sync + use<> {
        let (issuers, otherwise) = (self.issuers.clone(), config.anonymous.unwrap_or(true));
        move |path| issuers.as_ref().and_then(|issuers| issuers.takes_anonymous(path)).unwrap_or(otherwise)
    }
}
