//! Finds the outcome of a transaction whose answer was lost, or that etcd refused for lack of space.
//!
//! The search reads the keys of the transaction, with reads that see everything acknowledged. Two conditions show that
//! the transaction took effect. A key has the written value at a revision above the newest one that was known before
//! sending, and all other writes have that revision. Older versions are read too, since another server may have
//! overwritten the key, or written the same bytes, such as the state of a quota.
//!
//! If a compare requires a revision that its key no longer has, the transaction did not take effect and never will.
//! Every other finding leaves the outcome unknown, since a transaction in flight may still be applied after any read.

use keelson_meta::Revision;
use keelson_storage::{CommitError, Committed, Condition, KeyValue, StoreError, StoreKey, Transaction, Write};

use crate::client::{RANGE, READ_TXN};
use crate::error::Failure;
use crate::proto::{RangeRequest, RangeResponse, Request, Response, TxnRequest, TxnResponse};
use crate::revision::{from_etcd, to_etcd};
use crate::store::Shared;
use crate::transaction::{key_value, read_one};

/// The number of older versions of a key that are read, since other servers may have written it meanwhile.
const OLDER: usize = 16;
/// The maximum number of writes and of compares that are read. Most transactions have fewer.
const LOOKED_AT: usize = 60;
/// The time limit of these reads, in tenths of a call's timeout. The caller has waited for one timeout already.
const TENTHS: u32 = 2;

/// Returns the outcome of a transaction. `before` was the newest known revision when it was sent.
///
/// # Errors
/// The refusal of the transaction, or [`StoreError::Unknown`]. The outcome is also unknown if another store has
/// replaced this one.
pub(crate) async fn find(
    shared: &Shared,
    transaction: &Transaction,
    before: i64,
    cause: String,
) -> Result<Committed, CommitError> {
    let limit = shared.client.timeout() * TENTHS / 10;
    let unknown = |why: &str| CommitError::from(StoreError::Unknown(format!("{cause}; {why}")));
    let found = tokio::time::timeout(limit, look(shared, transaction, before, &cause)).await;
    let found = found.unwrap_or_else(|_| Err(unknown("and etcd does not answer")));
    if matches!(found, Err(CommitError::Store(_))) {
        return found;
    }
    match shared.sure().await {
        Ok(()) => found,
        Err(why) => Err(unknown(&why.to_string())),
    }
}

async fn look(shared: &Shared, transaction: &Transaction, before: i64, cause: &str) -> Result<Committed, CommitError> {
    let unknown = |why: &str| CommitError::from(StoreError::Unknown(format!("{cause}; {why}")));
    let Ok(now) = read(shared, transaction).await else {
        return Err(unknown("and the read of the outcome from etcd failed"));
    };
    // One write shows if the transaction took effect. The next write is read only if the key of this one was written
    // too often since.
    let mut found = Ok(None);
    for (write, current) in transaction.writes.iter().zip(&now.written) {
        let Write::Put { value, .. } = write else { continue };
        found = trace(shared, current.clone(), (transaction, value), from_etcd(before), ReadBack::Together).await;
        if found.is_ok() {
            break;
        }
    }
    match found {
        Ok(Some(at)) => return Ok(Committed { revisions: vec![at; transaction.writes.len()] }),
        Ok(None) => {}
        Err(_) => return Err(unknown("and the versions since could not be read")),
    }
    match refusal(transaction, &now) {
        Some(refusal) => Err(refusal),
        None => Err(unknown("and it may still take effect")),
    }
}

/// The current values of the keys of a transaction.
struct Now {
    /// The values of the written keys, in the order of the writes.
    written: Vec<Option<KeyValue>>,
    /// The values of the compared keys, in the order of the compares.
    compared: Vec<Option<KeyValue>>,
}

