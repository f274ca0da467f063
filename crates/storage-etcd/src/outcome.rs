//! The outcome of a transaction whose answer was lost.
//!
//! The keys that it writes are read back, by a read that sees everything that was acknowledged. A value of ours that is newer
//! than what was known when it was sent shows that it took effect, also where others have written over it since: etcd is
//! asked for the versions between. All its writes have to stand at that revision. Others may write one of them with the same bytes, such
//! as the state of a quota. A compare with a revision that its key no longer has shows that it did not, and never will.
//! Everything else leaves it open: a transaction that is still on its way may be applied after any look.

use keelson_meta::Revision;
use keelson_storage::{CommitError, Committed, Condition, KeyValue, StoreError, StoreKey, Transaction, Write};

use crate::client::{RANGE, READ_TXN};
use crate::error::Failure;
use crate::proto::{RangeRequest, RangeResponse, Request, Response, TxnRequest, TxnResponse};
use crate::revision::{from_etcd, to_etcd};
use crate::store::Shared;
use crate::transaction::{key_value, read_one};

/// How many older versions of a key are looked at: others may have written it that often since.
const OLDER: usize = 16;
/// How many of its writes and of its compares are looked at. One write shows the whole; most transactions have a few.
const LOOKED_AT: usize = 60;

/// How many tenths of a call's time finding out may take besides: the caller has waited already, and gives up after not much more.
const TENTHS: u32 = 2;

