//! The lifecycle of namespaces, as far as other objects depend on it. Some namespaces always exist, and no object is
//! created in a namespace that is missing or being deleted.

use futures::future::{BoxFuture, try_join_all};
use keelson_cache::Entry;
use keelson_meta::options::CreateOptions;
use keelson_meta::status::StatusCause;
use keelson_meta::{ApiError, Object};
use keelson_storage::{CommitError, Compare, Condition, StoreKey, Transaction};

use crate::admission::{Operation, WriteOptions};
use crate::caller::Caller;
use crate::config::BuiltinStagePlugin;
use crate::intake::fit;
use crate::list::KeyRange;
use crate::managed;
use crate::registry::{Registry, store_error};
use crate::surface::refused;
use crate::target::Target;
use crate::write::{Change, Edit, Live, ManagedObject, Update, WriteRequest};

/// The namespaces that every cluster has.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl Registry {
    /// Creates the namespaces that every cluster has, if they are missing: all at once, so that they share one commit.
    ///
    /// # Errors
    /// 503 if the store cannot be written.
    pub async fn ensure_system_namespaces(&self) -> Result<(), ApiError> {
        try_join_all(SYSTEM_NAMESPACES.map(|name| self.ensure_namespace(name))).await.map(|_| ())
    }

    /// Creates a missing namespace. It does not use `write`, which lets no write of a kind pass before this server's
    /// stored versions are published: publishing needs a namespace, and namespaces have one version.
    async fn ensure_namespace(&self, name: &str) -> Result<(), ApiError> {
        let target = self.target("", "namespaces")?;
        let collection = self.collection(&target)?;
        if collection.get(name).is_some() {
            return Ok(());
        }
        let mut namespace = Object::default();
        namespace.set_meta("name", name);
        let key = StoreKey::new(format!("{}{name}", collection.prefix()));
        let value = self.encode_own(&target, namespace).await?.bytes().clone();
        let transaction = Transaction::default().when(key.clone(), Condition::Absent).put(key, value);
        match self.store().commit(transaction).await {
            Ok(_) | Err(CommitError::Compare { .. }) => Ok(()),
            Err(CommitError::Store(error)) => Err(store_error(error)),
        }
    }

    /// The condition for creating an object in the target's namespace: the namespace is unchanged. `None` for
    /// cluster-scoped resources, and in servers without namespaces, where admission checks them.
    ///
    /// # Errors
    /// 404 for a namespace that does not exist, 403 for one that is being deleted.
    pub(crate) async fn namespace_guard(&self, target: &Target, name: &str) -> Result<Option<Compare>, ApiError> {
        let Some(namespace) = target.namespace.as_deref().filter(|_| target.is_namespaced()) else {
            return Ok(None);
        };
        if !self.does(BuiltinStagePlugin::NamespaceLifecycle) {
            return Ok(None);
        }
        let Ok(namespaces) = self.target("", "namespaces") else { return Ok(None) };
        let collection = self.collection(&namespaces)?;
        let entry = match collection.get(namespace) {
            Some(entry) if !entry.terminating => entry,
            // Another server may have created or recreated the namespace a moment ago.
            Some(_) | None => self.newest(&namespaces, namespace).await?.ok_or_else(|| ApiError::NotFound {
                resource: namespaces.group_resource(),
                name: namespace.to_owned(),
            })?,
        };
        if entry.terminating {
            return Err(namespace_is_terminating(target, name, namespace));
        }
        let key = StoreKey::new(format!("{}{namespace}", collection.prefix()));
        Ok(Some(Compare { key, condition: Condition::At(entry.revision) }))
    }
}

