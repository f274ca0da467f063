//! The group `authentication.k8s.io`: reviews of tokens and of users.
//!
//! The server answers reviews and never stores them.

mod declaration;
pub(crate) mod defaults;

use crate::group::BuiltinGroup;

/// The group.
pub(crate) static GROUP: BuiltinGroup =
    BuiltinGroup::new(declaration::DECLARATION).defaults(|_, kind| defaults::defaults(kind));
