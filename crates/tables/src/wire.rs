//! The wire forms: a Table and a PartialObjectMetadataList, written in pieces, and a single PartialObjectMetadata.
//!
//! A list consists of its head, its rows or items separated by commas, and [`TAIL`], with at most one row in memory.
//! Each watch event has a table of one row, which ends in [`END`]. Only the first event has the column definitions.

mod metadata;
mod table;

pub use metadata::write_partial;
pub use table::{IncludeObject, Row, TableHead};

/// The end of an embedded table or list, such as in a watch event.
pub const END: &[u8] = b"]}";
/// The end of a table or list that is the whole body.
pub const TAIL: &[u8] = b"]}\n";

/// The requested version of `meta.k8s.io`. Both have the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// The version of this name, as in the `v` parameter of a media type.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    /// The apiVersion.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// Appends an opening brace, kind and apiVersion.
fn write_type(kind: &str, version: MetaVersion, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"apiVersion\":\"");
    out.extend_from_slice(version.api_version().as_bytes());
    out.push(b'"');
}

fn write_json<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("keys are strings, and writing to a Vec cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_known_by_name() {
        for version in [MetaVersion::V1, MetaVersion::V1Beta1] {
            let name = version.api_version().strip_prefix("meta.k8s.io/").unwrap();
            assert_eq!(MetaVersion::parse(name), Some(version));
        }
        assert_eq!(MetaVersion::parse("v2"), None);
    }
}
