//! Compares values with values of other types: `value == "text"`, `1 == value`.
//!
//! These comparisons keep tests and rules readable. A value equals a value of another type only if the latter converts
//! to it.

use super::{Text, Value};

/// Implements comparisons in both directions, from a conversion of the value.
macro_rules! equal {
    ($($other:ty, $shown:expr;)+) => {
        $(impl PartialEq<$other> for Value {
            fn eq(&self, other: &$other) -> bool {
                let shown: fn(&Value, &$other) -> bool = $shown;
                shown(self, other)
            }
        }

        impl PartialEq<Value> for $other {
            fn eq(&self, other: &Value) -> bool {
                other == self
            }
        })+
    };
}

/// Implements comparisons for `Copy` types, also with references to values.
macro_rules! equal_copies {
    ($($through:ident: $($other:ty)+;)+) => {
        equal! { $($($other, |value, other| value.$through() == (*other).try_into().ok();)+)+ }

        $($(impl PartialEq<$other> for &Value {
            fn eq(&self, other: &$other) -> bool {
                **self == *other
            }
        })+)+
    };
}

equal! {
    str, |value, other| value.as_str() == Some(other);
    &str, |value, other| value.as_str() == Some(*other);
    String, |value, other| value.as_str() == Some(other.as_str());
    Text, |value, other| value.as_str() == Some(other.as_str());
}

equal_copies! {
    as_bool: bool;
    as_f64: f64;
    as_i64: i8 i16 i32 i64 isize;
    as_u64: u8 u16 u32 u64 usize;
}
