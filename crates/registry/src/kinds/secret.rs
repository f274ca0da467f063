//! Secrets: `stringData` is a way to write `data`, and is never stored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::Object;
use keelson_meta::json::{Value, json};

pub(super) fn merge_string_data(object: &mut Object) {
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
