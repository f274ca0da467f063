//! Flags for the accepted token issuers and the authorizers, under kube-apiserver's names.
//!
//! These flags are another form of the settings in the files `--authentication-config` and `--authorization-config`.
//! The flags and the file exclude each other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::{ArgAction, Args as ClapArgs};
use keelson_server::{
    AuthenticationSources, AuthorizationSource, AuthorizerEntry, AuthorizerKind, Config, OidcFlags, ReviewVersion,
    TokenWebhook,
};

use super::kinds::{List, ListValues as _, duration, list, switch};

#[derive(ClapArgs)]
pub(crate) struct Access {
    /// Accept requests without credentials as the user system:anonymous, who may read health and version. True by
    /// default, or as in --authentication-config. Otherwise they are refused (401).
    #[arg(
        long,
        env = "KEELSON_ANONYMOUS_AUTH",
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        value_parser = switch
    )]
    anonymous_auth: Option<bool>,
    /// A file with an AuthenticationConfiguration (apiserver.config.k8s.io/v1): trusted issuers of tokens (JWT), and
    /// the paths that accept requests without credentials. It is read again when it changes.
    #[arg(long, env = "KEELSON_AUTHENTICATION_CONFIG")]
    authentication_config: Option<PathBuf>,
    #[command(flatten)]
    oidc: Oidc,
    /// A kubeconfig of the webhook that authenticates tokens of other issuers.
    #[arg(long, env = "KEELSON_AUTHENTICATION_TOKEN_WEBHOOK_CONFIG_FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// The version of the TokenReviews that it understands: v1 or v1beta1.
    #[arg(long, env = "KEELSON_AUTHENTICATION_TOKEN_WEBHOOK_VERSION", default_value = "v1beta1", value_parser = version)]
    authentication_token_webhook_version: ReviewVersion,
    /// The time for which its responses are cached (such as 2m).
    #[arg(long, env = "KEELSON_AUTHENTICATION_TOKEN_WEBHOOK_CACHE_TTL", default_value = "2m", value_parser = duration)]
    authentication_token_webhook_cache_ttl: Duration,
    /// The authorizers, called in this order. Node permits nodes what their pods use and limits their writes, RBAC evaluates the stored
    /// roles and bindings, ABAC the policies of a file, Webhook calls a webhook. AlwaysAllow permits everything (for development),
    /// AlwaysDeny nothing. Node,RBAC by default.
    #[arg(long, env = "KEELSON_AUTHORIZATION_MODE", value_parser = list::<AuthorizerKind>)]
    authorization_mode: Vec<List<AuthorizerKind>>,
    /// A file with an AuthorizationConfiguration (apiserver.config.k8s.io/v1): the authorizers, with several webhooks
    /// and the conditions of their calls. It is read again when it changes.
    #[arg(long, env = "KEELSON_AUTHORIZATION_CONFIG")]
    authorization_config: Option<PathBuf>,
    /// The policy file of --authorization-mode ABAC: a Policy (abac.authorization.kubernetes.io/v1beta1) as JSON on each line. It is
    /// read once.
    #[arg(long, env = "KEELSON_AUTHORIZATION_POLICY_FILE")]
    authorization_policy_file: Option<PathBuf>,
    /// The kubeconfig of the webhook of --authorization-mode Webhook.
    #[arg(long, env = "KEELSON_AUTHORIZATION_WEBHOOK_CONFIG_FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// The version of the SubjectAccessReviews that it understands: v1 or v1beta1.
    #[arg(long, env = "KEELSON_AUTHORIZATION_WEBHOOK_VERSION", default_value = "v1beta1", value_parser = version)]
    authorization_webhook_version: ReviewVersion,
    /// The time for which an allowed request is cached (such as 5m).
    #[arg(long, env = "KEELSON_AUTHORIZATION_WEBHOOK_CACHE_AUTHORIZED_TTL", default_value = "5m", value_parser = duration)]
    authorization_webhook_cache_authorized_ttl: Duration,
    /// The time for which a denied request is cached (such as 30s).
    #[arg(long, env = "KEELSON_AUTHORIZATION_WEBHOOK_CACHE_UNAUTHORIZED_TTL", default_value = "30s", value_parser = duration)]
    authorization_webhook_cache_unauthorized_ttl: Duration,
}