async fn read(shared: &Shared, transaction: &Transaction) -> Result<Now, Failure> {
    let written = transaction.writes.iter().map(Write::key).take(LOOKED_AT);
    let compared = transaction.compares.iter().map(|compare| &compare.key).take(LOOKED_AT);
    let success = written.clone().chain(compared).map(|key| read_one(shared.keys.encode(key))).collect();
    let answer: TxnResponse = shared.client.call(READ_TXN, TxnRequest { success, ..TxnRequest::default() }).await?;
    let mut found = values(shared, answer);
    let written = found.by_ref().take(written.len()).collect();
    Ok(Now { written, compared: found.collect() })
}

/// The way to read the writes of a transaction.
#[derive(Clone, Copy)]
enum ReadBack {
    /// All keys in one transaction.
    Together,
    /// A call for each key, since etcd 3.4 without space refuses transactions that only read.
    OneByOne,
}

/// Returns the revision above `before` at which a transaction took effect. Searches the versions of one of its keys,
/// the newest first.
async fn trace(
    shared: &Shared,
    newest: Option<KeyValue>,
    (transaction, value): (&Transaction, &[u8]),
    before: Revision,
    way: ReadBack,
) -> Result<Option<Revision>, Failure> {
    let mut version = newest;
    for _ in 0..OLDER {
        let Some(found) = version.filter(|version| version.revision > before) else { return Ok(None) };
        if found.value == value && is_whole(shared, transaction, found.revision, way).await? {
            return Ok(Some(found.revision));
        }
        version = read_at(shared, &found.key, to_etcd(found.revision) - 1).await?;
    }
    Err(Failure::Nonsense("the key was written too often since".to_owned()))
}

