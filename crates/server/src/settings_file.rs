//! The file of settings (`keelson serve --config`): a YAML object whose fields are flags.
//!
//! The command line knows the flags. This module only reads the form of the file.

use std::path::Path;

use anyhow::{Context as _, bail};
use keelson_access::read_bounded;
use keelson_codec::yaml;
use keelson_meta::json::{Value, ValueKind};

/// The largest file in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Reads the fields of a file in their order, each with its values.
///
/// # Errors
/// The file cannot be read, is no YAML object, or has a value that no flag can have.
pub fn read_settings(file: &Path) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let bytes = read_bounded(file, MOST_BYTES)?;
    let parsed = yaml::parse(&bytes).with_context(|| format!("reading {}", file.display()))?;
    if let Some(duplicate) = parsed.duplicates.first() {
        bail!("reading {}: {duplicate}", file.display());
    }
    let fields = match &parsed.value {
        Value::Object(fields) => fields,
        Value::Null => return Ok(Vec::new()),
        other => {
            bail!("reading {}: a {} is not an object of flags", file.display(), ValueKind::from_value(other).name())
        }
    };
    let values = |value: &Value| match value {
        Value::Array(items) => items.iter().map(scalar).collect(),
        one => scalar(one).map(|one| vec![one]),
    };
    let read = fields.iter().map(|(name, value)| {
        let all: Option<Vec<String>> = values(value);
        let all = all.with_context(|| {
            format!("reading {}: {name} is not a string, number, boolean or list of these", file.display())
        })?;
        Ok((name.to_string(), all))
    });
    read.collect()
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.to_string()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
