//! Creates the issuer of service account tokens from the keys in the data directory and the configured issuer URL.
//!
//! `keelson_access` signs and verifies tokens. This module gives it the keys, and publishes the public keys.

use std::sync::Arc;

use anyhow::Context as _;
use keelson_access::pki::Pki;
use keelson_access::token::TokenIssuer;
use keelson_access_config::ConfiguredAuthorizers;
use keelson_http::pages::{IssuerDocuments, KEY_SET_PATH};
use keelson_outbound::Outbound;
use keelson_registry::{Registry, ServiceAccountTokens};

use crate::config::Config;
use crate::issuers::ForeignIssuers;
use crate::rights::Rights;

/// The issuer and verifier of tokens.
pub(crate) fn token_issuer(config: &Config, pki: &Pki) -> anyhow::Result<Arc<TokenIssuer>> {
    let issuer = TokenIssuer::new(config.service_account_issuer.clone(), &pki.service_account)
        .context("reading the keys of the tokens of service accounts")?;
    let issuer = issuer.accepting(&config.further_issuers).with_audiences(config.api_audiences.clone());
    Ok(Arc::new(issuer.with_key_set_url(config.key_set_url.clone())))
}

/// The authenticators of tokens.
#[derive(Clone)]
pub(crate) struct Tokens {
    /// The server's own authenticator, followed by the others.
    pub(crate) all: Arc<ServiceAccountTokens>,
    pub(crate) foreign: ForeignIssuers,
    /// The authorizers of their users.
    pub(crate) authorizers: Arc<ConfiguredAuthorizers>,
}

impl Tokens {
    /// The authenticators and authorizers of the settings. From now on, authorization webhooks are called too.
    ///
    /// # Errors
    /// The settings are invalid.
    pub(crate) fn new(
        config: &Config,
        registry: &Arc<Registry>,
        issuer: Arc<TokenIssuer>,
        rights: &Rights,
        outbound: &Arc<Outbound>,
    ) -> anyhow::Result<Self> {
        let authorizers = rights.configured().clone();
        authorizers.connect(outbound).context("reading the settings of authorization")?;
        let foreign = ForeignIssuers::new(config, outbound).context("reading the settings of authentication")?;
        let all = ServiceAccountTokens::new(registry.clone(), issuer)
            .with_listed(rights.listed_tokens())
            .with_bootstrap_tokens(config.bootstrap_tokens)
            .with_times(config.token_times)
            .with_foreign(foreign.all());
        Ok(Self { all: Arc::new(all), foreign, authorizers })
    }
}

/// The documents with which other programs verify tokens of a server at this host and port.
pub(crate) fn issuer_documents(issuer: &TokenIssuer, host: &str) -> IssuerDocuments {
    IssuerDocuments {
        configuration: issuer.configuration(&format!("https://{host}{KEY_SET_PATH}")).to_string().into(),
        key_set: issuer.key_set().to_string().into(),
    }
}
