//! A box for keywords that few nodes have, so that most nodes stay small.
//!
//! Every field of every definition has a node, and most nodes state only a type. This module must not know the meaning
//! of the keywords.

use std::ops::Deref;

/// A group of keywords that a node may have.
#[derive(Debug)]
pub(super) struct RareKeywords<T>(Option<Box<T>>);

/// A group of keywords that a schema may omit.
pub(super) trait KeywordGroup: 'static {
    /// The group in which no keyword is set.
    fn unset() -> &'static Self;

    fn is_unset(&self) -> bool;
}

impl<T: KeywordGroup> RareKeywords<T> {
    pub(super) fn new(stated: T) -> Self {
        Self((!stated.is_unset()).then(|| Box::new(stated)))
    }
}

impl<T> Default for RareKeywords<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: KeywordGroup> Deref for RareKeywords<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(stated) => stated,
            None => T::unset(),
        }
    }
}