/// Returns true if all writes of a transaction are in etcd at a revision.
async fn is_whole(shared: &Shared, transaction: &Transaction, at: Revision, way: ReadBack) -> Result<bool, Failure> {
    let writes = || transaction.writes.iter().take(LOOKED_AT);
    if matches!(way, ReadBack::OneByOne) {
        for write in writes() {
            if !is_at(write, read_at(shared, write.key(), to_etcd(at)).await?, at) {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let success = writes().map(|write| {
        let (key, revision) = (shared.keys.encode(write.key()), to_etcd(at));
        Request::Range(RangeRequest { key, revision, ..RangeRequest::default() }).into()
    });
    let request = TxnRequest { success: success.collect(), ..TxnRequest::default() };
    let answer: TxnResponse = shared.client.call(READ_TXN, request).await?;
    Ok(writes().zip(values(shared, answer)).all(|(write, found)| is_at(write, found, at)))
}

/// Returns the values of a transaction of single reads, in the order of the reads.
fn values(shared: &Shared, answer: TxnResponse) -> impl Iterator<Item = Option<KeyValue>> + '_ {
    answer.responses.into_iter().map(|part| match part.response {
        Some(Response::Range(range)) => range.kvs.into_iter().next().and_then(|kv| key_value(&shared.keys, kv)),
        _ => None,
    })
}

/// Returns the revision at which a transaction took effect although etcd has refused it for lack of space; `None` if it
/// did not take effect.
///
/// etcd checks the space again when it applies a transaction, and may refuse one that it has applied. The refusal has
/// arrived, so the transaction is no longer in flight.
///
/// # Errors
/// etcd could not be read, or the keys were written too often since.
pub(crate) async fn applied_without_room(
    shared: &Shared,
    transaction: &Transaction,
    before: i64,
) -> Result<Option<Revision>, Failure> {
    let put = transaction.writes.iter().find_map(|write| match write {
        Write::Put { key, value, .. } => Some((key, value)),
        Write::Delete { .. } => None,
    });
    let Some((key, value)) = put else { return Ok(None) };
    let newest = read_at(shared, key, 0).await?;
    trace(shared, newest, (transaction, value), from_etcd(before), ReadBack::OneByOne).await
}

/// Returns the value of a key at a revision of etcd, or the newest value (revision 0).
async fn read_at(shared: &Shared, key: &StoreKey, revision: i64) -> Result<Option<KeyValue>, Failure> {
    let request = RangeRequest { key: shared.keys.encode(key), revision, ..RangeRequest::default() };
    let answer: RangeResponse = shared.client.call(RANGE, request).await?;
    Ok(answer.kvs.into_iter().next().and_then(|kv| key_value(&shared.keys, kv)))
}

/// Returns true if `found` is the result of a write at a revision.
fn is_at(write: &Write, found: Option<KeyValue>, at: Revision) -> bool {
    match (write, found) {
        (Write::Put { value, .. }, Some(found)) => found.revision == at && found.value == *value,
        (Write::Delete { .. }, None) => true,
        _ => false,
    }
}

/// Returns the first compare that does not hold, if the transaction can't take effect any more. This is certain if a
/// compare requires a revision that its key no longer has, since a key never gets an old revision again.
///
/// If all written keys are absent, as the compares require, the transaction may have created them and other clients may
/// have deleted them since. Then the outcome is unknown, and this returns `None`.
fn refusal(transaction: &Transaction, now: &Now) -> Option<CommitError> {
    let is_absent = |key: &StoreKey| {
        let mut compares = transaction.compares.iter().zip(&now.compared);
        compares.any(|(compare, current)| compare.key == *key && current.is_none() && compare.condition.holds(None))
    };
    let puts = transaction.writes.iter().filter(|write| matches!(write, Write::Put { .. }));
    if puts.map(Write::key).all(is_absent) {
        return None;
    }
    let failing = || {
        let pairs = transaction.compares.iter().zip(&now.compared).enumerate();
        pairs.filter(|(_, (compare, current))| !compare.condition.holds(current.as_ref().map(|entry| entry.revision)))
    };
    let for_good = failing().any(|(_, (compare, _))| matches!(compare.condition, Condition::At(_)));
    // The transaction itself may also have changed the compared key. Only a put shows that another write did.
    let (index, (_, current)) = failing().next().filter(|_| for_good && transaction.has_puts())?;
    Some(CommitError::Compare { index, current: current.clone() })
}

#[cfg(test)]
mod tests {
    use keelson_storage::StoreKey;

    use super::*;

    fn key(name: &str) -> StoreKey {
        StoreKey::new(format!("/registry/{name}"))
    }

    fn at(name: &str, revision: u64) -> Option<KeyValue> {
        Some(KeyValue::new(key(name), "v".into(), Revision::new(revision)))
    }

    fn refusal(transaction: &Transaction, compared: &[Option<KeyValue>]) -> Option<CommitError> {
        super::refusal(transaction, &Now { written: Vec::new(), compared: compared.to_vec() })
    }

    #[test]
    fn only_a_permanently_failed_compare_proves_a_refusal() {
        let update = Transaction::default().when(key("a"), Condition::At(Revision::new(5))).put(key("a"), "w");
        assert!(refusal(&update, &[at("a", 5)]).is_none(), "it may still come");
        assert!(matches!(refusal(&update, &[at("a", 7)]), Some(CommitError::Compare { index: 0, current: Some(_) })));
        assert!(matches!(refusal(&update, &[None]), Some(CommitError::Compare { index: 0, current: None })));
        // The key may become absent again while the transaction is in flight.
        let create = Transaction::default().when(key("a"), Condition::Absent).put(key("a"), "w");
        assert!(refusal(&create, &[at("a", 7)]).is_none());
        // Once the compared lease of the fence has another revision, the transaction can't take effect. The caller gets
        // the first compare.
        let fenced = create.when(key("lease"), Condition::At(Revision::new(3)));
        assert!(refusal(&fenced, &[at("a", 7), at("lease", 3)]).is_none());
        let refused = refusal(&fenced, &[at("a", 7), at("lease", 4)]);
        assert!(matches!(refused, Some(CommitError::Compare { index: 0, current: Some(_) })), "{refused:?}");
        // Another client may have deleted the object after the transaction created it. With the refusal of the fence,
        // the caller would create the object again.
        assert!(refusal(&fenced, &[None, at("lease", 4)]).is_none());
        // Any client may have deleted the key.
        let delete = Transaction::default().when(key("a"), Condition::At(Revision::new(5))).delete(key("a"));
        assert!(refusal(&delete, &[None]).is_none());
    }
}
