//! Validates the claims of a token and maps them to a user, by the configuration of the issuer.
//!
//! A token is rejected if a claim is missing or has the wrong type, or if an expression fails. Messages are upstream's.

use std::collections::BTreeMap;

use keelson_access::User;
use keelson_access::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};
use keelson_cel::{Meter, Value};
use keelson_meta::go_format::{kind, quote};
use keelson_meta::json::{self, json};

use super::config::{ClaimMappings, PrefixedClaim};
use crate::expressions::{Expression, meter, texts};

/// The extra key with the id of the token.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The compiled mappings and rules of an issuer.
#[derive(Debug, Default)]
pub(super) struct Mapper {
    /// The claims that must have a certain value.
    pub(super) required: Vec<(String, String)>,
    pub(super) rules: Vec<Rule>,
    /// The CEL expressions that are used instead of claim names.
    pub(super) username: Option<Expression>,
    pub(super) groups: Option<Expression>,
    pub(super) uid: Option<Expression>,
    pub(super) extra: Vec<(String, Expression)>,
    pub(super) user_rules: Vec<Rule>,
}

/// A condition, with the message if it is false.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) condition: Expression,
    pub(super) message: String,
}

impl Mapper {
    /// The user of a token with these claims.
    ///
    /// # Errors
    /// The reason why the token is rejected.
    pub(super) fn user(&self, mappings: &ClaimMappings, claims: &json::Value) -> Result<User, String> {
        let mut meter = meter();
        let meter = &mut meter;
        let name = self.username(&mappings.username, claims, meter)?;
        let groups = self.groups(&mappings.groups, claims, meter)?;
        let uid = self.uid(&mappings.uid_claim, claims, meter)?;
        let mut extra = self.extra(claims, meter)?;
        self.check_required(claims)?;
        check(&self.rules, claims, meter)
            .map_err(|why| format!("oidc: error evaluating claim validation expression: {why}"))?;
        if let Some(id) = claims["jti"].as_str().filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        if !self.user_rules.is_empty() {
            let user = json!({ "username": name, "uid": uid, "groups": groups, "extra": extra });
            let failed = |why| format!("oidc: error evaluating user info validation rule: {why}");
            check(&self.user_rules, &user, meter).map_err(failed)?;
        }
        Ok(User { uid: Some(uid).filter(|uid| !uid.is_empty()), groups: with_group_of_all(&name, groups), extra, name })
    }

    fn username(&self, mapping: &PrefixedClaim, claims: &json::Value, meter: &mut Meter) -> Result<String, String> {
        let Some(expression) = &self.username else {
            let name = text(claims, &mapping.claim)
                .map_err(|why| format!("oidc: parse username claims {}: {why}", quote(&mapping.claim)))?;
            if mapping.claim == "email" {
                check_email(claims)?;
            }
            let name = format!("{}{name}", mapping.prefix.as_deref().unwrap_or_default());
            // An empty name could match rules that are not meant for any user.
            return if name.is_empty() { Err("oidc: empty username is not allowed".to_owned()) } else { Ok(name) };
        };
        let failed = |why: String| format!("oidc: error evaluating username claim expression: {why}");
        let name = expression.with_value(claims, meter, one_text).map_err(failed)?;
        let name = name.ok_or_else(|| failed("username claim expression must return a string".to_owned()))?;
        if name.is_empty() {
            return Err("oidc: empty username via CEL expression is not allowed".to_owned());
        }
        Ok(name)
    }

