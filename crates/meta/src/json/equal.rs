//! Values compared with what is not one: `value == "text"`, `1 == value`.
//!
//! Tests and rules read better so. A value is equal to what it shows as the type of the other side, and to nothing else.

use super::{Text, Value};

/// Comparisons both ways. Each says how a value shows the type, if it does.
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

/// The same for what is copied, which a reference to a value can be compared with too.
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
