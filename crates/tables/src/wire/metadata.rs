//! PartialObjectMetadata: objects without anything but their metadata, for clients that only keep names and labels.

use std::borrow::Cow;
use std::fmt;

use keelson_meta::Object;
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{ListMeta, MetaVersion, write_head, write_json, write_type};

/// The metadata of an object, from wherever it is at hand.
#[derive(Clone, Copy, Debug)]
pub enum Metadata<'a> {
    /// The JSON of the metadata.
    Json(&'a str),
    /// The object, decoded.
    Of(&'a Object),
}

impl<'a> Metadata<'a> {
    /// Finds the metadata in the JSON of an object, without a tree, and without reading on once it is found.
    /// `None` if this is not a JSON object or has no metadata.
    pub fn within(object: &'a [u8]) -> Option<Self> {
        let mut found = None;
        // The deserializer complains about what is left unread; what was found is good all the same.
        let _unread = serde_json::Deserializer::from_slice(object).deserialize_map(Finder(&mut found));
        found.map(|raw: &RawValue| Self::Json(raw.get()))
    }
}

/// Appends a PartialObjectMetadata, without a newline.
pub fn write_partial(metadata: Metadata<'_>, version: MetaVersion, out: &mut Vec<u8>) {
    write_type("PartialObjectMetadata", version, out);
    out.extend_from_slice(b",\"metadata\":");
    match metadata {
        Metadata::Json(json) => out.extend_from_slice(json.as_bytes()),
        Metadata::Of(object) => match object.metadata() {
            Some(metadata) => write_json(metadata, out),
            None => out.extend_from_slice(b"{}"),
        },
    }
    out.push(b'}');
}

/// What stands before the items of a PartialObjectMetadataList.
#[derive(Clone, Copy, Debug)]
pub struct PartialListHead<'a> {
    /// The version the client asked for.
    pub version: MetaVersion,
    /// The metadata of the list.
    pub meta: ListMeta<'a>,
}

impl PartialListHead<'_> {
    /// Appends everything up to and including `"items":[`. The items are written by [`write_partial`].
    pub fn write(&self, out: &mut Vec<u8>) {
        write_head("PartialObjectMetadataList", self.version, &self.meta, out);
        out.extend_from_slice(b",\"items\":[");
    }
}

struct Finder<'f, 'de>(&'f mut Option<&'de RawValue>);

impl<'de> Visitor<'de> for Finder<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == "metadata" {
                *self.0 = Some(map.next_value()?);
                break;
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: &str) -> Option<String> {
        match Metadata::within(json.as_bytes())? {
            Metadata::Json(json) => Some(json.to_owned()),
            Metadata::Of(_) => None,
        }
    }

    #[test]
    fn metadata_is_cut_out_of_an_object_as_it_stands() {
        let pod = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a", "labels":{"x":"}\""}},"spec":{}}"#;
        assert_eq!(found(pod).as_deref(), Some(r#"{"name":"a", "labels":{"x":"}\""}}"#));
        assert_eq!(found(r#" {"a":[{"metadata":1}],"metadata":{}} "#).as_deref(), Some("{}"));
    }

    #[test]
    fn nothing_is_found_where_there_is_none() {
        for json in ["", "[]", "{}", r#"{"meta":{}}"#, r#"{"kind":"Pod","metadata":{"#, r#"{"kind":"#] {
            assert_eq!(found(json), None, "{json}");
        }
    }
}
