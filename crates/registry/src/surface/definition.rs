//! The object that defines a contributed resource. Its state decides what is served. No object is created while the
//! definition is being deleted.

use std::fmt;
use std::sync::Arc;

use keelson_cache::{Collection, Entry};
use keelson_meta::ApiError;
use keelson_meta::json::Value;
use keelson_storage::{Compare, Condition, StoreKey};

use crate::target::Target;

/// The object that defines a resource, and its state.
#[derive(Clone)]
pub struct DefinedBy {
    /// The collection that it is in.
    pub collection: Arc<Collection>,
    /// Its name.
    pub name: String,
    /// The uid of the definition. Another object of the same name defines another resource.
    pub uid: String,
    /// The part of the definition that decides what is served, in any form. Definitions with equal states differ at
    /// most in their deletion.
    pub state: String,
    /// The error for a create while the definition is being deleted.
    pub terminating: &'static str,
}

impl DefinedBy {
    /// The condition under which an object of the resource may be created: the definition is as the cache of this
    /// server has it now. The surface may not have that state yet.
    ///
    /// # Errors
    /// 403 while the definition is being deleted, 404 if it is gone or another one has its name.
    pub(crate) fn guard(&self, target: &Target, name: &str) -> Result<Compare, ApiError> {
        let entry = self.seen()?;
        if entry.object().uid() != self.uid {
            return Err(ApiError::UnknownResource);
        }
        if entry.terminating {
            return Err(refused(target, name, self.terminating));
        }
        Ok(self.unchanged(&entry))
    }

    /// The condition under which a server may publish a version as its storage version. The definition is unchanged
    /// since the state in this server's cache, and `storedVersions` lists the version. The served APIs may lag behind
    /// that state, and a version that was removed from the list must not be written again.
    ///
    /// # Errors
    /// 503 if the definition does not list the version, 404 if it is gone.
    pub fn lists(&self, version: &str) -> Result<Compare, ApiError> {
        let entry = self.seen()?;
        let definition = entry.object().decode(entry.revision);
        let listed = definition.get(&["status", "storedVersions"]).and_then(Value::as_array);
        if listed.into_iter().flatten().any(|listed| *listed == *version) {
            return Ok(self.unchanged(&entry));
        }
        Err(ApiError::ServiceUnavailable {
            message: format!("the definition {} does not list {version} among its stored versions", self.name),
            retry_after_seconds: Some(1),
        })
    }

    fn seen(&self) -> Result<Arc<Entry>, ApiError> {
        self.collection.get(&self.name).ok_or(ApiError::UnknownResource)
    }

    fn unchanged(&self, seen: &Entry) -> Compare {
        let key = StoreKey::new(format!("{}{}", self.collection.prefix(), self.name));
        Compare { key, condition: Condition::At(seen.revision) }
    }
}

/// 403: the resource accepts no new objects.
pub(crate) fn refused(target: &Target, name: &str, why: &str) -> ApiError {
    ApiError::Refused {
        resource: target.group_resource(),
        name: name.to_owned(),
        message: why.to_owned(),
        causes: Vec::new(),
    }
}

impl fmt::Debug for DefinedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefinedBy").field("name", &self.name).field("state", &self.state).finish_non_exhaustive()
    }
}
