//! Objects whose stored value cannot be read: encrypted by another server, of an unknown form, or damaged.
//!
//! Unreadable objects exist but cannot be returned. So a list that contains one fails as a whole: a client that took
//! the other objects for all of them would delete dependents. Such an object can be removed by an explicit deletion
//! (`ignoreStoreReadErrorWithClusterBreakingPotential`, KEP-3926). A server can also be configured to omit it from
//! lists.
//!
//! This deletion does not use `write`, since there is no object for a proposal, a stage or a response. Admission and
//! the fence of the store apply as to any write.

use keelson_access::{Attributes, ResourceAttributes};
use keelson_cache::Collection;
use keelson_codec::DecodeError;
use keelson_meta::field_error::FieldError;
use keelson_meta::gvk::GroupKind;
use keelson_meta::options::DeleteOptions;
use keelson_meta::status::StatusCause;
use keelson_meta::{ApiError, Revision};
use keelson_storage::{CommitError, Condition, StoreKey, Transaction};
use keelson_supervision::warn_repeated;

use crate::admission::{AdmissionAttributes, Operation, Reinvocation, WriteOptions, none_inherent};
use crate::caller::Caller;
use crate::registry::{Registry, store_error};
use crate::target::Target;
use crate::write::WriteRequest;

/// The number of such objects that an error names.
const NAMED: usize = 100;
/// The number of attempts of a deletion when the value has changed meanwhile.
const ATTEMPTS: usize = 8;
/// The option to delete an object that cannot be read.
const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
/// The right to use this option.
const UNSAFE_DELETE: &str = "unsafe-delete-ignore-read-errors";

impl Registry {
    /// Checks that everything below the target's URL can be read.
    ///
    /// # Errors
    /// 500 with the names of unreadable objects, unless lists omit them.
    pub(crate) fn check_readable(&self, target: &Target, collection: &Collection) -> Result<(), ApiError> {
        if self.config.skip_unreadable {
            return Ok(());
        }
        let mut found = collection.unreadable_below(&target.key_prefix(), NAMED + 1);
        if found.is_empty() {
            return Ok(());
        }
        let more = found.len() > NAMED;
        found.truncate(NAMED);
        let cause =
            |reason: &str, message: String, field: String| StatusCause { reason: reason.to_owned(), message, field };
        let mut causes: Vec<StatusCause> = found
            .into_iter()
            .map(|(key, error)| {
                let field = format!("{}{key}", collection.prefix());
                // The words are upstream's.
                let what = match error {
                    DecodeError::Encrypted | DecodeError::Sealed(_) => "data from the storage is not transformable",
                    _ => "object not decodable",
                };
                cause("UnexpectedServerResponse", format!("{what}: {error}"), field)
            })
            .collect();
        if more {
            causes.push(cause("FieldValueTooMany", "too many errors, the list is truncated".to_owned(), String::new()));
        }
        Err(ApiError::StoreRead { resource: target.group_resource(), causes })
    }

    /// Deletes an unreadable object. Its finalizers, owners and preconditions are unknown, so none are checked.
    ///
    /// The caller needs the right to [`UNSAFE_DELETE`] in addition to the right to delete. Admission runs as for any
    /// deletion, without an object.
    ///
    /// # Errors
    /// - 403 without the rights
    /// - 422 for an object that can be read or does not exist
    /// - 504 at the caller's deadline
    /// - the errors of admission
    pub async fn delete_unreadable(
        &self,
        target: &Target,
        name: &str,
        caller: &Caller,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let request = WriteRequest::new(target, name, caller, WriteOptions::Delete(options));
        caller.in_time(self.delete_unreadable_until_done(&request)).await
    }

    async fn delete_unreadable_until_done(&self, request: &WriteRequest<'_>) -> Result<(), ApiError> {
        let WriteRequest { target, name, caller, .. } = *request;
        permit(target, name, caller).await?;
        let reinvocation = Reinvocation::default();
        let attributes = AdmissionAttributes::new(self, request, Operation::Delete, &reinvocation);
        self.admission().mutate(&attributes, None, |_| Ok(()), none_inherent).await?;
        self.catch_up().await?;
        let (key, collection) = (target.relative_key(name), self.settled_collection(target).await?);
        let unreadable = collection.unreadable(&key);
        let store_key = StoreKey::new(format!("{}{key}", collection.prefix()));
        for _ in 0..ATTEMPTS {
            let found = self.store().get(&store_key).await.map_err(store_error)?;
            let Some(found) = found.filter(|found| unreadable.is_some() && collection.decode(found).is_err()) else {
                return Err(readable(target, name));
            };
            self.admission().validate(&attributes, None).await?;
            if request.caller.is_dry_run() {
                return Ok(());
            }
            warn_repeated!(
                &store_key;
                key = %store_key, revision = %found.revision, user = caller.user().name,
                "deleting an object that can't be read"
            );
            match self.store().commit(deletion(&store_key, found.revision)).await {
                Ok(_) => return Ok(()),
                Err(CommitError::Compare { .. }) => {}
                Err(CommitError::Store(error)) => return Err(store_error(error)),
            }
        }
        Err(crate::write::modified(target, name))
    }
}

/// Checks the right to delete unreadable objects.
///
/// # Errors
/// 403 without it. 500 if an authorizer failed.
async fn permit(target: &Target, name: &str, caller: &Caller) -> Result<(), ApiError> {
    let resource = target.group_resource();
    let attributes = Attributes::Resource(ResourceAttributes {
        verb: UNSAFE_DELETE,
        group: &resource.group,
        version: &target.kind().version,
        resource: &resource.resource,
        namespace: target.namespace.as_deref(),
        name: Some(name),
        ..ResourceAttributes::default()
    });
    let verdict = caller.authorizer().authorize(caller.user(), &attributes).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    if let Some(error) = verdict.error {
        return Err(ApiError::Internal(format!("error while checking permission for {UNSAFE_DELETE:?}, {error}")));
    }
    let message = format!("not permitted to do {UNSAFE_DELETE:?}, reason: {}", verdict.reason);
    Err(ApiError::Refused { resource, name: name.to_owned(), message, causes: Vec::new() })
}

/// The error for a deletion of a collection with this option, which is for single objects.
pub fn not_for_collections() -> ApiError {
    let detail = "is not allowed with DELETECOLLECTION, try again after removing the option";
    let kind = GroupKind { group: "meta.k8s.io".to_owned(), kind: "DeleteOptions".to_owned() };
    ApiError::Invalid { kind, name: String::new(), errors: vec![FieldError::invalid(OPTION, true, detail)] }
}

fn deletion(key: &StoreKey, revision: Revision) -> Transaction {
    Transaction::default().when(key.clone(), Condition::At(revision)).delete(key.clone())
}

fn readable(target: &Target, name: &str) -> ApiError {
    let resource = target.group_resource();
    let detail = "is exclusively used to delete corrupt object(s), try again by removing this option";
    let kind = GroupKind { group: resource.group, kind: resource.resource };
    ApiError::Invalid { kind, name: name.to_owned(), errors: vec![FieldError::invalid(OPTION, true, detail)] }
}
