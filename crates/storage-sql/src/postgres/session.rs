//! Connections: they are created, configured, and replaced when they break. The pauses between attempts grow, and
//! attempts end after a timeout.
//!
//! A read whose connection breaks is repeated on a new one. A write is repeated only after its outcome is known
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
use super::error::{Meaning, QueryFault, lacks_password, login_hint, meaning, store_error, text};
use super::refusal;
use super::seen::KnownRevisions;
use super::settle::{exchanged, settle};
use super::setup;
use super::statements::Query;
use super::stats::{PostgresCounters, count};
use super::tls::Tls;

/// The time that a call waits for a new connection before it fails, with a single host.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time after a failed wait in which further calls fail at once with the same error.
const STILL_DOWN: Duration = Duration::from_secs(1);
/// The pause between attempts to connect grows from the first value to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The timeouts of a short query, and of a long one. The server itself ends a statement a little before the second
/// timeout, so a longer wait means that the server is unreachable.
pub(crate) const SHORT: Duration = Duration::from_secs(10);
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The time that a query whose caller is gone may still take before its connection is closed.
const GRACE: Duration = Duration::from_millis(100);

/// The settings of every session. Query plans use the indexes, so that a chunk reads only a chunk, whatever the
/// statistics are. Commits are durable even if the default of the database differs. A statement ends with its
/// connection (on servers from version 14).
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

/// A connection with the store's prepared statements.
pub(crate) struct Session {
    pub(crate) client: Client,
    statements: Vec<Statement>,
    driver: Driver,
    /// The value of [`KnownRevisions::generation`] when the session was checked.
    generation: u64,
    /// The process of the server for this connection.
    pub(crate) process: ServerProcess,
    /// True once the connection is being closed. Closing takes a moment, in which no query may use it.
    abandoned: AtomicBool,
}

/// A process of the server, which has one for each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerProcess {
    /// The process number, which notifications include.
    pub(crate) number: i32,
    /// The start time of the process, in digits, since process numbers are used again.
    pub(crate) started: String,
}

/// The task that runs a connection. Aborting it closes the connection.
pub(crate) struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Session {
    /// The prepared statement of a query.
    pub(crate) fn statement(&self, query: Query) -> &Statement {
        &self.statements[query as usize]
    }

    /// Closes the connection, even during a query: the server no longer answers, or is the wrong one.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.driver.0.abort();
    }

    /// Returns true if the connection is closed or being closed.
    fn is_over(&self) -> bool {
        self.abandoned.load(Ordering::Acquire) || self.client.is_closed()
    }
}

/// The reason for which there is no session.
pub(crate) struct SessionError {
    pub(crate) why: String,
    /// True if a server was reached that does not accept writes.
    is_read_only: bool,
}

impl SessionError {
    fn error(&self) -> StoreError {
        if self.is_read_only {
            refusal::read_only(&self.why)
        } else {
            StoreError::Unavailable(format!("cannot connect to PostgreSQL: {}", self.why))
        }
    }
}

