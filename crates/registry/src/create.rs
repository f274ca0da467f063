//! Creates an object. With `generateName` alone the name is generated, and generated again when it is taken.
//!
//! A create is a proposal that expects the object to be absent. Its steps are in `write/stages.rs`.

use async_trait::async_trait;
use keelson_cache::Entry;
use keelson_codec::json;
use keelson_meta::json::about_bytes;
use keelson_meta::options::CreateOptions;
use keelson_meta::{ApiError, Object};
use keelson_storage::Compare;

use crate::admission::WriteOptions;
use crate::caller::Caller;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::{Ownership, Update, UpdateFn, WriteRequest, WriteResult};

/// The number of generated names tried before the client gets an error.
const NAME_ATTEMPTS: usize = 8;
/// The size in bytes from which objects are tried under one generated name only. A taken name is too rare to keep a
/// second copy of a large object.
const KEPT_BYTES: usize = 256 * 1024;

/// The result of a create.
pub type Created = WriteResult;

impl Registry {
    /// Creates an object decoded by [`accept`](crate::accept).
    ///
    /// # Errors
    /// - 400 for an object that does not fit the URL
    /// - 404 for a missing namespace, 403 for a namespace that is being deleted
    /// - 409 for a name that is taken
    /// - 422 for invalid metadata
    pub async fn create(
        &self,
        target: &Target,
        object: Object,
        caller: &Caller,
        options: &CreateOptions,
    ) -> Result<Created, ApiError> {
        self.create_while(target, object, caller, options, Vec::new()).await
    }

    /// As [`Registry::create`], with further conditions that the transaction compares.
    ///
    /// # Errors
    /// The errors of [`Registry::create`], and 503 when the conditions do not hold.
    pub async fn create_while(
        &self,
        target: &Target,
        object: Object,
        caller: &Caller,
        options: &CreateOptions,
        conditions: Vec<Compare>,
    ) -> Result<Created, ApiError> {
        let name = object.name().to_owned();
        let options = WriteOptions::Create(options);
        let request = WriteRequest { conditions, ..WriteRequest::new(target, &name, caller, options) };
        self.write(&request, &mut Create::new(target, object)).await
    }
}

/// The creation of an object.
struct Create<'c> {
    target: &'c Target,
    /// The object, until the first attempt.
    object: Object,
    /// The object as JSON after the first attempt, if there may be another. A tree takes many times the memory.
    again: Option<Vec<u8>>,
    /// True if its name is generated.
    is_named_anew: bool,
    /// True if there may be another attempt, after a taken name or a conflict of associated writes.
    is_kept: bool,
    /// True if it has associated writes.
    has_companions: bool,
    attempts: usize,
}

impl<'c> Create<'c> {
    fn new(target: &'c Target, object: Object) -> Self {
        let is_named_anew = object.name().is_empty() && !object.generate_name().is_empty();
        let has_companions = target.strategy().write.has_companions();
        let is_kept = is_named_anew || has_companions;
        Self { target, object, again: None, is_named_anew, is_kept, has_companions, attempts: 0 }
    }

    /// The object for the next attempt. Added fields may contain the name, so each attempt starts from the object of
    /// the request.
    fn next(&mut self) -> Object {
        let value = match &self.again {
            Some(text) => json::parse(text).expect("stored JSON is readable").value,
            None => std::mem::take(&mut self.object).into_value(),
        };
        if self.is_kept && self.again.is_none() && (self.has_companions || about_bytes(&value) < KEPT_BYTES) {
            self.again = Some(json::to_vec(&value));
        }
        Object::from_value(value).expect("an object is written as one")
    }
}

#[async_trait]
impl UpdateFn for Create<'_> {
    fn makes(&self) -> bool {
        true
    }

    fn expects_absence(&self) -> bool {
        true
    }

    async fn propose<'s>(&'s mut self, _: &'s Registry, taken: Option<&'s Entry>) -> Result<Update, ApiError> {
        self.attempts += 1;
        let is_last = |attempts| attempts > NAME_ATTEMPTS || (attempts > 1 && self.again.is_none());
        if let Some(taken) = taken.filter(|_| !self.is_named_anew || is_last(self.attempts)) {
            let (resource, name) = (self.target.group_resource(), taken.name().to_owned());
            return Err(ApiError::AlreadyExists { resource, name, is_going: taken.terminating });
        }
        Ok(Update::New(self.next(), Ownership::Track))
    }
}
