//! The task that commits: all waiting transactions are one group, one round trip and one durable commit.
//!
//! A group that certainly had no effect (a deadlock, a server that became a replica) is sent again. After a broken connection the
//! outcome is found first (`unknown.rs`): callers get it, and only transactions without effect are sent again. If it cannot be
//! found in time, callers get an unknown outcome. Tails read the group as changes of others.

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

/// The largest number of transactions in a commit.
const MAX_GROUP: usize = 256;
/// The timeout of a group, after which its outcome must be found.
const ANSWER: Duration = Duration::from_secs(20);
/// Longest time for finding that out.
const FIND_OUT: Duration = Duration::from_secs(10);
/// The waits before a group is sent a third time and again, which double: one that was set back twice would be at once once more.
const SET_BACK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// The number of lost answers to one transaction before its caller gets an error.
const LOSSES: usize = 4;
/// The size of values that makes a group full, in bytes.
const MAX_GROUP_BYTES: usize = 8 * 1024 * 1024;
/// The largest number of waves of a group. Further transactions wait for the next group.
const MAX_WAVES: usize = 16;

/// A transaction, and the channel of its answer. It is executed even if its caller has gone.
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

/// Jobs by wave, in order within each.
type Group = Vec<Vec<Job>>;

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) jobs: mpsc::Receiver<Job>,
}

impl Writer {
    /// Works until the store is dropped and everything that waited is done.
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
            // Other tasks that are about to write join this group, at the cost of one turn of the runtime.
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

    /// Commits a group and answers its jobs. Its answer may be lost so many times.
    async fn commit(&self, link: &Link, group: Group, losses: usize) {
        match self.send(link, &group).await {
            Ok(outcomes) => self.answer(group, outcomes),
            Err(Failure::Group(error)) => fail(group, &error),
            Err(Failure::Refused(error)) => {
                self.shared.refusal.begins(&error, self.counters());
                fail(group, &error);
            }
            Err(Failure::Unfit(error)) if group.iter().flatten().count() == 1 => fail(group, &error),
            // The fault is one transaction's; the others must not suffer for it.
            Err(Failure::Unfit(_)) => {
                for job in group.into_iter().flatten() {
                    Box::pin(self.commit(link, vec![vec![job]], losses)).await;
                }
            }
            Err(Failure::Lost(lost)) => {
                // Callers who wait are dropped otherwise, and learn so that nothing is known.
                let Ok(left) = timeout(FIND_OUT, self.find_out(link, &lost, group)).await else { return };
                match losses.checked_sub(1) {
                    _ if left.is_empty() => {}
                    Some(losses) => Box::pin(self.commit(link, left, losses)).await,
                    None => fail(left, &StoreError::Unavailable(lost.reason)),
                }
            }
        }
    }

    /// Answers the jobs of a group whose answer was lost, as far as it can be known what they became, and returns those that
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
        // The words of a server that takes reads alone.
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
            // Its notifications say nothing new: what it commits is known here.
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
                    // The next session finds out which history it is, or makes what is missing.
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

    /// The connection has failed in the middle of a group.
    fn lose(&self, session: &Session) {
        session.abandon();
        count(&self.counters().unknown);
        // If it has committed, its changes arrive as those of others.
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
                // Others' changes are between; the feed fetches them.
                self.shared.connector.hint.notify_one();
            }
        }
        group.into_iter().flatten().zip(answers).for_each(|(job, answer)| job.answer(answer));
    }
}

/// The reason why a group was not committed.
enum Failure {
    /// Nothing that has to do with what is in it.
    Group(StoreError),
    /// The server takes no writes.
    Refused(StoreError),
    /// One of its transactions can't be stored.
    Unfit(StoreError),
    /// It may have been committed.
    Lost(Lost),
}

fn fail(group: Group, error: &StoreError) {
    group.into_iter().flatten().for_each(|job| job.answer(Err(error.clone().into())));
}

/// Takes jobs for one group off the queue, at least one.
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

/// Sends everything at once, in order, and waits for all answers: still one round trip.
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
    // ORDER: a statement is sent when it is first polled, so they are polled in order. A COMMIT after one that failed
    // undoes everything, and the failure is what is reported.
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
