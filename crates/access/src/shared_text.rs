//! A text that is made seldom and told often, such as why a binding allows something: a clone of it copies nothing.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A text that is known when the program is built, or shared by all who tell it.
#[derive(Clone)]
pub enum SharedText {
    /// One of the program.
    Known(&'static str),
    /// One that was made.
    Made(Arc<str>),
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Known(text) => text,
            Self::Made(text) => text,
        }
    }
}

impl Default for SharedText {
    /// The empty one.
    fn default() -> Self {
        Self::Known("")
    }
}

impl From<&'static str> for SharedText {
    fn from(text: &'static str) -> Self {
        Self::Known(text)
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self::Made(text.into())
    }
}

impl From<Arc<str>> for SharedText {
    fn from(text: Arc<str>) -> Self {
        Self::Made(text)
    }
}

impl From<Cow<'static, str>> for SharedText {
    fn from(text: Cow<'static, str>) -> Self {
        match text {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        }
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
