//! The head of a list: kind, revision, continue token and remaining count. It is the same for every kind of list and
//! every format.
//!
//! The encoders of JSON, protobuf and tables each write this value.

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
    /// The revision of the list's snapshot, or that of a single object.
    pub revision: Revision,
    /// The text in place of the revision, for a list over several clusters, which has a revision for each of them.
    pub position: Option<&'a str>,
    /// The continue token, if there are more items.
    pub continue_token: Option<&'a str>,
    /// The number of items after this page, if known.
    pub remaining: Option<u64>,
    /// The selector of the shard, if the list has only a shard of the collection.
    pub shard: Option<&'a str>,
}

impl ListMeta<'_> {
    /// Metadata with only a revision.
    pub const fn at(revision: Revision) -> Self {
        Self { revision, position: None, continue_token: None, remaining: None, shard: None }
    }
}
