//! A box for keywords that few nodes have, so that most nodes stay small.
//!
//! There are as many nodes as all definitions have fields, and most state only a type. This module must not know the
//! meaning of the keywords.

use std::ops::Deref;

/// A group of keywords that a node may have.
#[derive(Debug)]
pub(super) struct RareKeywords<T>(Option<Box<T>>);

/// A group of keywords that a schema may omit.
pub(super) trait Statement: 'static {
    /// The group in which no keyword is set.
    fn nothing() -> &'static Self;

    fn is_nothing(&self) -> bool;
}

impl<T: Statement> RareKeywords<T> {
    pub(super) fn of(stated: T) -> Self {
        Self((!stated.is_nothing()).then(|| Box::new(stated)))
    }
}

impl<T> Default for RareKeywords<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Statement> Deref for RareKeywords<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(stated) => stated,
            None => T::nothing(),
        }
    }
}
