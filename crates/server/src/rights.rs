//! The authorizers of the settings, one after another, and the tokens that the operator has listed in a file. Stored roles and that file
//! are followed while the server runs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context as _;
use keelson_access::{AlwaysAllow, Authorizer, AuthorizerChain, PrivilegedGroup, Rbac, StaticTokens};
use keelson_cache::Cache;
use keelson_supervision::TaskGroup;
use tokio_util::sync::CancellationToken;

use crate::config::Config;

/// A way to decide what users may do, under the name that the reference server's flag gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// The stored roles and bindings decide.
    Rbac,
    /// Everybody may do anything.
    AlwaysAllow,
}

impl FromStr for AuthorizationMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "RBAC" => Ok(Self::Rbac),
            "AlwaysAllow" => Ok(Self::AlwaysAllow),
            _ => Err(format!("there is no authorization mode {name:?}; there are RBAC and AlwaysAllow")),
        }
    }
}

/// The authorizers of a server.
pub(crate) struct Rights {
    chain: Arc<AuthorizerChain>,
    rbac: Option<Arc<Rbac>>,
    listed: Option<Arc<StaticTokens>>,
}

impl Rights {
    /// Those of the settings, by what a cache holds.
    ///
    /// # Errors
    /// When it holds no roles, or the file of tokens can't be read.
    pub(crate) fn new(config: &Config, cache: &Arc<Cache>) -> anyhow::Result<Self> {
        let listed = config.token_file.as_deref().map(StaticTokens::read).transpose();
        let listed = listed.context("reading --token-auth-file")?.map(Arc::new);
        let mut authorizers: Vec<Arc<dyn Authorizer>> = vec![Arc::new(PrivilegedGroup)];
        let mut rbac = None;
        for mode in &config.authorization {
            match mode {
                AuthorizationMode::AlwaysAllow => authorizers.push(Arc::new(AlwaysAllow)),
                AuthorizationMode::Rbac => {
                    let prefixes = keelson_registry::role_prefixes().map_err(|error| anyhow::anyhow!("{error}"))?;
                    let [a, b, c, d] = &prefixes;
                    let roles = Arc::new(Rbac::new(cache.clone(), [a, b, c, d])?);
                    rbac = Some(roles.clone());
                    authorizers.push(roles);
                }
            }
        }
        Ok(Self { chain: Arc::new(AuthorizerChain::new(authorizers)), rbac, listed })
    }

    pub(crate) fn authorizer(&self) -> Arc<dyn Authorizer> {
        self.chain.clone()
    }

    /// The tokens of the file, if there is one.
    pub(crate) fn listed_tokens(&self) -> Option<Arc<StaticTokens>> {
        self.listed.clone()
    }

    /// Follows roles, bindings and the file of tokens until the server stops.
    pub(crate) fn follow(self, background: &TaskGroup, stopping: &CancellationToken) {
        if let Some(rbac) = self.rbac {
            let stopping = stopping.clone();
            background.spawn("roles", async move {
                let _: Option<()> = stopping.run_until_cancelled_owned(rbac.keep_up()).await;
            });
        }
        if let Some(listed) = self.listed {
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
