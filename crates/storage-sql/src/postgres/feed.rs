//! What all servers have committed, followed by revision.
//!
//! A notification, or a group of our own, only says that it is time to look. Whoever misses one looks a little later anyway, so
//! no connection that breaks, and no server that fails over, can lose a change, repeat one or change their order.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Revision;
use keelson_storage::StoreError;
use tokio::time::{sleep, timeout};

use super::read;
use super::session::{Link, SHORT, Session};
use super::store::Shared;
use crate::tail::{BATCH_BYTES, BATCH_EVENTS, Changes, History};

/// Without a hint, the table is looked at after the first of these after a change, then more and more seldom.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Follows the table until the store is dropped or the history turns out to be another.
pub(crate) async fn follow(shared: Arc<Shared>) {
    let link = Link::new(shared.connector.clone(), SHORT);
    let mut listening: Option<Arc<Session>> = None;
    let mut pause = PAUSES.0;
    loop {
        pause = match look(&shared, &link, &mut listening).await {
            Ok(Looked::More) => continue,
            Ok(Looked::Changed) => PAUSES.0,
            Ok(Looked::AtRest) | Err(StoreError::Unavailable(_)) => (pause * 2).min(PAUSES.1),
            Err(error) => {
                tracing::error!(%error, "the store can't be followed any more");
                shared.fail(error);
                return;
            }
        };
        // Both outcomes lead to the same: another look.
        let _ = timeout(pause, shared.connector.hint.notified()).await;
        if link_is_down(listening.as_ref()) {
            sleep(PAUSES.0).await;
        }
    }
}

/// What a look at the table has found.
enum Looked {
    /// As much as one look may read; there is more.
    More,
    /// Something.
    Changed,
    /// Nothing.
    AtRest,
}

async fn look(shared: &Shared, link: &Link, listening: &mut Option<Arc<Session>>) -> Result<Looked, StoreError> {
    let session = link.session().await?;
    if !listening.as_ref().is_some_and(|known| Arc::ptr_eq(known, &session)) {
        // ORDER: listening begins before the look, so that nothing can be committed between the two unnoticed.
        let listens = link.read(|session| async move {
            session.client.batch_execute("LISTEN keelson").await?;
            Ok(session)
        });
        *listening = Some(listens.await?);
    }
    let before = shared.highest();
    let (after, until) = shared.timeline.lock().gap();
    let found =
        link.read(|session| async move { read::changes(&session, (after, until), (BATCH_EVENTS, BATCH_BYTES)).await });
    let (state, (events, reached)) = found.await?;
    shared.believe(before, state)?;
    if state.oldest > after {
        // Away for longer than the history is kept. Tails that wait for what is gone are told so by the table.
        shared.tell(|timeline| timeline.begin_at(state.oldest.max(after)));
        return Ok(Looked::More);
    }
    let changed = reached > after;
    shared.tell(|timeline| timeline.add_read(after, events, reached));
    let told = shared.timeline.lock().newest();
    Ok(match (told < state.revision, changed) {
        (true, _) => Looked::More,
        (false, true) => Looked::Changed,
        (false, false) => Looked::AtRest,
    })
}

fn link_is_down(session: Option<&Arc<Session>>) -> bool {
    session.is_none_or(|session| session.client.is_closed())
}

impl History for Shared {
    async fn newer_than(&self, after: Revision) -> Result<Revision, StoreError> {
        let mut told = self.told.subscribe();
        let told = told.wait_for(|told| told.failed.is_some() || told.newest > after).await;
        let told = told.map_err(|_| super::error::stopped())?;
        match &told.failed {
            Some(error) => Err(error.clone()),
            None => Ok(told.newest),
        }
    }

    fn recent(&self, after: Revision, until: Revision) -> Option<Changes> {
        self.timeline.lock().between(after, until)
    }

    async fn stored(&self, after: Revision, until: Revision) -> Result<Changes, StoreError> {
        let before = self.highest();
        let found = self.readers.read(|session| async move {
            read::changes(&session, (after, Some(until)), (BATCH_EVENTS, BATCH_BYTES)).await
        });
        let (state, changes) = found.await?;
        self.believe(before, state)?;
        state.check_readable(after)?;
        Ok(changes)
    }
}
