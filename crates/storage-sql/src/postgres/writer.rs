//! The task that commits: all waiting transactions form one group, with one round trip and one durable commit.
//!
//! A group that certainly had no effect (a deadlock, a server that became a replica) is sent again. After a broken
//! connection, the writer first finds the outcome (`unknown.rs`). Callers get the outcome, and only transactions
//! without effect are sent again. If the outcome can't be found in time, callers get an unknown outcome. Tails then
//! read the group like changes of other servers.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use keelson_storage::{CommitError, Committed, StoreError, Transaction, Write};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Client, Row};

use super::access::Purpose;
use super::batch::{Arguments, Outcome, Waves, outcome};
use super::error::{Meaning, meaning, store_error, text};
use super::refusal;
use super::session::{Link, Session};
use super::statements::Query;
use super::stats::{PostgresCounters, add, count};
use super::store::{Shared, Turn};
use super::unknown::{self, Lost};

/// The maximum number of transactions in a group.
const MAX_GROUP: usize = 256;
/// The timeout of a group. After it, the writer searches for the outcome.
const ANSWER: Duration = Duration::from_secs(20);
/// The maximum time of that search.
const FIND_OUT: Duration = Duration::from_secs(10);
/// The minimum and maximum wait before a group is sent for the third time and again. It doubles each time. Without a
/// wait, a group that has failed twice would soon fail again.
const SET_BACK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// The number of lost results of one transaction before its caller gets an error.
const LOSSES: usize = 4;
/// The size of values at which a group is full, in bytes.
const MAX_GROUP_BYTES: usize = 8 * 1024 * 1024;
/// The maximum number of waves of a group. Further transactions wait for the next group.
const MAX_WAVES: usize = 16;

/// A transaction, and the channel for its result. It is executed even if its caller is gone.
pub(crate) struct Job {
    pub(crate) transaction: Transaction,
    pub(crate) answer: oneshot::Sender<Result<Committed, CommitError>>,
}

impl Job {
    fn bytes(&self) -> usize {
        let size = |write: &Write| match write {
            Write::Put { value, .. } => value.len(),
            Write::Delete { .. } => 0,
        };
        self.transaction.writes.iter().map(size).sum()
    }

    fn answer(self, answer: Result<Committed, CommitError>) {
        drop(self.answer.send(answer));
    }
}

/// Jobs by wave, in order within each wave.
type Group = Vec<Vec<Job>>;

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) jobs: mpsc::Receiver<Job>,
}

