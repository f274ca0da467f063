//! Calls to etcd: which member, as whom, how long, and what may be asked twice.
//!
//! Knows connections and nothing of keys. A call that may have reached etcd is repeated only if it changes nothing, so that
//! no write is done twice. Every call ends within the configured time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::channel::mpsc;
use http::uri::PathAndQuery;
use parking_lot::RwLock;
use prost::Message;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::codec::{CompressionEncoding, Streaming};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::config::{EtcdConfig, Login};
use crate::connect;
use crate::error::{Failure, OpenError};
use crate::proto;
use crate::version::EtcdVersion;

/// The largest answer that is taken, in bytes. Pages are kept far below; one that holds a few very large objects is not.
const LARGEST_ANSWER: usize = 1 << 30;
/// The wait before the first repetition. Each further one takes twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// The longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How many tries of a call share its time: a member that hangs must leave some for another.
const SHARES: u32 = 3;
/// How many requests of one watch may wait to be sent.
const WATCH_REQUESTS: usize = 8;

/// One call of etcd's API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    path: &'static str,
    /// Whether doing it twice is the same as doing it once.
    repeats: bool,
}

pub(crate) const RANGE: Method = Method::new("/etcdserverpb.KV/Range", true);
pub(crate) const TXN: Method = Method::new("/etcdserverpb.KV/Txn", false);
/// A transaction that only reads.
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

/// What happened on the way to etcd, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EtcdStats {
    /// Calls that were tried again, on this member or the next.
    pub retries: u64,
    /// How often another member was turned to.
    pub failovers: u64,
    /// How often the user's token was fetched, the first time included.
    pub logins: u64,
    /// Watches that were opened, the first ones included.
    pub watches_opened: u64,
    /// Watches that broke or fell silent.
    pub watches_broken: u64,
    /// Progress that was asked for.
    pub progress_requests: u64,
    /// Keys that were written only to make an event, for an etcd whose progress reports can't be believed.
    pub ticks: u64,
}

/// The counters themselves, which outlive the store for whoever reads them.
#[derive(Debug, Default)]
pub struct EtcdCounters {
    pub(crate) retries: AtomicU64,
    pub(crate) failovers: AtomicU64,
    pub(crate) logins: AtomicU64,
    pub(crate) watches_opened: AtomicU64,
    pub(crate) watches_broken: AtomicU64,
    pub(crate) progress_requests: AtomicU64,
    pub(crate) ticks: AtomicU64,
}

impl EtcdCounters {
    /// What they say now.
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
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The connections to one member. A watch has its own, so that a long answer does not stand before its events.
pub(crate) struct Member {
    pub(crate) endpoint: String,
    pub(crate) calls: Channel,
    pub(crate) watches: Channel,
}

/// All members, and the one that is used now.
pub(crate) struct Client {
    members: Vec<Member>,
    current: AtomicUsize,
    login: Option<Login>,
    token: RwLock<Option<MetadataValue<Ascii>>>,
    timeout: Duration,
    compression: bool,
    counters: Arc<EtcdCounters>,
}

/// An open stream of watches.
pub(crate) struct WatchStream {
    pub(crate) requests: mpsc::Sender<proto::WatchRequest>,
    pub(crate) responses: Streaming<proto::WatchResponse>,
    /// What the member that serves it said it is, if it said so.
    pub(crate) version: Option<EtcdVersion>,
}

impl Client {
    /// Prepares connections; the first call makes them.
    pub(crate) fn new(config: &EtcdConfig, counters: Arc<EtcdCounters>) -> Result<Self, OpenError> {
        Ok(Self {
            members: connect::members(config)?,
            current: AtomicUsize::new(0),
            login: config.login.clone(),
            token: RwLock::new(None),
            timeout: config.timeout,
            compression: config.compression,
            counters,
        })
    }

