//! Memory reservations for building views, within a limit.
//!
//! The builder of a view reserves memory before it uses more, and releases all of it at the end. All concurrent builds
//! share the limit. One user gets at most three quarters of it. A view that needs more than that can't be built. Other
//! failed reservations may succeed later.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

/// The divisor for the part of the memory that one user can't reserve.
const LEFT_PART: u64 = 4;

/// Hashes the names of users. The seed is random, so that no user can choose a name with the hash of another user.
static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The user who requested a view. The default is for views that all users share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ViewOwner(Option<u64>);

impl ViewOwner {
    /// The user with this name.
    pub fn new(name: &str) -> Self {
        Self(Some(HASH.hash_one(name)))
    }
}

/// The memory limit of all views that are being built.
pub(super) struct ReservationPool {
    bytes: u64,
    taken: Mutex<ReservedBytes>,
}

#[derive(Default)]
struct ReservedBytes {
    all: u64,
    by_owner: HashMap<ViewOwner, u64>,
}

/// The reservation for one view, released on drop.
pub struct MemoryReservation {
    all: Arc<ReservationPool>,
    owner: ViewOwner,
    own: AtomicU64,
    /// The limit of this reservation in bytes.
    most: u64,
}

/// The reason for which memory could not be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationError {
    /// The view exceeds its own limit. A retry does not help.
    Ever,
    /// Views that are being built use the memory. A retry may succeed.
    Now,
}

impl ReservationPool {
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, taken: Mutex::default() })
    }

    /// The limit of all views of one user, in bytes.
    const fn of_one(&self) -> u64 {
        self.bytes - self.bytes / LEFT_PART
    }

    pub(super) fn room(self: &Arc<Self>, owner: ViewOwner) -> MemoryReservation {
        MemoryReservation { all: self.clone(), owner, own: AtomicU64::new(0), most: self.of_one() }
    }
}

impl MemoryReservation {
    /// Limits this reservation to `most` bytes.
    #[must_use]
    pub fn at_most(mut self, bytes: u64) -> Self {
        self.most = self.most.min(bytes);
        self
    }

    /// Reserves more bytes.
    ///
    /// # Errors
    /// The memory is not available. Nothing is reserved.
    pub fn take(&self, bytes: u64) -> Result<(), ReservationError> {
        let grown = |taken: u64, most: u64| taken.checked_add(bytes).filter(|grown| *grown <= most);
        grown(self.own.load(Ordering::Relaxed), self.most).ok_or(ReservationError::Ever)?;
        let mut taken = self.all.taken.lock();
        let all = grown(taken.all, self.all.bytes).ok_or(ReservationError::Now)?;
        let of_owner = taken.by_owner.get(&self.owner).copied().unwrap_or_default();
        let of_owner = grown(of_owner, self.all.of_one()).ok_or(ReservationError::Now)?;
        taken.all = all;
        taken.by_owner.insert(self.owner, of_owner);
        self.own.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let own = *self.own.get_mut();
        if own == 0 {
            return;
        }
        let mut taken = self.all.taken.lock();
        taken.all -= own;
        let left = taken.by_owner.get_mut(&self.owner).map(|left| {
            *left -= own;
            *left
        });
        if left == Some(0) {
            taken.by_owner.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_shared_and_given_back() {
        let all = ReservationPool::new(100);
        let (one, other) = (all.room(ViewOwner::new("ann")), all.room(ViewOwner::new("bob")));
        assert_eq!(one.take(60), Ok(()));
        assert_eq!(one.take(16), Err(ReservationError::Ever));
        assert_eq!(other.take(41), Err(ReservationError::Now));
        assert_eq!(other.take(40), Ok(()));
        drop(one);
        assert_eq!(other.take(35), Ok(()));
        assert_eq!(other.take(u64::MAX), Err(ReservationError::Ever));
        drop(other);
        let small = all.room(ViewOwner::default()).at_most(10);
        assert_eq!((small.take(10), small.take(1)), (Ok(()), Err(ReservationError::Ever)));
        drop(small);
        let taken = all.taken.lock();
        assert!(taken.all == 0 && taken.by_owner.is_empty());
    }

    #[test]
    fn views_of_one_user_leave_room_to_others() {
        let all = ReservationPool::new(100);
        let of_ann = [40, 35].map(|bytes| {
            let room = all.room(ViewOwner::new("ann"));
            assert_eq!(room.take(bytes), Ok(()));
            room
        });
        assert_eq!(all.room(ViewOwner::new("ann")).take(1), Err(ReservationError::Now));
        assert_eq!(all.room(ViewOwner::new("bob")).take(25), Ok(()));
        drop(of_ann);
        assert_eq!(all.room(ViewOwner::new("ann")).take(75), Ok(()));
    }
}