/// Finds out what became of a transaction. `before` is the newest revision that was known when it was sent. The keys of
/// another store in the place of this one show nothing, and the outcome stays unknown.
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
        return Err(unknown("and etcd could not be asked afterwards"));
    };
    // One of its writes shows whether it took effect, since it happens as a whole. Another is asked where that was written too often.
    let mut found = Ok(None);
    for (write, current) in transaction.writes.iter().zip(&now.written) {
        let Write::Put { value, .. } = write else { continue };
        found = trace(shared, current.clone(), (transaction, value), from_etcd(before)).await;
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

/// What the keys of a transaction hold.
struct Now {
    /// In the order of its writes.
    written: Vec<Option<KeyValue>>,
    /// In the order of its compares.
    compared: Vec<Option<KeyValue>>,
}

async fn read(shared: &Shared, transaction: &Transaction) -> Result<Now, Failure> {
    let written = transaction.writes.iter().map(Write::key).take(LOOKED_AT);
    let compared = transaction.compares.iter().map(|compare| &compare.key).take(LOOKED_AT);
    let success = written.clone().chain(compared).map(|key| read_one(shared.keys.encode(key))).collect();
    let answer: TxnResponse = shared.client.call(READ_TXN, TxnRequest { success, ..TxnRequest::default() }).await?;
    let mut found = answer.responses.into_iter().map(|part| match part.response {
        Some(Response::Range(range)) => range.kvs.into_iter().next().and_then(|kv| key_value(&shared.keys, kv)),
        _ => None,
    });
    let written = found.by_ref().take(written.len()).collect();
    Ok(Now { written, compared: found.collect() })
}

/// The revision above `before` at which a transaction gave a key this value, from the newest version of the key backwards.
async fn trace(
    shared: &Shared,
    newest: Option<KeyValue>,
    (transaction, value): (&Transaction, &[u8]),
    before: Revision,
) -> Result<Option<Revision>, Failure> {
    let mut version = newest;
    for _ in 0..OLDER {
        let Some(looked_at) = version.filter(|version| version.revision > before) else { return Ok(None) };
        if looked_at.value == value && is_whole(shared, transaction, looked_at.revision).await? {
            return Ok(Some(looked_at.revision));
        }
        version = read_at(shared, &looked_at.key, to_etcd(looked_at.revision) - 1).await?;
    }
    Err(Failure::Nonsense("the key was written too often since".to_owned()))
}

/// Returns true if all writes of a transaction stand at a revision.
async fn is_whole(shared: &Shared, transaction: &Transaction, at: Revision) -> Result<bool, Failure> {
    let writes = || transaction.writes.iter().take(LOOKED_AT);
    let success = writes().map(|write| {
        let (key, revision) = (shared.keys.encode(write.key()), to_etcd(at));
        Request::Range(RangeRequest { key, revision, ..RangeRequest::default() }).into()
    });
    let request = TxnRequest { success: success.collect(), ..TxnRequest::default() };
    let answer: TxnResponse = shared.client.call(READ_TXN, request).await?;
    Ok(writes().zip(answer.responses).all(|(write, part)| {
        let found = match part.response {
            Some(Response::Range(range)) => range.kvs.into_iter().next().and_then(|kv| key_value(&shared.keys, kv)),
            _ => None,
        };
        is_at(write, found, at)
    }))
}

/// The revision at which a transaction took effect that etcd has refused for want of room; `None` where it did not.
///
/// etcd checks the room again when it applies a transaction, and then refuses what it has applied. Its answer has come, so nothing
/// is under way any more. Single reads are used, since older versions of etcd without room refuse transactions that only read.
///
/// # Errors
/// etcd could not be asked, or its keys were written too often since.
pub(crate) async fn applied_without_room(
    shared: &Shared,
    transaction: &Transaction,
    before: i64,
) -> Result<Option<Revision>, Failure> {
    let before = from_etcd(before);
    let Some((key, value)) = transaction.writes.iter().find_map(|write| match write {
        Write::Put { key, value, .. } => Some((key, value)),
        Write::Delete { .. } => None,
    }) else {
        return Ok(None);
    };
    let mut version = read_at(shared, key, 0).await?;
    for _ in 0..OLDER {
        let Some(looked_at) = version.filter(|version| version.revision > before) else { return Ok(None) };
        if looked_at.value == *value && stands_at(shared, transaction, looked_at.revision).await? {
            return Ok(Some(looked_at.revision));
        }
        version = read_at(shared, key, to_etcd(looked_at.revision) - 1).await?;
    }
    Err(Failure::Nonsense("the key was written too often since".to_owned()))
}

/// Returns true if all writes of a transaction stand at a revision. Cost: a call for each.
async fn stands_at(shared: &Shared, transaction: &Transaction, at: Revision) -> Result<bool, Failure> {
    for write in transaction.writes.iter().take(LOOKED_AT) {
        let found = read_at(shared, write.key(), to_etcd(at)).await?;
        if !is_at(write, found, at) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The value of a key at a revision of etcd, or its newest one (0).
async fn read_at(shared: &Shared, key: &StoreKey, revision: i64) -> Result<Option<KeyValue>, Failure> {
    let request = RangeRequest { key: shared.keys.encode(key), revision, ..RangeRequest::default() };
    let answer: RangeResponse = shared.client.call(RANGE, request).await?;
    Ok(answer.kvs.into_iter().next().and_then(|kv| key_value(&shared.keys, kv)))
}

/// Returns true if a write made what was found at a revision.
fn is_at(write: &Write, found: Option<KeyValue>, at: Revision) -> bool {
    match (write, found) {
        (Write::Put { value, .. }, Some(found)) => found.revision == at && found.value == *value,
        (Write::Delete { .. }, None) => true,
        _ => false,
    }
}

/// The first compare that does not hold, if one of them never will again: no key gets a revision back that it no longer has.
///
/// A key that is absent, as the transaction wants it, may have been made by it and deleted by others since: then nothing is known.
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
    // Our own write ends such a compare too; without a put, nothing shows that it was another's.
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
        Some(KeyValue { key: key(name), value: "v".into(), revision: Revision::new(revision) })
    }

    fn refusal(transaction: &Transaction, compared: &[Option<KeyValue>]) -> Option<CommitError> {
        super::refusal(transaction, &Now { written: Vec::new(), compared: compared.to_vec() })
    }

    #[test]
    fn only_a_compare_that_never_holds_again_shows_a_refusal() {
        let update = Transaction::default().when(key("a"), Condition::At(Revision::new(5))).put(key("a"), "w");
        assert!(refusal(&update, &[at("a", 5)]).is_none(), "it may still come");
        assert!(matches!(refusal(&update, &[at("a", 7)]), Some(CommitError::Compare { index: 0, current: Some(_) })));
        assert!(matches!(refusal(&update, &[None]), Some(CommitError::Compare { index: 0, current: None })));
        // The name may become free again while the transaction is on its way.
        let create = Transaction::default().when(key("a"), Condition::Absent).put(key("a"), "w");
        assert!(refusal(&create, &[at("a", 7)]).is_none());
        // Once the fence behind it has moved, it is too late, and the first compare is what the caller is told of.
        let fenced = create.when(key("lease"), Condition::At(Revision::new(3)));
        assert!(refusal(&fenced, &[at("a", 7), at("lease", 3)]).is_none());
        let refused = refusal(&fenced, &[at("a", 7), at("lease", 4)]);
        assert!(matches!(refused, Some(CommitError::Compare { index: 0, current: Some(_) })), "{refused:?}");
        // Another may have deleted what it made. Were the fence told, the caller would make the object again.
        assert!(refusal(&fenced, &[None, at("lease", 4)]).is_none());
        // Whoever deleted it.
        let delete = Transaction::default().when(key("a"), Condition::At(Revision::new(5))).delete(key("a"));
        assert!(refusal(&delete, &[None]).is_none());
    }
}
