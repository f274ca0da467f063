//! PartialObjectMetadata: objects with only their metadata.
//!
//! The list of metadata serves clients that only need names, labels and owners. The caller supplies the metadata as
//! bytes.

use super::{MetaVersion, write_type};

/// Appends a PartialObjectMetadata without a line feed. `metadata` appends the JSON of the metadata.
pub fn write_partial(version: MetaVersion, metadata: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    write_type("PartialObjectMetadata", version, out);
    out.extend_from_slice(b",\"metadata\":");
    metadata(out);
    out.push(b'}');
}
