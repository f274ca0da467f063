//! Iterators over the fields of an object: shared, mutable or owned.
//!
//! Fields come in the order of the object. The index of large maps is not used.

use std::iter::FusedIterator;
use std::{slice, vec};

use super::{Map, Slot, Text, Value};

/// The fields of a map.
pub type Iter<'m> = Fields<slice::Iter<'m, Slot>>;

/// The mutable fields of a map.
pub type IterMut<'m> = Fields<slice::IterMut<'m, Slot>>;

/// The owned fields of a map.
pub type IntoIter = Fields<vec::IntoIter<Slot>>;

/// Fields in order, without holes.
#[derive(Clone)]
pub struct Fields<S> {
    slots: S,
    left: usize,
}

/// A slot as an item of an iterator.
pub trait Field {
    /// Its name and its value.
    type Shown;

    /// The field. `None` for a hole.
    fn shown(self) -> Option<Self::Shown>;
}

impl<'m> Field for &'m Slot {
    type Shown = (&'m str, &'m Value);

    #[inline]
    fn shown(self) -> Option<Self::Shown> {
        Some((self.key.as_deref()?, &self.value))
    }
}

impl<'m> Field for &'m mut Slot {
    type Shown = (&'m str, &'m mut Value);

    #[inline]
    fn shown(self) -> Option<Self::Shown> {
        Some((self.key.as_deref()?, &mut self.value))
    }
}

impl Field for Slot {
    type Shown = (Text, Value);

    #[inline]
    fn shown(self) -> Option<Self::Shown> {
        Some((self.key?, self.value))
    }
}

impl<S: Iterator<Item: Field>> Iterator for Fields<S> {
    type Item = <S::Item as Field>::Shown;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let found = self.slots.find_map(Field::shown)?;
        self.left -= 1;
        Some(found)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<S: DoubleEndedIterator<Item: Field>> DoubleEndedIterator for Fields<S> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let found = self.slots.by_ref().rev().find_map(Field::shown)?;
        self.left -= 1;
        Some(found)
    }
}

impl<S: Iterator<Item: Field>> ExactSizeIterator for Fields<S> {}

impl<S: FusedIterator<Item: Field>> FusedIterator for Fields<S> {}

impl<'m> IntoIterator for &'m Map {
    type Item = (&'m str, &'m Value);
    type IntoIter = Iter<'m>;

    #[inline]
    fn into_iter(self) -> Iter<'m> {
        Fields { left: self.len(), slots: self.slots.iter() }
    }
}

impl<'m> IntoIterator for &'m mut Map {
    type Item = (&'m str, &'m mut Value);
    type IntoIter = IterMut<'m>;

    #[inline]
    fn into_iter(self) -> IterMut<'m> {
        Fields { left: self.len(), slots: self.slots.iter_mut() }
    }
}

impl IntoIterator for Map {
    type Item = (Text, Value);
    type IntoIter = IntoIter;

    #[inline]
    fn into_iter(self) -> IntoIter {
        Fields { left: self.len(), slots: self.slots.into_iter() }
    }
}
