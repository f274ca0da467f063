//! Connections: made, set up, and made again when they break, with growing pauses and an end to patience.
//!
//! A read that meets a broken connection is asked again on a new one. A write is not before it is known what became of it
//! (`unknown.rs`).

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{try_join, try_join_all};
use keelson_meta::Revision;
use keelson_storage::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Statement};

use super::access::Purpose;
use super::config::{CONNECT_TIMEOUT, PostgresConfig};
use super::error::{Meaning, Trouble, lacks_password, login_hint, meaning, store_error, text};
use super::refusal;
use super::seen::Seen;
use super::settle::{exchanged, settle};
use super::setup;
use super::statements::Query;
use super::stats::{PostgresCounters, count};
use super::tls::Tls;

/// The time that a call waits for a new connection before it fails, with one host.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time after a failed wait in which further calls fail at once, with the same error.
const STILL_DOWN: Duration = Duration::from_secs(1);
/// The pauses between attempts to connect grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The longest wait for the result of a short query, and of a long one. The server ends a statement a little before the second by
/// itself, so a longer silence means that it is gone.
pub(crate) const SHORT: Duration = Duration::from_secs(10);
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The time that a query without a caller may still take before its connection is cut.
const GRACE: Duration = Duration::from_millis(100);

/// The settings of every session. Plans use the indexes: a chunk must read a chunk, whatever the statistics say. Commits are
/// durable even if the database's default is otherwise. A statement ends with its connection (on servers that notice: from 14 on).
const SETUP: &str = "
    SET statement_timeout = '55s';
    SET lock_timeout = '20s';
    SET idle_in_transaction_session_timeout = '20s';
    SET default_transaction_isolation = 'read committed';
    SET jit = off;
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_sort = off;
    SET enable_hashagg = off;
    SET enable_memoize = off;
    SET plan_cache_mode = force_generic_plan;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') IN ('off', 'local');
    SELECT set_config(name, '5s', false) FROM pg_settings WHERE name = 'client_connection_check_interval';
";

/// A connection that is ready for our statements.
pub(crate) struct Session {
    pub(crate) client: Client,
    statements: Vec<Statement>,
    driver: Driver,
    /// When it was settled, as [`Seen::generation`] counts.
    generation: u64,
    /// The server's process for it.
    pub(crate) process: ServerProcess,
    /// Set before the connection ends: that takes a moment, in which no query may use it.
    abandoned: AtomicBool,
}

/// A process of the server, which has one for each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerProcess {
    /// By which notifications tell whose they are.
    pub(crate) number: i32,
    /// When it was started, in digits: numbers are used again.
    pub(crate) started: String,
}

/// The task that drives a connection; the connection ends with it.
pub(crate) struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Session {
    /// The prepared form of a query.
    pub(crate) fn statement(&self, query: Query) -> &Statement {
        &self.statements[query as usize]
    }

    /// Ends the connection, whatever it is doing: it no longer answers, or leads to the wrong server.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.driver.0.abort();
    }

    /// Returns true if the connection has ended, or is about to.
    fn is_over(&self) -> bool {
        self.abandoned.load(Ordering::Acquire) || self.client.is_closed()
    }
}

/// The reason for which there is no session.
pub(crate) struct Unreached {
    pub(crate) why: String,
    /// True where a server was reached that takes no writes.
    is_read_only: bool,
}

impl Unreached {
    fn error(&self) -> StoreError {
        if self.is_read_only {
            refusal::read_only(&self.why)
        } else {
            StoreError::Unavailable(format!("cannot connect to PostgreSQL: {}", self.why))
        }
    }
}

/// The parts that sessions are made with.
pub(crate) struct Connector {
    pub(super) config: Config,
    tls: Tls,
    /// The host that is tried first. One that takes a connection and says nothing, or what can't be believed, gives way to the
    /// next, so that it does not stand before the others.
    first_host: AtomicUsize,
    /// Notified of every notification of other servers, by the listening session.
    pub(crate) hint: Arc<Notify>,
    /// The server's process for our writer, whose notifications say nothing new; 0 while it is not known.
    pub(crate) own_writer: Arc<AtomicI32>,
    pub(crate) seen: Seen,
    pub(crate) counters: Arc<PostgresCounters>,
}

impl Connector {
    pub(crate) fn new(config: &PostgresConfig) -> Self {
        let (connection, tls) = (config.connection.clone(), config.tls.clone());
        let counters = Arc::<PostgresCounters>::default();
        Self {
            config: connection,
            tls,
            first_host: AtomicUsize::new(0),
            hint: Arc::new(Notify::new()),
            own_writer: Arc::default(),
            seen: Seen::new(config.recent_bytes, counters.clone()),
            counters,
        }
    }

    /// The host that is tried first.
    pub(super) fn first_host(&self) -> usize {
        self.first_host.load(Ordering::Relaxed)
    }

