//! Objects as documents: a list, names, or one line each.
//!
//! Lines and names are printed as objects arrive, so that a pipeline starts early.

use keelson_codec::{json, yaml};
use keelson_meta::control_characters::escaped_json;
use keelson_meta::json::{Map, Value};

use super::{answer, print};
use crate::args::Output;
use crate::resources::Resource;

/// Prints a value as one line of JSON.
///
/// # Errors
/// It can't be written.
pub(crate) fn line(value: &Value) -> anyhow::Result<()> {
    print(&escaped_json(&value.to_string()))
}

/// Prints objects as they arrive, where the format allows it.
pub(crate) struct Documents<'r> {
    output: Output,
    resource: &'r Resource,
    kept: Vec<Value>,
}

impl<'r> Documents<'r> {
    pub(crate) const fn new(output: Output, resource: &'r Resource) -> Self {
        Self { output, resource, kept: Vec::new() }
    }

    /// Prints an object, or keeps it for the end.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) fn add(&mut self, object: &Value) -> anyhow::Result<()> {
        match self.output {
            Output::Name => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                answer(format_args!("{}/{name}", self.resource.name()))
            }
            Output::Ndjson => line(&self.typed(object)),
            Output::Json | Output::Yaml | Output::Table | Output::Wide => {
                let typed = self.typed(object);
                self.kept.push(typed);
                Ok(())
            }
        }
    }

    /// Prints the kept objects.
    ///
    /// # Errors
    /// They can't be written.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        if matches!(self.output, Output::Name | Output::Ndjson) {
            return Ok(());
        }
        let mut metadata = Map::new();
        metadata.insert("resourceVersion", Value::from(""));
        let mut list = Map::new();
        list.insert("apiVersion", Value::from("v1"));
        list.insert("items", Value::Array(self.kept));
        list.insert("kind", Value::from("List"));
        list.insert("metadata", Value::Object(metadata));
        Self::print(self.output, &Value::Object(list))
    }

    /// Prints a document.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) fn print(output: Output, document: &Value) -> anyhow::Result<()> {
        if output == Output::Yaml {
            return print(String::from_utf8_lossy(&yaml::to_vec_for_terminals(document)).trim_end());
        }
        print(&escaped_json(String::from_utf8_lossy(&json::to_vec_pretty(document)).trim_end()))
    }

    /// The object with its kind, which list items lack.
    fn typed(&self, object: &Value) -> Value {
        let mut typed = Map::new();
        typed.insert("apiVersion", Value::from(self.resource.api_version()));
        typed.insert("kind", Value::from(self.resource.kind.as_str()));
        for (name, member) in object.as_object().into_iter().flat_map(Map::iter) {
            typed.insert(name, member.clone());
        }
        Value::Object(typed)
    }
}