impl Writer {
    /// Runs until the store is dropped and all waiting jobs are done.
    pub(crate) async fn run(mut self) {
        let link = Link::new(self.shared.connector.clone(), ANSWER, Purpose::Write);
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                let mut first = Vec::new();
                if self.jobs.recv_many(&mut first, MAX_GROUP).await == 0 {
                    return;
                }
                waiting.extend(first);
            }
            // Other tasks that are about to write can join this group. This costs one turn of the runtime.
            yield_now().await;
            while waiting.len() < MAX_GROUP
                && let Ok(job) = self.jobs.try_recv()
            {
                waiting.push_back(job);
            }
            self.shared.turn.send_modify(|turn| turn.busy = true);
            self.commit(&link, group(&mut waiting), LOSSES).await;
            self.shared.turn.send_modify(|turn| *turn = Turn { busy: false, done: turn.done + 1 });
        }
    }

    /// Commits a group and answers its jobs. `losses` is the number of results that may still be lost.
    async fn commit(&self, link: &Link, group: Group, losses: usize) {
        match self.send(link, &group).await {
            Ok(outcomes) => self.answer(group, outcomes),
            Err(Failure::Group(error)) => fail(group, &error),
            Err(Failure::Refused(error)) => {
                self.shared.refusal.begins(&error, self.counters());
                fail(group, &error);
            }
            Err(Failure::Unfit(error)) if group.iter().flatten().count() == 1 => fail(group, &error),
            // One of the transactions can't be stored. The others are committed individually.
            Err(Failure::Unfit(_)) => {
                for job in group.into_iter().flatten() {
                    Box::pin(self.commit(link, vec![vec![job]], losses)).await;
                }
            }
            Err(Failure::Lost(lost)) => {
                // If the search times out, the jobs are dropped, and their callers get an unknown outcome.
                let Ok(left) = timeout(FIND_OUT, self.find_out(link, &lost, group)).await else { return };
                match losses.checked_sub(1) {
                    _ if left.is_empty() => {}
                    Some(losses) => Box::pin(self.commit(link, left, losses)).await,
                    None => fail(left, &StoreError::Unavailable(lost.reason)),
                }
            }
        }
    }

    /// Answers the jobs of a group whose result was lost, as far as their outcome can be found. Returns the jobs that
    /// certainly had no effect.
    async fn find_out(&self, link: &Link, lost: &Lost, group: Group) -> Group {
        let unknown = |why: String| StoreError::Unknown(format!("{}; {why}", lost.reason));
        let session = match link.session().await {
            Ok(session) => session,
            Err(error) => {
                fail(group, &unknown(error.to_string()));
                return Group::new();
            }
        };
        let transactions: Vec<&Transaction> = group.iter().flatten().map(|job| &job.transaction).collect();
        let became = match unknown::find(&session, lost, &transactions).await {
            Ok(became) => became,
            Err(trouble) => {
                session.abandon();
                fail(group, &unknown(trouble.to_string()));
                return Group::new();
            }
        };
        let mut became = became.into_iter();
        let mut left = Group::new();
        for wave in group {
            let mut again = Vec::new();
            for job in wave {
                match became.next().flatten() {
                    Some(committed) => job.answer(Ok(committed)),
                    None => again.push(job),
                }
            }
            if !again.is_empty() {
                left.push(again);
            }
        }
        left
    }

    async fn send(&self, link: &Link, group: &Group) -> Result<Vec<Outcome>, Failure> {
        let deadline = Instant::now() + ANSWER;
        let mut pause = Duration::ZERO;
        // The message of a server that accepts only reads.
        let mut read_only: Option<String> = None;
        loop {
            let session = match (link.session().await, read_only.take()) {
                (Ok(session), _) => session,
                (Err(_), Some(cause)) => return Err(Failure::Refused(refusal::read_only(&cause))),
                (Err(error @ StoreError::ReadOnly(_)), None) => return Err(Failure::Refused(error)),
                (Err(error), None) => return Err(Failure::Group(error)),
            };
            let seen = self.shared.seen();
            let (incarnation, before) = (seen.incarnation(), seen.highest());
            // The notifications of this process are ignored, since its commits are known here.
            self.shared.connector.own_writer.store(session.process.number, Ordering::Relaxed);
            let lost = |reason| {
                self.lose(&session);
                Failure::Lost(Lost { process: session.process.clone(), incarnation, before, reason })
            };
            let error = match timeout(ANSWER, self.send_once(&session, incarnation, group)).await {
                Ok(Ok(outcomes)) => return Ok(outcomes),
                Ok(Err(error)) => error,
                Err(_) => return Err(lost(format!("no answer within {ANSWER:?}"))),
            };
            match meaning(&error) {
                Meaning::Again if Instant::now() < deadline => {
                    if !pause.is_zero() {
                        sleep(pause).await;
                    }
                    pause = (pause * 2).clamp(SET_BACK.0, SET_BACK.1);
                }
                Meaning::Elsewhere if Instant::now() < deadline => {
                    session.abandon();
                    read_only = Some(text(&error));
                }
                Meaning::Elsewhere => return Err(Failure::Refused(refusal::read_only(&text(&error)))),
                Meaning::Full | Meaning::Refused => return Err(Failure::Refused(store_error(&error))),
                Meaning::Lost => return Err(lost(text(&error))),
                Meaning::Exchanged | Meaning::Incomplete => {
                    // The next session determines the history, or creates the missing function.
                    session.abandon();
                    return Err(Failure::Group(store_error(&error)));
                }
                Meaning::Unfit => return Err(Failure::Unfit(store_error(&error))),
                Meaning::Again => return Err(Failure::Group(store_error(&error))),
            }
            count(&self.counters().retries);
        }
    }

    async fn send_once(
        &self,
        session: &Session,
        incarnation: i64,
        group: &Group,
    ) -> Result<Vec<Outcome>, tokio_postgres::Error> {
        let waves: Vec<Vec<&Transaction>> =
            group.iter().map(|wave| wave.iter().map(|job| &job.transaction).collect()).collect();
        let arguments: Vec<Arguments<'_>> = waves.iter().map(|wave| Arguments::new(incarnation, wave)).collect();
        let rows = match &arguments[..] {
            [only] => vec![ask(session, only).await?],
            all => in_one_transaction(session, all).await?,
        };
        rows.iter().zip(&waves).map(|(row, wave)| outcome(row, wave)).collect()
    }

    /// Handles a connection that broke during a group.
    fn lose(&self, session: &Session) {
        session.abandon();
        count(&self.counters().unknown);
        // If the group was committed, its changes arrive like those of other servers.
        self.shared.connector.own_writer.store(0, Ordering::Relaxed);
        self.shared.connector.hint.notify_one();
    }

    fn counters(&self) -> &PostgresCounters {
        &self.shared.connector.counters
    }

    /// Publishes the changes to tails, then answers the callers.
    fn answer(&self, group: Group, outcomes: Vec<Outcome>) {
        self.shared.refusal.ends(self.counters());
        count(&self.counters().groups);
        add(&self.counters().transactions, group.iter().map(Vec::len).sum());
        let base = outcomes.first().map(|first| first.base).unwrap_or_default();
        let mut answers = Vec::new();
        let mut events = Vec::new();
        for outcome in outcomes {
            answers.extend(outcome.answers);
            events.extend(outcome.events);
        }
        if let Some(last) = events.last() {
            self.shared.seen().saw(last.revision);
            self.shared.seen().tell(|timeline| timeline.add_own(base, events));
            if self.shared.seen().gap().1.is_some() {
                // Changes of other servers lie between, and the feed reads them.
                self.shared.connector.hint.notify_one();
            }
        }
        group.into_iter().flatten().zip(answers).for_each(|(job, answer)| job.answer(answer));
    }
}

