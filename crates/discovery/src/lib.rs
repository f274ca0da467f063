//! Discovery: the documents by which clients learn what this server serves.
//!
//! The aggregated form (one document for all groups, with an `ETag`) and the older one (a document for each group and
//! version) are put together from the same fragments, one for each group version, whether it is built in, custom or served by
//! another server. A fragment is rendered once; when one of thousands changes, the others are only copied. Nothing here knows
//! HTTP, or which resources there are: the documents are bytes, and whoever composes a server gives the fragments. Two servers with
//! equal fragments give equal bytes and equal `ETag`s, in upstream's own form, so that a client moving between servers,
//! keelson or not, can keep what it has.

mod aggregated;
mod documents;
mod fragment;
mod json;
mod legacy;
mod merge;
mod negotiate;
mod order;
mod remote;
mod root;
mod source;

pub use aggregated::Document;
pub use documents::Documents;
pub use fragment::Fragment;
pub use merge::{PeerDocuments, ServedVersion};
pub use negotiate::{AggregatedForm, etag_matches};
pub use remote::{aggregated_versions, legacy_resources, served_versions};
pub use root::root_paths;
pub use source::{
    DiscoveredKind, DiscoveredResource, DiscoveredSubresource, Freshness, SourceOrder, Text, VersionSource, fragments,
};
