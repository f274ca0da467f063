//! Parses `AuthenticationConfiguration`, with the fields of upstream's file.
//!
//! Values are not validated here. Like upstream, missing fields are empty.

use std::path::Path;

use super::flags::OidcFlags;
use crate::document::{CONFIG_GROUP, ConfigurationError, DocumentKind, Fields};

const KIND: DocumentKind = DocumentKind {
    what: "authentication",
    kind: "AuthenticationConfiguration",
    groups: &[CONFIG_GROUP],
    versions: &["v1", "v1beta1", "v1alpha1"],
};

/// The trusted issuers, and the rules for anonymous requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationConfiguration {
    pub(crate) jwt: Vec<JwtAuthenticator>,
    /// The settings for anonymous requests, if the file has them.
    pub anonymous: Option<Anonymous>,
}

/// The settings for anonymous requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anonymous {
    /// True if anonymous requests are accepted.
    pub enabled: bool,
    /// The paths that accept anonymous requests; an empty list means all paths.
    pub paths: Vec<String>,
}

impl Anonymous {
    /// Returns true if the path accepts anonymous requests.
    pub fn takes(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|taken| taken == path))
    }
}

/// An issuer, and the mapping of its tokens to users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JwtAuthenticator {
    pub(crate) issuer: Issuer,
    pub(crate) claim_validation_rules: Vec<ClaimRule>,
    pub(crate) claim_mappings: ClaimMappings,
    pub(crate) user_validation_rules: Vec<UserRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Issuer {
    pub(crate) url: String,
    pub(crate) discovery_url: String,
    pub(crate) certificate_authority: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) audience_match_policy: String,
    pub(crate) egress_selector_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimRule {
    pub(crate) claim: String,
    pub(crate) required_value: String,
    pub(crate) expression: String,
    pub(crate) message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimMappings {
    pub(crate) username: PrefixedClaim,
    pub(crate) groups: PrefixedClaim,
    pub(crate) uid_claim: String,
    pub(crate) uid_expression: String,
    pub(crate) extra: Vec<ExtraMapping>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixedClaim {
    pub(crate) claim: String,
    pub(crate) prefix: Option<String>,
    pub(crate) expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtraMapping {
    pub(crate) key: String,
    pub(crate) value_expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserRule {
    pub(crate) expression: String,
    pub(crate) message: String,
}

impl AuthenticationConfiguration {
    /// Reads and validates a file. No issuer may have one of the `disallowed` names.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    pub fn of_file(file: &Path, disallowed: &[String]) -> Result<Self, ConfigurationError> {
        Self::load(file)?.judged(disallowed)
    }

    /// Builds and validates the configuration of the flags. No issuer may have one of the `disallowed` names.
    ///
    /// # Errors
    /// The flags contradict each other or are invalid.
    pub fn of_flags(flags: &OidcFlags, disallowed: &[String]) -> Result<Self, ConfigurationError> {
        flags.configuration()?.judged(disallowed)
    }

    fn judged(self, disallowed: &[String]) -> Result<Self, ConfigurationError> {
        let invalid = |faults| ConfigurationError::Invalid { what: "authentication", faults };
        self.compile(disallowed).map(drop).map_err(invalid)?;
        Ok(self)
    }

    /// Reads a file. Checks its form, but not its values.
    pub(crate) fn load(file: &Path) -> Result<Self, ConfigurationError> {
        KIND.load(file, &["jwt", "anonymous"], Self::read)
    }

    fn read(fields: &Fields<'_>) -> Self {
        const JWT: [&str; 4] = ["issuer", "claimValidationRules", "claimMappings", "userValidationRules"];
        let anonymous = fields.optional_object("anonymous", &["enabled", "conditions"]);
        Self {
            jwt: fields.objects("jwt", &JWT).iter().map(JwtAuthenticator::read).collect(),
            anonymous: anonymous.map(|anonymous| Anonymous {
                enabled: anonymous.flag("enabled").unwrap_or_default(),
                paths: anonymous.objects("conditions", &["path"]).iter().map(|one| one.text("path")).collect(),
            }),
        }
    }
}

impl JwtAuthenticator {
    fn read(fields: &Fields<'_>) -> Self {
        const ISSUER: [&str; 6] =
            ["url", "discoveryURL", "certificateAuthority", "audiences", "audienceMatchPolicy", "egressSelectorType"];
        let issuer = fields.object("issuer", &ISSUER);
        let rules = fields.objects("claimValidationRules", &["claim", "requiredValue", "expression", "message"]);
        let user_rules = fields.objects("userValidationRules", &["expression", "message"]);
        let user_rule =
            |rule: &Fields<'_>| UserRule { expression: rule.text("expression"), message: rule.text("message") };
        Self {
            issuer: Issuer {
                url: issuer.text("url"),
                discovery_url: issuer.text("discoveryURL"),
                certificate_authority: issuer.text("certificateAuthority"),
                audiences: issuer.texts("audiences"),
                audience_match_policy: issuer.text("audienceMatchPolicy"),
                egress_selector_type: issuer.text("egressSelectorType"),
            },
            claim_validation_rules: rules
                .iter()
                .map(|rule| ClaimRule {
                    claim: rule.text("claim"),
                    required_value: rule.text("requiredValue"),
                    expression: rule.text("expression"),
                    message: rule.text("message"),
                })
                .collect(),
            claim_mappings: ClaimMappings::read(
                &fields.object("claimMappings", &["username", "groups", "uid", "extra"]),
            ),
            user_validation_rules: user_rules.iter().map(user_rule).collect(),
        }
    }
}

impl ClaimMappings {
    fn read(fields: &Fields<'_>) -> Self {
        let prefixed = |name: &str| {
            let mapping = fields.object(name, &["claim", "prefix", "expression"]);
            PrefixedClaim {
                claim: mapping.text("claim"),
                prefix: mapping.optional_text("prefix"),
                expression: mapping.text("expression"),
            }
        };
        let uid = fields.object("uid", &["claim", "expression"]);
        let extra = fields.objects("extra", &["key", "valueExpression"]);
        Self {
            username: prefixed("username"),
            groups: prefixed("groups"),
            uid_claim: uid.text("claim"),
            uid_expression: uid.text("expression"),
            extra: extra
                .iter()
                .map(|one| ExtraMapping { key: one.text("key"), value_expression: one.text("valueExpression") })
                .collect(),
        }
    }
}