/// The reason for which a group was not committed.
enum Failure {
    /// The failure does not depend on the content of the group.
    Group(StoreError),
    /// The server does not accept writes.
    Refused(StoreError),
    /// One of the transactions can't be stored.
    Unfit(StoreError),
    /// The group may have been committed.
    Lost(Lost),
}

fn fail(group: Group, error: &StoreError) {
    group.into_iter().flatten().for_each(|job| job.answer(Err(error.clone().into())));
}

/// Removes the jobs for one group from the queue, at least one.
fn group(waiting: &mut VecDeque<Job>) -> Group {
    let mut group = Group::new();
    let mut waves = Waves::default();
    let (mut count, mut bytes) = (0, 0);
    while let Some(job) = waiting.pop_front() {
        let wave = waves.earliest(&job.transaction);
        if wave >= MAX_WAVES || count >= MAX_GROUP || bytes >= MAX_GROUP_BYTES {
            waiting.push_front(job);
            break;
        }
        waves.place(&job.transaction, wave);
        bytes += job.bytes();
        count += 1;
        if group.len() <= wave {
            group.resize_with(wave + 1, Vec::new);
        }
        group[wave].push(job);
    }
    group
}

async fn ask(session: &Session, arguments: &Arguments<'_>) -> Result<Row, tokio_postgres::Error> {
    session.client.query_one(session.statement(Query::Commit), &arguments.parameters()).await
}

/// Sends all statements at once, in order, and waits for all results, which is still one round trip.
async fn in_one_transaction(session: &Session, waves: &[Arguments<'_>]) -> Result<Vec<Row>, tokio_postgres::Error> {
    type StatementFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<Row>, tokio_postgres::Error>> + Send + 'a>>;
    async fn bare(client: &Client, statement: &str) -> Result<Option<Row>, tokio_postgres::Error> {
        client.batch_execute(statement).await.map(|()| None)
    }
    let mut steps: Vec<StatementFuture<'_>> = vec![Box::pin(bare(&session.client, "BEGIN"))];
    for arguments in waves {
        steps.push(Box::pin(async move { ask(session, arguments).await.map(Some) }));
    }
    steps.push(Box::pin(bare(&session.client, "COMMIT")));
    // ORDER: a statement is sent when it is first polled, so the statements are polled in order. If one fails, the
    // COMMIT after it rolls back the transaction, and the failure is returned.
    let mut answers: Vec<Option<Result<Option<Row>, tokio_postgres::Error>>> = steps.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (step, answer) in steps.iter_mut().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
            match step.as_mut().poll(cx) {
                Poll::Ready(ready) => *answer = Some(ready),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let answers = answers.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
    Ok(answers.into_iter().flatten().collect())
}
