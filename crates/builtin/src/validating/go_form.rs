//! Values as Go prints structures without JSON names: each field, set or not, under its name in Go.
//!
//! Upstream validates such structures, and some of its messages print them. A form is a table of the fields of a type, in the order
//! of its declaration.

use keelson_meta::json::{Map, Value, json};

/// The fields of a type: the name in Go, the name in the API, and what is shown of its value.
pub(crate) struct Form(pub(crate) &'static [(&'static str, &'static str, Shown)]);

/// The printed form of a field.
pub(crate) enum Shown {
    /// The value; an empty text where there is none.
    Text,
    /// The value; `false` where there is none.
    Flag,
    /// The value; zero where there is none.
    Number,
    /// The value as it is; null where there is none.
    Plain,
    /// An object, and if there is none one in which nothing is set.
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
    /// The names of the fields, in Go and in the API.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.0.iter().map(|(go, name, _)| (*go, *name))
    }

    /// An object in this form.
    pub(crate) fn of(&self, value: &Value) -> Value {
        let field = |name: &str| value.get(name).unwrap_or(&Value::Null);
        let fields = self.0.iter().map(|(go, name, shown)| (*go, shown.of(field(name))));
        Value::Object(fields.collect::<Map>())
    }

    /// A list of objects in this form.
    pub(crate) fn list(&self, value: &Value) -> Value {
        value.as_array().map_or(Value::Null, |items| items.iter().map(|item| self.of(item)).collect())
    }
}

impl Shown {
    fn of(&self, value: &Value) -> Value {
        match self {
            Self::Text if value.is_null() => json!(""),
            Self::Flag if value.is_null() => json!(false),
            Self::Number if value.is_null() => json!(0),
            Self::Text | Self::Flag | Self::Number | Self::Plain => value.clone(),
            Self::Always(form) => form.of(value),
            Self::Maybe(form) => {
                if value.is_null() {
                    Value::Null
                } else {
                    form.of(value)
                }
            }
            Self::List(form) => form.list(value),
            Self::Map(form) => value.as_object().map_or(Value::Null, |tree| {
                // Go shows maps in the order of their keys.
                let mut keys: Vec<&str> = tree.keys().collect();
                keys.sort();
                Value::Object(keys.into_iter().map(|key| (key, form.of(&tree[key]))).collect())
            }),
            Self::Other(show) => show(value),
        }
    }
}
