//! Encodes lists item by item.
//!
//! The envelope begins with the length of the list, so the items must first be measured in a pass with
//! [`ListForm::measure_items`]. After that, only a few items at a time are in memory.

use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ListHead, ListMeta, Object};

use crate::envelope::{self, MessageType};
use crate::error::ProtobufError;
use crate::repeats::Repeats;
use crate::table;
use crate::wire::{Count, Sink, WireType};

/// The messages of a kind's lists and of their items.
#[derive(Clone, Copy, Debug)]
pub struct ListForm {
    list: MessageType,
    item: MessageType,
    item_number: u32,
}

impl ListForm {
    /// The bytes after the last item.
    pub const TAIL: &'static [u8] = &envelope::TAIL;

    /// The encoding of lists of this kind with items of that kind.
    ///
    /// # Errors
    /// The kind is not the list of a built-in kind.
    pub fn new(api_version: &str, list_kind: &str, item_kind: &str) -> Result<Self, ProtobufError> {
        let unknown = || ProtobufError::UnknownKind { api_version: api_version.to_owned(), kind: list_kind.to_owned() };
        let message = table::message(table::lookup(api_version, list_kind).ok_or_else(unknown)?);
        let items = message.fields.iter().find(|field| field.name == "items").ok_or_else(unknown)?;
        let list = MessageType::new(api_version, list_kind)?;
        Ok(Self { list, item: MessageType::new(api_version, item_kind)?, item_number: items.number })
    }

    /// The message of the items.
    pub fn item(&self) -> MessageType {
        self.item
    }

    /// Appends the bytes before the first item. `items` is the size of all items in bytes.
    ///
    /// # Errors
    /// None for the head of a list.
    pub fn write_head(&self, head: &ListHead<'_>, items: usize, out: &mut Vec<u8>) -> Result<(), ProtobufError> {
        let mut metadata = Vec::new();
        self.list.write(&list_metadata(&head.meta), &mut metadata)?;
        envelope::write_head(head.api_version, head.kind, metadata.len() + items, out);
        out.append(&mut metadata);
        Ok(())
    }

    /// Begins to append items from JSON texts.
    pub fn write_items<'a, 'o>(&self, out: &'o mut Vec<u8>) -> ItemWriter<'a, 'o> {
        ItemWriter { form: *self, repeats: Repeats::default(), out }
    }

    /// Begins to measure items. Takes about as much time as writing them, but no memory.
    pub fn measure_items<'a>(&self) -> ItemMeasure<'a> {
        ItemMeasure { form: *self, repeats: Repeats::default(), count: Count::default() }
    }

    fn append<'a>(&self, json: &'a [u8], repeats: &mut Repeats<'a>, out: &mut impl Sink) -> Result<(), ProtobufError> {
        out.tag(self.item_number, WireType::Bytes);
        let open = out.begin_long();
        self.item.write_among(json, Some(&mut *repeats), out)?;
        let moved = out.end(open);
        if moved != 0 {
            repeats.moved(open.start(), moved);
        }
        Ok(())
    }
}

/// Writes consecutive items. A repeated part is encoded once, so the texts of all items must stay borrowed.
pub struct ItemWriter<'a, 'o> {
    form: ListForm,
    repeats: Repeats<'a>,
    // `repeats` has offsets into the output, so only this writer may append to it.
    out: &'o mut Vec<u8>,
}

impl<'a> ItemWriter<'a, '_> {
    /// Appends an item.
    ///
    /// # Errors
    /// The object does not have the shape of its kind. The output then has a part of an item, and no further item may
    /// be added.
    pub fn item(&mut self, json: &'a [u8]) -> Result<(), ProtobufError> {
        self.form.append(json, &mut self.repeats, self.out)
    }

    /// The size of the output in bytes.
    pub fn written(&self) -> usize {
        self.out.len()
    }
}

/// Measures consecutive items.
pub struct ItemMeasure<'a> {
    form: ListForm,
    repeats: Repeats<'a>,
    count: Count,
}

impl<'a> ItemMeasure<'a> {
    /// Adds an item.
    ///
    /// # Errors
    /// As [`ItemWriter::item`].
    pub fn item(&mut self, json: &'a [u8]) -> Result<(), ProtobufError> {
        self.form.append(json, &mut self.repeats, &mut self.count)
    }

    /// The size of the items in bytes.
    pub fn bytes(&self) -> usize {
        self.count.0
    }
}

/// The list with its metadata, without items.
fn list_metadata(meta: &ListMeta<'_>) -> Object {
    let mut metadata = Map::new();
    let position = meta.position.map_or_else(|| meta.revision.to_string(), str::to_owned);
    metadata.insert("resourceVersion", position);
    if let Some(token) = meta.continue_token {
        metadata.insert("continue", token);
    }
    if let Some(remaining) = meta.remaining {
        metadata.insert("remainingItemCount", remaining);
    }
    if let Some(shard) = meta.shard {
        metadata.insert("shardInfo", json!({ "selector": shard }));
    }
    let mut list = Object::default();
    list.0.insert("metadata", Value::Object(metadata));
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::decode;
    use keelson_meta::Revision;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    fn bytes(item: &Object) -> Vec<u8> {
        serde_json::to_vec(item).unwrap()
    }

    /// Writes a list as a server does: measures the items first, then writes them one by one.
    fn written(head: ListHead<'_>, item_kind: &str, items: &[Object]) -> Vec<u8> {
        let form = ListForm::new(head.api_version, head.kind, item_kind).unwrap();
        let texts: Vec<_> = items.iter().map(bytes).collect();
        let mut measure = form.measure_items();
        texts.iter().for_each(|text| measure.item(text).unwrap());
        let length = measure.bytes();
        let mut out = Vec::new();
        form.write_head(&head, length, &mut out).unwrap();
        let before = out.len();
        let mut writer = form.write_items(&mut out);
        texts.iter().for_each(|text| writer.item(text).unwrap());
        assert_eq!(out.len() - before, length);
        out.extend_from_slice(ListForm::TAIL);
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
            meta: ListMeta {
                revision: Revision::new(7),
                position: None,
                continue_token: Some("abc"),
                remaining: Some(3),
                shard: Some("s"),
            },
        };
        let metadata =
            json!({"resourceVersion": "7", "continue": "abc", "remainingItemCount": 3, "shardInfo": {"selector": "s"}});
        let values: Vec<_> = items.iter().map(|item| item.clone().into_value()).collect();
        let list = object(json!({"metadata": metadata, "items": values}));
        assert_eq!(written(head, "ConfigMap", &items), envelope::encode("v1", "ConfigMapList", &list).unwrap());
    }

    #[test]
    fn the_number_of_the_items_is_the_one_of_the_list() {
        let head = ListHead {
            kind: "PartialObjectMetadataList",
            api_version: "meta.k8s.io/v1beta1",
            meta: ListMeta::at(Revision::new(9)),
        };
        let items = [object(json!({"metadata": {"name": "a"}}))];
        let list = decode(&written(head, "PartialObjectMetadata", &items)).unwrap().object;
        assert_eq!(list.get(&["metadata"]), Some(&json!({"resourceVersion": "9"})));
        assert_eq!(list.get(&["items"]), Some(&json!([{"metadata": {"name": "a"}}])));
    }

    #[test]
    fn other_kinds_have_no_list_form() {
        assert!(matches!(ListForm::new("v1", "Pod", "Pod"), Err(ProtobufError::UnknownKind { .. })));
    }
}
