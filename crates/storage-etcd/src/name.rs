//! The name of a store: a random number under a key of keelson's own, by which another store in its place is known.
//!
//! The number of an etcd follows from the addresses of its members, so an etcd whose data was emptied or exchanged has the number of the
//! one before. Its content is not believed: to clients all of their objects would seem deleted.
//!
//! Invariant: after an interruption nothing is read or written before the name was read again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keelson_meta::Random;
use keelson_storage::StoreError;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::client::{Client, RANGE, TXN};
use crate::error::Failure;
use crate::keys::Keys;
use crate::proto::{
    Compare, CompareResult, CompareTarget, CompareWith, PutRequest, RangeRequest, RangeResponse, Request, Response,
    TxnRequest, TxnResponse,
};
use crate::store::Shared;

/// The time for which calls fail at once, after etcd was found to hold another store.
const STILL_FOREIGN: Duration = Duration::from_millis(500);
/// The number of interruptions of a store that has to be looked at before each call.
const ALWAYS: u64 = u64::MAX;

/// The name as far as it is known.
#[derive(Debug)]
pub(crate) struct StoreName {
    /// Empty as long as etcd has none: it is written before the first put of an object.
    known: OnceCell<String>,
    /// The number of interruptions of the client when the store was last found to be the one that was opened.
    believed_at: AtomicU64,
    /// The finding of another store in its place, and its time.
    foreign: Mutex<Option<(Instant, String)>>,
}

impl StoreName {
    /// The name that was read when the store was opened, after so many interruptions.
    pub(crate) fn new(found: Option<String>, interruptions: u64) -> Self {
        let known = OnceCell::new_with(found);
        Self { known, believed_at: AtomicU64::new(interruptions), foreign: Mutex::default() }
    }

    pub(crate) fn known(&self) -> Option<&str> {
        self.known.get().map(String::as_str)
    }

    fn believe(&self, interruptions: u64) {
        self.believed_at.store(interruptions, Ordering::Release);
    }
}

/// Reads the name that etcd has now.
pub(crate) async fn read(client: &Client, keys: &Keys) -> Result<Option<String>, Failure> {
    let request = RangeRequest { key: keys.name(), ..RangeRequest::default() };
    let answer: RangeResponse = client.call(RANGE, request).await?;
    Ok(answer.kvs.first().map(|kv| String::from_utf8_lossy(&kv.value).into_owned()))
}

/// Gives the store this name unless it has one. Returns the one that it has then.
async fn write(client: &Client, keys: &Keys, name: String) -> Result<String, Failure> {
    let key = keys.name();
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Version.into(),
        key: key.clone(),
        with: Some(CompareWith::Version(0)),
    };
    let put = PutRequest { key: key.clone(), value: Bytes::from(name.clone()), ..PutRequest::default() };
    let range = RangeRequest { key, ..RangeRequest::default() };
    let request = TxnRequest {
        compare: vec![compare],
        success: vec![Request::Put(put).into()],
        failure: vec![Request::Range(range).into()],
    };
    let answer: TxnResponse = client.call(TXN, request).await?;
    match answer.responses.into_iter().next().and_then(|part| part.response) {
        Some(Response::Range(RangeResponse { kvs, .. })) => match kvs.first() {
            Some(kv) => Ok(String::from_utf8_lossy(&kv.value).into_owned()),
            None => Err(Failure::Nonsense("etcd compared a key that it does not have".to_owned())),
        },
        _ => Ok(name),
    }
}

impl Shared {
    /// Gives a store without a name one, before objects are put. An etcd that refuses it is asked again with the next put.
    pub(crate) async fn ensure_named(&self, random: &dyn Random) {
        if self.name.known().is_some() {
            return;
        }
        let named = self.name.known.get_or_try_init(|| write(&self.client, &self.keys, random.uuid())).await;
        if let Err(failure) = named {
            tracing::debug!(?failure, "the store in etcd got no name");
        }
    }

    /// Makes sure, after each interruption, that etcd holds the store that was opened.
    ///
    /// Cost: two atomic reads without an interruption.
    ///
    /// # Errors
    /// When another store, or none, is in its place.
    pub(crate) async fn sure(&self) -> Result<(), StoreError> {
        let interruptions = self.client.interruptions();
        if self.name.believed_at.load(Ordering::Acquire) == interruptions {
            return Ok(());
        }
        if let Some((since, finding)) = &*self.name.foreign.lock()
            && since.elapsed() < STILL_FOREIGN
        {
            return Err(Failure::Exchanged(finding.clone()).into_store_error());
        }
        match self.recognise().await {
            Ok(()) => {
                self.believe(interruptions);
                Ok(())
            }
            Err(failure) => Err(self.told(failure).await),
        }
    }

    /// The answer to a question, of the store that was opened: the connection on which it came may have been made for it.
    ///
    /// # Errors
    /// As the question, and as [`sure`](Self::sure).
    pub(crate) async fn surely<T>(&self, asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.sure().await?;
        let connections = self.client.connections();
        let answer = asked.await?;
        self.still_sure(connections).await?;
        Ok(answer)
    }

    /// Makes sure of an answer for which a connection may have been made: there were so many before.
    ///
    /// # Errors
    /// As [`sure`](Self::sure).
    pub(crate) async fn still_sure(&self, connections: u64) -> Result<(), StoreError> {
        if self.client.connections() == connections { Ok(()) } else { self.sure().await }
    }

    fn believe(&self, interruptions: u64) {
        if self.name.foreign.lock().take().is_some() {
            tracing::info!("etcd holds the store of this server again");
        }
        self.name.believe(interruptions);
    }

    /// Refuses an etcd in which another store, or none, has taken the place of the one that was opened. `is_proven` is true where a
    /// change that this server has seen is there: then a missing name is one that a restored snapshot did not have yet.
    ///
    /// # Errors
    /// [`Failure::Exchanged`] with the way out.
    pub(crate) async fn check_name(&self, cluster: u64, is_proven: bool) -> Result<(), Failure> {
        let found = read(&self.client, &self.keys).await?;
        let is_same = match (self.name.known(), &found) {
            (Some(known), Some(found)) => known == found,
            (Some(_), None) => is_proven,
            (None, _) => is_proven || self.holds_objects().await?,
        };
        if is_same && cluster == self.seen.cluster {
            return Ok(());
        }
        let holds = if found.is_some() || self.holds_objects().await? { "another store" } else { "no objects" };
        let finding = format!(
            "the etcd at {} holds {holds} in place of the store that this server has read: put its data back, or stop all servers, and \
             start them again to go on with what is there now",
            self.client.endpoints()
        );
        self.name.believe(ALWAYS);
        if self.name.foreign.lock().replace((Instant::now(), finding.clone())).is_none() {
            tracing::error!(seen = self.seen.highest(), "{finding}; requests are refused until then");
        }
        Err(Failure::Exchanged(finding))
    }

    /// Writes the name again that a restored snapshot did not have yet.
    pub(crate) async fn name_again(&self) {
        let Some(known) = self.name.known() else { return };
        if let Err(failure) = write(&self.client, &self.keys, known.to_owned()).await {
            tracing::warn!(?failure, "the store in etcd did not get its name again");
        }
    }

    async fn holds_objects(&self) -> Result<bool, Failure> {
        for (key, range_end) in self.keys.objects() {
            let request = RangeRequest { key, range_end, limit: 1, keys_only: true, ..RangeRequest::default() };
            if !self.client.call::<_, RangeResponse>(RANGE, request).await?.kvs.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
