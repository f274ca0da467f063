//! The time after which a refused client may try again. It doubles while many requests are refused, and falls again
//! afterwards.
//!
//! The rules are upstream's (KEP-1040). The history covers only the longest such time.

use std::collections::VecDeque;

/// The longest time, in seconds.
const LONGEST: u64 = 32;

/// The refusals of a level in the past seconds.
#[derive(Debug)]
pub struct RetryAfter {
    seconds: u64,
    changed: Option<u64>,
    current: u64,
    count: u64,
    /// Past seconds with their numbers of refusals, oldest first.
    history: VecDeque<(u64, u64)>,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { seconds: 1, changed: None, current: 0, count: 0, history: VecDeque::new() }
    }
}

impl RetryAfter {
    /// Counts a refusal in a second. Returns the seconds after which the client may try again.
    pub fn refuse(&mut self, second: u64) -> u32 {
        if second != self.current && self.count > 0 {
            self.history.push_back((self.current, self.count));
            while self.history.front().is_some_and(|(old, _)| second.saturating_sub(*old) > LONGEST) {
                self.history.pop_front();
            }
            self.count = 0;
            self.adjust(second);
        }
        self.current = second;
        self.count += 1;
        u32::try_from(self.seconds).unwrap_or(1)
    }

    fn adjust(&mut self, second: u64) {
        let recent = self.history.iter().filter(|(old, _)| second.saturating_sub(*old) <= self.seconds);
        let refused: u64 = recent.map(|(_, count)| count).sum();
        let may_grow = self.changed.is_none_or(|changed| second.saturating_sub(changed) >= self.seconds);
        if may_grow && refused >= 3 * self.seconds {
            self.seconds = (self.seconds * 2).min(LONGEST);
            self.changed = Some(second);
        } else if refused < self.seconds && self.seconds > 1 {
            self.seconds -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_doubles_while_many_are_refused_and_falls_again() {
        let mut retry = RetryAfter::default();
        let mut seen = Vec::new();
        for second in 100..200 {
            for _ in 0..100 {
                seen.push(retry.refuse(second));
            }
        }
        seen.dedup();
        assert_eq!(seen, [1, 2, 4, 8, 16, 32]);
        assert!(retry.history.len() <= LONGEST as usize + 1);
        assert_eq!(retry.refuse(1_000), 31, "one refusal after long");
        assert_eq!(retry.refuse(2_000), 30);
    }

    #[test]
    fn few_refusals_change_nothing() {
        let mut retry = RetryAfter::default();
        assert!((0..100).all(|second| retry.refuse(second) == 1 && retry.refuse(second) == 1));
    }
}
