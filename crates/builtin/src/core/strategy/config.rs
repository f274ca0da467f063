//! Strategy of secrets: `stringData` sets values of `data`, and is never stored.
//!
//! When a request is decoded, its values replace those of `data` with the same keys. The client then owns these fields
//! of `data`.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::Object;
use keelson_meta::json::{Value, json};
use keelson_registry::strategy::{CreateStrategy, UpdateStrategy};

fn merge_string_data(object: &mut Object) {
    let Some(Value::Object(plain)) = object.0.remove("stringData") else {
        return;
    };
    let data = object.0.entry("data").or_insert_with(|| json!({}));
    if let Value::Object(data) = data {
        for (key, value) in plain {
            if let Value::String(text) = value {
                data.insert(key, STANDARD.encode(text));
            }
        }
    }
}

/// The strategy of secrets.
pub(super) struct Secrets;

fn complete(secret: &mut Object) -> bool {
    let merges = secret.0.contains_key("stringData");
    if merges {
        merge_string_data(secret);
    }
    merges
}

impl CreateStrategy for Secrets {
    fn complete_new(&self, object: &mut Object, _: SystemTime) -> bool {
        complete(object)
    }
}

impl UpdateStrategy for Secrets {
    fn complete_update(&self, _: &Object, next: &mut Object, _: SystemTime) -> bool {
        complete(next)
    }
}
