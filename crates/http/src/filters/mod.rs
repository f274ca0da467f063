//! What every request passes before a handler sees it, in one readable order.
//!
//! request id → counting → flow control → panics → authentication → authorization → time limit → router. The stamps of the way back
//! (`Audit-Id`, `Cache-Control`) and the guards (counting, stalled bodies) are put on the answer in reverse. Each filter
//! is a plain function; [`Pipeline::answer`] is the only place that knows their order.

mod authentication;
mod authorization;
mod flow_control;
mod panics;
mod request_id;
mod time_limit;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use keelson_access::ClientIdentity;
use keelson_meta::{ApiError, Clock, Random};
use keelson_registry::Target;
use tokio_util::sync::CancellationToken;

pub use self::authentication::TokenAuthenticator;
use self::flow_control::FlowControl;
use crate::body::{Guarded, RequestBody, ResponseBody, empty, stream};
use crate::metrics::{Metrics, Observation, ResourceNames};
use crate::negotiation::{self, MediaType};
use crate::request_info::RequestInfo;
use crate::respond;
use crate::router::Router;
use crate::service::ApiRequest;

/// Marks the answer of a request without an end of its own, in its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongRunning;

/// Answers requests, whatever connection they came over.
pub struct Pipeline {
    router: Router,
    tokens: Option<Arc<dyn TokenAuthenticator>>,
    flow_control: FlowControl,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    stopping: CancellationToken,
}

impl Pipeline {
    /// Puts the filters before `router`. Cancelling `stopping` begins the end of the server.
    pub fn new(
        router: Router,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        stopping: CancellationToken,
    ) -> Self {
        Self { router, tokens: None, flow_control: FlowControl::new(), metrics, clock, random, stopping }
    }

    /// The same that knows the users of bearer tokens.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Arc<dyn TokenAuthenticator>) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Cancelled when the server begins to stop.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Answers one request of a client that may have proved who it is.
    pub async fn answer(
        &self,
        identity: Option<&ClientIdentity>,
        parts: Parts,
        body: RequestBody,
    ) -> Response<ResponseBody> {
        let info = RequestInfo::parse(&parts.method, &parts.uri);
        let request_id = request_id::of(&parts.headers, self.random.as_ref());
        let (error_form, is_head) = (negotiation::error_form(&parts), parts.method == Method::HEAD);
        let long_running = info.is_long_running();
        let target = self.router.target(&info);
        let mut observation = Observation::begin(&self.metrics, &info, target.as_ref().map(ResourceNames::of));

        let (outcome, place) = match self.flow_control.admit(&info) {
            Ok(place) => {
                let answer = pin!(self.admit(identity, info, target, parts, body, error_form));
                (panics::caught(answer).await, place)
            }
            Err(refused) => (Err(refused), None),
        };

        let mut response = outcome.unwrap_or_else(|error| respond::error(&error, error_form));
        if long_running {
            response.extensions_mut().insert(LongRunning);
        }
        observation.answered(response.status());
        let response =
            response.map(|body| if is_head { empty() } else { stream(Guarded::new(body, (observation, place))) });
        flow_control::marked(request_id::stamped(without_caching(response), request_id))
    }

    /// The filters that may refuse.
    async fn admit(
        &self,
        identity: Option<&ClientIdentity>,
        info: RequestInfo,
        target: Option<Target>,
        parts: Parts,
        body: RequestBody,
        error_form: MediaType,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let tokens = self.tokens.as_deref();
        let user = authentication::user(identity, tokens, &parts.headers, self.clock.now()).await?;
        authorization::permit(&user, &info)?;
        let limit = time_limit::of(&info, &parts)?;
        let request = ApiRequest { info, parts, body, user, error_form, stopping: self.stopping.clone() };
        time_limit::within(limit, pin!(self.router.route(request, target))).await
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("router", &self.router).finish_non_exhaustive()
    }
}

/// Answers are about one moment and one user, unless a handler says otherwise.
fn without_caching(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let default = HeaderValue::from_static("no-cache, private");
    response.headers_mut().entry(CACHE_CONTROL).or_insert(default);
    response
}
