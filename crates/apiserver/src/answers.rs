//! A cache of the main server's answers to token and access reviews, for a few seconds.
//!
//! Without it every request would wait for the main server. The number and size of cached answers are limited.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The lifetime of an answer, as upstream: a revoked right stays valid that long.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// The maximum number of cached answers.
const MOST: usize = 4096;
/// The largest request body whose answer is cached, in bytes, as upstream.
const MOST_QUESTION_BYTES: usize = 10_000;

/// Cached answers by request body.
#[derive(Debug)]
pub(crate) struct Answers<V>(Mutex<HashMap<String, (Instant, V)>>);

impl<V> Default for Answers<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> Answers<V> {
    /// The cached answer to a request, if it is recent.
    pub(crate) fn get(&self, question: &str) -> Option<V> {
        let kept = self.0.lock();
        kept.get(question).filter(|(given, _)| given.elapsed() < KEPT_FOR).map(|(_, answer)| answer.clone())
    }

    /// Caches an answer.
    pub(crate) fn keep(&self, question: String, answer: V) {
        if question.len() > MOST_QUESTION_BYTES {
            return;
        }
        let mut kept = self.0.lock();
        if kept.len() >= MOST {
            kept.retain(|_, (given, _)| given.elapsed() < KEPT_FOR);
        }
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.insert(question, (Instant::now(), answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_expire_and_their_number_is_bounded() {
        let answers = Answers::default();
        answers.keep("a".to_owned(), 1);
        assert_eq!((answers.get("a"), answers.get("b")), (Some(1), None));
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(answers.get("a"), None);
        for n in 0..=MOST {
            answers.keep(n.to_string(), n);
        }
        assert!(answers.0.lock().len() <= MOST);
        assert_eq!(answers.get(&MOST.to_string()), Some(MOST));
        answers.keep("x".repeat(MOST_QUESTION_BYTES + 1), 1);
        assert_eq!(answers.get(&"x".repeat(MOST_QUESTION_BYTES + 1)), None);
    }
}
