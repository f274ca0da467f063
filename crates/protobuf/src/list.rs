//! Lists written item by item.
//!
//! The envelope says how long the list is before the list begins, so the lengths of the items must be known first: from
//! items that are kept in protobuf, or from a pass with [`MessageType::json_len`]. After that nothing but one item at a
//! time is in memory: head, then for each item its own head and its bytes, then the tail.

use keelson_meta::{Object, Revision};
use serde_json::{Map, Value};

use crate::envelope::{self, MessageType};
use crate::error::ProtobufError;
use crate::table;
use crate::wire::{Sink, WireType, varint_len};

/// What stands before the items of a list.
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

/// A list whose items are about to be written.
#[derive(Clone, Debug)]
pub struct ListFrame {
    head: Vec<u8>,
    item_number: u32,
    length: usize,
}

impl ListHead<'_> {
    /// Lays out the list; `item_lengths` are the lengths of the bare messages of its items.
    ///
    /// # Errors
    /// If it is not the list of a built-in kind.
    pub fn frame(&self, item_lengths: impl IntoIterator<Item = usize>) -> Result<ListFrame, ProtobufError> {
        let mut metadata = Vec::new();
        MessageType::of(self.api_version, self.kind)?.write(&self.metadata(), &mut metadata)?;
        let item_number = self.item_number()?;
        let tag = varint_len((item_number << 3) as usize);
        let items: usize = item_lengths.into_iter().map(|length| tag + varint_len(length) + length).sum();
        let mut head = Vec::with_capacity(metadata.len() + 64);
        envelope::write_head(self.api_version, self.kind, metadata.len() + items, &mut head);
        head.append(&mut metadata);
        Ok(ListFrame { length: head.len() + items + envelope::TAIL.len(), head, item_number })
    }

    /// The list without items, so only with its metadata.
    fn metadata(&self) -> Object {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), self.revision.to_string().into());
        if let Some(token) = self.continue_token {
            metadata.insert("continue".to_owned(), token.into());
        }
        if let Some(remaining) = self.remaining {
            metadata.insert("remainingItemCount".to_owned(), remaining.into());
        }
        let mut list = Object::default();
        list.0.insert("metadata".to_owned(), Value::Object(metadata));
        list
    }

    fn item_number(&self) -> Result<u32, ProtobufError> {
        let unknown =
            || ProtobufError::UnknownKind { api_version: self.api_version.to_owned(), kind: self.kind.to_owned() };
        let message = table::message(table::lookup(self.api_version, self.kind).ok_or_else(unknown)?);
        let items = message.fields.iter().find(|field| field.name == "items");
        items.map(|field| field.number).ok_or_else(unknown)
    }
}

impl ListFrame {
    /// What follows the last item.
    pub const TAIL: &'static [u8] = &envelope::TAIL;

    /// The length of the whole body in bytes.
    pub fn total_len(&self) -> usize {
        self.length
    }

    /// What precedes the first item.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Appends what precedes an item whose message has `length` bytes.
    pub fn write_item_head(&self, length: usize, out: &mut Vec<u8>) {
        out.tag(self.item_number, WireType::Bytes);
        out.varint(length as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::decode;
    use serde_json::json;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    fn bytes(item: &Object) -> Vec<u8> {
        serde_json::to_vec(item).unwrap()
    }

    /// Writes the list as a server would: lengths first, then item by item.
    fn written(head: ListHead<'_>, item_kind: &str, items: &[Object]) -> Vec<u8> {
        let message = MessageType::of(head.api_version, item_kind).unwrap();
        let lengths: Vec<_> = items.iter().map(|item| message.json_len(&bytes(item), None).unwrap()).collect();
        let frame = head.frame(lengths.iter().copied()).unwrap();
        let mut out = frame.head().to_vec();
        for (item, length) in items.iter().zip(lengths) {
            frame.write_item_head(length, &mut out);
            message.write_json(&bytes(item), None, &mut out).unwrap();
        }
        out.extend_from_slice(ListFrame::TAIL);
        assert_eq!(out.len(), frame.total_len());
        out
    }

    #[test]
    fn a_list_written_item_by_item_is_the_list_written_at_once() {
        let items: Vec<_> = (0..20)
            .map(|i| object(json!({"metadata": {"name": format!("c{i}")}, "data": {"a": "b".repeat(i * 10)}})))
            .collect();
        let head = ListHead {
            kind: "ConfigMapList",
            api_version: "v1",
            revision: Revision::new(7),
            continue_token: Some("abc"),
            remaining: Some(3),
        };
        let metadata = json!({"resourceVersion": "7", "continue": "abc", "remainingItemCount": 3});
        let values: Vec<_> = items.iter().map(|item| item.clone().into_value()).collect();
        let list = object(json!({"metadata": metadata, "items": values}));
        assert_eq!(written(head, "ConfigMap", &items), envelope::encode("v1", "ConfigMapList", &list).unwrap());
    }

    #[test]
    fn the_number_of_the_items_is_the_one_of_the_list() {
        let head = ListHead {
            kind: "PartialObjectMetadataList",
            api_version: "meta.k8s.io/v1beta1",
            revision: Revision::new(9),
            continue_token: None,
            remaining: None,
        };
        let items = [object(json!({"metadata": {"name": "a"}}))];
        let list = decode(&written(head, "PartialObjectMetadata", &items)).unwrap().object;
        assert_eq!(list.get(&["metadata"]), Some(&json!({"resourceVersion": "9"})));
        assert_eq!(list.get(&["items"]), Some(&json!([{"metadata": {"name": "a"}}])));
    }

    #[test]
    fn what_is_not_a_list_has_no_frame() {
        let head = ListHead {
            kind: "Pod",
            api_version: "v1",
            revision: Revision::ZERO,
            continue_token: None,
            remaining: None,
        };
        assert!(matches!(head.frame([]), Err(ProtobufError::UnknownKind { .. })));
    }
}
