//! OpenAPI: what can be sent to this server, in the forms that clients read.
//!
//! Version 3 has an index and a document for each group version; version 2 is one document, as JSON and as protobuf. All
//! are rendered from one model of operations, which is read off descriptions of resources, and from the compiled schemas. The
//! documents are put together from fragments, one for each group version, which keep what was rendered of them: when one of
//! thousands changes, the others are only copied. A document is made when it is first asked for, and then kept as bytes.
//! Which resources there are is told by whoever composes a server.

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
pub use descriptions::{Descriptions, DocumentEncoding, Wanted};
pub use document::Document;
pub use foreign::ForeignDocument;
pub use foreign_paths::ForeignPaths;
pub use fragment::Fragment;
pub use shared::SharedDefinitions;
