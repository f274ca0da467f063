//! Keywords that few schema nodes have, boxed, so that the usual node stays small.
//!
//! There are as many nodes as all definitions have fields, and most state no more than a type. What the keywords mean is not known here.

use std::ops::Deref;

/// What a schema states, or nothing.
#[derive(Debug)]
pub(super) struct Seldom<T>(Option<Box<T>>);

/// What can be left out of a schema.
pub(super) trait Statement: 'static {
    /// The one that says nothing.
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
