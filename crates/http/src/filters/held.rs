//! The seats and the share of a request: what it takes of what all users share, before it is answered.
//!
//! Seats of flow control are for what it costs. A share is for what it holds without an end of its own: a watch, or a session of an
//! aggregated server. One with a long head counts as several.

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use http::Response;
use http::request::Parts;
use keelson_access::User;
use keelson_meta::ApiError;

use super::flow_control::{self, Cost, Flow, LentSeats, Request, SeatedBody, Seats, Sent};
use super::{Answerer, ClientConnection, Pipeline, is_watch, slow_bodies};
use crate::body::{Measured, RequestBody, ResponseBody, stream};
use crate::metrics::Observation;
use crate::proxy::ClientAddress;
use crate::request_info::RequestInfo;
use crate::request_query::RequestQuery;
use crate::shares::{Holder, Share};

/// The number of watches that a watch with a query counts as, since it looks into objects at every change.
const QUERY_WATCH: usize = 16;
/// The bytes of memory for which a watch counts once more. One with the usual selectors takes less.
const BYTES_OF_WATCH: usize = 20 * 1024;
/// The bytes of memory that a watch keeps for each byte of its query: a requirement `!a` of a selector becomes some 300 bytes.
const BYTES_FOR_SELECTORS: usize = 64;

/// The resources that an answer holds until it is sent.
#[derive(Default)]
pub(super) struct Holds {
    pub(super) seats: Option<Seats>,
    /// Those of a watch, which gives them back when it has sent the objects that it begins with.
    pub(super) initial: Option<LentSeats>,
    /// Of what has no end of its own.
    pub(super) share: Option<Arc<Share>>,
}

impl Holds {
    /// The share, and the seats that are held while the answer is sent. They may be lent unless another server answers.
    pub(super) fn into_seats(self, is_passed_on: bool) -> (Option<Arc<Share>>, Option<LentSeats>) {
        let lent = if is_passed_on { LentSeats::kept } else { LentSeats::new };
        (self.share, self.initial.or_else(|| self.seats.map(lent)))
    }
}

/// An answer that holds its seats and its share until it is sent. The listener lends the seats while the client takes nothing.
pub(super) fn holding(
    mut response: Response<ResponseBody>,
    observation: Observation,
    (share, seats): (Option<Arc<Share>>, Option<LentSeats>),
) -> Response<ResponseBody> {
    let Some(seats) = seats else { return response.map(|body| stream(Measured::new(body, observation, share))) };
    response.extensions_mut().insert(seats.clone());
    response.map(|body| stream(Measured::new(stream(SeatedBody::new(body, seats)), observation, share)))
}

impl Pipeline {
    /// Returns the cost of a request and its seats, once its body is there; if no seats are free, the seconds after which the client may
    /// try again.
    ///
    /// # Errors
    /// 429 when too many bodies of the user arrive slowly.
    pub(super) async fn seats_for(
        &self,
        (user, time, flow): (&Arc<User>, Duration, Option<&Arc<Flow>>),
        answerer: &Answerer,
        (info, parts, query): (&RequestInfo, &Parts, &RequestQuery),
        body: &mut RequestBody,
    ) -> Result<Result<(Cost, Option<Seats>), u32>, ApiError> {
        let holder = Holder::of(user);
        let request = Request { user, holder, info, parts, time };
        let target = match answerer {
            Answerer::Here(target) => target.as_ref(),
            Answerer::Elsewhere(remote) => {
                let server = remote.upstream.authority();
                let seats = self.flow_control.acquire_elsewhere(server, request).await;
                return Ok(seats.map(|seats| (Cost::default(), seats)));
            }
        };
        let has_body = target.is_some() && !info.verb.is_read() && !info.is_session;
        let mut slow = if has_body { slow_bodies::arrived(body, &self.slow_bodies, holder).await? } else { None };
        loop {
            let sent = Sent::of(parts, body).await;
            let about = target.map(|target| self.router.estimate(info, parts, query, target));
            let cost = flow_control::of(info, parts, &about.unwrap_or_default(), sent);
            let seats = match self.flow_control.acquire(flow, request, cost.seats).await {
                Ok(seats) => seats,
                Err(seconds) => return Ok(Err(seconds)),
            };
            if !has_body || slow.is_some() || slow_bodies::rest_arrived(body).await {
                return Ok(Ok((cost, seats)));
            }
            // The rest does not come: it is waited for without seats.
            drop(seats);
            slow = Some(slow_bodies::arrived_slowly(body, &self.slow_bodies, holder).await?);
        }
    }

    /// Takes the share that a request holds until its end, if it is a watch, a session of another server, or a request to a node.
    ///
    /// # Errors
    /// 429 when the user has its share.
    pub(super) fn share_of(
        &self,
        holder: Holder,
        answerer: &Answerer,
        (info, parts, query): (&RequestInfo, &Parts, &RequestQuery),
    ) -> Result<Option<Arc<Share>>, ApiError> {
        let share = match answerer {
            Answerer::Here(_) if is_watch(info) => {
                let looks = if query.is_extended() { QUERY_WATCH } else { 1 };
                self.watches.take(holder, looks + further(parts, BYTES_FOR_SELECTORS))?
            }
            Answerer::Here(Some(_)) if info.is_session => self.node_sessions.take(holder, 1 + further(parts, 1))?,
            Answerer::Elsewhere(_) if info.is_long_running() => {
                self.watches_elsewhere.take(holder, 1 + further(parts, 1))?
            }
            Answerer::Here(_) | Answerer::Elsewhere(_) => return Ok(None),
        };
        Ok(Some(Arc::new(share)))
    }
}

/// The address of a client, for the extensions of its request.
pub(super) fn with_address(client: &dyn ClientConnection) -> Extensions {
    let mut extensions = Extensions::new();
    if let Some(address) = client.address() {
        extensions.insert(ClientAddress(address));
    }
    extensions
}

/// The number of further watches that a watch counts as for the memory of its head, which it keeps until its end.
fn further(parts: &Parts, for_each_byte_of_query: usize) -> usize {
    let fields: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let query = parts.uri.query().map_or(0, str::len);
    (fields + parts.uri.path().len() + query * for_each_byte_of_query) / BYTES_OF_WATCH
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_watch_counts_for_the_memory_of_its_head() {
        let check = |query: String, field: usize, expect: usize| {
            let request = Request::get(format!("/api/v1/pods?watch=1{query}")).header("x", "x".repeat(field));
            assert_eq!(further(&request.body(()).unwrap().into_parts().0, BYTES_FOR_SELECTORS), expect, "{query}");
        };
        let selectors = "&labelSelector=app.kubernetes.io%2Fname%3Dweb%2Capp.kubernetes.io%2Finstance%3Dweb-1";
        check(format!("{selectors}&allowWatchBookmarks=true&resourceVersion=123456789&timeoutSeconds=590"), 2_000, 0);
        check(String::new(), 50_000, 2);
        check(format!("&labelSelector=a{}", ",!a".repeat(20_000)), 0, 187);
    }
}
