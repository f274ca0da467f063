//! The group `authorization.k8s.io`: reviews of rights.
//!
//! Reviews are answered and never stored.

mod declaration;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION);
