//! The name of a store: a random number in one of keelson's own keys. It shows if another store has replaced this one.
//!
//! The cluster id of an etcd is computed from its members' addresses, so it stays the same if the etcd is emptied or
//! replaced. The server must not serve such content: to clients, all their objects would seem deleted.
//!
//! Invariant: after an interruption, nothing is read or written before the name was read again.

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

/// The time after another store was found in which calls fail at once.
const STILL_FOREIGN: Duration = Duration::from_millis(500);
/// A number of interruptions that forces a check before each call.
const ALWAYS: u64 = u64::MAX;

/// The known name of the store.
#[derive(Debug)]
pub(crate) struct StoreName {
    /// Empty while the store in etcd has no name. The name is written before the first put of an object.
    known: OnceCell<String>,
    /// The number of interruptions at the last successful check.
    believed_at: AtomicU64,
    /// The time and the description of another store that was found.
    foreign: Mutex<Option<(Instant, String)>>,
}

impl StoreName {
    /// Creates the state from the name and the number of interruptions at opening.
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

/// Reads the name in etcd.
pub(crate) async fn read(client: &Client, keys: &Keys) -> Result<Option<String>, Failure> {
    let request = RangeRequest { key: keys.name(), ..RangeRequest::default() };
    let answer: RangeResponse = client.call(RANGE, request).await?;
    Ok(answer.kvs.first().map(|kv| String::from_utf8_lossy(&kv.value).into_owned()))
}

/// Writes this name unless the store has one. Returns the name in etcd.
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
    /// Gives a store without a name its name, before objects are put. If this fails, the next put tries again.
    pub(crate) async fn ensure_named(&self, random: &dyn Random) {
        if self.name.known().is_some() {
            return;
        }
        let named = self.name.known.get_or_try_init(|| write(&self.client, &self.keys, random.uuid())).await;
        if let Err(failure) = named {
            tracing::debug!(?failure, "the store in etcd got no name");
        }
    }

    /// Checks after each interruption that etcd has the store that was opened.
    ///
    /// Cost: two atomic reads if there was no interruption.
    ///
    /// # Errors
    /// Another store, or none, has replaced it.
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

    /// Runs a request, and checks that the opened store has answered it, since its connection may be new.
    ///
    /// # Errors
    /// Errors of the request, and of [`sure`](Self::sure).
    pub(crate) async fn surely<T>(&self, error: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.sure().await?;
        let connections = self.client.connections();
        let answer = error.await?;
        self.still_sure(connections).await?;
        Ok(answer)
    }

    /// Checks the store if a connection was opened after the first `connections`.
    ///
    /// # Errors
    /// Errors of [`sure`](Self::sure).
    pub(crate) async fn still_sure(&self, connections: u64) -> Result<(), StoreError> {
        if self.client.connections() == connections { Ok(()) } else { self.sure().await }
    }

    fn believe(&self, interruptions: u64) {
        if self.name.foreign.lock().take().is_some() {
            tracing::info!("etcd holds the store of this server again");
        }
        self.name.believe(interruptions);
    }

    /// Fails if etcd has another store, or none. `is_proven` is true if etcd has a change that this server has seen.
    /// Then a missing name is not an error, since a restored snapshot may be older than the name.
    ///
    /// # Errors
    /// [`Failure::Exchanged`] with the remedy.
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

    /// Writes the name again if a restored snapshot lacks it.
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
