//! The group `certificates.k8s.io`: certificate signing requests and trust bundles.
//!
//! Signers are controllers outside of this server.

pub(crate) mod column_docs;
pub(crate) mod columns;
pub(crate) mod conversion;
mod declaration;
pub(crate) mod defaults;
mod strategy;
pub(crate) mod validation;

pub use strategy::{ISSUED_CERTIFICATES, IssuedCertificates};

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION)
    .defaults(|_, kind| defaults::defaults(kind))
    .validation(validation::KINDS)
    .deprecations(declaration::DEPRECATIONS)
    .versions(conversion::FAMILIES)
    .retired(conversion::RETIRED)
    .columns(columns::printer)
    .strategies(strategy::strategies);
