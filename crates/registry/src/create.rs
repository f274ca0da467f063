//! Creating an object.

use keelson_access::User;
use keelson_codec::stored::StoredObject;
use keelson_meta::names::generate_name;
use keelson_meta::options::CreateOptions;
use keelson_meta::{ApiError, Object};
use keelson_storage::{CommitError, Compare, Condition, StoreKey, Transaction, Write};

use crate::kinds;
use crate::prepare::{check_new, stamp_new};
use crate::registry::{Registry, store_error};
use crate::target::Target;
use crate::write::Written;

/// How many generated names are tried before the client is told to.
const NAME_ATTEMPTS: usize = 8;
/// How often a create is tried anew because its namespace changed in between.
const NAMESPACE_ATTEMPTS: usize = 16;

/// What a create made.
pub type Created = Written;

/// How one attempt to commit a new object ended.
enum Attempt {
    Done(Created),
    NameTaken,
    NamespaceChanged,
}

impl Registry {
    /// Creates an object that [`accept`](crate::accept) has taken in. Its name is generated when only `generateName` is
    /// given.
    ///
    /// # Errors
    /// 400 for an object that does not fit the URL, 404 for a missing namespace, 403 for one that is being deleted, 409
    /// for a name that is taken, 422 for metadata that is not valid.
    pub async fn create(
        &self,
        target: &Target,
        mut object: Object,
        options: &CreateOptions,
    ) -> Result<Created, ApiError> {
        let generated = object.name().is_empty() && !object.generate_name().is_empty();
        let base = object.generate_name().to_owned();
        object = self.to_storage(target, object)?;
        stamp_new(self, target, &mut object);
        let name = object.name().to_owned();
        let taken = |name: String| ApiError::AlreadyExists { resource: target.group_resource(), name };
        if !generated {
            return self.create_named(target, object, options.dry_run).await?.ok_or_else(|| taken(name));
        }
        let mut tried = String::new();
        for _ in 0..NAME_ATTEMPTS {
            tried = generate_name(&base, &*self.random);
            // What a kind adds may hold the name, so each name starts from what was sent.
            let mut named = object.clone();
            named.set_meta("name", tried.as_str());
            if let Some(created) = self.create_named(target, named, options.dry_run).await? {
                return Ok(created);
            }
        }
        Err(taken(tried))
    }

    /// Writes into a new object what it says of who makes it, for the kinds that do.
    pub fn attribute(&self, target: &Target, object: &mut Object, user: &User) {
        kinds::attribute(target, object, user);
    }

    /// `None` when the name is taken.
    async fn create_named(
        &self,
        target: &Target,
        mut object: Object,
        dry_run: bool,
    ) -> Result<Option<Created>, ApiError> {
        kinds::prepare_create(target, &mut object, self.now());
        check_new(target, &object)?;
        let encoded = StoredObject::encode(&object);
        for _ in 0..NAMESPACE_ATTEMPTS {
            let guard = self.namespace_guard(target, object.name()).await?;
            match self.commit_new(target, object.name(), &encoded, guard, dry_run).await? {
                Attempt::Done(created) => return Ok(Some(created)),
                Attempt::NameTaken => return Ok(None),
                // The guard is taken from the cache, so let it see what changed.
                Attempt::NamespaceChanged => self.catch_up().await?,
            }
        }
        Err(ApiError::ServiceUnavailable {
            message: "the namespace keeps changing, please try again".to_owned(),
            retry_after_seconds: Some(1),
        })
    }

    async fn commit_new(
        &self,
        target: &Target,
        name: &str,
        encoded: &StoredObject,
        guard: Option<Compare>,
        dry_run: bool,
    ) -> Result<Attempt, ApiError> {
        let relative = target.relative_key(name);
        if dry_run {
            return Ok(match self.newest(target, &relative).await? {
                Some(_) => Attempt::NameTaken,
                None => Attempt::Done(Written::new(encoded.clone(), None)),
            });
        }
        let key = StoreKey::new(format!("{}{relative}", self.collection(target)?.prefix()));
        let mut compares = vec![Compare { key: key.clone(), condition: Condition::Absent }];
        compares.extend(guard);
        let writes = vec![Write::Put { key, value: encoded.bytes().clone(), expires: self.expiry(target) }];
        match self.store().commit(Transaction { compares, writes }).await {
            Ok(committed) => Ok(Attempt::Done(Written::new(encoded.clone(), committed.revisions.first().copied()))),
            Err(CommitError::Compare { index: 0, .. }) => Ok(Attempt::NameTaken),
            Err(CommitError::Compare { .. }) => Ok(Attempt::NamespaceChanged),
            Err(CommitError::Store(error)) => Err(store_error(error)),
        }
    }
}
