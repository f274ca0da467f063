//! The tokens of service accounts: the key of the data directory, in the name of the issuer of the configuration.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use keelson_access::pki::Pki;
use keelson_access::token::TokenIssuer;
use keelson_http::pages::{IssuerDocuments, KEY_SET_PATH};
use keelson_registry::{Registry, ServiceAccountTokens};

use crate::config::Config;

/// What hands out tokens and knows whom they are for.
pub(crate) fn service_account_tokens(
    config: &Config,
    pki: &Pki,
    registry: Arc<Registry>,
) -> anyhow::Result<Arc<ServiceAccountTokens>> {
    let issuer = TokenIssuer::new(config.service_account_issuer.clone(), &pki.service_account);
    let issuer = issuer.context("reading the key that signs the tokens of service accounts")?;
    Ok(Arc::new(ServiceAccountTokens::new(registry, issuer)))
}

/// What others read to verify tokens of a server at this address.
pub(crate) fn issuer_documents(tokens: &ServiceAccountTokens, addr: SocketAddr) -> IssuerDocuments {
    let issuer = tokens.issuer();
    IssuerDocuments {
        configuration: issuer.configuration(&format!("https://{addr}{KEY_SET_PATH}")).to_string().into(),
        key_set: issuer.key_set().to_string().into(),
    }
}
