//! The seats and the share of a request: its part of resources that all users have in common, taken before the answer.
//!
//! A request takes seats of flow control by its cost. A watch, or a session of an aggregated server, has no end of its
//! own and takes a share instead. A request with a long head counts several times.

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use http::Response;
use http::request::Parts;
use keelson_access::User;
use keelson_meta::ApiError;

use super::flow_control::{self, Cost, Flow, LentSeats, Request, RequestBodySize, SeatedBody, Seats};
use super::{Answerer, ClientConnection, Pipeline, is_watch, slow_bodies};
use crate::body::{MeteredBody, RequestBody, ResponseBody, stream};
use crate::metrics::Observation;
use crate::proxy::ClientAddress;
use crate::request_info::RequestInfo;
use crate::request_query::RequestQuery;
use crate::shares::{Holder, Share};

/// A watch with a query counts as this many watches, since it evaluates objects at every change.
const QUERY_WATCH: usize = 16;
/// A watch counts once more for each block of this many bytes of memory. A watch with usual selectors needs less.
const BYTES_OF_WATCH: usize = 20 * 1024;
/// The bytes of memory that a watch keeps for each byte of its query: a requirement `!a` of a selector needs some 300
/// bytes.
const BYTES_FOR_SELECTORS: usize = 64;

/// The resources that a request holds until its response is sent.
#[derive(Default)]
pub(super) struct HeldMemory {
    pub(super) seats: Option<Seats>,
    /// The seats of a watch, which it returns after its initial events.
    pub(super) initial: Option<LentSeats>,
    /// The share of a watch or session.
    pub(super) share: Option<Arc<Share>>,
}

impl HeldMemory {
    /// The share, and the seats that the response holds while it is sent. Seats can be lent unless another server
    /// answers.
    pub(super) fn into_seats(self, is_passed_on: bool) -> (Option<Arc<Share>>, Option<LentSeats>) {
        let lent = if is_passed_on { LentSeats::kept } else { LentSeats::new };
        (self.share, self.initial.or_else(|| self.seats.map(lent)))
    }
}

/// The response with its seats and its share until it is sent. The listener lends the seats while the client reads
/// nothing.
pub(super) fn holding(
    mut response: Response<ResponseBody>,
    observation: Observation,
    (share, seats): (Option<Arc<Share>>, Option<LentSeats>),
) -> Response<ResponseBody> {
    let Some(seats) = seats else { return response.map(|body| stream(MeteredBody::new(body, observation, share))) };
    response.extensions_mut().insert(seats.clone());
    response.map(|body| stream(MeteredBody::new(stream(SeatedBody::new(body, seats)), observation, share)))
}

impl Pipeline {
    /// Waits for the body, then for seats. Returns the cost of the request and its seats, or, if no seats are free, the
    /// seconds after which the client may try again.
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
        let holder = Holder::of_user(user);
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
            let sent = RequestBodySize::measure(parts, body).await;
            let about = target.map(|target| self.router.estimate(info, parts, query, target));
            let cost = flow_control::request_cost(info, parts, &about.unwrap_or_default(), sent);
            let seats = match self.flow_control.acquire(flow, request, cost.seats).await {
                Ok(seats) => seats,
                Err(seconds) => return Ok(Err(seconds)),
            };
            if !has_body || slow.is_some() || slow_bodies::rest_arrived(body).await {
                return Ok(Ok((cost, seats)));
            }
            // The rest of the body does not arrive, so the request waits for it without seats.
            drop(seats);
            slow = Some(slow_bodies::arrived_slowly(body, &self.slow_bodies, holder).await?);
        }
    }

    /// Takes the share that a request holds until its end, if it is a watch, a session of another server, or a request
    /// to a node.
    ///
    /// # Errors
    /// 429 when the user has used its share.
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

/// The number of additional watches that a watch counts as, for the memory of its request head, which it keeps until
/// its end.
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
    fn large_watch_headers_count_as_additional_watches() {
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
