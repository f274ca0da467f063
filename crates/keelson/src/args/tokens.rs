//! Flags of kube-apiserver for the issuers and audiences of service account tokens.
//!
//! Lifetimes are in `upstream`, and files of keys in `Serve`.

use anyhow::ensure;
use clap::Args as ClapArgs;
use clap::builder::NonEmptyStringValueParser;
use keelson_server::Config;

use super::kinds::{List, ListValues as _, list};

#[derive(ClapArgs)]
pub(crate) struct TokenArgs {
    /// The issuer of service account tokens: a URL. Of several the first one signs, and tokens of all are accepted.
    #[arg(long, env = "KEELSON_SERVICE_ACCOUNT_ISSUER", value_parser = NonEmptyStringValueParser::new())]
    service_account_issuer: Vec<String>,
    /// The audiences of this server, one of which a token must have. The issuers unless given.
    #[arg(long, env = "KEELSON_API_AUDIENCES", value_parser = list::<String>)]
    api_audiences: Vec<List<String>>,
    /// The https URL of the keys of tokens, which /.well-known/openid-configuration names instead of this server's.
    #[arg(long, env = "KEELSON_SERVICE_ACCOUNT_JWKS_URI", value_parser = NonEmptyStringValueParser::new())]
    service_account_jwks_uri: Option<String>,
}

impl TokenArgs {
    /// Applies the flags to the settings of a server.
    pub(crate) fn read_into(self, config: &mut Config) -> anyhow::Result<()> {
        let mut issuers = self.service_account_issuer.into_iter();
        if let Some(first) = issuers.next() {
            config.service_account_issuer = first;
        }
        config.further_issuers = issuers.collect();
        config.api_audiences = self.api_audiences.joined();
        if let Some(url) = &self.service_account_jwks_uri {
            let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
            ensure!(
                scheme.as_deref() == Some("https"),
                "service-account-jwks-uri requires https scheme, parsed as: {url}"
            );
        }
        config.key_set_url = self.service_account_jwks_uri;
        Ok(())
    }
}
