//! OpenAPI: what can be sent to this server, in the forms that clients read.
//!
//! Version 3 has an index and a document for each group version; version 2 is one document, as JSON and as protobuf. All
//! are rendered from one model of operations, which is read off the catalogue, and from the compiled schemas. A document
//! is made when it is first asked for, piece by piece, and then kept as bytes.

mod action;
mod definitions;
mod json;
mod openapi;
mod operations;
mod parameters;
mod part;
mod protobuf;
mod schema;
mod v2;
mod v3;

pub use openapi::{Document, Form, OpenApi};
