//! Warnings: headers of the response, of successful and of refused requests.
//!
//! Warnings are found deep inside a verb (an unknown field, a deprecated field, an admission plugin), often in an
//! attempt that is repeated, and they outlast a refusal. They are therefore collected in the [`Caller`](crate::Caller)
//! of the request, and read when the response is sent. The server's own writes collect none.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A collector of warnings, shared by all components of a request.
#[derive(Clone, Default)]
pub struct Warnings(Option<Arc<Mutex<CollectedWarnings>>>);

/// The collected texts, each once and in order.
#[derive(Default)]
struct CollectedWarnings {
    texts: Vec<String>,
    /// The largest number of characters that can be sent.
    characters: usize,
    /// The time for which webhooks were called.
    called_others: Duration,
}

impl Warnings {
    /// The number of characters of all warnings together above which each is cut.
    pub const CHARACTERS_OF_ALL: usize = 4096;
    /// The number of characters to which each warning is cut then.
    pub const CHARACTERS_OF_EACH: usize = 256;

    /// The largest number of warnings in a response. HTTP clients of several languages read at most 100 header fields.
    pub const MOST: usize = 64;

    /// A collector for a response.
    pub fn noted() -> Self {
        Self(Some(Arc::default()))
    }

    /// Returns true if the warnings will be sent. Otherwise finding warnings is not worth its cost.
    pub fn are_read(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a text, unless it is there already or exceeds the limit.
    pub fn add(&self, text: impl Into<String>) {
        let Some(noted) = &self.0 else { return };
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = text.into();
        if text.is_empty() || noted.characters >= Self::CHARACTERS_OF_ALL || noted.texts.len() >= Self::MOST {
            return;
        }
        // A text beyond the limit is cut in any case, so the rest is not kept.
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

    /// Adds time that was spent in webhooks. The time that a request takes in this server is measured without it.
    pub fn note_called_others(&self, time: Duration) {
        if let Some(noted) = &self.0 {
            noted.lock().unwrap_or_else(PoisonError::into_inner).called_others += time;
        }
    }

    /// The time that was spent in webhooks, if any were called.
    pub fn called_others(&self) -> Option<Duration> {
        let time = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).called_others;
        (!time.is_zero()).then_some(time)
    }

    /// Takes the collected warnings. The limits of a response are not applied yet.
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
    fn a_warning_is_kept_once_and_only_for_a_client() {
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
    fn unreportable_warnings_are_dropped() {
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
