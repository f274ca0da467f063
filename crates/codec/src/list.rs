//! The frame around the items of a typed list in JSON.
//!
//! A list is written as head, items separated by commas, and [`TAIL`]; the items never pass through a value tree. The
//! collection's metadata comes before the items, so everything about the page must be known before the first item.

use keelson_meta::Revision;

use crate::json::write_string;

/// What ends a list.
pub const TAIL: &[u8] = b"]}\n";

/// What stands before the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListHead<'a> {
    /// The kind of the list, such as `PodList`.
    pub kind: &'a str,
    /// The apiVersion of the list, such as `apps/v1`.
    pub api_version: &'a str,
    /// The revision of the snapshot the list shows.
    pub revision: Revision,
    /// The token that continues the list, if there is more.
    pub continue_token: Option<&'a str>,
    /// How many items follow after this page, if that is known.
    pub remaining: Option<u64>,
}

impl ListHead<'_> {
    /// Appends everything up to and including `"items":[`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"kind\":");
        write_string(self.kind, out);
        out.extend_from_slice(b",\"apiVersion\":");
        write_string(self.api_version, out);
        out.extend_from_slice(b",\"metadata\":{\"resourceVersion\":\"");
        out.extend_from_slice(itoa::Buffer::new().format(self.revision.get()).as_bytes());
        out.push(b'"');
        if let Some(token) = self.continue_token {
            out.extend_from_slice(b",\"continue\":");
            write_string(token, out);
        }
        if let Some(remaining) = self.remaining {
            out.extend_from_slice(b",\"remainingItemCount\":");
            out.extend_from_slice(itoa::Buffer::new().format(remaining).as_bytes());
        }
        out.extend_from_slice(b"},\"items\":[");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(head: ListHead<'_>) -> String {
        let mut out = Vec::new();
        head.write(&mut out);
        out.extend_from_slice(TAIL);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_whole_list_has_only_a_revision() {
        let head = ListHead {
            kind: "PodList",
            api_version: "v1",
            revision: Revision::new(12),
            continue_token: None,
            remaining: None,
        };
        let expected =
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"12\"},\"items\":[]}\n";
        assert_eq!(written(head), expected);
    }

    #[test]
    fn a_page_says_how_to_continue() {
        let head = ListHead {
            kind: "PodList",
            api_version: "v1",
            revision: Revision::new(7),
            continue_token: Some("abc"),
            remaining: Some(3),
        };
        let metadata = "{\"resourceVersion\":\"7\",\"continue\":\"abc\",\"remainingItemCount\":3}";
        assert!(written(head).contains(metadata));
    }
}
