//! A string that is created once and used often, such as the reason of a decision.
//!
//! Clones share the string. Equality compares the content.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A string that is static or reference-counted.
#[derive(Clone)]
pub struct SharedText(Text);

#[derive(Clone)]
enum Text {
    Known(&'static str),
    Made(Arc<str>),
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Text::Known(text) => text,
            Text::Made(text) => text,
        }
    }
}

impl Default for SharedText {
    /// The empty string.
    fn default() -> Self {
        Self(Text::Known(""))
    }
}

impl From<&'static str> for SharedText {
    fn from(text: &'static str) -> Self {
        Self(Text::Known(text))
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self(Text::Made(text.into()))
    }
}

impl From<Arc<str>> for SharedText {
    fn from(text: Arc<str>) -> Self {
        Self(Text::Made(text))
    }
}

impl PartialEq for SharedText {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedText {}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}
