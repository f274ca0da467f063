//! Validation of config maps and secrets: keys, size, the keys that a type of secret requires, and immutability.
//!
//! An immutable object cannot become mutable, and its data cannot change.

use keelson_meta::json::Value;

use crate::validating::at::At;
use crate::validating::base64;
use crate::validating::formats::DATA_KEY;
use crate::validating::type_rules::Rule::{Check, Immutable};
use crate::validating::type_rules::{Run, TypeRules};

/// The largest total size of the values, in bytes.
const SIZE_MAX: usize = 1024 * 1024;
const FIXED: &str = "field is immutable when `immutable` is set";

pub(super) const CONFIG_MAP: TypeRules = TypeRules::new(&[(
    "",
    Check("keys are file names, without duplicates in `data` and `binaryData`; at most 1 MiB in total", config_map),
)]);

pub(super) const CONFIG_MAP_UPDATE: TypeRules = TypeRules::new(&[(
    "",
    Check("an object with `immutable: true` can't change", |at, run| immutable(at, &["data", "binaryData"], run)),
)]);

pub(super) const SECRET: TypeRules = TypeRules::new(&[
    ("data", Check("keys are file names; at most 1 MiB in total", secret_data)),
    ("", Check("the keys that the type requires", secret_type)),
]);

pub(super) const SECRET_UPDATE: TypeRules = TypeRules::new(&[
    ("type", Immutable),
    ("", Check("an object with `immutable: true` can't change", |at, run| immutable(at, &["data"], run))),
]);

fn config_map(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (data, binary) = (at.field("data"), at.field("binaryData"));
    let mut size = 0;
    for (key, entry) in data.entries() {
        keys(&entry, key, run);
        if binary.field_is_set(key) {
            entry.invalid(run, key, "duplicate of key present in binaryData");
        }
        size += entry.text().len();
    }
    for (key, entry) in binary.entries() {
        keys(&entry, key, run);
        size += base64::decoded_length(entry.text());
    }
    if size > SIZE_MAX {
        at.too_long(run, SIZE_MAX);
    }
}

fn keys(entry: &At<'_, '_>, key: &str, run: &mut Run<'_>) {
    for fault in DATA_KEY.faults(key) {
        entry.invalid(run, key, fault);
    }
}

fn secret_data(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut size = 0;
    for (key, entry) in at.entries() {
        keys(&entry, key, run);
        size += base64::decoded_length(entry.text());
    }
    if size > SIZE_MAX {
        at.too_long(run, SIZE_MAX);
    }
}

fn secret_type(at: &At<'_, '_>, run: &mut Run<'_>) {
    let data = at.field("data");
    match at.field("type").text() {
        "kubernetes.io/service-account-token" => {
            let metadata = at.field("metadata");
            let annotations = metadata.field("annotations");
            need(&annotations.key("kubernetes.io/service-account.name"), run);
        }
        "kubernetes.io/dockercfg" => json_in(&data.key(".dockercfg"), run),
        "kubernetes.io/dockerconfigjson" => json_in(&data.key(".dockerconfigjson"), run),
        "kubernetes.io/basic-auth" => {
            let parts = ["username", "password"].map(|part| data.key(part));
            if !parts.iter().any(At::is_set) {
                parts.iter().for_each(|part| part.required(run, ""));
            }
        }
        "kubernetes.io/ssh-auth" => need(&data.key("ssh-privatekey"), run),
        "kubernetes.io/tls" => {
            for part in ["tls.crt", "tls.key"].map(|part| data.key(part)) {
                if !part.is_set() {
                    part.required(run, "");
                }
            }
        }
        _ => {}
    }
}

fn need(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        at.required(run, "");
    }
}

/// The content is secret, so errors do not contain it.
fn json_in(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        return at.required(run, "");
    }
    let Some(bytes) = base64::decoded(at.text()) else { return };
    let fault = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(_) => "json: cannot unmarshal value into Go value of type map[string]interface {}",
        Err(_) if bytes.is_empty() => "unexpected end of JSON input",
        Err(error) if error.is_eof() => "unexpected end of JSON input",
        Err(_) => "invalid JSON",
    };
    at.invalid(run, "<secret contents redacted>", fault);
}

fn immutable(at: &At<'_, '_>, fields: &[&'static str], run: &mut Run<'_>) {
    let flag = at.field("immutable");
    if flag.old.as_bool() != Some(true) {
        return;
    }
    if !flag.is_true() {
        flag.forbidden(run, FIXED);
    }
    for field in fields {
        let field = at.field(field);
        if !field.is_unchanged() {
            field.forbidden(run, FIXED);
        }
    }
}