impl Registry {
    /// Creates the missing namespace of a new object, if the settings say so (upstream's plugin
    /// NamespaceAutoProvision). The server creates it, whatever the rights of the caller. A dry run creates none.
    ///
    /// # Errors
    /// 403 if the namespace is refused, 5xx if the store cannot be written.
    pub(crate) async fn provide_namespace(&self, target: &Target, name: &str, caller: &Caller) -> Result<(), ApiError> {
        let is_asked_for = self.config.provides_namespaces && target.is_namespaced() && !caller.is_dry_run();
        let Some(namespace) = target.namespace.as_deref().filter(|_| is_asked_for) else { return Ok(()) };
        let Ok(namespaces) = self.target("", "namespaces") else { return Ok(()) };
        let is_there = self.collection(&namespaces)?.get(namespace).is_some();
        if is_there || self.newest(&namespaces, namespace).await?.is_some() {
            return Ok(());
        }
        match self.make_namespace(namespaces, namespace, caller).await {
            Ok(()) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
            Err(error) if error.code() >= 500 => Err(error),
            Err(error) => Err(refused(target, name, &error.to_string())),
        }
    }

    /// Creates a namespace as the server, for a caller that waits for it. Boxed, since it is a write within a write.
    fn make_namespace<'r>(
        &'r self,
        namespaces: Target,
        name: &'r str,
        caller: &Caller,
    ) -> BoxFuture<'r, Result<(), ApiError>> {
        let server = Caller::server().until(caller.deadline());
        Box::pin(async move {
            let mut namespace = Object::default();
            namespace.set_type(namespaces.kind());
            namespace.set_meta("name", name);
            fit(&namespaces, &mut namespace)?;
            self.create(&namespaces, namespace, &server, &CreateOptions::default()).await.map(|_| ())
        })
    }

    /// Checks that a subresource may be posted to in the target's namespace, by the rules for a create.
    ///
    /// # Errors
    /// As [`namespace_guard`](Self::namespace_guard).
    pub(crate) async fn check_namespace(&self, target: &Target, name: &str) -> Result<(), ApiError> {
        self.namespace_guard(target, name).await.map(|_| ())
    }
}

/// The error for a create in a namespace that is being deleted.
pub fn namespace_is_terminating(target: &Target, name: &str, namespace: &str) -> ApiError {
    ApiError::Refused {
        resource: target.group_resource(),
        name: name.to_owned(),
        message: format!("unable to create new content in namespace {namespace} because it is being terminated"),
        causes: vec![StatusCause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        }],
    }
}

impl Registry {
    /// Removes the finalizer for the content of a namespace that is being deleted and is empty. The namespace is
    /// deleted unless it has other finalizers.
    ///
    /// # Errors
    /// 404 if the namespace no longer exists, or if another one has its name.
    pub async fn finalize_namespace(&self, name: &str, uid: &str, caller: &Caller) -> Result<(), ApiError> {
        let target = self.target("", "namespaces")?;
        let mut edit = Edit::new(|registry: &Registry, live: &Entry| {
            let Live { object: mut before, managed_fields: known } = Live::stored(live);
            let mut namespace = before.clone();
            if namespace.uid() != uid || namespace.deletion_timestamp().is_none() {
                return Err(ApiError::NotFound { resource: target.group_resource(), name: name.to_owned() });
            }
            target.strategy().delete.finalize(&mut namespace);
            let managed_fields =
                managed::track_metadata(&target, &mut before, &mut namespace, known.as_deref(), caller, registry.now());
            namespace.remove_meta("resourceVersion");
            let held = !namespace.finalizers().is_empty() || !target.strategy().delete.may_go(&namespace);
            let next = ManagedObject::new(namespace, managed_fields);
            let change = if held { Change::Put(next) } else { Change::Remove(live.object().clone()) };
            Ok(Update::Change(change, Some(Operation::Update)))
        });
        let request = WriteRequest::new(&target, name, caller, WriteOptions::None);
        self.write(&request, &mut edit).await.map(|_| ())
    }

    /// The number of objects below the target's URL, as of a moment after this call began. Unreadable objects count: a
    /// namespace is not empty while it has some.
    ///
    /// Cost: O(log n).
    ///
    /// # Errors
    /// 503 and 504 when the cache cannot catch up with the store.
    pub async fn count(&self, target: &Target) -> Result<usize, ApiError> {
        self.catch_up().await?;
        let range = KeyRange::below(&target.key_prefix(), "");
        let collection = self.settled_collection(target).await?;
        let shown = collection.snapshot().count(&range.from, range.to.as_deref());
        Ok(shown + collection.count_unreadable(&target.key_prefix()))
    }
}
