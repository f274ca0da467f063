//! The task that commits: all transactions that wait are one group, one round trip and one durable commit.
//!
//! A group that certainly had no effect (a deadlock, a server that became a replica) is sent again. One whose connection broke
//! is not: its callers are told that the outcome is unknown. The feed reads what it became.

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
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, Row};

use super::batch::{Arguments, Outcome, Waves, outcome};
use super::error::{Meaning, meaning, store_error, text};
use super::session::{Link, Session};
use super::statements::Query;
use super::stats::{PostgresCounters, add, count};
use super::store::{Shared, Turn};

/// How many transactions share a commit at the most.
const MAX_GROUP: usize = 256;
/// Longest wait for the answer to a group. What it became is unknown then.
const ANSWER: Duration = Duration::from_secs(30);
/// How many bytes of values make a group full.
const MAX_GROUP_BYTES: usize = 8 * 1024 * 1024;
/// How many waves a group has at the most. What would come later waits for the next group.
const MAX_WAVES: usize = 16;

/// A transaction, and where its answer goes. Nobody listening any more is no reason not to do it.
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
        let link = Link::new(self.shared.connector.clone(), ANSWER);
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                let mut first = Vec::new();
                if self.jobs.recv_many(&mut first, MAX_GROUP).await == 0 {
                    return;
                }
                waiting.extend(first);
            }
            // Whoever else is about to write comes into this group, at the cost of one turn of the runtime.
            yield_now().await;
            while waiting.len() < MAX_GROUP
                && let Ok(job) = self.jobs.try_recv()
            {
                waiting.push_back(job);
            }
            self.shared.turn.send_modify(|turn| turn.busy = true);
            self.commit(&link, group(&mut waiting)).await;
            self.shared.turn.send_modify(|turn| *turn = Turn { busy: false, done: turn.done + 1 });
        }
    }

    /// Commits a group and answers its jobs.
    async fn commit(&self, link: &Link, group: Group) {
        match self.send(link, &group).await {
            Ok(outcomes) => self.answer(group, outcomes),
            Err(Failure::Group(error)) => {
                group.into_iter().flatten().for_each(|job| job.answer(Err(error.clone().into())));
            }
            Err(Failure::Unfit(error)) if group.iter().flatten().count() == 1 => {
                group.into_iter().flatten().for_each(|job| job.answer(Err(error.clone().into())));
            }
            // The fault is one transaction's; the others must not suffer for it.
            Err(Failure::Unfit(_)) => {
                for job in group.into_iter().flatten() {
                    Box::pin(self.commit(link, vec![vec![job]])).await;
                }
            }
        }
    }

    async fn send(&self, link: &Link, group: &Group) -> Result<Vec<Outcome>, Failure> {
        let deadline = Instant::now() + ANSWER;
        loop {
            let session = link.session().await.map_err(Failure::Group)?;
            // Its notifications say nothing new: what it commits is known here.
            self.shared.connector.own_writer.store(session.process, Ordering::Relaxed);
            let error = match timeout(ANSWER, self.send_once(&session, group)).await {
                Ok(Ok(outcomes)) => return Ok(outcomes),
                Ok(Err(error)) => error,
                Err(_) => {
                    return Err(self.unknown(&session, &format!("no answer within {ANSWER:?}")));
                }
            };
            match meaning(&error) {
                Meaning::Again if Instant::now() < deadline => {}
                Meaning::Elsewhere if Instant::now() < deadline => session.abandon(),
                Meaning::Lost => return Err(self.unknown(&session, &text(&error))),
                Meaning::Exchanged | Meaning::Incomplete => {
                    // The next session finds out which history it is, or makes what is missing.
                    session.abandon();
                    return Err(Failure::Group(store_error(&error)));
                }
                Meaning::Unfit => return Err(Failure::Unfit(store_error(&error))),
                Meaning::Again | Meaning::Elsewhere | Meaning::Refused => {
                    return Err(Failure::Group(store_error(&error)));
                }
            }
            count(&self.counters().retries);
        }
    }

    async fn send_once(&self, session: &Session, group: &Group) -> Result<Vec<Outcome>, tokio_postgres::Error> {
        let incarnation = self.shared.seen().incarnation();
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
    fn unknown(&self, session: &Session, reason: &str) -> Failure {
        session.abandon();
        count(&self.counters().unknown);
        // What it has committed, if it has, comes as others' changes do.
        self.shared.connector.own_writer.store(0, Ordering::Relaxed);
        self.shared.connector.hint.notify_one();
        Failure::Group(StoreError::Unavailable(format!(
            "the connection broke during a commit, and whether it took effect is unknown: {reason}"
        )))
    }

    fn counters(&self) -> &PostgresCounters {
        &self.shared.connector.counters
    }

    /// Tells the tails, then the callers.
    fn answer(&self, group: Group, outcomes: Vec<Outcome>) {
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

/// Why a group was not committed.
enum Failure {
    /// Nothing that has to do with what is in it.
    Group(StoreError),
    /// One of its transactions can't be stored.
    Unfit(StoreError),
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
    type Step<'a> = Pin<Box<dyn Future<Output = Result<Option<Row>, tokio_postgres::Error>> + Send + 'a>>;
    async fn bare(client: &Client, statement: &str) -> Result<Option<Row>, tokio_postgres::Error> {
        client.batch_execute(statement).await.map(|()| None)
    }
    let mut steps: Vec<Step<'_>> = vec![Box::pin(bare(&session.client, "BEGIN"))];
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
