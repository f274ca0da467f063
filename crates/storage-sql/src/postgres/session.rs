//! Connections: made, set up, and made again when they break, with growing pauses and an end to patience.
//!
//! A read that meets a broken connection is asked again on a new one. A write is not: whether it took effect is unknown.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::try_join_all;
use keelson_storage::StoreError;
use tokio::sync::{Mutex, Notify};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::config::LoadBalanceHosts;
use tokio_postgres::{AsyncMessage, Client, Config, Statement};

use super::config::{CONNECT_TIMEOUT, PostgresConfig};
use super::error::{Meaning, meaning, store_error, text};
use super::statements::Query;
use super::stats::{PostgresCounters, count};
use super::tls::Tls;

/// How long a call waits for a connection to be made again before it fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// Calls that come this soon after one has waited in vain fail at once, with what it was told.
const STILL_DOWN: Duration = Duration::from_secs(1);
/// The pauses between attempts to connect grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Longest wait for the answer to a short question, and to one that may be long. The server ends a statement a little
/// before the second by itself: a silence this long means that nobody is there.
pub(crate) const SHORT: Duration = Duration::from_secs(10);
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// What every session is told first. Plans are held to the indexes: a chunk must read a chunk, whatever the statistics
/// say. Commits are durable even where the database's default is otherwise. What a connection was doing ends with it
/// (where the server can tell: from 14 on).
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
}

/// What moves the bytes of a connection; the connection ends with it.
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
        self.driver.0.abort();
    }
}

/// What sessions are made with.
pub(crate) struct Connector {
    config: Config,
    tls: Tls,
    /// Whether a server has once taken a connection and said nothing. Since then the hosts are tried in any order, so that one
    /// that hangs does not stand before the others.
    hung: AtomicBool,
    /// Told of every notification, by whichever session listens.
    pub(crate) hint: Arc<Notify>,
    pub(crate) counters: Arc<PostgresCounters>,
}

impl Connector {
    pub(crate) fn new(config: &PostgresConfig) -> Self {
        let (connection, tls) = (config.connection.clone(), config.tls.clone());
        let (hung, hint) = (AtomicBool::new(false), Arc::new(Notify::new()));
        Self { config: connection, tls, hung, hint, counters: Arc::default() }
    }

