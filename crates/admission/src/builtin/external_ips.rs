//! Upstream's plugin DenyServiceExternalIPs: a service may not get new external addresses.
//!
//! Otherwise a user who may write services could intercept the traffic for any address.

use futures::future::BoxFuture;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded};

use super::reading::{is_written, items};

const PATH: [&str; 2] = ["spec", "externalIPs"];

/// Refuses new external addresses.
#[derive(Debug)]
pub(crate) struct DenyServiceExternalIps;

impl Admission for DenyServiceExternalIps {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        if is_written(attributes, "services") { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let known = items(attributes.old.and_then(|old| old.get(&PATH)));
            let stated = items(object.and_then(|service| service.get(&PATH)));
            if stated.iter().all(|address| known.contains(address)) {
                return Ok(());
            }
            Err(attributes.refused("Use of external IPs is denied by admission control"))
        })
    }
}
