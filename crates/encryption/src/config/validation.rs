//! The rules of an `EncryptionConfiguration`, in upstream's order and words.
//!
//! The construction of transformers checks the order of providers.

use std::collections::HashSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keelson_meta::GroupResource;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Value, json};

use super::{EncryptionConfiguration, Key, KmsEntry, ProviderEntry, duration};

const AES_KEYS: [usize; 3] = [16, 24, 32];
const SECRETBOX_KEYS: [usize; 1] = [32];
/// Resources that are stored and have no API.
const WITHOUT_API: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];
/// The text that replaces secrets.
const REDACTED: &str = "REDACTED";

/// Splits `resource.group` at its first dot.
pub(crate) fn parse_resource(text: &str) -> GroupResource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    GroupResource { group: group.to_owned(), resource: resource.to_owned() }
}

/// All that is wrong with a configuration.
pub(super) fn validate(configuration: &EncryptionConfiguration, reloads: bool) -> Vec<FieldError> {
    if configuration.rules.is_empty() {
        return vec![FieldError::required("resources", "at least one resources is required")];
    }
    let (mut faults, mut names) = (Vec::new(), HashSet::new());
    for (index, rule) in configuration.rules.iter().enumerate() {
        let [resources, providers] = ["resources", "providers"].map(|child| format!("resources[{index}].{child}"));
        let missing = |path: &str| FieldError::required(path, format!("at least one {path} is required"));
        if rule.resources.is_empty() {
            faults.push(missing(&resources));
        }
        faults.extend(overlaps(&rule.resources, &resources));
        let names_of = rule.resources.iter().enumerate();
        faults.extend(names_of.filter_map(|(at, name)| resource_name(name, &format!("{resources}[{at}]"))));
        if rule.providers.is_empty() {
            faults.push(missing(&providers));
        }
        for (at, provider) in rule.providers.iter().enumerate() {
            let path = format!("{providers}[{at}]");
            faults.extend(single(provider, &path));
            if let Some(kms) = &provider.kms {
                faults.extend(key_service(kms, &format!("{path}.kms"), names.contains(&kms.name), reloads));
                names.insert(kms.name.clone());
            } else if let Some(given) = &provider.aesgcm {
                faults.extend(keys(given, &format!("{path}.aesgcm.keys"), &AES_KEYS));
            } else if let Some(given) = &provider.aescbc {
                faults.extend(keys(given, &format!("{path}.aescbc.keys"), &AES_KEYS));
            } else if let Some(given) = &provider.secretbox {
                faults.extend(keys(given, &format!("{path}.secretbox.keys"), &SECRETBOX_KEYS));
            }
        }
    }
    faults
}

fn overlaps(resources: &[String], path: &str) -> Vec<FieldError> {
    let parsed: Vec<GroupResource> = resources.iter().map(|resource| parse_resource(resource)).collect();
    let is_any = |it: &GroupResource| it.group == "*" && it.resource == "*";
    let (mut repeated, mut masked) = (false, false);
    for (i, one) in parsed.iter().enumerate() {
        for (_, other) in parsed.iter().enumerate().filter(|(j, _)| *j != i) {
            if one == other && !repeated {
                repeated = true;
            } else {
                masked |= is_any(one) || one.group == other.group && (one.resource == "*" || other.resource == "*");
            }
        }
    }
    let fault = |detail: &str| FieldError::invalid(path, json!(resources), detail);
    let repeated = repeated.then(|| fault("the same resource cannot be specified multiple times"));
    let masked = masked.then(|| {
        fault(
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
        )
    });
    repeated.into_iter().chain(masked).collect()
}

fn resource_name(name: &str, path: &str) -> Option<FieldError> {
    let GroupResource { group, resource } = parse_resource(name);
    let detail = if name.to_lowercase() != name {
        "resource name should not contain capital letters"
    } else if name == "*" {
        "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
    } else if WITHOUT_API.contains(&name) {
        "resources which do not have REST API/s cannot be encrypted"
    } else if group == "events.k8s.io" {
        "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
    } else if group == "extensions" {
        "'extensions' group has been removed and cannot be used for encryption"
    } else if group == "*" && resource != "*" {
        "encrypting the same resource across groups is not supported"
    } else {
        return None;
    };
    Some(FieldError::invalid(path, name, detail))
}

