//! The tail: one watch over the whole prefix. It continues after broken connections and on other members.
//!
//! [`state`] decides and this module acts: it opens streams, waits, and sends requests. While a tail is not polled, it
//! does nothing, and etcd keeps its position.

mod ranges;
mod state;
#[cfg(test)]
mod state_tests;

use std::collections::VecDeque;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use keelson_meta::Revision;
use keelson_storage::{StoreError, Tail, TailBatch};
use keelson_supervision::warn_repeated;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::client::{PUT, RANGE, WatchStream, count, full};
use crate::error::Failure;
use crate::proto::{
    PutRequest, PutResponse, RangeRequest, RangeResponse, WatchAsk, WatchCancelRequest, WatchCreateRequest,
    WatchProgressRequest,
};
use crate::revision::{explain, from_etcd};
use crate::store::Shared;
use crate::version::EtcdVersion;
use ranges::{Change, FIRST_WATCH};
use state::{Action, End, Follower, Input, Probe};

/// The value of the tick key.
const TICK_VALUE: &[u8] = b"keelson";

/// Opens a tail after a revision. The caller has checked that the revision is readable.
pub(crate) fn open(shared: Arc<Shared>, after: Revision) -> Tail {
    let wanted = shared.wanted.subscribe();
    let set_back = shared.seen.times.subscribe();
    let machine = Follower::new(shared.keys.clone(), shared.seen.cluster, after, Instant::now());
    let driver = Driver { shared, machine, wanted, set_back, stream: None, actions: VecDeque::new() };
    Box::pin(stream::unfold(Some(driver), |driver| async move {
        let mut driver = driver?;
        match driver.next().await {
            Ok(batch) => Some((Ok(batch), Some(driver))),
            Err(error) => Some((Err(error), None)),
        }
    }))
}

struct Driver {
    shared: Arc<Shared>,
    machine: Follower,
    wanted: watch::Receiver<Revision>,
    /// Changes after a reset of etcd, which makes the delivered history invalid.
    set_back: watch::Receiver<u64>,
    stream: Option<WatchStream>,
    /// Actions that were decided and are not yet done.
    actions: VecDeque<Action>,
}

impl Driver {
    async fn next(&mut self) -> Result<TailBatch, StoreError> {
        loop {
            while let Some(action) = self.actions.pop_front() {
                if let Some(batch) = self.act(action).await? {
                    return Ok(batch);
                }
            }
            let input = self.wait().await;
            if self.set_back.has_changed().unwrap_or_default() {
                return Err(self.end(End::Compacted { position: self.machine.position() }).await);
            }
            self.step(input);
        }
    }

    fn step(&mut self, input: Input) {
        self.actions.extend(self.machine.step(Instant::now(), input));
    }

    /// Waits for the next input.
    async fn wait(&mut self) -> Input {
        let newest = *self.wanted.borrow_and_update();
        if self.machine.wants(newest) {
            return Input::Wanted(newest);
        }
        let due = self.machine.due();
        let timer = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let stream = &mut self.stream;
        let message = async {
            let Some(WatchStream { responses, life, .. }) = stream else { return std::future::pending().await };
            tokio::select! {
                biased;
                message = responses.next() => message,
                // Callers that wait for the member detect its death sooner than an idle watch does.
                _ = life.changed() => Some(Err(tonic::Status::unavailable("its member has stopped answering"))),
            }
        };
        tokio::select! {
            biased;
            message = message => match message {
                Some(Ok(message)) => Input::Message(message),
                Some(Err(status)) => Input::Broken(Failure::from(status)),
                None => Input::Broken(Failure::Unavailable { cause: "the watch has ended".to_owned(), sent: true }),
            },
            Ok(()) = self.wanted.changed() => Input::Wanted(*self.wanted.borrow()),
            Ok(()) = self.set_back.changed() => {
                self.set_back.mark_changed();
                Input::Tick
            }
            () = timer => Input::Tick,
        }
    }

