//! Converts values to JSON.
//!
//! Upstream converts values by way of protocol buffers, which its error messages mention.

use super::Value;
use crate::library::times::duration_text;
use keelson_meta::json;

/// Converts the result of an expression to JSON.
///
/// # Errors
/// The value can't be converted, in upstream's words.
pub fn to_json(value: &Value<'_>) -> Result<json::Value, String> {
    Ok(match value {
        Value::Null => json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Uint(value) => (*value).into(),
        Value::Double(value) => number(*value)?,
        Value::String(text) => (**text).into(),
        Value::Bytes(bytes) => data_encoding::BASE64.encode(bytes).into(),
        Value::Duration(nanos) => duration_text(*nanos).into(),
        Value::Timestamp(time) => time.to_string().into(),
        Value::List(list) => {
            json::Value::Array(list.iter().map(|element| to_json(&element)).collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let mut fields = json::Map::new();
            for (key, value) in map.entries() {
                fields.insert(key_text(&key)?, to_json(&value)?);
            }
            json::Value::Object(fields)
        }
        Value::Optional(Some(value)) => to_json(value)?,
        Value::Optional(None) => return Err("optional.none() dereference".to_owned()),
        other => {
            let name = other.type_name();
            let short = name.rsplit_once('.').map_or(name, |(_, short)| short);
            return Err(format!("type conversion error from '{short}' to '*structpb.Value'"));
        }
    })
}

fn number(value: f64) -> Result<json::Value, String> {
    // As in Go, a number without a fraction is written as an integer, up to this limit.
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < WHOLE {
        return Ok((value as i64).into());
    }
    json::Number::from_f64(value).map(json::Value::Number).ok_or_else(|| {
        let text = crate::library::numbers::double_text(value);
        format!(
            "json: error calling MarshalJSON for type *structpb.Value: proto: google.protobuf.Value.number_value: invalid {text} value"
        )
    })
}

fn key_text(key: &Value<'_>) -> Result<String, String> {
    match key {
        Value::String(text) => Ok(text.to_string()),
        Value::Int(key) => Ok(key.to_string()),
        Value::Uint(key) => Ok(key.to_string()),
        Value::Bool(key) => Ok(key.to_string()),
        other => Err(format!("type conversion error from '{}' to 'string'", other.type_name())),
    }
}
