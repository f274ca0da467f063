//! Converts the store's transactions to etcd's, and the answers back. Has no IO.
//!
//! etcd limits the operations of a transaction (`--max-txn-ops`, 128). Further writes are in nested transactions, which
//! etcd applies at the same revision.

use std::collections::BTreeMap;

use keelson_meta::Revision;
use keelson_storage::{CommitError, Condition, KeyValue, StoreError, Transaction, Write};

use crate::keys::Keys;
use crate::proto::{
    Compare, CompareResult, CompareTarget, CompareWith, DeleteRangeRequest, PutRequest, RangeRequest, Request,
    RequestOp, Response, ResponseOp, TxnRequest, TxnResponse,
};
use crate::revision::{from_etcd, to_etcd};

/// etcd's default limit of operations.
const MOST_PARTS: usize = 128;

/// The effect of a successful transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// The revision of the store after it.
    pub(crate) revision: i64,
    /// True if it wrote something. A delete of an absent key writes nothing.
    pub(crate) wrote: bool,
}

/// Encodes a transaction. `leases` has the lease of each write, 0 for no lease.
pub(crate) fn encode(keys: &Keys, transaction: &Transaction, leases: &[i64]) -> Result<TxnRequest, StoreError> {
    if transaction.compares.len() > MOST_PARTS {
        let compares = transaction.compares.len();
        return Err(StoreError::TooLarge(format!("{compares} compares in one transaction; etcd takes {MOST_PARTS}")));
    }
    let writes: Vec<RequestOp> =
        transaction.writes.iter().zip(leases).map(|(write, lease)| encode_write(keys, write, *lease)).collect();
    Ok(TxnRequest {
        compare: transaction.compares.iter().map(|compare| encode_compare(keys, compare)).collect(),
        success: fold(writes, transaction.compares.len())?,
        failure: compared_keys(keys, transaction).into_iter().map(read_one).collect(),
    })
}

/// Decodes etcd's answer.
///
/// # Errors
/// The first compare that does not hold, with the current value of its key.
pub(crate) fn decode(keys: &Keys, transaction: &Transaction, answer: TxnResponse) -> Result<Done, CommitError> {
    if answer.succeeded {
        let revision = answer.header.unwrap_or_default().revision;
        return Ok(Done { revision, wrote: answer.responses.iter().any(wrote) });
    }
    let found: BTreeMap<Vec<u8>, KeyValue> = answer
        .responses
        .into_iter()
        .filter_map(|part| match part.response {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            _ => None,
        })
        .filter_map(|kv| Some((kv.key.clone(), key_value(keys, kv)?)))
        .collect();
    for (index, compare) in transaction.compares.iter().enumerate() {
        let current = found.get(&keys.encode(&compare.key));
        if !compare.condition.holds(current.map(|entry| entry.revision)) {
            return Err(CommitError::Compare { index, current: current.cloned() });
        }
    }
    Err(StoreError::Corrupt("etcd reports a failed compare, but all of them hold".to_owned()).into())
}

/// Converts a key-value pair. `None` for a reserved key.
pub(crate) fn key_value(keys: &Keys, kv: crate::proto::KeyValue) -> Option<KeyValue> {
    let revision = from_etcd(kv.mod_revision);
    keys.decode(&kv.key).map(|key| KeyValue::new(key, kv.value.into(), revision))
}

fn encode_write(keys: &Keys, write: &Write, lease: i64) -> RequestOp {
    match write {
        Write::Put { key, value, .. } => {
            Request::Put(PutRequest { key: keys.encode(key), value: value.clone(), lease, ..PutRequest::default() })
                .into()
        }
        Write::Delete { key } => Request::Delete(DeleteRangeRequest { key: keys.encode(key) }).into(),
    }
}

fn encode_compare(keys: &Keys, compare: &keelson_storage::Compare) -> Compare {
    let (result, target, with) = match compare.condition {
        Condition::Absent => (CompareResult::Equal, CompareTarget::Version, CompareWith::Version(0)),
        Condition::Exists => (CompareResult::Greater, CompareTarget::Version, CompareWith::Version(0)),
        // In etcd, an absent key has revision 0. In the store, it has no revision, so this compare must never hold. No
        // version is below 0.
        Condition::At(Revision::ZERO) => (CompareResult::Less, CompareTarget::Version, CompareWith::Version(0)),
        Condition::At(revision) => {
            (CompareResult::Equal, CompareTarget::Mod, CompareWith::ModRevision(to_etcd(revision)))
        }
    };
    Compare { result: result.into(), target: target.into(), key: keys.encode(&compare.key), with: Some(with) }
}

/// The keys of all compares, each once.
fn compared_keys(keys: &Keys, transaction: &Transaction) -> Vec<Vec<u8>> {
    let mut compared: Vec<_> = transaction.compares.iter().map(|compare| keys.encode(&compare.key)).collect();
    compared.sort_unstable();
    compared.dedup();
    compared
}

/// A read of one key.
pub(crate) fn read_one(key: Vec<u8>) -> RequestOp {
    Request::Range(RangeRequest { key, ..RangeRequest::default() }).into()
}

