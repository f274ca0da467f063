//! The object that defines a contributed resource: what is served goes by the state in which it was seen, and nothing new is made where it
//! is being deleted.

use std::fmt;
use std::sync::Arc;

use keelson_cache::Collection;
use keelson_meta::ApiError;
use keelson_storage::{Compare, Condition, StoreKey};

use crate::target::Target;

/// The object that defines a resource, and its state.
#[derive(Clone)]
pub struct DefinedBy {
    /// The collection that it is in.
    pub collection: Arc<Collection>,
    /// Its name.
    pub name: String,
    /// What of it decides what is served, in any form: where two states have the same, nothing changed but whether it is being deleted.
    pub state: String,
    /// What is told to who makes an object while it is being deleted.
    pub terminating: &'static str,
}

impl DefinedBy {
    /// The condition under which an object of the resource may be made: that its definition is as this server sees it now, also where
    /// what is served has not followed it yet.
    ///
    /// # Errors
    /// 403 while it is being deleted, 404 when it is gone.
    pub(crate) fn guard(&self, target: &Target, name: &str) -> Result<Compare, ApiError> {
        let entry = self.collection.get(&self.name).ok_or(ApiError::UnknownResource)?;
        if entry.terminating {
            return Err(refused(target, name, self.terminating));
        }
        let key = StoreKey::new(format!("{}{}", self.collection.prefix(), self.name));
        Ok(Compare { key, condition: Condition::At(entry.revision) })
    }
}

/// 403: the resource takes no new objects.
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
