//! The rule for requests that end without a response: it decides which are repeated, and which have an unknown outcome.
//!
//! A request that the peer has not processed is repeated, whatever its effect. A request that the peer may have
//! processed is repeated only if it is idempotent. Otherwise its outcome is unknown, and the error says so. All
//! requests of this crate follow this rule: webhook calls, requests to aggregated servers, and forwarded requests.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use http::Method;

use crate::fault::DialError;

/// The waits before each repeat. The first repeat is immediate: if an idle connection was closed, a new one may still
/// work.
const WAITS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(200)];

/// The effect of processing a request twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No effect beyond that of processing it once.
    Idempotent,
    /// Another effect: for example an object is created twice, or the second response contradicts the first.
    Once,
}

impl Effect {
    /// The effect that a method promises. DELETE and PUT are idempotent for the object but not for the client: a repeat
    /// after a success gets 404 or 409.
    pub fn from_method(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD | Method::OPTIONS => Self::Idempotent,
            _ => Self::Once,
        }
    }
}

/// The point at which a request without a response failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request was not sent: there was no connection, or the connection returned the request unsent.
    NotSent {
        /// The connection had carried requests before.
        was_kept: bool,
    },
    /// The peer refused the stream before it processed the request.
    Refused,
    /// The connection was lost after the request was sent.
    Lost {
        /// The connection had carried requests before.
        was_kept: bool,
    },
    /// Another failure after the request was sent, such as a response that is not HTTP.
    Other,
}

impl Failure {
    /// Classifies an error of a connection.
    pub(crate) fn from_error(error: &(dyn StdError + 'static), was_kept: bool) -> Self {
        let causes = || std::iter::successors(Some(error), |error| (*error).source());
        let is_unsent = |cause: &(dyn StdError + 'static)| {
            let http = cause.downcast_ref::<hyper::Error>();
            cause.is::<DialError>() || http.is_some_and(|error| error.is_canceled() || error.is_closed())
        };
        if causes().any(|cause| cause.downcast_ref::<h2::Error>().is_some_and(is_refusal)) {
            Self::Refused
        } else if causes().any(is_unsent) {
            Self::NotSent { was_kept }
        } else if causes().any(is_end_of_connection) {
            Self::Lost { was_kept }
        } else {
            Self::Other
        }
    }

    /// Returns true if the peer may have processed the request.
    pub(crate) const fn is_outcome_unknown(self) -> bool {
        match self {
            Self::NotSent { .. } | Self::Refused => false,
            Self::Lost { .. } | Self::Other => true,
        }
    }
}

/// Returns true if the peer states that it did not and will not process the stream (RFC 9113, 6.8 and 8.7).
fn is_refusal(error: &h2::Error) -> bool {
    // A GOAWAY ends only streams above its last stream identifier, and unopened ones. Lower streams end with the
    // connection.
    let is_above_last_stream = error.is_go_away();
    let is_refused_stream = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    error.is_remote() && (is_above_last_stream || is_refused_stream)
}

fn is_end_of_connection(cause: &(dyn StdError + 'static)) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
    cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message)
        || matches!(io, Some(ConnectionReset | BrokenPipe | UnexpectedEof))
}

/// The repeats of one request.
pub(crate) struct Repeats {
    effect: Effect,
    waits: std::array::IntoIter<Duration, { WAITS.len() }>,
}

impl Repeats {
    pub(crate) fn new(effect: Effect) -> Self {
        Self { effect, waits: WAITS.into_iter() }
    }

    /// Returns the wait before the next repeat; `None` if the request must not be repeated, or was repeated often
    /// enough.
    pub(crate) fn wait(&mut self, failure: Failure) -> Option<Duration> {
        let may_repeat = match failure {
            // If a new connection failed, the peer is down or refuses this server, and another connection would fail
            // too.
            Failure::NotSent { was_kept } => was_kept,
            Failure::Refused => true,
            Failure::Lost { was_kept } => was_kept && self.effect == Effect::Idempotent,
            Failure::Other => false,
        };
        if may_repeat { self.waits.next() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unprocessed_or_idempotent_requests_are_retried() {
        use Effect::{Idempotent, Once};
        use Failure::{Lost, NotSent, Other, Refused};
        let check = |failure: Failure, repeated: &[Effect], is_unknown: bool| {
            for effect in [Idempotent, Once] {
                let repeats = Repeats::new(effect).wait(failure).is_some();
                assert_eq!(repeats, repeated.contains(&effect), "{failure:?} {effect:?}");
            }
            assert_eq!(failure.is_outcome_unknown(), is_unknown, "{failure:?}");
        };
        check(NotSent { was_kept: true }, &[Idempotent, Once], false);
        check(NotSent { was_kept: false }, &[], false);
        check(Refused, &[Idempotent, Once], false);
        check(Lost { was_kept: true }, &[Idempotent], true);
        check(Lost { was_kept: false }, &[], true);
        check(Other, &[], true);
        let mut repeats = Repeats::new(Idempotent);
        assert_eq!(std::iter::from_fn(|| repeats.wait(Refused)).collect::<Vec<_>>(), WAITS);
        assert_eq!((Effect::from_method(&Method::GET), Effect::from_method(&Method::DELETE)), (Idempotent, Once));
    }
}
