//! Discovery: the documents by which clients learn what this server serves.
//!
//! The aggregated form (one document for all groups, with an `ETag`) and the older one (a document for each group and
//! version) are rendered from the same sources: built-in, custom and aggregated APIs. Nothing here knows HTTP; the
//! documents are bytes. Two servers with equal sources give equal bytes and equal `ETag`s, in upstream's own form, so
//! that a client moving between servers, keelson or not, can keep what it has.

mod aggregated;
mod documents;
mod json;
mod legacy;
mod negotiate;
mod order;
mod root;
mod source;

pub use aggregated::Document;
pub use documents::Documents;
pub use negotiate::{AggregatedForm, etag_matches};
pub use root::root_paths;
pub use source::{
    DiscoveredKind, DiscoveredResource, DiscoveredSubresource, Freshness, SourceOrder, Text, VersionSource,
};