    /// A connection that is set up, without our statements.
    pub(crate) async fn connect(&self) -> Result<(Client, Driver), tokio_postgres::Error> {
        let mut config = self.config.clone();
        if self.hung.load(Ordering::Relaxed) {
            config.load_balance_hosts(LoadBalanceHosts::Random);
        }
        let (client, mut connection) = config.connect(self.tls.clone()).await?;
        let hint = self.hint.clone();
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    hint.notify_one();
                }
            }
            // Whoever listened must look whether it still does.
            hint.notify_one();
        });
        let driver = Driver(driver.abort_handle());
        client.batch_execute(SETUP).await?;
        count(&self.counters.connections);
        Ok((client, driver))
    }

    async fn session(&self) -> Result<Session, tokio_postgres::Error> {
        let (client, driver) = self.connect().await?;
        let statements = try_join_all(Query::ALL.map(|query| client.prepare(query.sql()))).await?;
        Ok(Session { client, statements, driver })
    }

    /// Tries until there is a session or patience has ended. Says why there is none.
    pub(crate) async fn patiently<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = PAUSES.0;
        loop {
            let why = match timeout(self.longest_attempt(), attempt()).await {
                Ok(Ok(made)) => return Ok(made),
                Ok(Err(error)) if is_final(&error) => return Err(text(&error)),
                Ok(Err(error)) => text(&error),
                Err(_) => {
                    self.hung.store(true, Ordering::Relaxed);
                    "it takes connections and does not answer".to_owned()
                }
            };
            if Instant::now() + pause > deadline {
                return Err(why);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Time for a connection to each host in vain, and as much again for a greeting and the making of a session. The crate
    /// itself bounds nothing behind the connection, but a server whose disk hangs takes connections and says nothing.
    fn longest_attempt(&self) -> Duration {
        let hosts = u32::try_from(self.config.get_hosts().len()).unwrap_or(u32::MAX);
        let each = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        each.saturating_mul(hosts.saturating_add(1))
    }
}

/// Whether the server was reached and will say the same again: the wrong password or certificate, a database that is not
/// there.
fn is_final(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    let inner = source.and_then(std::io::Error::get_ref);
    if inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some() {
        return true;
    }
    // Class 53: too many connections, which may change.
    error.code().is_some_and(|code| !code.code().starts_with("53"))
        && matches!(meaning(error), Meaning::Refused | Meaning::Unfit)
}

/// One place for a session, which is made anew when it is broken.
pub(crate) struct Link {
    connector: Arc<Connector>,
    /// How long an answer is waited for.
    answer: Duration,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    session: Option<Arc<Session>>,
    /// When and why it could last not be made.
    failed: Option<(Instant, StoreError)>,
}

impl Link {
    pub(crate) fn new(connector: Arc<Connector>, answer: Duration) -> Self {
        Self { connector, answer, held: Mutex::default() }
    }

    /// The session, made if need be.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut held = self.held.lock().await;
        if let Some(session) = held.session.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(session.clone());
        }
        if let Some((when, error)) = &held.failed
            && when.elapsed() < STILL_DOWN
        {
            return Err(error.clone());
        }
        match self.connector.patiently(|| self.connector.session()).await {
            Ok(session) => {
                let session = Arc::new(session);
                *held = Held { session: Some(session.clone()), failed: None };
                Ok(session)
            }
            Err(why) => {
                let error = StoreError::Unavailable(format!("cannot connect to PostgreSQL: {why}"));
                *held = Held { session: None, failed: Some((Instant::now(), error.clone())) };
                Err(error)
            }
        }
    }

    /// Asks something that changes nothing, again when the connection breaks meanwhile.
    pub(crate) async fn read<T, F>(&self, ask: impl Fn(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let session = self.session().await?;
            let error = match timeout(self.answer, ask(session.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => {
                    session.abandon();
                    return Err(StoreError::Unavailable(format!("PostgreSQL gave no answer within {:?}", self.answer)));
                }
            };
            match meaning(&error) {
                Meaning::Lost | Meaning::Elsewhere if Instant::now() < deadline => session.abandon(),
                Meaning::Again if Instant::now() < deadline => {}
                _ => return Err(store_error(&error)),
            }
            count(&self.connector.counters.retries);
        }
    }
}

/// A few links, of which each reader has one to itself.
pub(crate) struct Pool {
    idle: parking_lot::Mutex<Vec<Link>>,
    permits: tokio::sync::Semaphore,
}

impl Pool {
    pub(crate) fn new(connector: &Arc<Connector>, size: usize) -> Self {
        let size = size.max(1);
        let links = (0..size).map(|_| Link::new(connector.clone(), LONG)).collect();
        Self { idle: parking_lot::Mutex::new(links), permits: tokio::sync::Semaphore::new(size) }
    }

    /// As [`Link::read`], on a link that nobody else uses meanwhile.
    pub(crate) async fn read<T, F>(&self, ask: impl Fn(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let _permit = self.permits.acquire().await.map_err(|_| super::error::stopped())?;
        let link = self.idle.lock().pop().map(|link| Borrowed { pool: self, link: Some(link) });
        match link.as_ref().and_then(|borrowed| borrowed.link.as_ref()) {
            Some(link) => link.read(ask).await,
            None => Err(super::error::stopped()),
        }
    }
}

/// Goes back to the pool, also when the reader has gone.
struct Borrowed<'a> {
    pool: &'a Pool,
    link: Option<Link>,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.pool.idle.lock().extend(self.link.take());
    }
}
