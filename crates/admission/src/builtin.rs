//! Plugins that are built in: a file for each, or for those that belong together.
//!
//! Their rules and texts are upstream's.

mod certificates;
mod node_restriction;

pub(crate) use certificates::CertificateRules;
pub(crate) use node_restriction::NodeRestriction;
