//! The authorizers of the settings, the tokens in the operator's token file, and audit. Stored roles and that file are
//! followed while the server runs.

use std::fmt;
use std::sync::Arc;

use anyhow::Context as _;
use keelson_access::audit::Policy;
use keelson_access::{Authorizer, FileReads, NodeAuthorizer, Rbac, StaticTokens, TokenSeal};
use keelson_access_config::{AuthorizerKind, ConfiguredAuthorizers, LocalAuthorizers};
use keelson_cache::Cache;
use keelson_meta::ApiError;
use keelson_outbound::Outbound;
use keelson_supervision::TaskGroup;
use tokio_util::sync::CancellationToken;

use crate::audit::{Auditing, RunningAudit};
use crate::config::Config;
use crate::issuers::ForeignIssuers;

/// The operator's files. They are read again when they change.
pub(crate) struct OperatorFiles {
    listed: Option<Arc<StaticTokens>>,
    seal: Option<Arc<TokenSeal>>,
    audit_policy: Option<Policy>,
}

impl OperatorFiles {
    /// Reads the files of the settings.
    ///
    /// # Errors
    /// A file cannot be read, or a setting of audit is invalid.
    pub(crate) fn read(config: &Config) -> anyhow::Result<Self> {
        config.authorization.kinds().context("reading the settings of authorization")?;
        config.authentication.check(config).context("reading the settings of authentication")?;
        let listed = config.token_file.as_deref().map(StaticTokens::read).transpose();
        let listed = listed.context("reading --token-auth-file")?.map(Arc::new);
        let seal = config.token_key_file.as_deref().map(|file| TokenSeal::read(file, config.random.clone()));
        let seal = seal.transpose().context("reading --token-key-file")?.map(Arc::new);
        Ok(Self { listed, seal, audit_policy: Auditing::policy(&config.audit)? })
    }
}

/// The authorizers of a server.
pub(crate) struct Rights {
    chain: Arc<ConfiguredAuthorizers>,
    rbac: Option<Arc<Rbac>>,
    nodes: Option<Arc<NodeAuthorizer>>,
    files: OperatorFiles,
    auditing: Option<Auditing>,
}

impl Rights {
    /// The authorizers and audit, from the settings, the roles in the cache and the operator's files.
    ///
    /// # Errors
    /// The cache has no roles, the settings are invalid, or the audit log cannot be written.
    pub(crate) fn new(config: &Config, cache: &Arc<Cache>, mut files: OperatorFiles) -> anyhow::Result<Self> {
        let (mut rbac, mut nodes) = (None, None);
        let internal = |error: ApiError| anyhow::anyhow!("{error}");
        for kind in config.authorization.kinds()? {
            match kind {
                AuthorizerKind::Node => {
                    let prefixes = keelson_builtin::node_prefixes().map_err(internal)?;
                    nodes = Some(Arc::new(NodeAuthorizer::new(cache.clone(), prefixes)));
                }
                AuthorizerKind::Rbac => {
                    let prefixes = keelson_builtin::role_prefixes().map_err(internal)?;
                    let [a, b, c, d] = &prefixes;
                    rbac = Some(Arc::new(Rbac::new(cache.clone(), [a, b, c, d])?));
                }
                AuthorizerKind::Abac
                | AuthorizerKind::Webhook
                | AuthorizerKind::AlwaysAllow
                | AuthorizerKind::AlwaysDeny => {}
            }
        }
        let local = LocalAuthorizers {
            nodes: nodes.clone().map(|nodes| nodes as Arc<dyn Authorizer>),
            rbac: rbac.clone().map(|rbac| rbac as Arc<dyn Authorizer>),
        };
        let (clock, random) = (config.clock.clone(), config.random.clone());
        let chain = Arc::new(ConfiguredAuthorizers::new(&config.authorization, local, clock, random)?);
        let auditing = Auditing::open(&config.audit, files.audit_policy.take(), &config.clock, &config.random)?;
        Ok(Self { chain, rbac, nodes, files, auditing })
    }

    /// The configured authorizers. Webhooks are called after they are connected.
    pub(crate) fn configured(&self) -> &Arc<ConfiguredAuthorizers> {
        &self.chain
    }

    pub(crate) fn authorizer(&self) -> Arc<dyn Authorizer> {
        self.chain.clone()
    }

    /// Returns true if the Node authorizer is enabled.
    pub(crate) fn has_node_rights(&self) -> bool {
        self.nodes.is_some()
    }

    /// The tokens in the operator's file, if there is one.
    pub(crate) fn listed_tokens(&self) -> Option<Arc<StaticTokens>> {
        self.files.listed.clone()
    }

    /// The encryption of continue tokens, if there is a key file.
    pub(crate) fn token_seal(&self) -> Option<Arc<TokenSeal>> {
        self.files.seal.clone()
    }

    /// The counts of reads of the token file and the key file.
    pub(crate) fn reads(&self) -> Vec<(&'static str, FileReads)> {
        let listed = self.files.listed.iter().map(|listed| ("tokens", listed.reads().clone()));
        listed.chain(self.files.seal.iter().map(|seal| ("token-keys", seal.reads().clone()))).collect()
    }

    /// Follows roles, bindings, issuers and the settings' files until the server stops, and writes audit events until
    /// all requests are answered.
    pub(crate) fn follow(
        self,
        foreign: &ForeignIssuers,
        background: &TaskGroup,
        stopping: &CancellationToken,
        outbound: &Arc<Outbound>,
    ) -> RunningAudit {
        foreign.follow(background, stopping);
        let (chain, told) = (self.chain, stopping.clone());
        background.spawn("authorization-config", async move {
            let _: Option<()> = told.run_until_cancelled_owned(chain.follow()).await;
        });
        if let Some(rbac) = self.rbac {
            let stopping = stopping.clone();
            background.spawn("roles", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(rbac.keep_up()).await;
            });
        }
        if let Some(nodes) = self.nodes {
            let stopping = stopping.clone();
            background.spawn("node-authorizer", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(nodes.keep_up()).await;
            });
        }
        if let Some(seal) = self.files.seal {
            let stopping = stopping.clone();
            background.spawn("token-keys", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(seal.follow()).await;
            });
        }
        if let Some(listed) = self.files.listed {
            let stopping = stopping.clone();
            background.spawn("token-file", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(listed.follow()).await;
            });
        }
        RunningAudit::start(self.auditing, background, outbound)
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").finish_non_exhaustive()
    }
}
