//! The text of a typed JSON list around its items.
//!
//! A list is a head, items separated by commas, and [`TAIL`]. No value tree is built of the items. The list metadata
//! comes before the items, so it must be known before the first item is written.

use keelson_meta::ListHead;

use crate::json::write_string;

/// The end of a list.
pub const TAIL: &[u8] = b"]}\n";

/// Appends everything up to and including `"items":[`.
pub fn write_head(head: &ListHead<'_>, out: &mut Vec<u8>) {
    write_type_and_metadata(head, out);
    out.extend_from_slice(b",\"items\":[");
}

/// Appends kind, apiVersion and metadata without the closing brace, for lists whose items have another key.
pub fn write_type_and_metadata(head: &ListHead<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":");
    write_string(head.kind, out);
    out.extend_from_slice(b",\"apiVersion\":");
    write_string(head.api_version, out);
    out.extend_from_slice(b",\"metadata\":{\"resourceVersion\":");
    write_string(head.meta.position.unwrap_or(itoa::Buffer::new().format(head.meta.revision.get())), out);
    if let Some(token) = head.meta.continue_token {
        out.extend_from_slice(b",\"continue\":");
        write_string(token, out);
    }
    if let Some(remaining) = head.meta.remaining {
        out.extend_from_slice(b",\"remainingItemCount\":");
        out.extend_from_slice(itoa::Buffer::new().format(remaining).as_bytes());
    }
    if let Some(shard) = head.meta.shard {
        out.extend_from_slice(b",\"shardInfo\":{\"selector\":");
        write_string(shard, out);
        out.push(b'}');
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use keelson_meta::{ListMeta, Revision};

    use super::*;

    fn written(head: ListHead<'_>) -> String {
        let mut out = Vec::new();
        write_head(&head, &mut out);
        out.extend_from_slice(TAIL);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_whole_list_has_only_a_revision() {
        let head = ListHead { kind: "PodList", api_version: "v1", meta: ListMeta::at(Revision::new(12)) };
        let expected =
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"12\"},\"items\":[]}\n";
        assert_eq!(written(head), expected);
    }

    #[test]
    fn a_page_has_its_continue_token() {
        let head = ListHead {
            kind: "PodList",
            api_version: "v1",
            meta: ListMeta {
                revision: Revision::new(7),
                position: None,
                continue_token: Some("abc"),
                remaining: Some(3),
                shard: Some("s"),
            },
        };
        let metadata = "{\"resourceVersion\":\"7\",\"continue\":\"abc\",\"remainingItemCount\":3,\"shardInfo\":{\"selector\":\"s\"}}";
        assert!(written(head).contains(metadata));
    }
}
