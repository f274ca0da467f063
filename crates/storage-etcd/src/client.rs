//! Calls to etcd: the choice of the member, credentials, timeouts and repeats.
//!
//! This module knows connections, but no keys. A call that may have reached etcd is repeated only if it changes
//! nothing, so no write happens twice. Every call ends within the configured time, and soon if its member stops
//! answering. After the first failure of a member, calls use another one, whatever the outcome of the failed call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use keelson_supervision::warn_repeated;
use prost::Message;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::codec::{CompressionEncoding, Streaming};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tracing::{Instrument as _, debug_span};

use crate::config::{EtcdConfig, Order};
use crate::connect;
use crate::error::{Failure, OpenError};
use crate::login::{Session, Token};
use crate::member::{Health, Lost, Member};
use crate::proto;
use crate::version::EtcdVersion;

/// The maximum size of a response, in bytes. Pages are far smaller, except for one with a few very large objects.
const LARGEST_ANSWER: usize = 1 << 30;
/// The time limit of a status request. A working member answers it without the other members.
const LIFE_SIGN: Duration = Duration::from_millis(1500);
/// The first backoff after no member has answered. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// The maximum of these backoffs.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The number of attempts that share the time of a call. An attempt on a member that hangs must leave time for another
/// one.
const SHARES: u32 = 3;
/// The maximum number of token renewals in one call. A member that lags may not know the newest token yet.
const RENEWALS: u32 = 2;
/// The maximum number of queued requests of a watch stream.
const WATCH_REQUESTS: usize = 64;

/// A method of etcd's API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    path: &'static str,
    /// True if repeating the call has no further effect.
    repeats: bool,
}

pub(crate) const RANGE: Method = Method::new("/etcdserverpb.KV/Range", true);
pub(crate) const TXN: Method = Method::new("/etcdserverpb.KV/Txn", false);
/// A read-only transaction.
pub(crate) const READ_TXN: Method = Method::new("/etcdserverpb.KV/Txn", true);
pub(crate) const PUT: Method = Method::new("/etcdserverpb.KV/Put", false);
pub(crate) const COMPACT: Method = Method::new("/etcdserverpb.KV/Compact", true);
pub(crate) const LEASE_GRANT: Method = Method::new("/etcdserverpb.Lease/LeaseGrant", true);
pub(crate) const LEASE_REVOKE: Method = Method::new("/etcdserverpb.Lease/LeaseRevoke", true);
pub(crate) const LEASE_TIME_TO_LIVE: Method = Method::new("/etcdserverpb.Lease/LeaseTimeToLive", true);
pub(crate) const LEASE_LEASES: Method = Method::new("/etcdserverpb.Lease/LeaseLeases", true);
const STATUS: Method = Method::new("/etcdserverpb.Maintenance/Status", true);
const AUTHENTICATE: Method = Method::new("/etcdserverpb.Auth/Authenticate", true);
const WATCH: &str = "/etcdserverpb.Watch/Watch";

impl Method {
    const fn new(path: &'static str, repeats: bool) -> Self {
        Self { path, repeats }
    }
}

/// Counts of the connection to etcd, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EtcdStats {
    /// Repeated calls, on the same member or another.
    pub retries: u64,
    /// Switches to another member.
    pub failovers: u64,
    /// Logins, including the first one.
    pub logins: u64,
    /// Opened watches, including the first ones.
    pub watches_opened: u64,
    /// Watches that broke or fell silent.
    pub watches_broken: u64,
    /// Requests for the progress of watches.
    pub progress_requests: u64,
    /// Writes of a key that only cause an event, for an etcd whose progress reports are unreliable.
    pub ticks: u64,
    /// True from the time when etcd refuses a put for lack of space until it accepts one.
    pub full: bool,
}

/// The counters. Readers may keep them after the store is dropped.
#[derive(Debug, Default)]
pub struct EtcdCounters {
    pub(crate) retries: AtomicU64,
    pub(crate) failovers: AtomicU64,
    pub(crate) logins: AtomicU64,
    pub(crate) watches_opened: AtomicU64,
    pub(crate) watches_broken: AtomicU64,
    pub(crate) progress_requests: AtomicU64,
    pub(crate) ticks: AtomicU64,
    pub(crate) full: AtomicBool,
}

