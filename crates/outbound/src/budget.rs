//! A limit for bytes that many holders share.
//!
//! Each holder has a reservation, which returns its bytes when dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes to reserve. Clones share it.
#[derive(Clone, Debug)]
pub struct ByteBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    reserved: AtomicUsize,
    most: usize,
}

/// The reserved bytes of one holder.
#[derive(Debug)]
pub struct ByteReservation {
    bytes: usize,
    of: Arc<Budget>,
}

impl ByteBudget {
    /// Creates a budget of `most` bytes, none of them reserved.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Budget { reserved: AtomicUsize::new(0), most }))
    }

    /// Reserves this many bytes.
    ///
    /// # Errors
    /// Fewer bytes are left in the budget.
    pub fn hold(&self, bytes: usize) -> Result<ByteReservation, String> {
        let mut reservation = self.reserve();
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Creates a reservation of no bytes.
    pub fn reserve(&self) -> ByteReservation {
        ByteReservation { bytes: 0, of: self.0.clone() }
    }
}

impl ByteReservation {
    /// Reserves more bytes.
    ///
    /// # Errors
    /// Fewer bytes are left in the budget. The reservation stays as it was.
    pub fn grow(&mut self, by: usize) -> Result<(), String> {
        if self.of.reserved.fetch_add(by, Ordering::Relaxed) + by > self.of.most {
            self.of.reserved.fetch_sub(by, Ordering::Relaxed);
            return Err(format!("more than {} bytes would be held", self.of.most));
        }
        self.bytes += by;
        Ok(())
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.of.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::ByteBudget;

    #[test]
    fn dropped_reservations_are_freed() {
        let budget = ByteBudget::new(10);
        let (mut first, mut second) = (budget.reserve(), budget.reserve());
        first.grow(6).unwrap();
        assert_eq!(second.grow(5).unwrap_err(), "more than 10 bytes would be held");
        second.grow(4).unwrap();
        drop(first);
        second.grow(6).unwrap();
        assert!(second.grow(1).is_err());
    }
}
