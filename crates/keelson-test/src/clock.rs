//! The clock of a server in this process: the machine's time plus the time by which a test has advanced it.
//!
//! The server uses it for every time of day. It does not affect timers of the server, such as the interval of a
//! controller.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A clock that follows the machine's clock and can be advanced or stopped. Clones share one state.
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

    /// Moves the clock forward. [`Keelson::advance`](crate::Keelson::advance) also removes the objects that have then
    /// expired.
    pub fn advance(&self, by: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ahead += by;
    }

    /// Stops the clock. From then on only [`advance`](Self::advance) moves it.
    pub fn stop(&self) {
        let mut setting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        setting.stopped.get_or_insert_with(SystemTime::now);
    }

    /// An independent clock with the same time.
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
