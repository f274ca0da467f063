//! The configuration of admission: webhooks, policies, and the bindings of these.
//!
//! A write of one counts for every request that comes after its answer.

use super::strategy::{FieldPath, Strategy, metadata_of_status};

/// The strategy of all kinds of the group.
pub(super) struct AdmissionRules;

impl Strategy for AdmissionRules {
    fn counts_at_once(&self) -> bool {
        true
    }

    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}
