//! The feed of the commits of all servers, in the order of their revisions.
//!
//! The feed gets changes only by reading the table. Two events trigger a read: a notification of another server, and a
//! group of this server that was committed after changes of other servers. The feed also reads periodically, in case a
//! notification is lost. So neither a broken connection nor a failover can lose a change, repeat one or change their
//! order.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Revision;
use keelson_storage::StoreError;
use tokio::time::{sleep, timeout};
use tokio_postgres::Error;

use super::access::Purpose;
use super::error::QueryFault;
use super::read;
use super::rows;
use super::session::{Link, SHORT, Session};
use super::store::Shared;
use crate::tail::{BATCH_BYTES, BATCH_EVENTS, Changes, History};

/// The pause before the next read of the table without a trigger: the first value after a change, growing to the
/// second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// The time that a read waits for a group of this server in flight. After the group, the read needs only the changes of
/// other servers, and gets all of them at once. An earlier read would fetch rows that the writer already has in memory.
const IN_STEP: Duration = Duration::from_millis(10);

/// Reads the table until the store is dropped.
pub(crate) async fn follow(shared: Arc<Shared>) {
    let link = Link::new(shared.connector.clone(), SHORT, Purpose::Read);
    let mut listening: Option<Arc<Session>> = None;
    let mut pause = PAUSES.0;
    loop {
        in_step(&shared).await;
        pause = match look(&shared, &link, &mut listening).await {
            Ok(ReadOutcome::More) => {
                in_step(&shared).await;
                // The other rows may have been a group of this server, which is published by now.
                if shared.seen().newest() < shared.seen().highest() {
                    continue;
                }
                PAUSES.0
            }
            Ok(ReadOutcome::Changed) => PAUSES.0,
            Ok(ReadOutcome::AtRest) => (pause * 2).min(PAUSES.1),
            Err(error) => {
                tracing::debug!(%error, "reading the state of the store failed");
                (pause * 2).min(PAUSES.1)
            }
        };
        // The next step is a read, both after a notification and after the pause.
        let _ = timeout(pause, shared.connector.hint.notified()).await;
        if link_is_down(listening.as_ref()) {
            sleep(PAUSES.0).await;
        }
    }
}

/// Waits for the end of the group in flight, if there is one.
async fn in_step(shared: &Shared) {
    let mut turn = shared.turn.subscribe();
    let now = *turn.borrow_and_update();
    if now.busy {
        // If the wait times out, the read runs concurrently with the group.
        let _ = timeout(IN_STEP, turn.wait_for(|turn| turn.done != now.done)).await;
    }
}

/// The result of reading the table.
enum ReadOutcome {
    /// The read returned the maximum amount, and there are more changes.
    More,
    /// The read returned changes, and there are no more.
    Changed,
    /// There were no changes.
    AtRest,
}

async fn look(shared: &Shared, link: &Link, listening: &mut Option<Arc<Session>>) -> Result<ReadOutcome, StoreError> {
    let session = link.session().await?;
    if !listening.as_ref().is_some_and(|known| Arc::ptr_eq(known, &session)) {
        // ORDER: LISTEN runs before the read, so that no commit between the two stays unnoticed.
        let listens = link.read(|session| async move {
            session.client.batch_execute("LISTEN keelson").await?;
            Ok::<_, Error>(session)
        });
        *listening = Some(listens.await?);
    }
    let seen = shared.seen();
    let (after, until) = seen.gap();
    let found = link.read(|session| async move {
        let before = seen.highest();
        let found = read::changes(&session, (after, until), (BATCH_EVENTS, BATCH_BYTES)).await?;
        seen.believe(before, found.0)?;
        Ok::<_, QueryFault>(found)
    });
    let (state, (events, reached)) = found.await?;
    if state.oldest > after {
        // The server was away for longer than the history window. Tails that need the deleted rows get the error when
        // they read the table.
        seen.tell(|timeline| timeline.begin_at(state.oldest));
        return Ok(ReadOutcome::More);
    }
    if let Some(loss) = rows::loss_among(&events, after, reached) {
        return Err(shared.loss.record(loss));
    }
    let changed = reached > after;
    seen.tell(|timeline| timeline.add_read(after, events, reached));
    Ok(match (seen.newest() < state.revision, changed) {
        (true, _) => ReadOutcome::More,
        (false, true) => ReadOutcome::Changed,
        (false, false) => ReadOutcome::AtRest,
    })
}

fn link_is_down(session: Option<&Arc<Session>>) -> bool {
    session.is_none_or(|session| session.client.is_closed())
}

impl History for Shared {
    async fn newer_than(&self, after: Revision) -> Result<Revision, StoreError> {
        let mut told = self.seen().told.subscribe();
        let told = told.wait_for(|told| told.failed.is_some() || told.newest > after).await;
        let told = told.map_err(|_| super::error::stopped())?;
        match &told.failed {
            Some(error) => Err(error.clone()),
            None => Ok(told.newest),
        }
    }

    fn recent(&self, after: Revision, until: Revision) -> Option<Changes> {
        self.seen().between(after, until)
    }

    async fn stored(&self, after: Revision, until: Revision) -> Result<Changes, StoreError> {
        let found = self.readers.read(|session| async move {
            let before = self.seen().highest();
            let found = read::changes(&session, (after, Some(until)), (BATCH_EVENTS, BATCH_BYTES)).await?;
            self.seen().believe(before, found.0)?;
            Ok::<_, QueryFault>(found)
        });
        let (state, changes) = found.await?;
        state.check_readable(after)?;
        if let Some(loss) = rows::loss_among(&changes.0, after, changes.1) {
            return Err(self.loss.record(loss));
        }
        Ok(changes)
    }
}
