//! The flags `--oidc-*`: one issuer, in the form before configuration files. They are converted to the form of the
//! file.
//!
//! User names get the URL of the issuer as a prefix, unless they are email addresses or a prefix is set. The prefix `-`
//! adds nothing.

use std::path::PathBuf;

use super::config::{AuthenticationConfiguration, ClaimMappings, ClaimRule, Issuer, JwtAuthenticator, PrefixedClaim};
use crate::document::ConfigurationError;
use crate::jwt::SIGNING_ALGORITHMS;

/// The settings of one issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OidcFlags {
    /// The URL of the issuer.
    pub issuer_url: String,
    /// The audience of the issuer's tokens.
    pub client_id: String,
    /// A file with authorities for the issuer's TLS certificate (PEM). The default is the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// The claim with the user name.
    pub username_claim: String,
    /// The prefix of user names.
    pub username_prefix: String,
    /// The claim with the groups; empty for none.
    pub groups_claim: String,
    /// The prefix of groups.
    pub groups_prefix: String,
    /// The accepted signature algorithms.
    pub signing_algorithms: Vec<String>,
    /// The claims that must have a certain value.
    pub required_claims: Vec<(String, String)>,
}

impl OidcFlags {
    /// Converts the flags to a configuration.
    ///
    /// # Errors
    /// The flags contradict each other, or the authorities cannot be read.
    pub(crate) fn configuration(&self) -> Result<AuthenticationConfiguration, ConfigurationError> {
        let unusable = |why: String| ConfigurationError::Unusable(why);
        if self.issuer_url.is_empty() || self.client_id.is_empty() {
            return Err(unusable(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
                    .to_owned(),
            ));
        }
        if let Some(unknown) = self.signing_algorithms.iter().find(|name| !SIGNING_ALGORITHMS.contains(&name.as_str()))
        {
            return Err(unusable(format!("oidc: unsupported signing alg: {unknown:?}")));
        }
        let authority = self.ca_file.as_ref().map(std::fs::read_to_string).transpose();
        let authority = authority.map_err(|error| unusable(format!("reading --oidc-ca-file: {error}")))?;
        let prefix = match self.username_prefix.as_str() {
            "-" => String::new(),
            "" if self.username_claim != "email" => format!("{}#", self.issuer_url),
            prefix => prefix.to_owned(),
        };
        let groups = if self.groups_claim.is_empty() {
            PrefixedClaim::default()
        } else {
            let (claim, prefix) = (self.groups_claim.clone(), Some(self.groups_prefix.clone()));
            PrefixedClaim { claim, prefix, ..PrefixedClaim::default() }
        };
        let required = self.required_claims.iter().map(|(claim, value)| ClaimRule {
            claim: claim.clone(),
            required_value: value.clone(),
            ..ClaimRule::default()
        });
        let username =
            PrefixedClaim { claim: self.username_claim.clone(), prefix: Some(prefix), ..PrefixedClaim::default() };
        let issuer = Issuer {
            url: self.issuer_url.clone(),
            certificate_authority: authority.unwrap_or_default(),
            audiences: vec![self.client_id.clone()],
            ..Issuer::default()
        };
        let authenticator = JwtAuthenticator {
            issuer,
            claim_validation_rules: required.collect(),
            claim_mappings: ClaimMappings { username, groups, ..ClaimMappings::default() },
            user_validation_rules: Vec::new(),
        };
        Ok(AuthenticationConfiguration { jwt: vec![authenticator], anonymous: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usernames_are_prefixed_with_the_issuer_by_default() {
        let check = |claim: &str, prefix: &str, expected: &str| {
            let flags = OidcFlags {
                issuer_url: "https://i".to_owned(),
                client_id: "c".to_owned(),
                username_claim: claim.to_owned(),
                username_prefix: prefix.to_owned(),
                ..OidcFlags::default()
            };
            let made = flags.configuration().unwrap();
            assert_eq!(made.jwt[0].claim_mappings.username.prefix.as_deref(), Some(expected), "{claim} {prefix}");
        };
        check("sub", "", "https://i#");
        check("email", "", "");
        check("sub", "-", "");
        check("sub", "o:", "o:");
        check("email", "o:", "o:");
    }

    #[test]
    fn flags_that_do_not_fit_are_refused() {
        let of = |flags: &OidcFlags| flags.configuration().unwrap_err().to_string();
        let some = OidcFlags { issuer_url: "https://i".to_owned(), ..OidcFlags::default() };
        assert!(of(&some).contains("must be specified together"));
        for name in ["none", "HS256"] {
            let wrong = OidcFlags { client_id: "c".into(), signing_algorithms: vec![name.to_owned()], ..some.clone() };
            assert_eq!(of(&wrong), format!("oidc: unsupported signing alg: {name:?}"));
        }
    }
}
