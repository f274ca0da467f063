//! The authorizers of the settings, one after another, and the tokens that the operator has listed in a file. Stored roles and that file
//! are followed while the server runs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context as _;
use keelson_access::{
    AlwaysAllow, Authorizer, AuthorizerChain, NodeAuthorizer, PrivilegedGroup, Rbac, StaticTokens, TokenSeal,
};
use keelson_cache::Cache;
use keelson_meta::ApiError;
use keelson_supervision::TaskGroup;
use tokio_util::sync::CancellationToken;

use crate::config::Config;

/// A way to decide what users may do, under the name that the reference server's flag gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Nodes may read what their pods use and write what is theirs; nobody else is decided about.
    Node,
    /// The stored roles and bindings decide.
    Rbac,
    /// Everybody may do anything.
    AlwaysAllow,
}

impl FromStr for AuthorizationMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "Node" => Ok(Self::Node),
            "RBAC" => Ok(Self::Rbac),
            "AlwaysAllow" => Ok(Self::AlwaysAllow),
            _ => Err(format!("there is no authorization mode {name:?}; there are Node, RBAC and AlwaysAllow")),
        }
    }
}

/// What the operator keeps in files that are read again when they change.
pub(crate) struct OperatorFiles {
    listed: Option<Arc<StaticTokens>>,
    seal: Option<Arc<TokenSeal>>,
}

impl OperatorFiles {
    /// Those of the settings.
    ///
    /// # Errors
    /// When one can't be read.
    pub(crate) fn read(config: &Config) -> anyhow::Result<Self> {
        let listed = config.token_file.as_deref().map(StaticTokens::read).transpose();
        let listed = listed.context("reading --token-auth-file")?.map(Arc::new);
        let seal = config.token_key_file.as_deref().map(|file| TokenSeal::read(file, config.random.clone()));
        let seal = seal.transpose().context("reading --token-key-file")?.map(Arc::new);
        Ok(Self { listed, seal })
    }
}

/// The authorizers of a server.
pub(crate) struct Rights {
    chain: Arc<AuthorizerChain>,
    rbac: Option<Arc<Rbac>>,
    nodes: Option<Arc<NodeAuthorizer>>,
    files: OperatorFiles,
}

impl Rights {
    /// Those of the settings, by what a cache holds, beside what the operator keeps in files.
    ///
    /// # Errors
    /// When it holds no roles.
    pub(crate) fn new(config: &Config, cache: &Arc<Cache>, files: OperatorFiles) -> anyhow::Result<Self> {
        let mut authorizers: Vec<Arc<dyn Authorizer>> = vec![Arc::new(PrivilegedGroup)];
        let (mut rbac, mut nodes) = (None, None);
        let internal = |error: ApiError| anyhow::anyhow!("{error}");
        for mode in &config.authorization {
            match mode {
                AuthorizationMode::AlwaysAllow => authorizers.push(Arc::new(AlwaysAllow)),
                AuthorizationMode::Node => {
                    let prefixes = keelson_registry::node_prefixes().map_err(internal)?;
                    let authorizer = Arc::new(NodeAuthorizer::new(cache.clone(), prefixes));
                    nodes = Some(authorizer.clone());
                    authorizers.push(authorizer);
                }
                AuthorizationMode::Rbac => {
                    let prefixes = keelson_registry::role_prefixes().map_err(internal)?;
                    let [a, b, c, d] = &prefixes;
                    let roles = Arc::new(Rbac::new(cache.clone(), [a, b, c, d])?);
                    rbac = Some(roles.clone());
                    authorizers.push(roles);
                }
            }
        }
        Ok(Self { chain: Arc::new(AuthorizerChain::new(authorizers)), rbac, nodes, files })
    }

    pub(crate) fn authorizer(&self) -> Arc<dyn Authorizer> {
        self.chain.clone()
    }

    /// Whether nodes have rights of their own.
    pub(crate) fn has_node_rights(&self) -> bool {
        self.nodes.is_some()
    }

    /// The tokens of the file, if there is one.
    pub(crate) fn listed_tokens(&self) -> Option<Arc<StaticTokens>> {
        self.files.listed.clone()
    }

    /// What seals continue tokens, if there is something.
    pub(crate) fn token_seal(&self) -> Option<Arc<TokenSeal>> {
        self.files.seal.clone()
    }

    /// Follows roles, bindings and the file of tokens until the server stops.
    pub(crate) fn follow(self, background: &TaskGroup, stopping: &CancellationToken) {
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
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").finish_non_exhaustive()
    }
}