    fn groups(&self, mapping: &PrefixedClaim, claims: &json::Value, meter: &mut Meter) -> Result<Vec<String>, String> {
        if let Some(expression) = &self.groups {
            let failed = |why: String| format!("oidc: error evaluating group claim expression: {why}");
            let groups = expression.with_value(claims, meter, texts).map_err(failed)?;
            return groups.ok_or_else(|| failed("expression must return a string or a list of strings".to_owned()));
        }
        let prefix = mapping.prefix.as_deref().unwrap_or_default();
        let Some(claim) = claims.get(mapping.claim.as_str()).filter(|_| !mapping.claim.is_empty()) else {
            // Upstream fetches such groups from another server. If they were ignored, a rule that denies members of a
            // group would not apply.
            let is_elsewhere = !claims["_claim_names"][mapping.claim.as_str()].is_null();
            return if is_elsewhere && !mapping.claim.is_empty() {
                Err("oidc: could not expand distributed claims: they are not supported".to_owned())
            } else {
                Ok(Vec::new())
            };
        };
        let found = match claim {
            json::Value::Null => Vec::new(),
            json::Value::String(one) => vec![one.as_str()],
            json::Value::Array(many) if many.iter().all(json::Value::is_string) => {
                many.iter().filter_map(json::Value::as_str).collect()
            }
            other => {
                return Err(format!(
                    "oidc: parse groups claim {}: json: cannot unmarshal {} into Go value of type string",
                    quote(&mapping.claim),
                    kind(other)
                ));
            }
        };
        Ok(found.into_iter().map(|group| format!("{prefix}{group}")).collect())
    }

    fn uid(&self, claim: &str, claims: &json::Value, meter: &mut Meter) -> Result<String, String> {
        if !claim.is_empty() {
            let uid = text(claims, claim).map(str::to_owned);
            return uid.map_err(|why| format!("oidc: parse uid claim {}: {why}", quote(claim)));
        }
        let Some(expression) = &self.uid else { return Ok(String::new()) };
        let failed = |why: String| format!("oidc: error evaluating uid claim expression: {why}");
        let uid = expression.with_value(claims, meter, one_text).map_err(failed)?;
        uid.ok_or_else(|| failed("uid claim expression must return a string".to_owned()))
    }

    fn extra(&self, claims: &json::Value, meter: &mut Meter) -> Result<BTreeMap<String, Vec<String>>, String> {
        let mut extra = BTreeMap::new();
        for (key, expression) in &self.extra {
            let values = expression.with_value(claims, meter, texts)?.ok_or_else(|| {
                let why = "expression must return a string or a list of strings";
                format!("oidc: error evaluating extra claim expression: {}: {why}", expression.text)
            })?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }

    fn check_required(&self, claims: &json::Value) -> Result<(), String> {
        for (claim, wanted) in &self.required {
            if claims.get(claim.as_str()).is_none() {
                return Err(format!("oidc: required claim {claim} not present in ID token"));
            }
            let found = text(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
            if found != wanted {
                return Err(format!(
                    "oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}"
                ));
            }
        }
        Ok(())
    }
}

fn one_text(value: &Value<'_>) -> Option<String> {
    if let Value::String(text) = value { Some(text.to_string()) } else { None }
}

/// A claim with a string. Like upstream, null is read as an empty string.
fn text<'c>(claims: &'c json::Value, claim: &str) -> Result<&'c str, String> {
    match claims.get(claim) {
        None => Err("claim not present".to_owned()),
        Some(json::Value::Null) => Ok(""),
        Some(json::Value::String(text)) => Ok(text),
        Some(other) => Err(format!("json: cannot unmarshal {} into Go value of type string", kind(other))),
    }
}

/// Checks that the issuer does not declare the email address unverified.
fn check_email(claims: &json::Value) -> Result<(), String> {
    match claims.get("email_verified") {
        None | Some(json::Value::Bool(true)) => Ok(()),
        Some(json::Value::Bool(false) | json::Value::Null) => Err("oidc: email not verified".to_owned()),
        Some(other) => Err(format!(
            "oidc: parse 'email_verified' claim: json: cannot unmarshal {} into Go value of type bool",
            kind(other)
        )),
    }
}

fn check(rules: &[Rule], about: &json::Value, meter: &mut Meter) -> Result<(), String> {
    for Rule { condition, message } in rules {
        if !condition.holds(about, meter)? {
            return Err(format!("validation expression '{}' failed: {message}", condition.text));
        }
    }
    Ok(())
}

/// Adds the group `system:authenticated`.
pub(crate) fn with_group_of_all(name: &str, mut groups: Vec<String>) -> Vec<String> {
    let is_said = groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if name != ANONYMOUS && !is_said {
        groups.push(AUTHENTICATED.to_owned());
    }
    groups
}