fn single(provider: &ProviderEntry, path: &str) -> Option<FieldError> {
    let ProviderEntry { aesgcm, aescbc, secretbox, identity, kms } = provider;
    let found = [aesgcm.is_some(), aescbc.is_some(), secretbox.is_some(), *identity, kms.is_some()];
    let detail = match found.into_iter().filter(|is_there| *is_there).count() {
        0 => "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        1 => return None,
        _ => "more than one provider specified in a single element, should split into different list elements",
    };
    Some(FieldError::invalid(path, redacted(provider), detail))
}

/// A provider as upstream's error shows it, without its secrets.
fn redacted(provider: &ProviderEntry) -> Value {
    let keys = |keys: &Option<Vec<Key>>| match keys {
        Some(keys) => {
            let keys: Vec<Value> = keys.iter().map(|key| json!({"Name": key.name, "Secret": REDACTED})).collect();
            json!({ "Keys": keys })
        }
        None => Value::Null,
    };
    let kms = provider.kms.as_ref().map_or(Value::Null, |kms| {
        json!({
            "APIVersion": kms.api_version, "Name": kms.name, "CacheSize": kms.cache_size, "Endpoint": kms.endpoint,
            "Timeout": duration::show(kms.timeout),
        })
    });
    let identity = if provider.identity { json!({}) } else { Value::Null };
    json!({
        "AESGCM": keys(&provider.aesgcm), "AESCBC": keys(&provider.aescbc), "Secretbox": keys(&provider.secretbox),
        "Identity": identity, "KMS": kms,
    })
}

fn keys(keys: &[Key], path: &str, lengths: &[usize]) -> Vec<FieldError> {
    if keys.is_empty() {
        return vec![FieldError::required(path, "at least one keys is required")];
    }
    keys.iter().enumerate().flat_map(|(at, given)| key(given, &format!("{path}[{at}]"), lengths)).collect()
}

fn key(key: &Key, path: &str, lengths: &[usize]) -> Vec<FieldError> {
    let mut faults = Vec::new();
    if key.name.is_empty() {
        faults.push(FieldError::required(format!("{path}.name"), "name is a mandatory field for a key"));
    }
    let path = format!("{path}.secret");
    if key.secret.is_empty() {
        faults.push(FieldError::required(path, "secret is a mandatory field for a key"));
        return faults;
    }
    match BASE64_STANDARD.decode(&key.secret) {
        Err(_) => faults.push(FieldError::invalid(path, REDACTED, "secrets must be base64 encoded")),
        Ok(secret) if !lengths.contains(&secret.len()) => {
            let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
            let (got, expected) = (secret.len(), lengths.join(" "));
            let detail = format!("secret is not of the expected length, got {got}, expected one of [{expected}]");
            faults.push(FieldError::invalid(path, REDACTED, detail));
        }
        Ok(_) => {}
    }
    faults
}

fn key_service(kms: &KmsEntry, path: &str, is_known: bool, reloads: bool) -> Vec<FieldError> {
    let (mut faults, is_first) = (Vec::new(), kms.api_version == "v1");
    let mut invalid = |field: &str, value: Value, detail: String| {
        faults.push(FieldError::invalid(format!("{path}.{field}"), value, detail));
    };
    if !is_first && kms.name.contains(':') {
        let detail = format!("invalid KMS provider name {}, must not contain ':'", kms.name);
        invalid("name", json!(kms.name), detail);
    }
    if (reloads || !is_first) && is_known {
        let detail = format!("duplicate KMS provider name {}, names must be unique", kms.name);
        invalid("name", json!(kms.name), detail);
    }
    if kms.timeout <= 0 {
        invalid("timeout", json!(duration::show(kms.timeout)), "timeout should be a positive value".to_owned());
    }
    if let Some(detail) = endpoint_fault(&kms.endpoint) {
        invalid("endpoint", json!(kms.endpoint), detail);
    }
    match kms.cache_size {
        Some(size) if !is_first => invalid("cachesize", json!(size), "cachesize is not supported in v2".to_owned()),
        Some(0) => {
            let detail = "cachesize should be a positive value, or negative to disable".to_owned();
            invalid("cachesize", json!(0), detail);
        }
        Some(_) | None => {}
    }
    if !is_first && kms.api_version != "v2" {
        let detail = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported".to_owned();
        invalid("apiVersion", json!(kms.api_version), detail);
    }
    if kms.name.is_empty() {
        let missing = FieldError::required(format!("{path}.name"), "name is a mandatory field for a provider");
        faults.insert(0, missing);
    }
    faults
}

