//! The clock of a server in this process: the machine's time, and what a test has added to it.
//!
//! The server reads it wherever it needs the time of day. Timers of the server, such as the interval of a controller, are not moved.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A clock that runs with the machine's and can be advanced or stopped. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<Mutex<Setting>>);

#[derive(Clone, Copy, Debug, Default)]
struct Setting {
    ahead: Duration,
    stopped: Option<SystemTime>,
}

impl Clock {
    /// The time of the server.
    pub fn now(&self) -> SystemTime {
        let setting = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        setting.stopped.unwrap_or_else(SystemTime::now) + setting.ahead
    }

    /// Moves the clock forward. [`Keelson::advance`](crate::Keelson::advance) also removes the objects that expire by this.
    pub fn advance(&self, by: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ahead += by;
    }

    /// Stops the clock: time passes only by [`advance`](Self::advance) from now on.
    pub fn stop(&self) {
        let mut setting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        setting.stopped.get_or_insert_with(SystemTime::now);
    }

    /// A clock of its own that shows the same time.
    #[cfg(feature = "embedded")]
    pub(crate) fn copied(&self) -> Self {
        Self(Arc::new(Mutex::new(*self.0.lock().unwrap_or_else(PoisonError::into_inner))))
    }
}

#[cfg(feature = "embedded")]
impl keelson_meta::Clock for Clock {
    fn now(&self) -> SystemTime {
        Self::now(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_moves_only_when_advanced() {
        let clock = Clock::default();
        clock.stop();
        let before = clock.now();
        clock.clone().advance(Duration::from_secs(60));
        assert_eq!(clock.now(), before + Duration::from_secs(60));
    }
}
