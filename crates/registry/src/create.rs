//! Creating an object.

use keelson_codec::stored::Checked;
use keelson_meta::names::generate_name;
use keelson_meta::options::CreateOptions;
use keelson_meta::{ApiError, Object};
use keelson_storage::{CommitError, Compare, Condition, StoreKey, Transaction, Write};

use crate::companions::{Companions, has_companions};
use crate::kinds;
use crate::managed;
use crate::prepare::{check_new, stamp_new};
use crate::registry::{Registry, store_error};
use crate::target::Target;
use crate::write::{Draft, Written};
use crate::writer::Writer;

/// How many generated names are tried before the client is told to.
const NAME_ATTEMPTS: usize = 8;
/// How often a create is planned anew because its namespace, or what it needs besides, changed in between.
const PLAN_ATTEMPTS: usize = 16;

/// What a create made.
pub type Created = Written;

/// How one attempt to commit a new object ended.
enum Attempt {
    Done(Created),
    NameTaken,
    /// The namespace is no longer as it was, or somebody else took what was to be written together with the object.
    PlanAgain,
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
        writer: &Writer,
        options: &CreateOptions,
    ) -> Result<Created, ApiError> {
        let generated = object.name().is_empty() && !object.generate_name().is_empty();
        let base = object.generate_name().to_owned();
        kinds::complete_new(target, &mut object, self.now());
        let managed = managed::track_new(target, &mut object, writer, self.now());
        object = self.stamped(target, object, writer)?;
        let name = object.name().to_owned();
        let taken = |name: String| ApiError::AlreadyExists { resource: target.group_resource(), name };
        if !generated {
            let draft = Draft { object, managed };
            return self.create_named(target, draft, options.dry_run).await?.ok_or_else(|| taken(name));
        }
        let mut tried = String::new();
        for _ in 0..NAME_ATTEMPTS {
            tried = generate_name(&base, &*self.random);
            // What a kind adds may hold the name, so each name starts from what was sent.
            let mut named = object.clone();
            named.set_meta("name", tried.as_str());
            let named = Draft { object: named, managed: managed.clone() };
            if let Some(created) = self.create_named(target, named, options.dry_run).await? {
                return Ok(created);
            }
        }
        Err(taken(tried))
    }

    /// Creates a named object whose owners are noted already; `None` when the name is taken.
    ///
    /// # Errors
    /// As for [`Registry::create`].
    pub(crate) async fn create_tracked(
        &self,
        target: &Target,
        draft: Draft,
        writer: &Writer,
        dry_run: bool,
    ) -> Result<Option<Created>, ApiError> {
        let Draft { object, managed } = draft;
        let object = self.stamped(target, object, writer)?;
        self.create_named(target, Draft { object, managed }, dry_run).await
    }

    /// A new object in the version that is stored, with what only the server can give it.
    fn stamped(&self, target: &Target, object: Object, writer: &Writer) -> Result<Object, ApiError> {
        let mut object = self.to_storage(target, object)?;
        if let Some(user) = writer.user()
            && target.strategy().attribute(&mut object, user)
        {
            kinds::in_order(target, &mut object);
        }
        stamp_new(self, target, &mut object);
        Ok(object)
    }

    /// `None` when the name is taken.
    async fn create_named(
        &self,
        target: &Target,
        mut draft: Draft,
        dry_run: bool,
    ) -> Result<Option<Created>, ApiError> {
        kinds::admit_new(self, target, &mut draft.object)?;
        kinds::prepare_create(target, &mut draft.object);
        check_new(target, &draft.object)?;
        let name = draft.object.name().to_owned();
        let mut encoded = draft.encode();
        // Let go of while the processor still has it at hand, and not after the wait for the store.
        let draft = has_companions(target).then_some(draft);
        for attempt in 0..PLAN_ATTEMPTS {
            let guard = self.namespace_guard(target, &name).await?;
            let mut companions = Companions::default();
            if let Some(draft) = &draft {
                // Each attempt starts from what was sent, not from what the last one could not get.
                let mut completed = draft.object.clone();
                companions = self.accompany(target, None, Some(&mut completed), attempt).await?;
                encoded = Checked::encode_with(&completed, draft.managed.as_deref());
            }
            match self.commit_new(target, &name, &encoded, guard, companions, dry_run).await? {
                Attempt::Done(created) => return Ok(Some(created)),
                Attempt::NameTaken => return Ok(None),
                // The plan is made from the cache, so let it see what changed.
                Attempt::PlanAgain => self.catch_up().await?,
            }
        }
        Err(ApiError::ServiceUnavailable {
            message: "what the object depends on keeps changing, please try again".to_owned(),
            retry_after_seconds: Some(1),
        })
    }

    async fn commit_new(
        &self,
        target: &Target,
        name: &str,
        encoded: &Checked,
        guard: Option<Compare>,
        companions: Companions,
        dry_run: bool,
    ) -> Result<Attempt, ApiError> {
        let object = encoded.object();
        let relative = target.relative_key(name);
        if dry_run {
            if self.newest(target, &relative).await?.is_some() {
                return Ok(Attempt::NameTaken);
            }
            self.rehearse(companions).await?;
            return Ok(Attempt::Done(Written::new(object.clone(), None)));
        }
        let collection = self.collection(target)?;
        collection.announce(encoded.clone());
        let key = StoreKey::new(format!("{}{relative}", collection.prefix()));
        let mut compares = vec![Compare { key: key.clone(), condition: Condition::Absent }];
        compares.extend(guard);
        let writes = vec![Write::Put { key, value: object.bytes().clone(), expires: self.expiry(target) }];
        let mut transaction = Transaction { compares, writes };
        let own = transaction.compares.len();
        companions.join(&mut transaction);
        match self.store().commit(transaction).await {
            Ok(committed) => Ok(Attempt::Done(Written::new(object.clone(), committed.revisions.first().copied()))),
            Err(CommitError::Compare { index: 0, .. }) => Ok(Attempt::NameTaken),
            Err(CommitError::Compare { index, .. }) if index >= own => {
                companions.lost(index - own).map(|()| Attempt::PlanAgain)
            }
            Err(CommitError::Compare { .. }) => Ok(Attempt::PlanAgain),
            Err(CommitError::Store(error)) => Err(store_error(error)),
        }
    }
}
