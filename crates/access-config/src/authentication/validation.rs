//! Validates `AuthenticationConfiguration`, and compiles its expressions.
//!
//! Rules, their order and messages are upstream's, since operators search for these messages.

use std::collections::HashSet;

use keelson_meta::field_error::FieldError;
use keelson_meta::json::json;
use keelson_meta::names::dns_subdomain_faults;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::claims::{Mapper, Rule};
use super::config::{
    Anonymous, AuthenticationConfiguration, ClaimMappings, ClaimRule, Issuer, JwtAuthenticator, PrefixedClaim, UserRule,
};
use crate::expressions::{Expression, Variable};

/// The largest number of issuers.
const MOST_ISSUERS: usize = 64;

impl AuthenticationConfiguration {
    /// Validates the configuration, and compiles the mappings of each issuer. An issuer with one of the `disallowed`
    /// names is an error.
    pub(super) fn compile(&self, disallowed: &[String]) -> Result<Vec<Mapper>, Vec<FieldError>> {
        if self.jwt.len() > MOST_ISSUERS {
            return Err(vec![FieldError::too_many("jwt", self.jwt.len(), MOST_ISSUERS)]);
        }
        let mut faults = Vec::new();
        let (mut urls, mut discovery_urls) = (HashSet::new(), HashSet::new());
        let mut mappers = Vec::new();
        for (at, authenticator) in self.jwt.iter().enumerate() {
            let path = format!("jwt[{at}]");
            mappers.push(compile(authenticator, disallowed, &path, &mut faults));
            let issuer = &authenticator.issuer;
            if !urls.insert(issuer.url.as_str()) {
                faults.push(FieldError::duplicate(format!("{path}.issuer.url"), issuer.url.as_str()));
            }
            if !issuer.discovery_url.is_empty() && !discovery_urls.insert(issuer.discovery_url.as_str()) {
                let field = format!("{path}.issuer.discoveryURL");
                faults.push(FieldError::duplicate(field, issuer.discovery_url.as_str()));
            }
        }
        if let Some(Anonymous { enabled: false, paths }) = self.anonymous.as_ref().filter(|one| !one.paths.is_empty()) {
            let shown: Vec<_> = paths.iter().map(|path| json!({ "Path": path })).collect();
            let detail = "enabled should be set to true when conditions are defined";
            faults.push(FieldError::invalid("anonymous.conditions", shown, detail));
        }
        if faults.is_empty() { Ok(mappers) } else { Err(faults) }
    }
}

fn compile(of: &JwtAuthenticator, disallowed: &[String], path: &str, faults: &mut Vec<FieldError>) -> Mapper {
    check_issuer(&of.issuer, disallowed, &format!("{path}.issuer"), faults);
    let (required, rules) = claim_rules(&of.claim_validation_rules, &format!("{path}.claimValidationRules"), faults);
    let mut mapper = Mapper { required, rules, ..Mapper::default() };
    claim_mappings(&of.claim_mappings, &mut mapper, &format!("{path}.claimMappings"), faults);
    mapper.user_rules = user_rules(&of.user_validation_rules, &format!("{path}.userValidationRules"), faults);
    mapper
}

fn check_issuer(issuer: &Issuer, disallowed: &[String], path: &str, faults: &mut Vec<FieldError>) {
    let url_path = format!("{path}.url");
    if issuer.url.is_empty() {
        faults.push(FieldError::required(url_path, ""));
    } else {
        check_url(&issuer.url, disallowed, &url_path, faults);
    }
    let discovery_url = issuer.discovery_url.as_str();
    if !discovery_url.is_empty() {
        let field = format!("{path}.discoveryURL");
        let trimmed = |url: &str| url.trim_end_matches('/').to_owned();
        if !issuer.url.is_empty() && trimmed(&issuer.url) == trimmed(discovery_url) {
            faults.push(FieldError::invalid(&*field, discovery_url, "discoveryURL must be different from URL"));
        }
        check_url(discovery_url, &[], &field, faults);
    }
    check_audiences(issuer, path, faults);
    if !issuer.certificate_authority.is_empty() && !has_certificate(&issuer.certificate_authority) {
        let detail = "data does not contain any valid RSA or ECDSA certificates";
        faults.push(FieldError::invalid(format!("{path}.certificateAuthority"), "<omitted>", detail));
    }
    let egress = issuer.egress_selector_type.as_str();
    if !matches!(egress, "" | "controlplane" | "cluster") {
        let detail = "egress selector must be either controlplane or cluster";
        faults.push(FieldError::invalid(format!("{path}.egressSelectorType"), egress, detail));
    }
}

