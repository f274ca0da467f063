//! OpenAPI: documents that describe the requests of this server, in the formats that clients read.
//!
//! Version 3 has an index, and a document for each group version. Version 2 is one document, as JSON and as protobuf.
//! All are rendered from one model of operations. The model is derived from descriptions of resources and from the
//! compiled schemas.
//!
//! Documents are assembled from fragments, one for each group version, which keep their rendered parts. When one of
//! thousands changes, the rendered parts of the others are copied. A document is built on demand and then kept as
//! bytes. The crate must not know which resources exist: the server passes their descriptions.

mod action;
mod addition;
mod custom;
mod definitions;
mod description;
mod descriptions;
mod document;
mod document_scope;
mod foreign;
mod foreign_paths;
mod fragment;
mod from_v2;
mod json;
mod operations;
mod parameters;
mod piece;
mod protobuf;
mod published;
mod schema;
mod shared;
mod v2;
mod v3;

pub use custom::CustomKind;
pub use description::{ResourceDescription, SubresourceDescription, VersionDescription};
pub use descriptions::{Descriptions, DocumentEncoding, DocumentId};
pub use document::Document;
pub use foreign::ForeignDocument;
pub use foreign_paths::ForeignPaths;
pub use fragment::Fragment;
pub use shared::SharedDefinitions;
