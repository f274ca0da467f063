//! The group `authorization.k8s.io`: reviews of rights.
//!
//! The server answers reviews and never stores them.

mod declaration;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup = BuiltinGroup::new(declaration::DECLARATION);
