//! PartialObjectMetadata: objects without anything but their metadata.
//!
//! For clients that only keep names, labels and owners. Where the metadata comes from is for the caller, who has it as bytes.

use super::{MetaVersion, write_type};

/// Appends a PartialObjectMetadata, without a newline; `metadata` appends the JSON of the metadata.
pub fn write_partial(version: MetaVersion, metadata: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    write_type("PartialObjectMetadata", version, out);
    out.extend_from_slice(b",\"metadata\":");
    metadata(out);
    out.push(b'}');
}