#[derive(ClapArgs)]
struct Oidc {
    /// The URL of a trusted issuer of tokens (JWT). --authentication-config names several.
    #[arg(long, env = "KEELSON_OIDC_ISSUER_URL")]
    oidc_issuer_url: Option<String>,
    /// The audience that its tokens must have.
    #[arg(long, env = "KEELSON_OIDC_CLIENT_ID")]
    oidc_client_id: Option<String>,
    /// The authorities that sign its serving certificate (PEM); those of the system by default.
    #[arg(long, env = "KEELSON_OIDC_CA_FILE")]
    oidc_ca_file: Option<PathBuf>,
    /// The claim with the name of the user.
    #[arg(long, env = "KEELSON_OIDC_USERNAME_CLAIM", default_value = "sub")]
    oidc_username_claim: String,
    /// The prefix of that name: by default the URL of the issuer and #, and nothing for e-mail addresses; - for no prefix.
    #[arg(
        long,
        env = "KEELSON_OIDC_USERNAME_PREFIX",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    oidc_username_prefix: String,
    /// The claim with the groups of the user; none unless given.
    #[arg(long, env = "KEELSON_OIDC_GROUPS_CLAIM")]
    oidc_groups_claim: Option<String>,
    /// The prefix of each group.
    #[arg(long, env = "KEELSON_OIDC_GROUPS_PREFIX")]
    oidc_groups_prefix: Option<String>,
    /// The algorithms with which its tokens may be signed.
    #[arg(long, env = "KEELSON_OIDC_SIGNING_ALGS", value_parser = list::<String>, default_value = "RS256")]
    oidc_signing_algs: Vec<List<String>>,
    /// A claim with the value that tokens must have: NAME=VALUE. May be repeated.
    #[arg(long, env = "KEELSON_OIDC_REQUIRED_CLAIM", value_parser = required_claim)]
    oidc_required_claim: Vec<(String, String)>,
}

impl Access {
    /// Applies the flags to the settings of a server.
    pub(crate) fn read_into(self, config: &mut Config) -> anyhow::Result<()> {
        config.anonymous = self.anonymous_auth;
        let modes = self.authorization_mode.clone().joined();
        config.authorization = match (&self.authorization_config, modes.is_empty()) {
            (Some(_), false) => {
                bail!(
                    "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"
                )
            }
            (Some(_), true)
                if self.authorization_webhook_config_file.is_some() || self.authorization_policy_file.is_some() =>
            {
                bail!(
                    "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"
                )
            }
            (Some(file), true) => AuthorizationSource::File(std::path::absolute(file)?),
            (None, _) => AuthorizationSource::Flags(self.authorizers(&modes)?),
        };
        config.authentication = AuthenticationSources {
            file: self.authentication_config,
            oidc: self.oidc.into_flags(),
            webhook: self.authentication_token_webhook_config_file.map(|file| TokenWebhook {
                file,
                version: self.authentication_token_webhook_version,
                keep: self.authentication_token_webhook_cache_ttl,
            }),
        };
        Ok(())
    }

    fn authorizers(&self, modes: &[AuthorizerKind]) -> anyhow::Result<Vec<AuthorizerEntry>> {
        let modes = match modes {
            [] => &[AuthorizerKind::Node, AuthorizerKind::Rbac][..],
            modes => modes,
        };
        let has_webhook = modes.contains(&AuthorizerKind::Webhook);
        let file = match (&self.authorization_webhook_config_file, has_webhook) {
            (None, true) => bail!("authorization-mode Webhook's authorization config file not passed"),
            (Some(_), false) => {
                bail!("cannot specify --authorization-webhook-config-file without mode Webhook")
            }
            (file, _) => file.as_ref().map(std::path::absolute).transpose()?,
        };
        let policies = match (&self.authorization_policy_file, modes.contains(&AuthorizerKind::Abac)) {
            (None, true) => bail!("authorization-mode ABAC's authorization policy file not passed"),
            (Some(_), false) => bail!("cannot specify --authorization-policy-file without mode ABAC"),
            (file, _) => file.as_ref().map(std::path::absolute).transpose()?,
        };
        let entry = |mode: &AuthorizerKind| match (mode, &file) {
            (AuthorizerKind::Webhook, Some(file)) => AuthorizerEntry::webhook(
                file,
                self.authorization_webhook_version,
                self.authorization_webhook_cache_authorized_ttl,
                self.authorization_webhook_cache_unauthorized_ttl,
            ),
            (AuthorizerKind::Abac, _) => AuthorizerEntry::abac(policies.as_deref().unwrap_or(Path::new(""))),
            (mode, _) => AuthorizerEntry::new(*mode),
        };
        Ok(modes.iter().map(entry).collect())
    }
}