    /// A connection by these settings that is set up, without our statements.
    pub(super) async fn dial(&self, config: &Config) -> Result<(Client, Driver), tokio_postgres::Error> {
        let (client, mut connection) = config.connect(self.tls.clone()).await?;
        let (hint, own_writer) = (self.hint.clone(), self.own_writer.clone());
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                let own = own_writer.load(Ordering::Relaxed);
                if matches!(message, AsyncMessage::Notification(told) if told.process_id() != own) {
                    hint.notify_one();
                }
            }
            // The listener must check whether it still listens.
            hint.notify_one();
        });
        let driver = Driver(driver.abort_handle());
        client.batch_execute(SETUP).await?;
        count(&self.counters.connections);
        Ok((client, driver))
    }

    async fn session(&self, purpose: Purpose) -> Result<Session, Trouble> {
        let (client, driver) = self.connect(purpose).await?;
        let (statements, process) = try_join(statements(&client), process(&client)).await?;
        let mut session =
            Session { client, statements, driver, generation: 0, process, abandoned: AtomicBool::new(false) };
        session.generation = settle(&session, &self.seen, &self.counters).await?;
        Ok(session)
    }

    /// Tries until there is a session or patience has ended. Says why there is none.
    pub(crate) async fn patiently<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, Unreached>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        let deadline = Instant::now() + self.patience();
        let mut pause = PAUSES.0;
        loop {
            let first = self.first_host.load(Ordering::Relaxed);
            let mut is_read_only = false;
            let why = match timeout(self.longest_attempt(), attempt()).await {
                Ok(Ok(made)) => return Ok(made),
                Ok(Err(Trouble::Sql(error))) if is_final(&error) => {
                    let hint = login_hint(&error).map(|hint| format!("; {hint}")).unwrap_or_default();
                    return Err(Unreached { why: format!("{}{hint}", text(&error)), is_read_only });
                }
                Ok(Err(Trouble::Sql(error))) => text(&error),
                Ok(Err(Trouble::Doubt(why))) => {
                    self.pass_over(first);
                    why
                }
                Ok(Err(Trouble::Unready(why))) => return Err(Unreached { why, is_read_only }),
                Ok(Err(Trouble::ReadOnly(why))) => {
                    is_read_only = true;
                    why
                }
                Err(_) => {
                    self.pass_over(first);
                    "it takes connections and does not answer".to_owned()
                }
            };
            if Instant::now() + pause > deadline {
                return Err(Unreached { why, is_read_only });
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Begins with the host behind this one from now on, unless another attempt has seen to that.
    fn pass_over(&self, first: usize) {
        let hosts = self.config.get_hosts().len().max(1);
        let next = (first + 1) % hosts;
        let _ = self.first_host.compare_exchange(first, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Time for a connection, and as much again for a greeting and the making of a session. The crate itself bounds nothing
    /// behind the connection, but a server whose disk hangs takes connections and says nothing.
    fn longest_attempt(&self) -> Duration {
        self.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT).saturating_mul(2)
    }

    /// [`PATIENCE`], and time to find out that each other host does not answer.
    fn patience(&self) -> Duration {
        let others = u32::try_from(self.config.get_hosts().len()).unwrap_or(u32::MAX).saturating_sub(1);
        PATIENCE.saturating_add(self.longest_attempt().saturating_mul(others))
    }
}

/// Prepares the statements. If a function that they need is missing (a failover has lost it, or an older dump was restored), the
/// database is set up as at a start.
async fn statements(client: &Client) -> Result<Vec<Statement>, Trouble> {
    let prepare = || try_join_all(Query::ALL.map(|query| client.prepare(query.sql())));
    match prepare().await {
        Err(error) if meaning(&error) == Meaning::Incomplete => {
            let ready = setup::prepare(client, Revision::ZERO, true, None, false).await;
            let missing = text(&error);
            ready.map_err(|error| Trouble::Unready(format!("{missing}, and it can't be made: {error}")))?;
            tracing::warn!(missing, "a function was missing in the database and has been made again");
            Ok(prepare().await?)
        }
        // They were there when the store was opened.
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Err(exchanged("no tables of keelson")),
        prepared => Ok(prepared?),
    }
}

async fn process(client: &Client) -> Result<ServerProcess, Trouble> {
    let statement = "SELECT a.pid, to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS') \
        FROM pg_stat_get_activity(pg_backend_pid()) a";
    let row = client.query_one(statement, &[]).await?;
    Ok(ServerProcess { number: row.try_get(0)?, started: row.try_get(1)? })
}

/// Returns true if the server was reached and will refuse again: a wrong password or certificate, or a missing database.
fn is_final(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    let inner = source.and_then(std::io::Error::get_ref);
    if inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some() {
        return true;
    }
    if lacks_password(error) {
        return true;
    }
    // Class 53: too many connections, which may change.
    error.code().is_some_and(|code| !code.code().starts_with("53"))
        && matches!(meaning(error), Meaning::Refused | Meaning::Incomplete | Meaning::Unfit)
}

/// One place for a session, which is made anew when it is broken.
pub(crate) struct Link {
    connector: Arc<Connector>,
    /// The timeout of a result.
    answer: Duration,
    purpose: Purpose,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    session: Option<Arc<Session>>,
    /// When and why it could last not be made.
    failed: Option<(Instant, StoreError)>,
}

impl Link {
    pub(crate) fn new(connector: Arc<Connector>, answer: Duration, purpose: Purpose) -> Self {
        Self { connector, answer, purpose, held: Mutex::default() }
    }

    /// The session, made if need be.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut held = self.held.lock().await;
        let generation = self.connector.seen.generation();
        let fit = |session: &&Arc<Session>| !session.is_over() && session.generation == generation;
        if let Some(session) = held.session.as_ref().filter(fit) {
            return Ok(session.clone());
        }
        if let Some((when, error)) = &held.failed
            && when.elapsed() < STILL_DOWN
        {
            return Err(error.clone());
        }
        match self.connector.patiently(|| self.connector.session(self.purpose)).await {
            Ok(session) => {
                let session = Arc::new(session);
                *held = Held { session: Some(session.clone()), failed: None };
                Ok(session)
            }
            Err(unreached) => {
                let error = unreached.error();
                *held = Held { session: None, failed: Some((Instant::now(), error.clone())) };
                Err(error)
            }
        }
    }

    /// Waits a moment for the end of a question whose asker has gone, so that the next one need not wait for it. Returns the
    /// session if it was cut instead.
    async fn end_question(&self) -> Option<Arc<Session>> {
        let session = self.held.lock().await.session.clone().filter(|session| !session.is_over())?;
        if matches!(timeout(GRACE, session.client.batch_execute("")).await, Ok(Ok(()))) {
            return None;
        }
        session.abandon();
        Some(session)
    }

    /// Asks something that changes nothing, again when the connection breaks meanwhile or the answer can't be believed.
    pub(crate) async fn read<T, E, F>(&self, ask: impl Fn(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        E: Into<Trouble>,
        F: Future<Output = Result<T, E>>,
    {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let session = self.session().await?;
            let answer = timeout(self.answer, ask(session.clone())).await.map(|answer| answer.map_err(Into::into));
            let error = match answer {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(Trouble::Sql(error))) => error,
                Ok(Err(Trouble::Doubt(why))) => {
                    // The next session is settled before it is asked.
                    session.abandon();
                    if Instant::now() > deadline {
                        return Err(StoreError::Unavailable(why));
                    }
                    sleep(PAUSES.0).await;
                    continue;
                }
                Ok(Err(Trouble::Unready(why) | Trouble::ReadOnly(why))) => return Err(StoreError::Unavailable(why)),
                Err(_) => {
                    session.abandon();
                    return Err(StoreError::Unavailable(format!("PostgreSQL gave no answer within {:?}", self.answer)));
                }
            };
            match meaning(&error) {
                Meaning::Lost | Meaning::Elsewhere if Instant::now() < deadline => session.abandon(),
                Meaning::Again if Instant::now() < deadline => {}
                Meaning::Incomplete => {
                    session.abandon();
                    return Err(store_error(&error));
                }
                _ => return Err(store_error(&error)),
            }
            count(&self.connector.counters.retries);
        }
    }
}

/// A few links, one for each reader at a time.
pub(crate) struct Pool {
    idle: Arc<parking_lot::Mutex<Vec<Link>>>,
    permits: Arc<Semaphore>,
    /// The number of links.
    pub(crate) size: usize,
}

impl Pool {
    pub(crate) fn new(connector: &Arc<Connector>, size: usize) -> Self {
        let size = size.max(1);
        let links = (0..size).map(|_| Link::new(connector.clone(), LONG, Purpose::Read)).collect();
        Self { idle: Arc::new(parking_lot::Mutex::new(links)), permits: Arc::new(Semaphore::new(size)), size }
    }

    /// As [`Link::read`], on a link of its own.
    pub(crate) async fn read<T, E, F>(&self, ask: impl Fn(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        E: Into<Trouble>,
        F: Future<Output = Result<T, E>>,
    {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| super::error::stopped())?;
        let link = self.idle.lock().pop().ok_or_else(super::error::stopped)?;
        let mut borrowed = Borrowed { idle: self.idle.clone(), held: Some((link, permit)), answered: false };
        let answer = match &borrowed.held {
            Some((link, _)) => link.read(ask).await,
            None => Err(super::error::stopped()),
        };
        borrowed.answered = true;
        answer
    }
}

/// Returns to the pool, also when the reader has gone; then its query is cancelled first.
struct Borrowed {
    idle: Arc<parking_lot::Mutex<Vec<Link>>>,
    held: Option<(Link, OwnedSemaphorePermit)>,
    answered: bool,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let Some((link, permit)) = self.held.take() else { return };
        let idle = self.idle.clone();
        // ORDER: the link is back before the permit is.
        let give_back = move |link| {
            idle.lock().push(link);
            drop(permit);
        };
        match Handle::try_current() {
            Ok(runtime) if !self.answered => drop(runtime.spawn(async move {
                let cut = link.end_question().await;
                let connector = link.connector.clone();
                give_back(link);
                if let Some(session) = cut {
                    // The query's result is not needed: a server that notices ends it by itself when the connection is gone.
                    let cancel = session.client.cancel_token();
                    let _ = timeout(SHORT, cancel.cancel_query(connector.tls.clone())).await;
                }
            })),
            _ => give_back(link),
        }
    }
}