/// Returns true if a text contains a certificate.
pub(crate) fn has_certificate(pem: &str) -> bool {
    CertificateDer::pem_slice_iter(pem.as_bytes()).any(|one| one.is_ok())
}

fn check_url(url: &str, disallowed: &[String], field: &str, faults: &mut Vec<FieldError>) {
    let mut wrong = |detail: String| faults.push(FieldError::invalid(field, url, detail));
    if disallowed.iter().any(|one| one == url) {
        wrong(format!("URL must not overlap with disallowed issuers: [{}]", disallowed.join(" ")));
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = rest.split('/').next().unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("https") {
        wrong("URL scheme must be https".to_owned());
    }
    if authority.contains('@') {
        wrong("URL must not contain a username or password".to_owned());
    }
    if !query.is_empty() {
        wrong("URL must not contain a query".to_owned());
    }
    if !fragment.is_empty() {
        wrong("URL must not contain a fragment".to_owned());
    }
}

fn check_audiences(issuer: &Issuer, path: &str, faults: &mut Vec<FieldError>) {
    let field = format!("{path}.audiences");
    if issuer.audiences.is_empty() {
        faults.push(FieldError::required(&*field, format!("at least one {field} is required")));
        return;
    }
    let mut seen = HashSet::new();
    for (at, audience) in issuer.audiences.iter().enumerate() {
        if audience.is_empty() {
            faults.push(FieldError::required(format!("{field}[{at}]"), ""));
        }
        if !seen.insert(audience) {
            faults.push(FieldError::duplicate(format!("{field}[{at}]"), audience.as_str()));
        }
    }
    let policy = issuer.audience_match_policy.as_str();
    let detail = match issuer.audiences.len() {
        1 if !matches!(policy, "" | "MatchAny") => "audienceMatchPolicy must be empty or MatchAny for single audience",
        2.. if policy != "MatchAny" => "audienceMatchPolicy must be MatchAny for multiple audiences",
        _ => return,
    };
    faults.push(FieldError::invalid(format!("{path}.audienceMatchPolicy"), policy, detail));
}

/// Parses claims that must have a certain value, and conditions.
fn claim_rules(stated: &[ClaimRule], path: &str, faults: &mut Vec<FieldError>) -> (Vec<(String, String)>, Vec<Rule>) {
    let (mut required, mut rules) = (Vec::<(String, String)>::new(), Vec::new());
    let mut expressions = HashSet::new();
    for (at, rule) in stated.iter().enumerate() {
        let path = format!("{path}[{at}]");
        match (rule.claim.as_str(), rule.expression.as_str()) {
            ("", "") => faults.push(FieldError::required(path, "claim or expression is required")),
            (claim, "") => {
                if !rule.message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    faults.push(FieldError::invalid(format!("{path}.message"), rule.message.as_str(), detail));
                }
                if required.iter().any(|(known, _)| known == claim) {
                    faults.push(FieldError::duplicate(format!("{path}.claim"), claim));
                }
                required.push((claim.to_owned(), rule.required_value.clone()));
            }
            ("", expression) => {
                if !rule.required_value.is_empty() {
                    let (field, detail) =
                        (format!("{path}.requiredValue"), "may not be specified when expression is set");
                    faults.push(FieldError::invalid(field, rule.required_value.as_str(), detail));
                }
                let field = format!("{path}.expression");
                if !expressions.insert(expression) {
                    faults.push(FieldError::duplicate(field, expression));
                    continue;
                }
                match Expression::compile(expression, Variable::Claims, true, &field) {
                    Ok(condition) => rules.push(Rule { condition, message: rule.message.clone() }),
                    Err(fault) => faults.push(fault),
                }
            }
            (claim, _) => faults.push(FieldError::invalid(path, claim, "claim and expression can't both be set")),
        }
    }
    (required, rules)
}