    async fn act(&mut self, action: Action) -> Result<Option<TailBatch>, StoreError> {
        match action {
            Action::Open { start } => {
                let input = self.open(start).await;
                self.step(input);
            }
            Action::Close { cause } => {
                count(&self.shared.client.counters().watches_broken);
                // ORDER: the interruption is counted before another watch opens, since the next etcd may have other
                // content.
                self.shared.client.interrupted();
                warn_repeated!(""; %cause, "the watch on etcd has broken; opening another");
                self.stream = None;
            }
            Action::TurnFrom { cause } => {
                if let Some(stream) = &self.stream {
                    self.shared.client.turn_from(stream.place, &cause);
                }
            }
            Action::Verify { revision } => {
                let probe = self.probe(revision).await;
                self.step(Input::Verified(probe));
            }
            Action::AskProgress => {
                count(&self.shared.client.counters().progress_requests);
                self.send(WatchAsk::Progress(WatchProgressRequest {}));
            }
            Action::Share(Change::Begin { watch, start }) => {
                let create = self.create(watch, start);
                self.send(WatchAsk::Create(create));
            }
            Action::Share(Change::Cancel { watch }) => {
                self.send(WatchAsk::Cancel(WatchCancelRequest { watch_id: watch }));
            }
            Action::AskLife => {
                let input = self.ask_life().await;
                self.step(input);
            }
            Action::WriteTick => self.write_tick(),
            Action::Tell(batch) => {
                self.shared.seen.told(&self.shared.keys, &batch.events);
                return Ok(Some(batch));
            }
            Action::End(end) => return Err(self.end(end).await),
        }
        Ok(None)
    }

    async fn open(&mut self, start: i64) -> Input {
        match self.shared.client.watch(self.create(FIRST_WATCH, start)).await {
            Ok(stream) => {
                // ORDER: this check precedes the delivery of any event of the stream, since etcd may have been reset
                // meanwhile.
                match self.shared.recognise().await {
                    Ok(()) => {}
                    Err(failure @ Failure::SetBack) => {
                        let cause = self.shared.told(failure).await.to_string();
                        return Input::Broken(Failure::Unavailable { cause, sent: true });
                    }
                    Err(failure) => return Input::Broken(failure),
                }
                let truthful = stream.version.is_some_and(EtcdVersion::reports_progress_truthfully);
                self.stream = Some(stream);
                Input::Opened { truthful }
            }
            Err(failure) => Input::Broken(failure),
        }
    }

    fn create(&self, watch_id: i64, start_revision: i64) -> WatchCreateRequest {
        let (key, range_end) = self.shared.keys.all();
        WatchCreateRequest { key, range_end, start_revision, progress_notify: true, watch_id, fragment: true }
    }

    async fn ask_life(&self) -> Input {
        match &self.stream {
            Some(stream) if !self.shared.client.watches_live(stream.place).await => {
                let cause = "the watch's member has stopped answering".to_owned();
                Input::Broken(Failure::Unavailable { cause, sent: true })
            }
            _ => Input::Alive,
        }
    }

    /// Checks that a revision can be read, by a read that sees every compaction.
    async fn probe(&self, revision: i64) -> Probe {
        let request =
            RangeRequest { key: self.shared.keys.tick(), revision, count_only: true, ..RangeRequest::default() };
        match self.shared.client.call::<_, RangeResponse>(RANGE, request).await {
            Ok(_) => Probe::Readable,
            Err(Failure::Compacted) => Probe::Compacted,
            Err(Failure::Future) => Probe::Future,
            Err(failure) => Probe::Failed(failure),
        }
    }

    fn send(&mut self, ask: WatchAsk) {
        let sent = self.stream.as_mut().map(|stream| stream.requests.try_send(ask.into()));
        if let Some(Err(_)) = sent {
            self.step(Input::Broken(full()));
        }
    }

    /// Writes the tick while the stream is open. If the write fails, the event is missing.
    fn write_tick(&self) {
        count(&self.shared.client.counters().ticks);
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let value = bytes::Bytes::from_static(TICK_VALUE);
            let request = PutRequest { key: shared.keys.tick(), value, ..PutRequest::default() };
            if let Err(failure) = shared.client.call::<_, PutResponse>(PUT, request).await {
                tracing::debug!(?failure, "the tick was not written");
            }
        });
    }

    async fn end(&self, end: End) -> StoreError {
        let shared = &self.shared;
        match end {
            End::Compacted { position } if shared.revisions.check(from_etcd(position)).is_err() => {
                let oldest =
                    shared.revisions.oldest(&shared.client, &shared.keys).await.unwrap_or(from_etcd(position).next());
                StoreError::Compacted { requested: from_etcd(position), oldest }
            }
            End::Compacted { position } => {
                explain(Failure::Compacted, from_etcd(position), &shared.client, &shared.keys, &shared.revisions).await
            }
            // The position is not above the newest revision seen, so etcd was reset to a lower one.
            End::Future { position } if position <= shared.seen.highest() => shared.told(Failure::SetBack).await,
            End::Future { position } => {
                explain(Failure::Future, from_etcd(position), &shared.client, &shared.keys, &shared.revisions).await
            }
            End::OtherCluster => shared.told(Failure::SetBack).await,
            End::Failed(failure) => failure.into_store_error(),
        }
    }
}
