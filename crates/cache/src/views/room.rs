//! Room for views while they are made, of which the memory is bounded.
//!
//! Whoever makes a view takes room for what it gathers and builds before it goes on, and gives it back as a whole. All that are made at a
//! time share the room, of which those of one user take no more than three quarters. A view that would need more can't be made at all, and
//! others may try again.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

/// The part of the room that one user's views leave to those of others: one in so many.
const LEFT_PART: u64 = 4;

/// Hashes the names of users. Seeded at random, so that no name can be chosen that shares the count of another.
static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The user that views are made and kept for; none by default, for views that all users have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ViewOwner(Option<u64>);

impl ViewOwner {
    /// The user of a name.
    pub fn of(name: &str) -> Self {
        Self(Some(HASH.hash_one(name)))
    }
}

/// The room for all views that are being made.
pub(super) struct AllRoom {
    bytes: u64,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: u64,
    by_owner: HashMap<ViewOwner, u64>,
}

/// Room that the making of one view takes. Given back when it is dropped.
pub struct Room {
    all: Arc<AllRoom>,
    owner: ViewOwner,
    own: AtomicU64,
    /// How much this one may take.
    most: u64,
}

/// There is no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The view takes more than it may, or than there is for one user.
    Ever,
    /// Others are being made.
    Now,
}

impl AllRoom {
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, taken: Mutex::default() })
    }

    /// The bytes that the views of one user may take together.
    const fn of_one(&self) -> u64 {
        self.bytes - self.bytes / LEFT_PART
    }

    pub(super) fn room(self: &Arc<Self>, owner: ViewOwner) -> Room {
        Room { all: self.clone(), owner, own: AtomicU64::new(0), most: self.of_one() }
    }
}

impl Room {
    /// Bounds what this one may take by so many bytes.
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
        let mut taken = self.all.taken.lock();
        let all = grown(taken.all, self.all.bytes).ok_or(NoRoom::Now)?;
        let of_owner = taken.by_owner.get(&self.owner).copied().unwrap_or_default();
        let of_owner = grown(of_owner, self.all.of_one()).ok_or(NoRoom::Now)?;
        taken.all = all;
        taken.by_owner.insert(self.owner, of_owner);
        self.own.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Room {
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
        let all = AllRoom::new(100);
        let (one, other) = (all.room(ViewOwner::of("ann")), all.room(ViewOwner::of("bob")));
        assert_eq!(one.take(60), Ok(()));
        assert_eq!(one.take(16), Err(NoRoom::Ever));
        assert_eq!(other.take(41), Err(NoRoom::Now));
        assert_eq!(other.take(40), Ok(()));
        drop(one);
        assert_eq!(other.take(35), Ok(()));
        assert_eq!(other.take(u64::MAX), Err(NoRoom::Ever));
        drop(other);
        let small = all.room(ViewOwner::default()).at_most(10);
        assert_eq!((small.take(10), small.take(1)), (Ok(()), Err(NoRoom::Ever)));
        drop(small);
        let taken = all.taken.lock();
        assert!(taken.all == 0 && taken.by_owner.is_empty());
    }

    #[test]
    fn views_of_one_user_leave_room_to_others() {
        let all = AllRoom::new(100);
        let of_ann = [40, 35].map(|bytes| {
            let room = all.room(ViewOwner::of("ann"));
            assert_eq!(room.take(bytes), Ok(()));
            room
        });
        assert_eq!(all.room(ViewOwner::of("ann")).take(1), Err(NoRoom::Now));
        assert_eq!(all.room(ViewOwner::of("bob")).take(25), Ok(()));
        drop(of_ann);
        assert_eq!(all.room(ViewOwner::of("ann")).take(75), Ok(()));
    }
}