fn claim_mappings(mappings: &ClaimMappings, mapper: &mut Mapper, path: &str, faults: &mut Vec<FieldError>) {
    mapper.username = prefixed(&mappings.username, true, &format!("{path}.username"), faults);
    mapper.groups = prefixed(&mappings.groups, false, &format!("{path}.groups"), faults);
    if !mappings.uid_claim.is_empty() && !mappings.uid_expression.is_empty() {
        faults.push(FieldError::invalid(format!("{path}.uid"), "", "claim and expression can't both be set"));
    } else if !mappings.uid_expression.is_empty() {
        mapper.uid = compiled(&mappings.uid_expression, &format!("{path}.uid.expression"), faults);
    }
    let mut keys = HashSet::new();
    for (at, mapping) in mappings.extra.iter().enumerate() {
        let path = format!("{path}.extra[{at}]");
        let (field, key) = (format!("{path}.key"), mapping.key.as_str());
        check_extra_key(key, &field, faults);
        if !keys.insert(key) {
            faults.push(FieldError::duplicate(field, key));
            continue;
        }
        let field = format!("{path}.valueExpression");
        if mapping.value_expression.is_empty() {
            faults.push(FieldError::required(field, ""));
            continue;
        }
        if let Some(expression) = compiled(&mapping.value_expression, &field, faults) {
            mapper.extra.push((key.to_owned(), expression));
        }
    }
    let verifies = mapper.username.iter().chain(mapper.extra.iter().map(|(_, expression)| expression));
    let mut verifies = verifies.chain(mapper.rules.iter().map(|rule| &rule.condition));
    let uses_email = mapper.username.as_ref().is_some_and(Expression::uses_email);
    if uses_email && !verifies.any(Expression::uses_email_verified) {
        let detail = "claims.email_verified must be used in claimMappings.username.expression or \
                      claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in \
                      claimMappings.username.expression";
        let field = format!("{path}.username.expression");
        faults.push(FieldError::invalid(field, mappings.username.expression.as_str(), detail));
    }
}

fn compiled(text: &str, field: &str, faults: &mut Vec<FieldError>) -> Option<Expression> {
    Expression::compile(text, Variable::Claims, false, field).map_err(|fault| faults.push(fault)).ok()
}

fn prefixed(mapping: &PrefixedClaim, is_needed: bool, path: &str, faults: &mut Vec<FieldError>) -> Option<Expression> {
    match (mapping.claim.as_str(), mapping.expression.as_str()) {
        ("", "") if is_needed => faults.push(FieldError::required(path, "claim or expression is required")),
        ("", "") => {}
        ("", expression) => {
            if let Some(prefix) = &mapping.prefix {
                let detail = "may not be specified when expression is set";
                faults.push(FieldError::invalid(format!("{path}.prefix"), prefix.as_str(), detail));
            }
            return compiled(expression, &format!("{path}.expression"), faults);
        }
        (_, "") => {
            if mapping.prefix.is_none() {
                let detail =
                    "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                faults.push(FieldError::required(format!("{path}.prefix"), detail));
            }
        }
        _ => faults.push(FieldError::invalid(path, "", "claim and expression can't both be set")),
    }
    None
}

/// Checks that the key of an extra value has a domain prefix, which separates keys of different owners.
fn check_extra_key(key: &str, field: &str, faults: &mut Vec<FieldError>) {
    let mut wrong = |value: &str, detail: &str| faults.push(FieldError::invalid(field, value, detail));
    match key.split_once('/') {
        None if key.is_empty() => {
            faults.push(FieldError::required(field, ""));
            return;
        }
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            for fault in dns_subdomain_faults(domain) {
                wrong(domain, &fault);
            }
            if !path.bytes().all(is_path_byte) {
                let detail = format!("Invalid path (regex used for validation is '{PATH}')");
                wrong(path, &detail);
            }
        }
        _ => wrong(key, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if key != key.to_lowercase() {
        wrong(key, "must be lowercase");
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_within = |of: &str| domain == of || domain.strip_suffix(of).is_some_and(|rest| rest.ends_with('.'));
    if is_within("kubernetes.io") || is_within("k8s.io") {
        wrong(key, "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use");
    }
}

/// The characters of a path in a URL (RFC 3986, section 3.3), as in upstream's message.
const PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";

fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)
}

fn user_rules(stated: &[UserRule], path: &str, faults: &mut Vec<FieldError>) -> Vec<Rule> {
    let (mut rules, mut seen) = (Vec::new(), HashSet::new());
    for (at, rule) in stated.iter().enumerate() {
        let (field, text) = (format!("{path}[{at}].expression"), rule.expression.as_str());
        if text.is_empty() {
            faults.push(FieldError::required(field, ""));
        } else if !seen.insert(text) {
            faults.push(FieldError::duplicate(field, text));
        } else {
            match Expression::compile(text, Variable::User, true, &field) {
                Ok(condition) => rules.push(Rule { condition, message: rule.message.clone() }),
                Err(fault) => faults.push(fault),
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests;
