//! The filters that every request passes before a handler gets it, in order.
//!
//! shutdown → preflights → request id → counting → panics → console → service workers → time limit → authentication →
//! audit → impersonation → authorization → shares of watches → body → flow control → long work → router. For
//! aggregated servers, the proxy replaces the router.
//!
//! On the way back, response headers (the policy for browsers, `Audit-Id`, `Cache-Control`, limits of warnings) and
//! guards (counting, seats, stalled bodies) are added in reverse order. Each filter is a plain function. Only
//! [`Pipeline::answer`] knows their order.

mod audit;
mod authentication;
mod authorization;
mod bearer;
pub(crate) mod browsers;
mod building;
mod clients;
mod fan_out;
mod flow_control;
mod impersonation;
mod long_work;
mod origins;
pub(crate) mod panics;
mod request_id;
mod response_memory;
mod seats_and_shares;
mod slow_bodies;
mod spans;
mod time_limit;

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderValue, STRICT_TRANSPORT_SECURITY};
use http::request::Parts;
use http::{HeaderMap, Method, Response, Uri};
use hyper::body::Body as _;
use keelson_access::audit::{AuditRecord, Auditor};
use keelson_access::user::UNAUTHENTICATED;
use keelson_access::{Authorizer, ClientCertificates, User};
use keelson_meta::{ApiError, Clock, Random};
use keelson_registry::{Caller, Target};
use keelson_resources::Verb;
use keelson_supervision::TurnsByOwner;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Level, Span, debug, debug_span, enabled};

use self::audit::RequestEvents;
pub use self::authentication::TokenAuthenticator;
pub use self::clients::{ClientConnection, WithoutCertificate};
pub use self::fan_out::{FanOut, PartOfRequest};
use self::flow_control::{Cost, Flow};
pub use self::flow_control::{FlowControl, FlowLimits};
pub(crate) use self::flow_control::{InitialSeats, LentSeats, has_long_query, is_copied};
use self::impersonation::Impersonation;
use self::long_work::LongWork;
pub use self::origins::AllowedOrigins;
pub(crate) use self::response_memory::take as kept_memory;
use self::seats_and_shares::{HeldMemory, holding};
use crate::body::{RequestBody, ResponseBody, empty};
use crate::health;
use crate::metrics::{Authentication, Filter, Metrics, Observation, ResourceNames, marked};
use crate::negotiation::{self, MediaType};
use crate::proxy::{Forwarded, HeldValue, PassThrough, Proxy, Remote};
use crate::request_info::{RequestInfo, RequestVerb};
use crate::request_query::RequestQuery;
use crate::respond;
use crate::router::Router;
use crate::service::ApiRequest;
use crate::shares::{Holder, Shares};
use crate::shutdown::{AdmittedRequest, Shutdown};

/// A complete response of at most this many bytes holds no seat while it is sent.
const SMALL_BYTES: u64 = 64 * 1024;

/// The `Retry-After` of a client whose user has used its share of connections, in seconds.
const RETRY_CONNECTION: u32 = 5;

/// The error text for a client certificate in front of another server.
const CERTIFICATE_NOT_PASSED: &str = "this request is passed on to another server, and a client certificate can't be passed on: use a bearer token, or \
     let this server impersonate the users of certificates";

/// Response extension: the request is a watch or session, without an end of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongRunning;

/// Response extension: flow control had no seat for the request.
#[derive(Clone, Copy, Debug)]
struct SeatRefused;

/// Response extension: the time that the request waited for webhooks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebhookTime(pub(crate) Duration);

/// The span and the way of a request, and facts about its user that are added to the response.
struct RequestFacts {
    span: Span,
    /// True if the server behind this one answers the request.
    is_passed_through: bool,
    /// Cancelled when the request must end, if it is a watch.
    stopping: CancellationToken,
    /// The flow of the request. Absent for requests that flow control ignores.
    flow: OnceLock<Arc<Flow>>,
    /// A warning about the credentials.
    warning: OnceLock<&'static str>,
    /// The user. Absent for requests with wrong credentials.
    holder: OnceLock<Holder>,
}

/// The server that answers a request.
enum Answerer {
    /// This server. The target is absent if the server does not serve the resource.
    Here(Option<Target>),
    /// An aggregated server, or a peer.
    Elsewhere(Remote),
}

