//! The form in which Go prints structures without JSON names: all fields, even if unset, with their Go names.
//!
//! Some of upstream's messages contain such structures. A form is a table of a type's fields, in the order of
//! declaration.

use keelson_meta::json::{Map, Value, json};

/// The fields of a type: the name in Go, the name in the API, and the form of the value.
pub(crate) struct Form(pub(crate) &'static [(&'static str, &'static str, PrintedValue)]);

/// The printed form of a field.
pub(crate) enum PrintedValue {
    /// The string; empty if absent.
    Text,
    /// The boolean; `false` if absent.
    Flag,
    /// The number; 0 if absent.
    Number,
    /// The value unchanged; null if absent.
    Plain,
    /// An object in this form. If it is absent, all its fields are unset.
    Always(&'static Form),
    /// An object, or null.
    Maybe(&'static Form),
    /// A list of objects, or null.
    List(&'static Form),
    /// A map of objects, or null.
    Map(&'static Form),
    /// A value that a function prints.
    Other(fn(&Value) -> Value),
}

impl Form {
    /// The names of the fields: in Go, and in the API.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.0.iter().map(|(go, name, _)| (*go, *name))
    }

    /// Prints an object in this form.
    pub(crate) fn print(&self, value: &Value) -> Value {
        let field = |name: &str| value.get(name).unwrap_or(&Value::Null);
        let fields = self.0.iter().map(|(go, name, shown)| (*go, shown.print(field(name))));
        Value::Object(fields.collect::<Map>())
    }

    /// Prints a list of objects in this form.
    pub(crate) fn list(&self, value: &Value) -> Value {
        value.as_array().map_or(Value::Null, |items| items.iter().map(|item| self.print(item)).collect())
    }
}

impl PrintedValue {
    fn print(&self, value: &Value) -> Value {
        match self {
            Self::Text if value.is_null() => json!(""),
            Self::Flag if value.is_null() => json!(false),
            Self::Number if value.is_null() => json!(0),
            Self::Text | Self::Flag | Self::Number | Self::Plain => value.clone(),
            Self::Always(form) => form.print(value),
            Self::Maybe(form) => {
                if value.is_null() {
                    Value::Null
                } else {
                    form.print(value)
                }
            }
            Self::List(form) => form.list(value),
            Self::Map(form) => value.as_object().map_or(Value::Null, |tree| {
                // Go prints maps sorted by key.
                let mut keys: Vec<&str> = tree.keys().collect();
                keys.sort();
                Value::Object(keys.into_iter().map(|key| (key, form.print(&tree[key]))).collect())
            }),
            Self::Other(show) => show(value),
        }
    }
}
