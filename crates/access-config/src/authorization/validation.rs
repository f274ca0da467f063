//! Validates `AuthorizationConfiguration`, and compiles its conditions.
//!
//! Rules, their order and messages are upstream's, since operators search for these messages.

use std::collections::HashSet;
use std::path::Path;

use keelson_meta::field_error::FieldError;
use keelson_meta::names::dns_subdomain_faults;

use super::config::{AuthorizationConfiguration, AuthorizerKind, ConnectionInfo, WebhookSettings};
use crate::document::Seconds;
use crate::webhook::MatchConditions;

impl AuthorizationConfiguration {
    /// Validates the configuration and compiles the conditions of each authorizer.
    pub(super) fn compile(&self) -> Result<Vec<MatchConditions>, Vec<FieldError>> {
        let mut faults = Vec::new();
        let mut conditions = Vec::new();
        if self.authorizers.is_empty() {
            faults.push(FieldError::required("authorizers", "at least one authorization mode must be defined"));
        }
        let (mut kinds, mut names) = (HashSet::new(), HashSet::new());
        for (at, authorizer) in self.authorizers.iter().enumerate() {
            let path = format!("authorizers[{at}]");
            let field = format!("{path}.type");
            conditions.push(MatchConditions::default());
            let kind = authorizer.kind.as_str();
            if kind.is_empty() {
                faults.push(FieldError::required(field, ""));
                continue;
            }
            if authorizer.kind().is_none() {
                faults.push(FieldError::not_supported(field, kind, &AuthorizerKind::NAMED.map(|(name, _)| name)));
                continue;
            }
            let is_webhook = authorizer.kind() == Some(AuthorizerKind::Webhook);
            if !kinds.insert(kind) && !is_webhook {
                faults.push(FieldError::duplicate(field, kind));
                continue;
            }
            check_name(&authorizer.name, names.insert(authorizer.name.as_str()), &path, &mut faults);
            match &authorizer.webhook {
                Some(webhook) if is_webhook => {
                    if let Some(compiled) = conditions.last_mut() {
                        *compiled = webhook.compile(&path, &mut faults);
                    }
                }
                None if is_webhook => {
                    faults.push(FieldError::required(format!("{path}.webhook"), "required when type=Webhook"));
                }
                Some(_) => {
                    let detail = "may only be specified when type=Webhook";
                    faults.push(FieldError::invalid(format!("{path}.webhook"), "non-null", detail));
                }
                None => {}
            }
        }
        if faults.is_empty() { Ok(conditions) } else { Err(faults) }
    }
}

fn check_name(name: &str, is_new: bool, path: &str, faults: &mut Vec<FieldError>) {
    let field = format!("{path}.name");
    if name.is_empty() {
        faults.push(FieldError::required(field, ""));
    } else if !is_new {
        faults.push(FieldError::duplicate(field, name));
    } else {
        let wrong = dns_subdomain_faults(name);
        if !wrong.is_empty() {
            let detail = format!("authorizer name is invalid: {}", wrong.join(", "));
            faults.push(FieldError::invalid(field, name, detail));
        }
    }
}

impl WebhookSettings {
    fn compile(&self, path: &str, faults: &mut Vec<FieldError>) -> MatchConditions {
        let field = |name: &str| format!("{path}.{name}");
        check_timeout(self.timeout, field("timeout"), faults);
        for (name, ttl) in [("authorizedTTL", self.authorized_ttl), ("unauthorizedTTL", self.unauthorized_ttl)] {
            if ttl.nanos < 0 {
                faults.push(FieldError::invalid(field(name), ttl.to_string(), "must be > 0s"));
            }
        }
        one_of(field("subjectAccessReviewVersion"), &self.review_version, &["v1", "v1beta1"], faults);
        match self.condition_version.as_str() {
            "" if !self.match_conditions.is_empty() => {
                let detail = "required if match conditions are specified";
                faults.push(FieldError::required(field("matchConditionSubjectAccessReviewVersion"), detail));
            }
            "" => {}
            version => one_of(field("matchConditionSubjectAccessReviewVersion"), version, &["v1"], faults),
        }
        one_of(field("failurePolicy"), &self.failure_policy, &["NoOpinion", "Deny"], faults);
        self.connection.check(path, faults);
        MatchConditions::compile(&self.match_conditions, &field("matchConditions"), faults)
    }
}

fn one_of(field: String, value: &str, supported: &[&str], faults: &mut Vec<FieldError>) {
    if value.is_empty() {
        faults.push(FieldError::required(field, ""));
    } else if !supported.contains(&value) {
        faults.push(FieldError::not_supported(field, value, supported));
    }
}

fn check_timeout(timeout: Seconds, field: String, faults: &mut Vec<FieldError>) {
    let longest = i64::try_from(WebhookSettings::LONGEST.as_nanos()).unwrap_or(i64::MAX);
    match timeout.nanos {
        0 => faults.push(FieldError::required(field, "")),
        nanos if nanos < 0 || nanos > longest => {
            faults.push(FieldError::invalid(field, timeout.to_string(), "must be > 0s and <= 30s"));
        }
        _ => {}
    }
}

impl ConnectionInfo {
    fn check(&self, path: &str, faults: &mut Vec<FieldError>) {
        let field = format!("{path}.connectionInfo.kubeConfigFile");
        let file = self.kubeconfig.as_deref().unwrap_or_default();
        let wrong = |detail: String| FieldError::invalid(&*field, file, detail);
        match self.kind.as_str() {
            "" => faults.push(FieldError::required(format!("{path}.connectionInfo.type"), "")),
            Self::IN_CLUSTER => {
                if self.kubeconfig.is_some() {
                    faults.push(wrong("can only be set when type=KubeConfigFile".to_owned()));
                }
            }
            Self::KUBECONFIG if file.is_empty() => faults.push(FieldError::required(&*field, "")),
            Self::KUBECONFIG if !Path::new(file).is_absolute() => {
                faults.push(wrong("must be an absolute path".to_owned()));
            }
            Self::KUBECONFIG => match std::fs::metadata(file) {
                Err(error) => {
                    let why = if error.kind() == std::io::ErrorKind::NotFound {
                        "no such file or directory".to_owned()
                    } else {
                        error.to_string()
                    };
                    faults.push(wrong(format!("error loading file: stat {file}: {why}")));
                }
                Ok(metadata) if !metadata.is_file() => faults.push(wrong("must be a regular file".to_owned())),
                Ok(_) => {}
            },
            kind => {
                let field = format!("{path}.connectionInfo.type");
                faults.push(FieldError::not_supported(field, kind, &[Self::IN_CLUSTER, Self::KUBECONFIG]));
            }
        }
    }
}

#[cfg(test)]
mod tests;
