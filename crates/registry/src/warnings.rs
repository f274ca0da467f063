//! Warnings: the client of a request is told of them beside its answer, whether the request succeeds or is refused.
//!
//! Warnings come from the depths of a verb (a field that nobody knows, a deprecated one, a plugin of admission), often from
//! an attempt that is made again, and have to survive a refusal. So they are noted beside the request: its
//! [`Caller`](crate::Caller) carries the note, and whoever answers the request reads it at the end. Of what the server writes
//! by itself nobody reads warnings, so that it has no note.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A note of warnings, shared by all who have something to add to it.
#[derive(Clone, Default)]
pub struct Warnings(Option<Arc<Mutex<Noted>>>);

/// What has been noted, each text once and in order.
#[derive(Default)]
struct Noted {
    texts: Vec<String>,
    /// How many characters of the texts could be told at the most.
    characters: usize,
    /// The time for which webhooks were called.
    called_others: Duration,
}

impl Warnings {
    /// How many characters the warnings of an answer may have together, before each of them is cut.
    pub const CHARACTERS_OF_ALL: usize = 4096;
    /// After how many characters each is cut then.
    pub const CHARACTERS_OF_EACH: usize = 256;

    /// The largest number of warnings in an answer. HTTP clients of several languages read at most 100 header fields.
    pub const MOST: usize = 64;

    /// A note that somebody is going to read.
    pub fn noted() -> Self {
        Self(Some(Arc::default()))
    }

    /// Whether somebody is going to read it, so that it is worth looking for warnings.
    pub fn are_read(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a text, unless it is there already or would not be told any more.
    pub fn add(&self, text: impl Into<String>) {
        let Some(noted) = &self.0 else { return };
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = text.into();
        if text.is_empty() || noted.characters >= Self::CHARACTERS_OF_ALL || noted.texts.len() >= Self::MOST {
            return;
        }
        // What is longer than all may be together is cut in any case, so it need not be kept.
        if let Some((end, _)) = text.char_indices().nth(Self::CHARACTERS_OF_ALL + 1) {
            text.truncate(end);
        }
        if !noted.texts.contains(&text) {
            noted.characters += text.chars().take(Self::CHARACTERS_OF_EACH).count();
            noted.texts.push(text);
        }
    }

    /// Adds some texts.
    pub fn extend(&self, texts: impl IntoIterator<Item = String>) {
        if self.are_read() {
            texts.into_iter().for_each(|text| self.add(text));
        }
    }

    /// Notes that webhooks were called for so long: the time that a request takes here alone is measured without it.
    pub fn note_called_others(&self, time: Duration) {
        if let Some(noted) = &self.0 {
            noted.lock().unwrap_or_else(PoisonError::into_inner).called_others += time;
        }
    }

    /// The time for which webhooks were called, if any were.
    pub fn called_others(&self) -> Option<Duration> {
        let time = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).called_others;
        (!time.is_zero()).then_some(time)
    }

    /// Takes out what was noted. The bounds of an answer still have to be put on it.
    pub fn take(&self) -> Vec<String> {
        let Some(noted) = &self.0 else { return Vec::new() };
        std::mem::take(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner)).texts
    }
}

impl Debug for Warnings {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Warnings").field(&self.are_read()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_noted_once_and_only_where_somebody_reads_it() {
        let nobody = Warnings::default();
        nobody.add("a");
        assert!(nobody.take().is_empty() && !nobody.are_read());
        let warnings = Warnings::noted();
        warnings.extend(["a", "", "b"].map(str::to_owned));
        warnings.clone().add("a");
        assert_eq!(warnings.take(), ["a", "b"]);
        assert!(warnings.take().is_empty());
    }

    #[test]
    fn what_could_not_be_told_is_not_kept() {
        let long = Warnings::noted();
        long.add("é".repeat(2 * Warnings::CHARACTERS_OF_ALL));
        assert_eq!(long.take()[0].chars().count(), Warnings::CHARACTERS_OF_ALL + 1);
        let many = Warnings::noted();
        many.extend((0..100_000).map(|number| format!("{number:06}{}", "x".repeat(1000))));
        assert_eq!(many.take().len(), Warnings::CHARACTERS_OF_ALL / Warnings::CHARACTERS_OF_EACH);
        let short = Warnings::noted();
        short.extend((0..100_000).map(|number| format!("{number:06}")));
        assert_eq!(short.take().len(), Warnings::MOST);
    }
}
