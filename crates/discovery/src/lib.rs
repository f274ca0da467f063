//! Discovery: the documents that list the served resources.
//!
//! Documents have two forms. The aggregated form is one document for all groups, with an `ETag`. The legacy form is a
//! document for each group and version. Both are assembled from fragments, one for each group version, built in, custom
//! or aggregated. A fragment is rendered once. When one of thousands changes, the others are only copied.
//!
//! The crate must not know HTTP or the existing resources: documents are bytes, and the server supplies the fragments.
//! Equal fragments give equal bytes and equal `ETag`s in upstream's form. Clients that move between servers, keelson or
//! not, can therefore keep their documents.

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
