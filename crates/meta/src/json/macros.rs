//! The macro `json!`, which builds trees from JSON with expressions.
//!
//! The macro has the syntax of `serde_json`'s macro and creates this crate's tree.

/// Builds a [`Value`](crate::json::Value) from JSON. Expressions of `Serialize` types may stand for values, and
/// expressions of texts for names. Expressions are borrowed, not moved.
#[doc(hidden)]
#[macro_export]
macro_rules! json_value {
    // The elements of an array: the finished ones, then the rest.
    (@array [$($done:expr,)*]) => { ::std::vec![$($done,)*] };
    (@array [$($done:expr,)*] null $(, $($rest:tt)*)?) => {
        $crate::json_value!(@array [$($done,)* $crate::json_value!(null),] $($($rest)*)?)
    };
    (@array [$($done:expr,)*] [$($inner:tt)*] $(, $($rest:tt)*)?) => {
        $crate::json_value!(@array [$($done,)* $crate::json_value!([$($inner)*]),] $($($rest)*)?)
    };
    (@array [$($done:expr,)*] {$($inner:tt)*} $(, $($rest:tt)*)?) => {
        $crate::json_value!(@array [$($done,)* $crate::json_value!({$($inner)*}),] $($($rest)*)?)
    };
    (@array [$($done:expr,)*] $next:expr $(, $($rest:tt)*)?) => {
        $crate::json_value!(@array [$($done,)* $crate::json_value!($next),] $($($rest)*)?)
    };

    // The fields of an object: the current name, then the rest.
    (@object $map:ident []) => {};
    (@object $map:ident [$($key:tt)+] : null $(, $($rest:tt)*)?) => {
        $map.insert($($key)+, $crate::json_value!(null));
        $crate::json_value!(@object $map [] $($($rest)*)?);
    };
    (@object $map:ident [$($key:tt)+] : [$($inner:tt)*] $(, $($rest:tt)*)?) => {
        $map.insert($($key)+, $crate::json_value!([$($inner)*]));
        $crate::json_value!(@object $map [] $($($rest)*)?);
    };
    (@object $map:ident [$($key:tt)+] : {$($inner:tt)*} $(, $($rest:tt)*)?) => {
        $map.insert($($key)+, $crate::json_value!({$($inner)*}));
        $crate::json_value!(@object $map [] $($($rest)*)?);
    };
    (@object $map:ident [$($key:tt)+] : $value:expr $(, $($rest:tt)*)?) => {
        $map.insert($($key)+, $crate::json_value!($value));
        $crate::json_value!(@object $map [] $($($rest)*)?);
    };
    (@object $map:ident [$($key:tt)*] $next:tt $($rest:tt)*) => {
        $crate::json_value!(@object $map [$($key)* $next] $($rest)*)
    };

    (null) => { $crate::json::Value::Null };
    ([$($inner:tt)*]) => { $crate::json::Value::Array($crate::json_value!(@array [] $($inner)*)) };
    ({}) => { $crate::json::Value::Object($crate::json::Map::new()) };
    ({$($inner:tt)+}) => {{
        let mut map = $crate::json::Map::new();
        $crate::json_value!(@object map [] $($inner)+);
        $crate::json::Value::Object(map)
    }};
    ($value:expr) => { $crate::json::to_value(&$value).expect("a json! expression is JSON") };
}