fn endpoint_fault(endpoint: &str) -> Option<String> {
    if endpoint.is_empty() {
        return Some("endpoint is a mandatory field for a kms".to_owned());
    }
    let scheme = endpoint.split_once(':').map_or("", |(scheme, _)| scheme);
    (scheme != "unix").then(|| format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::EncryptionConfiguration;

    fn parse(text: &str, reloads: bool) -> Result<(), String> {
        let parsed = EncryptionConfiguration::parse(text.as_bytes(), Path::new("<file>"), reloads);
        parsed.map(drop).map_err(|error| error.to_string())
    }

    fn kms(fields: &str) -> String {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{fields}]\n"
        )
    }

    #[test]
    fn names_of_key_services_are_unique_and_have_no_colon() {
        let two = kms("kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}")
            .replace("providers: [", "providers: [{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}}, {");
        let two = two.replace("}]\n", "}}]\n");
        let error = parse(&two, false).unwrap_err();
        assert!(error.ends_with("duplicate KMS provider name a, names must be unique"), "{error}");
        let error = parse(&kms("{kms: {apiVersion: v2, name: 'a:b', endpoint: 'unix:///a'}}"), false).unwrap_err();
        assert!(error.ends_with("invalid KMS provider name a:b, must not contain ':'"), "{error}");
        let first = "{kms: {name: a, endpoint: 'unix:///a'}}";
        let twice = kms(&format!("{first}, {first}"));
        assert_eq!(parse(&twice, false), Ok(()));
        assert!(parse(&twice, true).unwrap_err().contains("duplicate KMS provider name a"));
    }

    #[test]
    fn no_error_repeats_a_secret() {
        let secret = "MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE=";
        let keys = format!("{{keys: [{{name: k, secret: {secret}}}]}}");
        for provider in [
            format!("{{aescbc: {keys}, identity: {{}}}}"),
            format!("{{aescbc: {keys}, rot13: 1}}"),
            format!("{{secretbox: {{keys: [{{name: '', secret: {secret}}}]}}}}"),
            format!("{{aescbc: {{keys: [{{name: k, secret: '{secret}x'}}]}}}}"),
            format!("{{aescbc: {{keys: [{{name: k, secret: [{secret}]}}]}}}}"),
        ] {
            let error = parse(&kms(&provider), false).unwrap_err();
            assert!(!error.contains(&secret[..8]), "{error}");
        }
        let parsed =
            EncryptionConfiguration::parse(kms(&format!("{{aescbc: {keys}}}")).as_bytes(), Path::new("f"), false);
        assert!(!format!("{parsed:?}").contains(&secret[..8]));
    }

    #[test]
    fn limits_of_key_services_are_positive() {
        let fault = |fields: &str| parse(&kms(fields), false).unwrap_err();
        let zero = fault("{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', timeout: 0s}}");
        assert!(zero.ends_with("Invalid value: \"0s\": timeout should be a positive value"), "{zero}");
        let none = fault("{kms: {name: a, endpoint: 'unix:///a', cachesize: 0}}");
        assert!(none.ends_with("Invalid value: 0: cachesize should be a positive value, or negative to disable"));
        let other = fault("{kms: {apiVersion: v3, name: a, endpoint: 'unix:///a'}}");
        assert!(other.contains("only v1 and v2 are supported"), "{other}");
    }
}