/// Serves pages without authentication, by path. Returns `None` for any other path or method.
pub type OpenPages = fn(&str, &Parts) -> Option<Response<ResponseBody>>;

/// Finds the pipeline that answers for a path instead of this one, and the path there.
pub type Sites = Box<dyn Fn(&Uri) -> Option<(Arc<Pipeline>, Uri)> + Send + Sync>;

/// Answers requests of any connection.
pub struct Pipeline {
    router: Router,
    /// The pipelines of other servers, by path.
    sites: Option<Sites>,
    /// The answerers of requests that are for several pipelines.
    fan_outs: Vec<Arc<dyn FanOut>>,
    /// The server that this server stands in front of.
    pass_through: Option<PassThrough>,
    proxy: Option<Proxy>,
    certificates: Arc<dyn ClientCertificates>,
    tokens: Option<Arc<dyn TokenAuthenticator>>,
    /// Returns true for paths that allow requests without credentials.
    anonymous: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// The files of the console, if there is one.
    console: Option<OpenPages>,
    impersonation: Impersonation,
    authorizer: Arc<dyn Authorizer>,
    /// Writes the audit events. `None` without an audit policy.
    auditor: Option<Arc<Auditor>>,
    flow_control: FlowControl,
    long_work: LongWork,
    watches: Arc<Shares>,
    watches_elsewhere: Arc<Shares>,
    /// The users' shares of requests to kubelets, pods and services.
    node_sessions: Arc<Shares>,
    slow_bodies: Arc<Shares>,
    /// The header `Strict-Transport-Security` of responses.
    transport_security: Option<HeaderValue>,
    /// The origins whose pages may read responses.
    origins: Option<AllowedOrigins>,
    /// The longest time until the headers of a response.
    request_timeout: Duration,
    /// The share of HTTP/2 requests after which the connection gets GOAWAY.
    goaway_chance: f64,
    query_watches: TurnsByOwner,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    shutdown: Shutdown,
}

