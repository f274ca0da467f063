//! The head of a list: kind, revision, token and how many remain, whatever it is a list of and however it is written.
//!
//! JSON, protobuf and tables write it in their own form, from this one value.

use crate::revision::Revision;

/// Kind and metadata of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListHead<'a> {
    /// The kind of the list, such as `PodList`.
    pub kind: &'a str,
    /// The apiVersion of the list, such as `apps/v1`.
    pub api_version: &'a str,
    /// The metadata of the list.
    pub meta: ListMeta<'a>,
}

/// The metadata of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListMeta<'a> {
    /// The revision of the snapshot that the list shows; of a single object, its own.
    pub revision: Revision,
    /// The token that continues the list, if there is more.
    pub continue_token: Option<&'a str>,
    /// How many items follow after this page, if that is known.
    pub remaining: Option<u64>,
}

impl ListMeta<'_> {
    /// The metadata of something that has nothing but a revision.
    pub const fn at(revision: Revision) -> Self {
        Self { revision, continue_token: None, remaining: None }
    }
}