impl Oidc {
    /// The settings of the issuer, if one of the flags is set.
    fn into_flags(self) -> Option<OidcFlags> {
        let is_stated = self.oidc_issuer_url.is_some()
            || self.oidc_client_id.is_some()
            || self.oidc_ca_file.is_some()
            || self.oidc_groups_claim.is_some()
            || self.oidc_groups_prefix.is_some()
            || !self.oidc_required_claim.is_empty();
        is_stated.then(|| OidcFlags {
            issuer_url: self.oidc_issuer_url.unwrap_or_default(),
            client_id: self.oidc_client_id.unwrap_or_default(),
            ca_file: self.oidc_ca_file,
            username_claim: self.oidc_username_claim,
            username_prefix: self.oidc_username_prefix,
            groups_claim: self.oidc_groups_claim.unwrap_or_default(),
            groups_prefix: self.oidc_groups_prefix.unwrap_or_default(),
            signing_algorithms: self.oidc_signing_algs.joined(),
            required_claims: self.oidc_required_claim,
        })
    }
}

fn version(name: &str) -> Result<ReviewVersion, String> {
    ReviewVersion::named(name).ok_or_else(|| format!("there is no version {name:?}; there are v1 and v1beta1"))
}

fn required_claim(text: &str) -> Result<(String, String), String> {
    let (claim, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not of the form NAME=VALUE"))?;
    Ok((claim.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};

    fn read(flags: &str) -> Result<Config, String> {
        let Ok(args) = Args::read(["keelson", "serve"].into_iter().chain(flags.split_whitespace())) else {
            panic!("the flags can be read: {flags}");
        };
        let Command::Serve(serve) = args.command else { panic!("it is serve") };
        let mut config = Config::default();
        serve.access.read_into(&mut config).map(|()| config).map_err(|error| error.to_string())
    }

    #[test]
    fn modes_are_the_authorizers_in_their_order() {
        let entries = |flags: &str| -> Vec<AuthorizerKind> {
            match read(flags).unwrap().authorization {
                AuthorizationSource::Flags(entries) => entries.iter().map(|entry| entry.kind().unwrap()).collect(),
                AuthorizationSource::File(_) => Vec::new(),
            }
        };
        assert_eq!(entries(""), [AuthorizerKind::Node, AuthorizerKind::Rbac]);
        assert_eq!(entries("--authorization-mode AlwaysDeny"), [AuthorizerKind::AlwaysDeny]);
        let both = "--authorization-mode RBAC,Webhook --authorization-webhook-config-file f";
        assert_eq!(entries(both), [AuthorizerKind::Rbac, AuthorizerKind::Webhook]);
        assert!(read("--authorization-mode Webhook").is_err());
        assert!(read("--authorization-webhook-config-file f").is_err());
        assert!(read("--authorization-config f --authorization-mode RBAC").is_err());
        let abac = "--authorization-mode RBAC,ABAC --authorization-policy-file f";
        assert_eq!(entries(abac), [AuthorizerKind::Rbac, AuthorizerKind::Abac]);
        for (flags, why) in [
            ("--authorization-mode ABAC", "authorization-mode ABAC's authorization policy file not passed"),
            ("--authorization-policy-file f", "cannot specify --authorization-policy-file without mode ABAC"),
        ] {
            assert_eq!(read(flags).err().unwrap(), why);
        }
        assert!(read("--authorization-config f --authorization-policy-file f").is_err());
        assert!(entries("--authorization-config f").is_empty());
    }

    #[test]
    fn one_flag_of_an_issuer_makes_one() {
        assert!(read("").unwrap().authentication.oidc.is_none());
        let flags =
            "--oidc-issuer-url https://i --oidc-client-id c --oidc-username-prefix - --oidc-required-claim a=b=c";
        let oidc = read(flags).unwrap().authentication.oidc.unwrap();
        assert_eq!(oidc.required_claims, [("a".to_owned(), "b=c".to_owned())]);
        assert_eq!((oidc.username_prefix.as_str(), oidc.signing_algorithms), ("-", vec!["RS256".to_owned()]));
    }
}