impl Pipeline {
    /// Answers one request.
    pub async fn answer(
        self: &Arc<Self>,
        client: &dyn ClientConnection,
        mut parts: Parts,
        body: RequestBody,
    ) -> Response<ResponseBody> {
        // SIZE: the filters of every request in order.
        if let Some(across) = self.fan_out(&parts) {
            return Box::pin(self.answer_by_parts(&**across, client, parts)).await;
        }
        if let Some((site, uri)) = self.sites.as_ref().and_then(|sites| sites(&parts.uri)) {
            parts.uri = uri;
            return Box::pin(site.answer(&WithoutCertificate(client), parts, body)).await;
        }
        let mut info = RequestInfo::parse(&parts.method, &parts.uri);
        let request_id = request_id::id_of_request(&parts.headers, self.random.as_ref());
        let (error_form, is_head) = (negotiation::error_form(&parts), parts.method == Method::HEAD);
        let answerer = self.answerer(&info, &parts);
        if let Answerer::Elsewhere(_) = &answerer {
            info = RequestInfo::parse_elsewhere(&parts.method, &parts.uri);
        }
        let is_watch_here = is_watch(&info) && matches!(answerer, Answerer::Here(_));
        let mut entered = match self.shutdown.enter(&info.path, info.is_long_running(), is_watch_here) {
            Ok(entered) => entered,
            Err(refused) => return browsers::confined(*refused),
        };
        let in_flight = entered.take_guard();
        let origin = self.origins.as_ref().and_then(|origins| origins.allowed(&parts.headers));
        if let Some(origin) = &origin
            && let Some(response) = origins::preflight(&parts.method)
        {
            return origins::readable(origin.clone(), browsers::confined(response));
        }
        let trail = self
            .auditor
            .as_ref()
            .map(|auditor| RequestEvents::begin(auditor, (&request_id, client.address()), &info, &parts));
        let is_passed_through = self.is_passed_through(client, &info, &parts);
        if self.may_be_passed_on(&answerer, &info) || is_passed_through {
            parts.headers.insert(request_id::AUDIT_ID, request_id.clone());
            // The task that takes over an upgraded connection also takes over the request.
            parts.extensions.insert(HeldValue::new(Arc::new((client.held(), trail.clone()))));
            parts.extensions.extend(seats_and_shares::with_address(client));
        }
        let (long_running, is_read) = (info.is_long_running(), info.verb.is_read());
        let span = spans::request(&info, &parts, &request_id);
        let logged = enabled!(Level::DEBUG)
            .then(|| (parts.method.clone(), parts.uri.path().to_owned(), client.address(), Instant::now()));
        let known = RequestFacts {
            span: span.clone(),
            is_passed_through,
            stopping: entered.stopping,
            flow: OnceLock::new(),
            warning: OnceLock::new(),
            holder: OnceLock::new(),
        };
        let served = match &answerer {
            Answerer::Here(target) => target.as_ref().map(ResourceNames::of_target),
            Answerer::Elsewhere(_) => None,
        };
        let mut observation = Observation::begin(&self.metrics, &info, &parts, served);
        if let Some(meter) = observation.watch_meter() {
            parts.extensions.insert(meter);
        }
        let is_token_ignored = client.identity().is_none() && bearer::is_set_off_too_far(&parts.headers);

        let asked = (info, answerer, trail.clone(), &known);
        let answer = pin!(self.run_filters(client, asked, parts, body, error_form));
        let answer = pin!(spans::within(span, answer));
        let answer = pin!(audit::followed(trail.as_deref(), answer));
        let outcome = panics::caught(answer, |text| trail.iter().for_each(|trail| trail.panicked(text))).await;
        let is_ended = matches!(&outcome, Err(ApiError::Timeout(_) | ApiError::ShareExceeded { .. }));
        let (mut response, holds) =
            outcome.unwrap_or_else(|error| (respond::error(&error, error_form), HeldMemory::default()));
        let holder = known.holder.get().copied().unwrap_or_else(Holder::unknown);
        response = response_memory::keeping(response, holder, is_read, error_form);
        self.note(&mut observation, &response, &holds, is_ended);
        if is_token_ignored {
            respond::add_warning(response.headers_mut(), bearer::IGNORED);
        }
        if let Some(warning) = known.warning.get() {
            respond::add_warning(response.headers_mut(), warning);
        }
        if let Some(trail) = trail.as_ref().filter(|trail| !trail.has_told(&response)) {
            response = Box::pin(trail.clone().answered(response)).await;
        }

        if long_running {
            response.extensions_mut().insert(LongRunning);
        }
        known.span.record("code", response.status().as_u16());
        if let Some((method, path, client, begun)) = logged {
            debug!(%method, path, ?client, code = response.status().as_u16(), latency = ?begun.elapsed(), "request");
        }
        observation.answered(response.status());
        observation.traced(&known.span);
        let passed_on = response.extensions().get::<Forwarded>().copied();
        if passed_on.is_none() {
            respond::bound_warnings(response.headers_mut());
        }
        let seats = if is_small(&response) { (holds.share, None) } else { holds.into_seats(passed_on.is_some()) };
        let response = if is_head { response.map(|_| empty()) } else { holding(response, observation, seats) };
        let mut response = browsers::confined(AdmittedRequest::holding(in_flight, response));
        if let Some(origin) = origin {
            response = origins::readable(origin, response);
        }
        if let Some(directives) = &self.transport_security {
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, directives.clone());
        }
        if passed_on.is_some_and(|passed_on| passed_on.as_it_is) {
            return response;
        }
        let response = request_id::stamped(without_caching(response), request_id);
        // A request of an unknown user has no flow.
        flow_control::marked(response, known.flow.get())
    }

    /// Returns true if another server or a node answers the request, or may do so when this server does not serve the
    /// path.
    fn may_be_passed_on(&self, answerer: &Answerer, info: &RequestInfo) -> bool {
        match answerer {
            Answerer::Elsewhere(_) => true,
            Answerer::Here(None) => self.proxy.is_some() && Proxy::may_be_elsewhere(&info.path),
            Answerer::Here(Some(_)) => info.is_session,
        }
    }

    /// Returns true if the server behind this one answers a request.
    fn is_passed_through(&self, client: &dyn ClientConnection, info: &RequestInfo, parts: &Parts) -> bool {
        if fan_out::is_part(parts) {
            return false;
        }
        // Access reviews do not show if the other server accepts unauthenticated requests.
        let is_anonymous = || {
            info.is_resource_request
                && authentication::identity_for(client.identity(), &parts.headers).is_none()
                && matches!(bearer::token(&parts.headers), Ok(None))
        };
        self.pass_through.as_ref().is_some_and(|other| other.takes(info, parts) || is_anonymous())
    }

    /// The user that this server names to the other one, if the only credential of a request is a client certificate. `None` if the
    /// other server can check the credentials of the request itself.
    ///
    /// # Errors
    /// 401 if the other server can't be shown the user.
    fn front_proxy_user(
        &self,
        client: &dyn ClientConnection,
        other: &PassThrough,
        headers: &HeaderMap,
    ) -> Result<Option<Arc<User>>, ApiError> {
        if PassThrough::has_credentials(headers) {
            return Ok(None);
        }
        let identity = authentication::identity_for(client.identity(), headers);
        let (Some(identity), now) = (identity, self.clock.now()) else { return Ok(None) };
        // As for other requests, the user that a front proxy names has precedence.
        let named = identity.asks_for_at(now).and_then(|fields| authentication::user_asked_for(fields, headers));
        let Some(user) = named.map(Arc::new).or_else(|| identity.user_at(now).cloned()) else { return Ok(None) };
        if !other.impersonates() {
            return Err(ApiError::UnauthorizedBecause(CERTIFICATE_NOT_PASSED.to_owned()));
        }
        Ok(Some(user))
    }

    /// The server that answers a request for a resource that this server does not know. It waits until the cache has
    /// all earlier writes, since the client may have read an APIService that this server has not received yet.
    async fn newest_answerer(&self, answerer: Answerer, info: &RequestInfo, parts: &Parts) -> Answerer {
        let Some(proxy) = self.proxy.as_ref().filter(|_| self.may_be_passed_on(&answerer, info)) else {
            return answerer;
        };
        let is_unknown = matches!(answerer, Answerer::Here(None)) && !self.router.serves(info);
        // Authorization used the attributes of the request. They must be the same if another server answers.
        if !is_unknown || RequestInfo::parse_elsewhere(&parts.method, &parts.uri) != *info {
            return answerer;
        }
        proxy.newest_remote(&info.path).await.map_or(answerer, Answerer::Elsewhere)
    }

    /// The server that answers: the aggregated server of the version, else this server, or a peer for a resource that
    /// only peers serve.
    fn answerer(&self, info: &RequestInfo, parts: &Parts) -> Answerer {
        let proxy = self.proxy.as_ref();
        if let Some(remote) = proxy.and_then(|proxy| proxy.remote(&info.path)) {
            return Answerer::Elsewhere(remote);
        }
        let target = self.router.target(info);
        if target.is_none()
            && info.is_resource_request
            && !self.router.serves(info)
            && let Some(remote) = proxy.and_then(|proxy| proxy.peer(info, &parts.headers))
        {
            return Answerer::Elsewhere(remote);
        }
        Answerer::Here(target)
    }

    /// Runs the filters that may refuse the request.
    async fn run_filters(
        self: &Arc<Self>,
        client: &dyn ClientConnection,
        (info, answerer, trail, known): (RequestInfo, Answerer, Option<Arc<RequestEvents>>, &RequestFacts),
        mut parts: Parts,
        mut body: RequestBody,
        error_form: MediaType,
    ) -> Result<(Response<ResponseBody>, HeldMemory), ApiError> {
        // SIZE: the filters that may refuse, in order.
        // The console comes before authentication, since its login page asks for credentials.
        if let Some(page) = self.console.and_then(|answer| answer(&info.path, &parts)) {
            return Ok((page, HeldMemory::default()));
        }
        if let Some(refused) = browsers::refused_worker(&parts.headers, &info.path, error_form) {
            return Ok((refused, HeldMemory::default()));
        }
        let limit = time_limit::request_timeout(&info, &parts, self.request_timeout)?;
        if let Some(other) = self.pass_through.as_ref().filter(|_| known.is_passed_through) {
            let user = self.front_proxy_user(client, other, &parts.headers)?;
            let response = Box::pin(other.pass(&info, user.as_deref(), parts, body, known.stopping.clone())).await;
            return Ok((response, HeldMemory::default()));
        }
        let time = limit.unwrap_or(self.request_timeout);
        let begun = Instant::now();
        let deadline = limit.map(|limit| begun + limit);
        let answered = pin!(async {
            let user = self.permitted_user(client, &info, &parts, trail.as_deref(), known);
            let user = match deadline {
                Some(_) => user.await,
                // A watch has no time limit, but its authentication has the limit of other requests.
                None => time_limit::within(Some(begun + time), pin!(user)).await?,
            };
            let user = match user {
                Err(refusal @ (ApiError::Forbidden(_) | ApiError::BadRequest(_))) => {
                    return Ok((respond::forbidden(&refusal, error_form), HeldMemory::default()));
                }
                user => user?,
            };
            let audit = trail.as_deref().map(RequestEvents::record).cloned().unwrap_or_default();
            drop(trail);
            audit::prepare(&audit, &mut parts.headers);
            let query = RequestQuery::parse(&info, &parts.uri);
            let holder = Holder::of_user(&user);
            let share = self.share_of(holder, &answerer, (&info, &parts, &query))?;
            let asking = (&user, time, known.flow.get());
            let span = debug_span!("flow control");
            let seats =
                spans::within(span, pin!(self.seats_for(asking, &answerer, (&info, &parts, &query), &mut body)))
                    .await?;
            let (cost, seats) = match seats {
                Ok(seats) => seats,
                Err(seconds) => return Ok::<_, ApiError>((without_seat(seconds), HeldMemory::default())),
            };
            let mut holds = HeldMemory { seats, initial: None, share };
            if info.is_long_running()
                && let Some(seats) = holds.seats.take().map(LentSeats::new)
            {
                parts.extensions.insert(InitialSeats::new(seats.clone()));
                holds.initial = Some(seats);
            }
            if is_watch(&info) && query.is_extended() {
                parts.extensions.insert(self.query_watches.turns(holder.flow));
            }
            if let (Some(share), Some(held)) = (&holds.share, parts.extensions.remove::<HeldValue>()) {
                parts.extensions.insert(HeldValue::new(Arc::new((held, share.clone()))));
            }
            let caller = Caller::new(user, self.authorizer.clone()).until(deadline).audited_in(audit);
            let stopping = known.stopping.clone();
            let request = Box::new(ApiRequest { info, parts, query, body, caller, error_form, stopping });
            let answerer = self.newest_answerer(answerer, &request.info, &request.parts).await;
            let response = match (answerer, &self.proxy) {
                (Answerer::Elsewhere(remote), Some(proxy)) => Box::pin(proxy.pass_on(remote, request)).await,
                (Answerer::Here(target), _) => self.route(request, target, (cost, holder)).await,
                (Answerer::Elsewhere(_), None) => respond::no_such_page(),
            };
            Ok((response, holds))
        });
        let (response, holds) = time_limit::within(deadline, answered).await??;
        Ok((time_limit::watched(limit, response), holds))
    }

    /// Authenticates, impersonates and authorizes. Records the user of the request after impersonation.
    async fn permitted_user(
        &self,
        client: &dyn ClientConnection,
        info: &RequestInfo,
        parts: &Parts,
        trail: Option<&RequestEvents>,
        known: &RequestFacts,
    ) -> Result<Arc<User>, ApiError> {
        let tokens = self.tokens.as_deref();
        let identity = authentication::identity_for(client.identity(), &parts.headers);
        let (begun, metrics) = (Instant::now(), self.metrics.access());
        let now = self.clock.now();
        if let Some(identity) = identity.as_deref().filter(|identity| identity.user_at(now).is_some()) {
            metrics.note_client_certificate(identity.not_after().duration_since(now).unwrap_or_default());
        }
        let user = pin!(authentication::user(identity.as_deref(), tokens, &parts.headers, now));
        let user = spans::within(debug_span!("authentication"), user).await;
        let is_refused = user.as_ref().is_ok_and(|(user, _)| user.is_anonymous() && !(self.anonymous)(&info.path));
        let result = match &user {
            Err(_) => Authentication::Error,
            Ok(_) if is_refused => Authentication::Failure,
            Ok(_) => Authentication::Success,
        };
        let mut begun_next = Instant::now();
        metrics.note_authentication(result, begun_next.duration_since(begun));
        let (user, warning) = user?;
        if let Some(warning) = warning {
            let _ = known.warning.set(warning);
        }
        if is_refused {
            return Err(ApiError::Unauthorized);
        }
        metrics.note_user(&user.name);
        spans::authenticated(&known.span, &user);
        let is_counted = user.is_in(UNAUTHENTICATED) || client.is_of(&user);
        let audit = match trail {
            Some(trail) => {
                let record = trail.known(&user).await?;
                let begun = std::mem::replace(&mut begun_next, Instant::now());
                self.metrics.filter_times().note(Filter::Audit, begun_next.duration_since(begun));
                record
            }
            None => &AuditRecord::default(),
        };
        if !is_counted && (info.is_resource_request || !health::is_health_path(&info.path)) {
            let message = "too many connections: the user has its share, and requests are under way on all of them";
            return Err(ApiError::ShareExceeded { message: message.to_owned(), retry_after_seconds: RETRY_CONNECTION });
        }
        let client = user.clone();
        let acting = self.impersonation.acting_as(user, &parts.headers, (info, &parts.uri), &*self.authorizer);
        let (user, constraint) = acting.await?;
        if !Arc::ptr_eq(&user, &client) {
            self.metrics.filter_times().note(Filter::Impersonation, begun_next.elapsed());
            audit.impersonates(&user, constraint);
        }
        known.span.record("user", user.name.as_str());
        let _ = known.holder.set(Holder::of_user(&user));
        if let Some(part) = parts.extensions.get::<PartOfRequest>() {
            part.is_of(&user);
        }
        if let Some(flow) = self.flow_control.classify(&user, info) {
            let _ = known.flow.set(flow);
        }
        let span = debug_span!("authorization");
        let (uri, authorizer) = (&parts.uri, &*self.authorizer);
        spans::within(span, pin!(authorization::permit(&user, info, uri, authorizer, audit, metrics))).await?;
        Ok(user)
    }

    /// Records the time that a request waited for seats and webhooks, and whether the server ended it to protect
    /// itself.
    fn note(
        &self,
        observation: &mut Observation,
        response: &Response<ResponseBody>,
        holds: &HeldMemory,
        is_ended: bool,
    ) {
        if is_ended || response.extensions().get::<SeatRefused>().is_some() {
            observation.terminated(response.status());
        }
        if let Some(seats) = &holds.seats {
            observation.waited(seats.waited());
            self.metrics.filter_times().note(Filter::PriorityAndFairness, seats.waited());
        }
        if let Some(WebhookTime(time)) = response.extensions().get() {
            observation.waited(*time);
        }
    }

    async fn route(
        self: &Arc<Self>,
        request: Box<ApiRequest>,
        target: Option<Target>,
        (cost, holder): (Cost, Holder),
    ) -> Response<ResponseBody> {
        if !cost.is_long {
            let mark = self.metrics.edge().marks().map(|marks| marks.of_verb(&request.info.verb));
            return marked(mark, pin!(self.router.route(request, target))).await;
        }
        let pipeline = self.clone();
        let work = async move {
            if let Some(table) = flow_control::dump(&pipeline.flow_control, &request.info.path, &request.parts) {
                return table;
            }
            pipeline.router.route(request, target).await
        };
        // Boxed, since few requests come here, and the others would carry the size of this future too.
        Box::pin(self.long_work.run(holder, work.in_current_span())).await
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("router", &self.router).finish_non_exhaustive()
    }
}

fn is_watch(info: &RequestInfo) -> bool {
    info.verb == RequestVerb::Resource(Verb::Watch)
}

/// Returns true for a complete response that is so short that it needs no seat while it is sent.
fn is_small(response: &Response<ResponseBody>) -> bool {
    response.body().size_hint().exact().is_some_and(|bytes| bytes <= SMALL_BYTES)
}

/// The 429 response to a request that got no seat.
fn without_seat(retry_after_seconds: u32) -> Response<ResponseBody> {
    let mut refused = respond::overloaded(retry_after_seconds);
    refused.extensions_mut().insert(SeatRefused);
    refused
}

/// Forbids caching, unless a handler set `Cache-Control`: a response is for one moment and one user.
fn without_caching(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let default = HeaderValue::from_static("no-cache, private");
    response.headers_mut().entry(CACHE_CONTROL).or_insert(default);
    response
}