    /// Makes a call, on another member when this one fails and the call may be repeated.
    pub(crate) async fn call<Q, A>(&self, method: Method, request: Q) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let deadline = Instant::now() + self.timeout;
        let mut wait = FIRST_WAIT;
        let mut may_log_in = self.login.is_some() && method.path != AUTHENTICATE.path;
        loop {
            let place = self.current.load(Ordering::Relaxed);
            let share = if method.repeats { self.timeout / SHARES } else { self.timeout };
            let end = deadline.min(Instant::now() + share);
            let failure = match self.try_once(place, method, request.clone(), end).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match &failure {
                Failure::TokenEnded if may_log_in => {
                    may_log_in = false;
                    timeout_at(deadline, self.log_in()).await.unwrap_or_else(|_| Err(Failure::timed_out("etcd")))?;
                    continue;
                }
                Failure::Unavailable { cause, sent } if method.repeats || !sent => self.turn_from(place, cause),
                _ => return Err(failure),
            }
            if Instant::now() + wait >= deadline {
                return Err(failure);
            }
            count(&self.counters.retries);
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Asks the member in use what it is.
    pub(crate) async fn status(&self) -> Result<proto::StatusResponse, Failure> {
        self.call(STATUS, proto::StatusRequest {}).await
    }

    /// Opens a stream with its first watch.
    pub(crate) async fn watch(&self, create: proto::WatchCreateRequest) -> Result<WatchStream, Failure> {
        if self.login.is_some() {
            // A watch does not say that the token has ended, only that it may not watch; a read says it.
            let request = proto::RangeRequest { key: create.key.clone(), count_only: true, ..Default::default() };
            let _: proto::RangeResponse = self.call(RANGE, request).await?;
        }
        let place = self.current.load(Ordering::Relaxed);
        let opened = timeout(self.timeout, self.try_watch(place, create)).await;
        let opened = opened.unwrap_or_else(|_| Err(Failure::timed_out(&self.members[place].endpoint)));
        match &opened {
            Ok(_) => count(&self.counters.watches_opened),
            Err(Failure::Unavailable { cause, .. }) => self.turn_from(place, cause),
            Err(_) => {}
        }
        opened
    }

    /// Uses another member from now on, unless that has happened already: this one is of no use.
    pub(crate) fn turn_from_current(&self, cause: &str) {
        self.turn_from(self.current.load(Ordering::Relaxed), cause);
    }

    /// All endpoints, for texts.
    pub(crate) fn endpoints(&self) -> String {
        let names: Vec<&str> = self.members.iter().map(|member| member.endpoint.as_str()).collect();
        names.join(", ")
    }

    pub(crate) fn counters(&self) -> &Arc<EtcdCounters> {
        &self.counters
    }

    /// Fetches the token that shows who we are.
    pub(crate) async fn log_in(&self) -> Result<(), Failure> {
        let Some(login) = &self.login else { return Ok(()) };
        let request = proto::AuthenticateRequest { name: login.user.clone(), password: login.password.clone() };
        let answer: Result<proto::AuthenticateResponse, Failure> = Box::pin(self.call(AUTHENTICATE, request)).await;
        let token = match answer {
            Ok(answer) => answer.token,
            // Users may be configured before etcd is told to ask for them.
            Err(Failure::Refused(cause)) if cause.contains("authentication is not enabled") => return Ok(()),
            Err(failure) => return Err(failure),
        };
        count(&self.counters.logins);
        let token = token.parse().map_err(|_| Failure::Nonsense("etcd gave a token with odd characters".to_owned()))?;
        *self.token.write() = Some(token);
        Ok(())
    }

    async fn try_once<Q, A>(&self, place: usize, method: Method, request: Q, end: Instant) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let member = &self.members[place];
        let call = async {
            let mut service = self.service(member.calls.clone());
            ready(&mut service).await?;
            // etcd refuses even a login that comes with a token of before.
            let request = if method.path == AUTHENTICATE.path { Request::new(request) } else { self.request(request) };
            let path = PathAndQuery::from_static(method.path);
            let answer = service.unary(request, path, ProstCodec::<Q, A>::default()).await;
            answer.map(tonic::Response::into_inner).map_err(Failure::from)
        };
        timeout_at(end, call).await.unwrap_or_else(|_| Err(Failure::timed_out(&member.endpoint)))
    }

    async fn try_watch(&self, place: usize, create: proto::WatchCreateRequest) -> Result<WatchStream, Failure> {
        let member = &self.members[place];
        let version = self.version_of(member).await?;
        let mut service = self.service(member.watches.clone());
        ready(&mut service).await?;
        let (mut requests, receiver) = mpsc::channel(WATCH_REQUESTS);
        // etcd answers nothing, not even headers, before it has read the first request.
        requests.try_send(proto::WatchAsk::Create(create).into()).map_err(|_| full())?;
        let mut request = self.request(receiver);
        // A member that is cut off from the others ends the stream rather than leaving it without events.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let codec = ProstCodec::<proto::WatchRequest, proto::WatchResponse>::default();
        let responses = service.streaming(request, PathAndQuery::from_static(WATCH), codec).await?.into_inner();
        Ok(WatchStream { requests, responses, version })
    }

    async fn version_of(&self, member: &Member) -> Result<Option<EtcdVersion>, Failure> {
        let mut service = self.service(member.watches.clone());
        ready(&mut service).await?;
        let codec = ProstCodec::<proto::StatusRequest, proto::StatusResponse>::default();
        let request = self.request(proto::StatusRequest {});
        match service.unary(request, PathAndQuery::from_static(STATUS.path), codec).await.map_err(Failure::from) {
            Ok(status) => Ok(EtcdVersion::parse(&status.into_inner().version)),
            Err(failure @ Failure::Unavailable { .. }) => Err(failure),
            // Who may not ask believes nothing.
            Err(_) => Ok(None),
        }
    }

    fn service(&self, channel: Channel) -> Grpc<Channel> {
        let service = Grpc::new(channel).max_decoding_message_size(LARGEST_ANSWER);
        if self.compression {
            service.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip)
        } else {
            service
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = self.token.read().clone() {
            request.metadata_mut().insert("token", token);
        }
        request
    }

    fn turn_from(&self, place: usize, cause: &str) {
        let next = (place + 1) % self.members.len();
        if next == place {
            return;
        }
        if self.current.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            count(&self.counters.failovers);
            let (from, to) = (&self.members[place].endpoint, &self.members[next].endpoint);
            tracing::warn!(%from, %to, %cause, "turning to another etcd member");
        }
    }
}

/// Waits until the connection can take a request. A failure here means that nothing was sent.
async fn ready(service: &mut Grpc<Channel>) -> Result<(), Failure> {
    service.ready().await.map_err(|error| match Failure::from(Status::from_error(Box::new(error))) {
        Failure::Unavailable { cause, .. } => Failure::Unavailable { cause, sent: false },
        other => other,
    })
}

/// A watch's requests can't be sent as fast as they come.
pub(crate) fn full() -> Failure {
    Failure::Unavailable { cause: "the watch's requests are stuck".to_owned(), sent: true }
}
