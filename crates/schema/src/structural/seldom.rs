//! Keywords that few schema nodes have, boxed, so that the usual node stays small.
//!
//! There are as many nodes as all definitions have fields, and most state only a type. This module must not know the
//! meaning of the keywords.

use std::ops::Deref;

/// A group of keywords, or none.
#[derive(Debug)]
pub(super) struct Seldom<T>(Option<Box<T>>);

/// A group of keywords that a schema may leave out.
pub(super) trait Statement: 'static {
    /// The group without keywords.
    fn nothing() -> &'static Self;

    fn is_nothing(&self) -> bool;
}

impl<T: Statement> Seldom<T> {
    pub(super) fn of(stated: T) -> Self {
        Self((!stated.is_nothing()).then(|| Box::new(stated)))
    }
}

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Statement> Deref for Seldom<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(stated) => stated,
            None => T::nothing(),
        }
    }
}
