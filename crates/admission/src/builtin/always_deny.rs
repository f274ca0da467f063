//! Refuses all writes: for tests, and to make a server read-only.
//!
//! This is upstream's plugin AlwaysDeny. Only the writes that a server needs to become ready pass
//! ([`keelson_registry::Caller::upkeep`]).

use futures::future::BoxFuture;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation};

const REFUSAL: &str = "admission control is denying all modifications";

/// Refuses every write and every connection.
#[derive(Debug)]
pub(crate) struct AlwaysDeny;

impl Admission for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn interest(&self, _attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        AttributesNeeded::Object
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        _object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async { Err(attributes.refused(REFUSAL)) })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        _object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async { Err(attributes.refused(REFUSAL)) })
    }
}
