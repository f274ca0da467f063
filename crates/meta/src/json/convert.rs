//! Conversions into values, from numbers, texts, lists and maps.
//!
//! These conversions keep calls of `json!` and of inserts short. All are lossless.

use std::borrow::Cow;

use super::{Map, Number, Text, Value};

/// Implements `From` for the types of a variant.
macro_rules! from {
    ($($from:ty => $make:expr;)+) => {
        $(impl From<$from> for Value {
            #[inline]
            fn from(from: $from) -> Self {
                $make(from)
            }
        })+
    };
}

from! {
    bool => Value::Bool;
    i8 => number;
    i16 => number;
    i32 => number;
    i64 => number;
    isize => number;
    u8 => number;
    u16 => number;
    u32 => number;
    u64 => number;
    usize => number;
    f32 => |from: f32| Value::from(f64::from(from));
    f64 => |from| Number::from_f64(from).map_or(Value::Null, Value::Number);
    Number => Value::Number;
    &str => |from| Value::String(Text::new(from));
    &String => |from: &String| Value::String(Text::new(from));
    String => |from| Value::String(Text::from(from));
    Cow<'_, str> => |from| Value::String(Text::from(from));
    Text => Value::String;
    Map => Value::Object;
}

fn number(from: impl Into<Number>) -> Value {
    Value::Number(from.into())
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    #[inline]
    fn from(elements: Vec<T>) -> Self {
        elements.into_iter().collect()
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    #[inline]
    fn from(elements: [T; N]) -> Self {
        elements.into_iter().collect()
    }
}

impl<T: Into<Value> + Clone> From<&[T]> for Value {
    #[inline]
    fn from(elements: &[T]) -> Self {
        elements.iter().cloned().collect()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    #[inline]
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Value::Array(elements.into_iter().map(Into::into).collect())
    }
}

impl<K: Into<Text>, V: Into<Value>> FromIterator<(K, V)> for Value {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(fields: I) -> Self {
        Value::Object(fields.into_iter().collect())
    }
}