impl EtcdCounters {
    /// The current values.
    pub fn read(&self) -> EtcdStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EtcdStats {
            retries: of(&self.retries),
            failovers: of(&self.failovers),
            logins: of(&self.logins),
            watches_opened: of(&self.watches_opened),
            watches_broken: of(&self.watches_broken),
            progress_requests: of(&self.progress_requests),
            ticks: of(&self.ticks),
            full: self.full.load(Ordering::Relaxed),
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// All members, and the index of the one in use.
pub(crate) struct Client {
    members: Vec<Member>,
    current: AtomicUsize,
    session: Option<Session>,
    timeout: Duration,
    compression: bool,
    counters: Arc<EtcdCounters>,
    /// The number of connections so far. A new connection may lead to an etcd with other content.
    connections: Arc<AtomicU64>,
    /// The number of failed members and watches so far.
    losses: AtomicU64,
}

/// An open stream with watches.
pub(crate) struct WatchStream {
    pub(crate) requests: mpsc::Sender<proto::WatchRequest>,
    pub(crate) responses: Streaming<proto::WatchResponse>,
    /// The version of its member, if known.
    pub(crate) version: Option<EtcdVersion>,
    /// The index of its member in the list of members.
    pub(crate) place: usize,
    /// Changes when the member is given up.
    pub(crate) life: watch::Receiver<u64>,
}

impl Client {
    /// Prepares the connections. The first call opens them.
    pub(crate) fn new(config: &EtcdConfig, counters: Arc<EtcdCounters>) -> Result<Self, OpenError> {
        let connections = Arc::<AtomicU64>::default();
        let members = connect::members(config, &connections)?;
        let first = match config.order {
            Order::Given => 0,
            Order::Any => usize::try_from(config.random.u64() % members.len().max(1) as u64).unwrap_or(0),
        };
        Ok(Self {
            members,
            current: AtomicUsize::new(first),
            session: config.login.clone().map(Session::new),
            timeout: config.timeout,
            compression: config.compression,
            counters,
            connections,
            losses: AtomicU64::new(0),
        })
    }

    /// Makes a call. After a failure, repeats it on another member if the method allows repeats or nothing was sent.
    pub(crate) async fn call<Q, A>(&self, method: Method, request: Q) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let deadline = Instant::now() + self.timeout;
        let (mut wait, mut renewals, mut failed) = (FIRST_WAIT, RENEWALS, 0);
        loop {
            let place = self.current.load(Ordering::Relaxed);
            let share = if method.repeats { self.timeout / SHARES } else { self.timeout };
            let end = deadline.min(Instant::now() + share);
            let token = self.token(method);
            let failure = match self.try_once(place, method, request.clone(), &token, end).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match &failure {
                Failure::TokenEnded if renewals > 0 && self.session.is_some() => {
                    renewals -= 1;
                    let renewed = timeout_at(deadline, self.renew(&token)).await;
                    renewed.unwrap_or_else(|_| Err(Failure::timed_out("etcd")))?;
                    continue;
                }
                Failure::Unavailable { cause, sent } => {
                    self.turn_from(place, cause);
                    if *sent && !method.repeats {
                        return Err(failure);
                    }
                }
                _ => return Err(failure),
            }
            failed += 1;
            let pause = if failed % self.members.len() == 0 { wait } else { Duration::ZERO };
            if Instant::now() + pause >= deadline {
                return Err(failure);
            }
            count(&self.counters.retries);
            if !pause.is_zero() {
                sleep(pause).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }

    /// The status of the member in use.
    pub(crate) async fn status(&self) -> Result<proto::StatusResponse, Failure> {
        self.call(STATUS, proto::StatusRequest {}).await
    }

    /// Opens a stream with its first watch.
    pub(crate) async fn watch(&self, create: proto::WatchCreateRequest) -> Result<WatchStream, Failure> {
        if self.session.is_some() {
            // A watch reports an expired token only as a missing permission. A read reports it precisely.
            let request = proto::RangeRequest { key: create.key.clone(), count_only: true, ..Default::default() };
            let _: proto::RangeResponse = self.call(RANGE, request).await?;
        }
        let place = self.current.load(Ordering::Relaxed);
        let opened = self.attend(place, Instant::now() + self.timeout, self.try_watch(place, create)).await;
        match &opened {
            Ok(_) => count(&self.counters.watches_opened),
            Err(Failure::Unavailable { cause, .. }) => self.turn_from(place, cause),
            Err(_) => {}
        }
        opened
    }

    /// Returns true if the member answers on the connection for watches. Otherwise the next watch opens a new
    /// connection.
    pub(crate) async fn watches_live(&self, place: usize) -> bool {
        let member = &self.members[place];
        let lives = self.look(member.watches()).await != Health::Gone;
        if !lives {
            member.renew_watches();
        }
        lives
    }

    /// Switches to another member, unless another caller has done so already.
    pub(crate) fn turn_from(&self, place: usize, cause: &str) {
        self.members[place].complain(cause);
        self.interrupted();
        let next = (place + 1) % self.members.len();
        if next == place {
            return;
        }
        if self.current.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            count(&self.counters.failovers);
            let (from, to) = (&self.members[place].endpoint, &self.members[next].endpoint);
            warn_repeated!(to; %from, %to, %cause, "turning to another etcd member");
        }
    }

    /// Counts an interruption. After it, etcd may have other content.
    pub(crate) fn interrupted(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of connections opened so far.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// The number of interruptions so far. After each, etcd may have other content.
    pub(crate) fn interruptions(&self) -> u64 {
        self.connections() + self.losses.load(Ordering::Acquire)
    }

    /// The time limit of a call.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// All endpoints, for messages.
    pub(crate) fn endpoints(&self) -> String {
        let names: Vec<&str> = self.members.iter().map(|member| member.endpoint.as_str()).collect();
        names.join(", ")
    }

    /// The reason for which no member answers: the last failure of each if there are several members, otherwise
    /// `cause`.
    pub(crate) fn complaints(&self, cause: String) -> String {
        let told = |member: &Member| Some(format!("{} says {}", member.endpoint, member.complaint()?));
        let all: Vec<String> = self.members.iter().filter_map(told).collect();
        if self.members.len() > 1 && !all.is_empty() { all.join("; ") } else { cause }
    }

    pub(crate) fn counters(&self) -> &Arc<EtcdCounters> {
        &self.counters
    }

    /// Logs in for the first time.
    pub(crate) async fn log_in(&self) -> Result<(), Failure> {
        self.renew(&Token::default()).await
    }

    /// Logs in, unless another caller has renewed the expired token already. The future is boxed, since a login is a
    /// call, which may itself renew a token.
    fn renew<'a>(&'a self, ended: &'a Token) -> BoxFuture<'a, Result<(), Failure>> {
        let log_in = move |request| async move {
            let answer: proto::AuthenticateResponse = match self.call(AUTHENTICATE, request).await {
                Ok(answer) => answer,
                // Users may be configured before authentication is enabled in etcd.
                Err(Failure::Refused(cause)) if cause.contains("authentication is not enabled") => return Ok(None),
                Err(failure) => return Err(failure),
            };
            count(&self.counters.logins);
            Ok(Some(answer.token))
        };
        async move {
            let Some(session) = &self.session else { return Ok(()) };
            session.renew(ended, log_in).await
        }
        .boxed()
    }

    /// The token for a method. A login has none, since etcd refuses even a login with an expired token.
    fn token(&self, method: Method) -> Token {
        let session = self.session.as_ref().filter(|_| method.path != AUTHENTICATE.path);
        session.map(Session::token).unwrap_or_default()
    }

    async fn try_once<Q, A>(
        &self,
        place: usize,
        method: Method,
        request: Q,
        token: &Token,
        end: Instant,
    ) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let sent = AtomicBool::new(false);
        let call = async {
            let mut service = self.service(self.members[place].calls());
            ready(&mut service).await?;
            sent.store(true, Ordering::Relaxed);
            let path = PathAndQuery::from_static(method.path);
            let answer = service.unary(addressed(request, token), path, ProstCodec::<Q, A>::default()).await;
            answer.map(tonic::Response::into_inner).map_err(Failure::from)
        };
        let span = debug_span!("etcd call", method = method.path, member = self.members[place].endpoint.as_str());
        match self.attend(place, end, call).instrument(span).await {
            Err(Failure::Unavailable { cause, sent: true }) if !sent.load(Ordering::Relaxed) => {
                Err(Failure::Unavailable { cause, sent: false })
            }
            other => other,
        }
    }

    /// Waits for the answer of a member, until `end` or until the member has stopped answering.
    async fn attend<T>(
        &self,
        place: usize,
        end: Instant,
        failure: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let member = &self.members[place];
        let look = || self.look(member.calls());
        tokio::select! {
            biased;
            answer = failure => answer,
            lost = member.until_lost(look) => {
                let cause = match lost {
                    Lost::Member => format!("{} hangs, or has lost the others", member.endpoint),
                    Lost::Leader => format!("{} has another leader now, and the answer of the last one is lost", member.endpoint),
                };
                Err(Failure::Unavailable { cause, sent: true })
            }
            () = sleep_until(end) => Err(Failure::timed_out(&member.endpoint)),
        }
    }

    async fn try_watch(&self, place: usize, create: proto::WatchCreateRequest) -> Result<WatchStream, Failure> {
        let member = &self.members[place];
        let life = member.life();
        let version = match self.status_of(member.watches()).await {
            Ok(status) => EtcdVersion::parse(&status.version),
            Err(failure @ Failure::Unavailable { .. }) => return Err(failure),
            // Without permission, the version is unknown.
            Err(_) => None,
        };
        let mut service = self.service(member.watches());
        ready(&mut service).await?;
        let (mut requests, receiver) = mpsc::channel(WATCH_REQUESTS);
        // The request is queued first, since etcd sends nothing, not even headers, before it has read the first
        // request.
        requests.try_send(proto::WatchAsk::Create(create).into()).map_err(|_| full())?;
        let request = addressed(receiver, &self.token(RANGE));
        let codec = ProstCodec::<proto::WatchRequest, proto::WatchResponse>::default();
        let responses = service.streaming(request, PathAndQuery::from_static(WATCH), codec).await?.into_inner();
        Ok(WatchStream { requests, responses, version, place, life })
    }

    async fn look(&self, channel: Channel) -> Health {
        match timeout(LIFE_SIGN, self.status_of(channel)).await {
            Ok(Ok(status)) if status.leader == 0 => Health::Leaderless,
            // An answer with an error also shows that the member works.
            Ok(answer) => Health::Well { term: answer.map_or(0, |status| status.raft_term) },
            Err(_) => Health::Gone,
        }
    }

    /// The status of a member, which answers without the other members.
    async fn status_of(&self, channel: Channel) -> Result<proto::StatusResponse, Failure> {
        let mut service = self.service(channel);
        ready(&mut service).await?;
        let codec = ProstCodec::<proto::StatusRequest, proto::StatusResponse>::default();
        let mut request = Request::new(proto::StatusRequest {});
        identify(&mut request, &self.token(STATUS));
        let answer = service.unary(request, PathAndQuery::from_static(STATUS.path), codec).await;
        answer.map(tonic::Response::into_inner).map_err(Failure::from)
    }

    fn service(&self, channel: Channel) -> Grpc<Channel> {
        let service = Grpc::new(channel).max_decoding_message_size(LARGEST_ANSWER);
        if self.compression {
            service.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip)
        } else {
            service
        }
    }
}

/// Creates a request that only members with a leader accept. A member without a leader refuses it at once or ends the
/// stream. Otherwise the request could stay without an answer.
fn addressed<T>(message: T, token: &Token) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    identify(&mut request, token);
    if let Some(context) = keelson_telemetry::current()
        && let Ok(value) = MetadataValue::try_from(context.to_string())
    {
        request.metadata_mut().insert("traceparent", value);
    }
    request
}

fn identify<T>(request: &mut Request<T>, token: &Token) {
    if let Some(token) = token.value.clone() {
        request.metadata_mut().insert("token", token);
    }
}

/// Waits until the connection accepts a request. If this fails, nothing was sent.
async fn ready(service: &mut Grpc<Channel>) -> Result<(), Failure> {
    service.ready().await.map_err(|error| match Failure::from(Status::from_error(Box::new(error))) {
        Failure::Unavailable { cause, .. } => Failure::Unavailable { cause, sent: false },
        other => other,
    })
}

/// The failure of a watch whose request queue is full.
pub(crate) fn full() -> Failure {
    Failure::Unavailable { cause: "the watch's requests are stuck".to_owned(), sent: true }
}