/// The shared state for creating sessions.
pub(crate) struct Connector {
    pub(super) config: Config,
    tls: Tls,
    /// The index of the host that is tried first. If this host accepts connections without answering, or its results
    /// can't be trusted, the next host becomes the first. Otherwise it would block the other hosts.
    first_host: AtomicUsize,
    /// The listening session notifies this for each notification of another server.
    pub(crate) hint: Arc<Notify>,
    /// The server's process for this store's writer. Its notifications are ignored, since its changes are known. 0
    /// while the process is unknown.
    pub(crate) own_writer: Arc<AtomicI32>,
    pub(crate) seen: KnownRevisions,
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
            seen: KnownRevisions::new(config.recent_bytes, counters.clone()),
            counters,
        }
    }

    /// The index of the host that is tried first.
    pub(super) fn first_host(&self) -> usize {
        self.first_host.load(Ordering::Relaxed)
    }

    /// Connects with these settings and configures the connection, without preparing the store's statements.
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
            // The task that listens must check if its session still exists.
            hint.notify_one();
        });
        let driver = Driver(driver.abort_handle());
        client.batch_execute(SETUP).await?;
        count(&self.counters.connections);
        Ok((client, driver))
    }

    async fn session(&self, purpose: Purpose) -> Result<Session, QueryFault> {
        let (client, driver) = self.connect(purpose).await?;
        let (statements, process) = try_join(statements(&client), process(&client)).await?;
        let mut session =
            Session { client, statements, driver, generation: 0, process, abandoned: AtomicBool::new(false) };
        session.generation = settle(&session, &self.seen, &self.counters).await?;
        Ok(session)
    }

    /// Repeats `attempt` until it succeeds, fails for good, or the timeout is reached. The error has the reason.
    pub(crate) async fn patiently<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, SessionError>
    where
        F: Future<Output = Result<T, QueryFault>>,
    {
        let deadline = Instant::now() + self.patience();
        let mut pause = PAUSES.0;
        loop {
            let first = self.first_host.load(Ordering::Relaxed);
            let mut is_read_only = false;
            let why = match timeout(self.longest_attempt(), attempt()).await {
                Ok(Ok(made)) => return Ok(made),
                Ok(Err(QueryFault::Sql(error))) if is_final(&error) => {
                    let hint = login_hint(&error).map(|hint| format!("; {hint}")).unwrap_or_default();
                    return Err(SessionError { why: format!("{}{hint}", text(&error)), is_read_only });
                }
                Ok(Err(QueryFault::Sql(error))) => text(&error),
                Ok(Err(QueryFault::Doubt(why))) => {
                    self.pass_over(first);
                    why
                }
                Ok(Err(QueryFault::Unready(why))) => return Err(SessionError { why, is_read_only }),
                Ok(Err(QueryFault::ReadOnly(why))) => {
                    is_read_only = true;
                    why
                }
                Err(_) => {
                    self.pass_over(first);
                    "it takes connections and does not answer".to_owned()
                }
            };
            if Instant::now() + pause > deadline {
                return Err(SessionError { why, is_read_only });
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Makes the host after this one the first, unless another attempt has already changed the first host.
    fn pass_over(&self, first: usize) {
        let hosts = self.config.get_hosts().len().max(1);
        let next = (first + 1) % hosts;
        let _ = self.first_host.compare_exchange(first, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The timeout of one attempt: the time for a connection, and the same time for creating a session on it. The crate
    /// has no timeout after the connection, but a server whose disk hangs accepts connections and does not answer.
    fn longest_attempt(&self) -> Duration {
        self.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT).saturating_mul(2)
    }

    /// [`PATIENCE`], plus the time to find that each other host does not answer.
    fn patience(&self) -> Duration {
        let others = u32::try_from(self.config.get_hosts().len()).unwrap_or(u32::MAX).saturating_sub(1);
        PATIENCE.saturating_add(self.longest_attempt().saturating_mul(others))
    }
}

/// Prepares the statements. If a function is missing (a failover has lost it, or an older dump was restored), sets up
/// the database as at a start.
async fn statements(client: &Client) -> Result<Vec<Statement>, QueryFault> {
    let prepare = || try_join_all(Query::ALL.map(|query| client.prepare(query.sql())));
    match prepare().await {
        Err(error) if meaning(&error) == Meaning::Incomplete => {
            let ready = setup::prepare(client, Revision::ZERO, true, None, false).await;
            let missing = text(&error);
            ready.map_err(|error| QueryFault::Unready(format!("{missing}, and it can't be made: {error}")))?;
            tracing::warn!(missing, "a function was missing in the database and has been made again");
            Ok(prepare().await?)
        }
        // The tables existed when the store was opened.
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Err(exchanged("no tables of keelson")),
        prepared => Ok(prepared?),
    }
}

async fn process(client: &Client) -> Result<ServerProcess, QueryFault> {
    let statement = "SELECT a.pid, to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS') \
        FROM pg_stat_get_activity(pg_backend_pid()) a";
    let row = client.query_one(statement, &[]).await?;
    Ok(ServerProcess { number: row.try_get(0)?, started: row.try_get(1)? })
}

/// Returns true if the server was reached and further attempts will fail too: a wrong password or certificate, or a
/// missing database.
fn is_final(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    let inner = source.and_then(std::io::Error::get_ref);
    if inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some() {
        return true;
    }
    if lacks_password(error) {
        return true;
    }
    // Class 53, such as too many connections, may change.
    error.code().is_some_and(|code| !code.code().starts_with("53"))
        && matches!(meaning(error), Meaning::Refused | Meaning::Incomplete | Meaning::Unfit)
}

/// Holds one session, and replaces it when it is broken.
pub(crate) struct Link {
    connector: Arc<Connector>,
    /// The timeout of a query.
    answer: Duration,
    purpose: Purpose,
    held: Mutex<HeldSession>,
}

#[derive(Default)]
struct HeldSession {
    session: Option<Arc<Session>>,
    /// The time and error of the last failed attempt to create a session.
    failed: Option<(Instant, StoreError)>,
}

impl Link {
    pub(crate) fn new(connector: Arc<Connector>, answer: Duration, purpose: Purpose) -> Self {
        Self { connector, answer, purpose, held: Mutex::default() }
    }

    /// Returns the session. Creates it if necessary.
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
                *held = HeldSession { session: Some(session.clone()), failed: None };
                Ok(session)
            }
            Err(unreached) => {
                let error = unreached.error();
                *held = HeldSession { session: None, failed: Some((Instant::now(), error.clone())) };
                Err(error)
            }
        }
    }

    /// Waits briefly for the end of a query whose caller is gone, so that the next query need not wait for it. If the
    /// query takes longer, closes the connection and returns the session.
    async fn end_question(&self) -> Option<Arc<Session>> {
        let session = self.held.lock().await.session.clone().filter(|session| !session.is_over())?;
        if matches!(timeout(GRACE, session.client.batch_execute("")).await, Ok(Ok(()))) {
            return None;
        }
        session.abandon();
        Some(session)
    }

    /// Runs a query that changes nothing. Repeats it if the connection breaks or the result can't be trusted.
    pub(crate) async fn read<T, E, F>(&self, ask: impl Fn(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        E: Into<QueryFault>,
        F: Future<Output = Result<T, E>>,
    {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let session = self.session().await?;
            let answer = timeout(self.answer, ask(session.clone())).await.map(|answer| answer.map_err(Into::into));
            let error = match answer {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(QueryFault::Sql(error))) => error,
                Ok(Err(QueryFault::Doubt(why))) => {
                    // The next session is checked before it is used.
                    session.abandon();
                    if Instant::now() > deadline {
                        return Err(StoreError::Unavailable(why));
                    }
                    sleep(PAUSES.0).await;
                    continue;
                }
                Ok(Err(QueryFault::Unready(why) | QueryFault::ReadOnly(why))) => {
                    return Err(StoreError::Unavailable(why));
                }
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

/// Several links, each used by one reader at a time.
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

    /// Runs a query as [`Link::read`] does, on a link that no other reader uses meanwhile.
    pub(crate) async fn read<T, E, F>(&self, ask: impl Fn(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        E: Into<QueryFault>,
        F: Future<Output = Result<T, E>>,
    {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| super::error::stopped())?;
        let link = self.idle.lock().pop().ok_or_else(super::error::stopped)?;
        let mut borrowed = PooledSession { idle: self.idle.clone(), held: Some((link, permit)), answered: false };
        let answer = match &borrowed.held {
            Some((link, _)) => link.read(ask).await,
            None => Err(super::error::stopped()),
        };
        borrowed.answered = true;
        answer
    }
}

/// A link that returns to the pool on drop. If the reader is gone before its result, the query is cancelled first.
struct PooledSession {
    idle: Arc<parking_lot::Mutex<Vec<Link>>>,
    held: Option<(Link, OwnedSemaphorePermit)>,
    answered: bool,
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        let Some((link, permit)) = self.held.take() else { return };
        let idle = self.idle.clone();
        // ORDER: the link returns to the pool before the permit is released.
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
                    // The result is not needed. Servers that detect a closed connection end the query by themselves.
                    let cancel = session.client.cancel_token();
                    let _ = timeout(SHORT, cancel.cancel_query(connector.tls.clone())).await;
                }
            })),
            _ => give_back(link),
        }
    }
}
