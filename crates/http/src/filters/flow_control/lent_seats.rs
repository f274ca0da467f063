//! Seats that a request lends to other requests while its response waits for the client.
//!
//! A seat represents work and memory of the server. A response that its client does not read does no work, and
//! `listener/answers.rs`, which lends the seats of such responses, limits their memory. The body of the response takes
//! the seats back before it produces more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::level::{Level, SeatRequest, Seats};
use crate::body::{BodyError, ResponseBody};
use crate::shares::Holder;

/// The longest time that a response waits for its seats to come back.
const RETURN_TIME: Duration = Duration::from_secs(60);

/// The seats of a request, which can be lent. Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct LentSeats(Arc<Lending>);

#[derive(Debug)]
struct Lending {
    level: Arc<Level>,
    asked: SeatRequest,
    /// True if the seats are not lent, because the response holds other resources while it waits.
    is_kept: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Held {
        _seats: Seats,
    },
    Lent,
    /// The seats were returned for good: the response produces nothing more that needs them.
    Ended,
}

impl LentSeats {
    /// Seats that are lent while the response waits for its client.
    pub(in crate::filters) fn new(seats: Seats) -> Self {
        Self::with_lending(seats, false)
    }

    /// Seats that are never lent: those of another server, which waits as long as the response does.
    pub(in crate::filters) fn kept(seats: Seats) -> Self {
        Self::with_lending(seats, true)
    }

    fn with_lending(seats: Seats, is_kept: bool) -> Self {
        let (level, asked) = seats.origin();
        Self(Arc::new(Lending { level, asked, is_kept, state: Mutex::new(State::Held { _seats: seats }) }))
    }

    /// The user that holds the seats.
    pub(crate) fn holder(&self) -> Holder {
        self.0.asked.holder
    }

    /// Lends the seats. Returns true if the response held them.
    pub(crate) fn lend(&self) -> bool {
        self.replace(State::Lent, |state| matches!(state, State::Held { .. }) && !self.0.is_kept)
    }

    /// Returns the seats for good.
    pub(crate) fn end(&self) {
        self.replace(State::Ended, |_| true);
    }

    /// Returns true if the seats were returned for good.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.0.state.lock(), State::Ended)
    }

    fn replace(&self, new: State, may: impl FnOnce(&State) -> bool) -> bool {
        let mut state = self.0.state.lock();
        if !may(&state) {
            return false;
        }
        let old = std::mem::replace(&mut *state, new);
        drop(state);
        // ORDER: dropped without the lock, since returning seats wakes other requests.
        drop(old);
        true
    }

    fn is_lent(&self) -> bool {
        matches!(*self.0.state.lock(), State::Lent)
    }

    /// Waits for the seats again.
    async fn take_again(self) -> Result<(), u32> {
        let Lending { level, asked, .. } = &*self.0;
        let seats = level.take_again(asked.clone(), RETURN_TIME).await?;
        // The seats may have been returned for good meanwhile.
        self.replace(State::Held { _seats: seats }, |state| matches!(state, State::Lent));
        Ok(())
    }
}

#[cfg(test)]
impl LentSeats {
    /// One seat of a user, in a level with many.
    pub(crate) async fn one(holder: Holder) -> Self {
        let seats = Level::of_seats(100, 0).take(SeatRequest::of_test(holder), Duration::ZERO).await;
        Self::new(seats.expect("it is free"))
    }
}

/// The body of a response that produces frames only while it holds its seats.
pub(in crate::filters) struct SeatedBody {
    inner: ResponseBody,
    seats: LentSeats,
    returning: Option<BoxFuture<'static, Result<(), u32>>>,
}

impl SeatedBody {
    pub(in crate::filters) fn new(inner: ResponseBody, seats: LentSeats) -> Self {
        Self { inner, seats, returning: None }
    }
}

impl Body for SeatedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.returning.is_some() || this.seats.is_lent() {
            let returning = this.returning.get_or_insert_with(|| this.seats.clone().take_again().boxed());
            let outcome = ready!(returning.poll_unpin(context));
            this.returning = None;
            if outcome.is_err() {
                let why = format!("no seats of flow control were free for {RETURN_TIME:?} to go on");
                return Poll::Ready(Some(Err(BodyError::Aborted(why))));
            }
        }
        Pin::new(&mut this.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for SeatedBody {
    fn drop(&mut self) {
        self.seats.end();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::body::full;
    use crate::shares::Level as Kind;

    const ANN: Holder = Holder { flow: 1, level: Kind::Exempt };
    const BOB: Holder = Holder { flow: 2, level: Kind::Exempt };

    async fn take(level: &Arc<Level>, holder: Holder) -> Result<Seats, u32> {
        level.take(SeatRequest::of_test(holder), Duration::ZERO).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_resumes_after_it_regains_its_seats() {
        let level = Level::of_seats(1, 0);
        let seats = LentSeats::new(take(&level, ANN).await.unwrap());
        let mut body = SeatedBody::new(full("x"), seats.clone());
        assert!(take(&level, BOB).await.is_err());
        assert!(seats.lend() && !seats.lend());
        let of_bob = take(&level, BOB).await.unwrap();
        assert!(body.frame().now_or_never().is_none(), "it waits, although the queue has no place");
        drop(of_bob);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "x");
        assert!(take(&level, BOB).await.is_err());
        drop(body);
        assert!(take(&level, BOB).await.is_ok() && seats.has_ended() && !seats.lend());

        let kept = LentSeats::kept(take(&level, ANN).await.unwrap());
        assert!(!kept.lend() && take(&level, BOB).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_gets_no_seats_again_fails() {
        let level = Level::of_seats(1, 0);
        let seats = LentSeats::new(take(&level, ANN).await.unwrap());
        let mut body = SeatedBody::new(full("x"), seats.clone());
        seats.lend();
        let _of_bob = take(&level, BOB).await.unwrap();
        assert!(matches!(body.frame().await, Some(Err(BodyError::Aborted(_)))));
    }
}
