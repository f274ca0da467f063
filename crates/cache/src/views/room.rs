//! Room for views while they are made, of which the memory is bounded.
//!
//! Whoever makes a view takes room for what it gathers and builds before it goes on, and gives it back as a whole. All that are made at a
//! time share the room; a view that would need more than there is can't be made at all, and others may try again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Room that the making of one view takes. Given back when it is dropped.
pub struct Room {
    /// How much all have taken.
    taken: Arc<AtomicU64>,
    /// How much there is for all.
    bytes: u64,
    own: AtomicU64,
    /// How much this one may take.
    most: u64,
}

/// There is no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The view takes more than it may, or than there is for all.
    Ever,
    /// Others are being made.
    Now,
}

impl Room {
    pub(super) fn new(taken: &Arc<AtomicU64>, bytes: u64) -> Self {
        Self { taken: taken.clone(), bytes, own: AtomicU64::new(0), most: bytes }
    }

    /// The same where this one may take no more than so many bytes.
    #[must_use]
    pub fn at_most(mut self, bytes: u64) -> Self {
        self.most = self.most.min(bytes);
        self
    }

    /// Takes so many bytes more.
    ///
    /// # Errors
    /// When there are not as many. Then they are not taken.
    pub fn take(&self, bytes: u64) -> Result<(), NoRoom> {
        let grown = |taken: u64, most: u64| taken.checked_add(bytes).filter(|grown| *grown <= most);
        grown(self.own.load(Ordering::Relaxed), self.most).ok_or(NoRoom::Ever)?;
        let all = |taken| grown(taken, self.bytes);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, all).map_err(|_| NoRoom::Now)?;
        self.own.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(*self.own.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_shared_and_given_back() {
        let taken = Arc::default();
        let (one, other) = (Room::new(&taken, 100), Room::new(&taken, 100));
        assert_eq!(one.take(60), Ok(()));
        assert_eq!(one.take(41), Err(NoRoom::Ever));
        assert_eq!(other.take(41), Err(NoRoom::Now));
        assert_eq!(other.take(40), Ok(()));
        drop(one);
        assert_eq!(other.take(60), Ok(()));
        assert_eq!(other.take(u64::MAX), Err(NoRoom::Ever));
        drop(other);
        let small = Room::new(&taken, 100).at_most(10);
        assert_eq!((small.take(10), small.take(1)), (Ok(()), Err(NoRoom::Ever)));
        drop(small);
        assert_eq!(taken.load(Ordering::Relaxed), 0);
    }
}