/// Moves operations beyond the limit into nested transactions. `beside` is the number of operations that the outer
/// transaction has in addition. An inner transaction may have as many operations as the limit leaves.
fn fold(parts: Vec<RequestOp>, beside: usize) -> Result<Vec<RequestOp>, StoreError> {
    if parts.len() <= MOST_PARTS {
        return Ok(parts);
    }
    let room = |groups: usize| groups * (MOST_PARTS - groups.max(beside));
    let Some(groups) = (1..MOST_PARTS).find(|groups| room(*groups) >= parts.len()) else {
        let most = (1..MOST_PARTS).map(room).max().unwrap_or_default();
        let writes = parts.len();
        return Err(StoreError::TooLarge(format!("{writes} writes in one transaction; etcd takes {most}")));
    };
    let size = parts.len().div_ceil(groups);
    let mut parts = parts.into_iter();
    let mut folded = Vec::with_capacity(groups);
    loop {
        let success: Vec<RequestOp> = parts.by_ref().take(size).collect();
        if success.is_empty() {
            return Ok(folded);
        }
        folded.push(Request::Txn(TxnRequest { success, ..TxnRequest::default() }).into());
    }
}

fn wrote(part: &ResponseOp) -> bool {
    match &part.response {
        Some(Response::Put(_)) => true,
        Some(Response::Delete(delete)) => delete.deleted > 0,
        Some(Response::Txn(inner)) => inner.responses.iter().any(wrote),
        Some(Response::Range(_)) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use keelson_storage::StoreKey;

    use super::*;

    fn keys() -> Keys {
        Keys::new("/registry".to_owned())
    }

    fn puts(count: usize) -> Transaction {
        (0..count).fold(Transaction::default(), |so_far, number| {
            so_far.put(StoreKey::new(format!("/registry/{number}")), "x")
        })
    }

    /// The number of operations that etcd counts at the deepest level.
    fn counted(request: &TxnRequest) -> usize {
        let here = request.success.len().max(request.compare.len()).max(request.failure.len());
        let inner = request.success.iter().map(|part| match &part.request {
            Some(Request::Txn(inner)) => counted(inner),
            _ => 0,
        });
        here + inner.max().unwrap_or_default()
    }

    fn leaves(request: &TxnRequest) -> usize {
        let of = |part: &RequestOp| match &part.request {
            Some(Request::Txn(inner)) => leaves(inner),
            _ => 1,
        };
        request.success.iter().map(of).sum()
    }

    #[test]
    fn many_writes_are_folded_below_etcds_limit() {
        for (writes, compares) in [(0, 0), (1, 1), (128, 3), (129, 0), (201, 2), (1000, 40), (4096, 0), (3000, 100)] {
            let transaction = (0..compares).fold(puts(writes), |so_far, number| {
                so_far.when(StoreKey::new(format!("/registry/c{number}")), Condition::Absent)
            });
            let request = encode(&keys(), &transaction, &vec![0; writes]);
            if writes == 3000 {
                assert!(matches!(request, Err(StoreError::TooLarge(_))));
                continue;
            }
            let request = request.unwrap();
            assert!(counted(&request) <= MOST_PARTS, "{writes} writes, {compares} compares");
            assert_eq!(leaves(&request), writes);
        }
        assert!(matches!(encode(&keys(), &puts(4097), &[0; 4097]), Err(StoreError::TooLarge(_))));
    }

    #[test]
    fn the_first_compare_that_fails_is_named() {
        let key = |name: &str| StoreKey::new(format!("/registry/{name}"));
        let transaction = Transaction::default()
            .when(key("b"), Condition::At(Revision::new(7)))
            .when(key("a"), Condition::Exists)
            .when(key("b"), Condition::Absent);
        let request = encode(&keys(), &transaction, &[]).unwrap();
        assert_eq!(request.failure.len(), 2);
        let kv =
            crate::proto::KeyValue { key: b"/registry/b".to_vec(), mod_revision: 7, version: 1, value: b"v".to_vec() };
        let range = |kvs| ResponseOp {
            response: Some(Response::Range(crate::proto::RangeResponse { kvs, ..Default::default() })),
        };
        let answer =
            TxnResponse { succeeded: false, responses: vec![range(vec![]), range(vec![kv])], ..Default::default() };
        let failed = decode(&keys(), &transaction, answer).unwrap_err();
        assert!(matches!(failed, CommitError::Compare { index: 1, current: None }), "{failed}");
    }

    #[test]
    fn an_absent_key_is_at_no_revision() {
        let transaction = Transaction::default().when(StoreKey::new("/registry/a"), Condition::At(Revision::ZERO));
        let request = encode(&keys(), &transaction, &[]).unwrap();
        assert_eq!(request.compare[0].result, i32::from(CompareResult::Less));
        let answer = TxnResponse { succeeded: false, ..Default::default() };
        let failed = decode(&keys(), &transaction, answer).unwrap_err();
        assert!(matches!(failed, CommitError::Compare { index: 0, current: None }));
    }
}
