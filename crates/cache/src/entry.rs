//! One object in the cache: its bytes, and the parts needed for selection and order.
//!
//! Entries are shared, and immutable but for the form of their object ([`packing`](crate::packing)). They use little
//! memory beyond the object's bytes: with 100,000 objects, a hundred bytes here are ten megabytes.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use keelson_codec::cursor::Cursor;
use keelson_codec::stored::{DecodeError, HeaderText, Marks, ParsedObject, StoredObject};
use keelson_meta::Revision;
use keelson_storage::Seal;

use crate::encodings::{EncodingId, Encodings};
use crate::labels::{LabelInterner, Labels, PartInterner};
use crate::packing::{ObjectRef, Pool, Slot};
use crate::spec::{Complete, Layout};
use crate::written::DecoderId;

/// An object at one revision.
#[derive(Debug)]
pub struct Entry {
    /// `<namespace>/<name>`, or `<name>` for cluster-scoped objects.
    pub key: Arc<str>,
    /// The revision of the write.
    pub revision: Revision,
    /// Its labels.
    pub labels: Labels,
    /// The object.
    slot: Slot,
    /// True if the object differs from the stored bytes. These may be protobuf or JSON in another form, or lack the
    /// additions of [`CollectionSpec::complete`](crate::CollectionSpec::complete).
    pub rewritten: bool,
    /// True if the object is being deleted.
    pub terminating: bool,
    /// The encoding in the store.
    pub(crate) encoding: EncodingId,
    /// The JSON text of the owner references, if it has owners. Objects with the same owners share it.
    owners: Option<Arc<[u8]>>,
    /// The offsets of the object's parts in the skeleton.
    marks: Marks,
    /// The size of the object in a list, in bytes. Trees add up these sizes, so adding them up reads no object.
    list_bytes: u32,
    /// The layout of `fields`.
    layout: Arc<Layout>,
    fields: Fields,
}

/// Decodes stored values into entries of a collection.
pub(crate) struct Decoder {
    /// The identity of the decoder.
    pub(crate) id: DecoderId,
    pub(crate) layout: Arc<Layout>,
    pub(crate) complete: Option<Arc<dyn Complete>>,
    pub(crate) interned: Arc<Interned>,
    pub(crate) pool: Arc<Pool>,
}

/// The values that the entries of a collection share, and those of its forks.
#[derive(Default)]
pub(crate) struct Interned {
    labels: LabelInterner,
    parts: PartInterner,
    pub(crate) encodings: Encodings,
}

/// The texts of the collection's fields, joined by NUL.
///
/// A NUL inside a value is replaced, so that it does not split the value. No valid value of such a field contains a
/// NUL.
#[derive(Debug)]
struct Fields(Option<Box<str>>);

const SEPARATOR: char = '\0';
const REPLACEMENT: &str = "\u{fffd}";

impl Decoder {
    pub(crate) fn new(layout: Arc<Layout>, complete: Option<Arc<dyn Complete>>, pool: Arc<Pool>) -> Self {
        Self { id: DecoderId::next(), layout, complete, interned: Arc::default(), pool }
    }

    /// Another decoder that makes the same entries and shares their values. Its entries count in this pool.
    pub(crate) fn forked(&self, pool: Arc<Pool>) -> Self {
        let Self { layout, complete, interned, .. } = self;
        let (layout, complete, interned) = (layout.clone(), complete.clone(), interned.clone());
        Self { id: DecoderId::next(), layout, complete, interned, pool }
    }

    /// Decodes the stored value of a key.
    pub(crate) fn decode(
        &self,
        key: Arc<str>,
        value: &Bytes,
        (revision, seal): (Revision, Seal),
    ) -> Result<Entry, DecodeError> {
        if seal.is_unreadable() {
            return Err(DecodeError::Sealed(String::from_utf8_lossy(value).into_owned()));
        }
        let checked = ParsedObject::parse(value.clone())?;
        // The encoding of the stored value, since completing an object may convert it to another version.
        let encoding = self.interned.encodings.encoding(value, checked.object(), seal);
        let completed = self.complete.as_ref().and_then(|known| known.complete(&checked));
        let checked = completed.map_or(checked, ParsedObject::from);
        let rewritten = checked.object().skeleton().as_ptr() != value.as_ptr();
        self.entry(key, &checked, (rewritten, encoding), revision)
    }

    /// Creates the entry of an object that this server has written.
    pub(crate) fn written(
        &self,
        key: Arc<str>,
        written: &ParsedObject,
        (revision, seal): (Revision, Seal),
    ) -> Result<Entry, DecodeError> {
        let object = written.object();
        debug_assert!(
            self.complete.as_ref().is_none_or(|known| known.complete(&object.clone().into()).is_none()),
            "an object was written that lacks something: {}",
            object.text()
        );
        let encoding = self.interned.encodings.encoding(object.skeleton(), object, seal);
        self.entry(key, written, (false, encoding), revision)
    }

    fn entry(
        &self,
        key: Arc<str>,
        checked: &ParsedObject,
        (rewritten, encoding): (bool, EncodingId),
        revision: Revision,
    ) -> Result<Entry, DecodeError> {
        let summary = checked.summary(&self.layout.fields)?;
        let object = checked.shared(|text| self.interned.parts.intern(text));
        let owners = summary.owners.map(|owners| {
            let mut owners = Cursor::new(checked.object().skeleton(), owners.get() as usize);
            self.interned.parts.intern(owners.raw())
        });
        Ok(Entry {
            key,
            revision,
            labels: self.interned.labels.intern(summary.labels.iter().map(|(key, value)| (&**key, &**value))),
            rewritten,
            terminating: summary.deletion_timestamp.is_some(),
            encoding,
            owners,
            marks: summary.marks.in_skeleton_of(&object),
            list_bytes: list_bytes(&object, revision, &self.layout),
            layout: self.layout.clone(),
            fields: Fields::join(&summary.fields),
            slot: Slot::pooled(object, self.pool.clone()),
        })
    }
}

impl Entry {
    /// Returns the entry with another form of its object, such as another version. The labels and fields remain those
    /// of the stored object.
    #[must_use]
    pub fn with_object(&self, object: StoredObject) -> Self {
        Self {
            key: self.key.clone(),
            labels: self.labels.clone(),
            layout: self.layout.clone(),
            fields: Fields(self.fields.0.clone()),
            owners: None,
            marks: Marks::default(),
            list_bytes: list_bytes(&object, self.revision, &self.layout),
            slot: Slot::unpooled(object),
            ..*self
        }
    }

    /// Returns the entry with another form of its object, and with the fields of that form for selectors.
    ///
    /// Cost: a scan of the object.
    #[must_use]
    pub fn with_fields_of(&self, object: StoredObject) -> Self {
        let checked = ParsedObject::from(object.clone());
        let summary = checked.summary(&self.layout.fields);
        let fields = summary.map_or(Fields(None), |summary| Fields::join(&summary.fields));
        Self { fields, ..self.with_object(object) }
    }

    /// Puts the entry behind a pointer, which its slot knows.
    pub(crate) fn into_shared(mut self) -> Arc<Self> {
        Arc::new_cyclic(|entry| {
            self.slot.belongs_to(entry);
            self
        })
    }

    /// The object. Do not hold it across other work: meanwhile it is not packed.
    ///
    /// Cost: a lock that is rarely taken exclusively. About a microsecond if the object is packed.
    pub fn object(&self) -> ObjectRef<'_> {
        self.slot.read()
    }

    /// The object, unless it is packed.
    pub fn plain_object(&self) -> Option<ObjectRef<'_>> {
        self.slot.read_plain()
    }

    /// The object, which is not packed from now on. Its bytes keep their address while the entry exists.
    pub fn pinned_object(&self) -> StoredObject {
        self.slot.pin()
    }

    /// Calls `look` with kind and apiVersion of the object. Never decodes the object.
    pub fn header<T>(&self, look: impl FnOnce(HeaderText<'_>) -> T) -> T {
        self.slot.header(look)
    }

    /// The size of the object's [skeleton](StoredObject::skeleton) in bytes. Never decodes the object.
    pub fn skeleton_len(&self) -> usize {
        self.slot.skeleton_len()
    }

    /// The size of the object's stored bytes. Never decodes the object.
    pub fn size(&self) -> usize {
        self.slot.size()
    }

    /// Returns true if the object is packed.
    pub fn is_packed(&self) -> bool {
        self.slot.is_packed()
    }

    pub(crate) const fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The name of the object.
    pub fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(&*self.key, |(_, name)| name)
    }

    /// The namespace of the object, if namespaced.
    pub fn namespace(&self) -> Option<&str> {
        namespace_of(&self.key)
    }

    /// The layout of the fields.
    pub const fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The text of a field by its [index](Layout::place). Empty if absent.
    pub fn field(&self, place: usize) -> &str {
        self.fields.0.as_deref().and_then(|texts| texts.split(SEPARATOR).nth(place)).unwrap_or_default()
    }

    /// The texts of all fields in the layout. The text of an absent field is empty.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.0.as_deref().into_iter().flat_map(|texts| texts.split(SEPARATOR))
    }

    /// The text of a field by its path, such as `spec.nodeName`. Empty if the field is absent or not in the layout.
    pub fn field_named(&self, path: &str) -> &str {
        self.layout.place(path).map_or("", |place| self.field(place))
    }

    /// The JSON text of `metadata.ownerReferences`. `None` without owners.
    pub fn owner_references(&self) -> Option<&str> {
        std::str::from_utf8(self.owners.as_deref()?).ok()
    }

    /// The offsets of the object's parts in its [skeleton](StoredObject::skeleton).
    pub const fn marks(&self) -> Marks {
        self.marks
    }

    /// Returns true if list items include kind and apiVersion.
    pub fn is_typed_item(&self) -> bool {
        self.layout.typed_items
    }

    /// Appends the object as a list item.
    pub fn write_item(&self, out: &mut Vec<u8>) {
        match self.is_typed_item() {
            true => self.object().write_object(self.revision, out),
            false => self.object().write_item(self.revision, out),
        }
    }

    /// The size of the object in a list in bytes.
    pub fn list_bytes(&self) -> u64 {
        self.list_bytes.into()
    }
}

fn list_bytes(object: &StoredObject, revision: Revision, layout: &Layout) -> u32 {
    let length = if layout.typed_items { object.object_len(revision) } else { object.item_len(revision) };
    u32::try_from(length).expect("the marks of an object are smaller numbers")
}

impl Fields {
    fn join(texts: &[Cow<'_, str>]) -> Self {
        if texts.iter().all(|text| text.is_empty()) {
            return Self(None);
        }
        let mut joined = String::with_capacity(texts.iter().map(|text| text.len() + 1).sum());
        for (place, text) in texts.iter().enumerate() {
            if place > 0 {
                joined.push(SEPARATOR);
            }
            match text.contains(SEPARATOR) {
                false => joined.push_str(text),
                true => joined.push_str(&text.replace(SEPARATOR, REPLACEMENT)),
            }
        }
        Self(Some(joined.into_boxed_str()))
    }
}

/// The namespace in a relative key.
pub(crate) fn namespace_of(key: &str) -> Option<&str> {
    key.split_once('/').map(|(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use keelson_codec::FieldPath;

    use super::*;
    use crate::packing::Packer;

    fn decoder(fields: &[FieldPath]) -> Decoder {
        Decoder::new(Arc::new(Layout::new(fields.to_vec(), None)), None, Arc::new(Pool::new(Packer::off())))
    }

    #[test]
    fn an_entry_knows_what_selectors_request() {
        let value = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"team-a","uid":"u","labels":{"app":"web"}},"spec":{"nodeName":"n1","hostNetwork":true}}"#;
        let paths = ["status.phase", "spec.nodeName", "spec.hostNetwork"].map(FieldPath::parse);
        let entry = decoder(&paths)
            .decode("team-a/web-0".into(), &Bytes::from_static(value), (Revision::new(7), Seal::PLAIN))
            .unwrap();
        assert_eq!((entry.namespace(), entry.name()), (Some("team-a"), "web-0"));
        assert_eq!([entry.field(0), entry.field(1), entry.field(2), entry.field(3)], ["", "n1", "true", ""]);
        assert_eq!(entry.labels.get("app"), Some("web"));
        let mut item = Vec::new();
        entry.write_item(&mut item);
        assert_eq!(entry.list_bytes(), item.len() as u64);
        assert!(item.starts_with(b"{\"metadata\":"));
        let mut typed = decoder(&[]);
        typed.layout = Arc::new(Layout::default().with_typed_items(true));
        let entry =
            typed.decode("team-a/web-0".into(), &Bytes::from_static(value), (Revision::new(7), Seal::PLAIN)).unwrap();
        let mut item = Vec::new();
        entry.write_item(&mut item);
        assert_eq!(entry.list_bytes(), item.len() as u64);
        assert!(item.starts_with(b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":"));
    }

    #[test]
    fn an_entry_knows_its_owners_and_whether_it_goes() {
        let check = |metadata: &str, owners: Option<&str>, terminating: bool| {
            let value = format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{{}}}}"#).into();
            let entry = decoder(&[]).decode("a/b".into(), &value, (Revision::new(7), Seal::PLAIN)).unwrap();
            assert_eq!((entry.owner_references(), entry.terminating), (owners, terminating), "{metadata}");
        };
        check(r#"{"name":"b","ownerReferences":[{"uid":"u"}],"finalizers":["x"]}"#, Some(r#"[{"uid":"u"}]"#), false);
        check(r#"{"name":"b","deletionTimestamp":"t"}"#, None, true);
        check(r#"{"name":"b","ownerReferences":null,"labels":{"ownerReferences":"c"}}"#, None, false);
    }

    #[test]
    fn an_entry_knows_its_places_where_its_object_shares_what_managers_own() {
        let owned = (0..30).map(|at| format!(r#""f:field{at}":{{}}"#)).collect::<Vec<_>>().join(",");
        let value = |name: &str| {
            let metadata = format!(
                r#"{{"name":"{name}","ownerReferences":[{{"uid":"u"}}],"managedFields":[{{"manager":"m","fieldsV1":{{{owned}}}}}]}}"#
            );
            Bytes::from(format!(
                r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{{"nodeName":"n1"}},"status":{{"phase":"P"}}}}"#
            ))
        };
        let decoder = decoder(&[FieldPath::parse("spec.nodeName")]);
        for name in ["one", "other"] {
            let (entry, value) =
                (decoder.decode(name.into(), &value(name), (Revision::new(7), Seal::PLAIN)).unwrap(), value(name));
            assert_eq!((entry.object().bytes(), entry.rewritten), (value.clone(), false));
            assert!(entry.skeleton_len() + owned.len() < value.len());
            assert_eq!((entry.owner_references(), entry.field(0)), (Some(r#"[{"uid":"u"}]"#), "n1"));
            for member in ["spec", "status"] {
                let object = entry.object();
                let mut cursor = Cursor::new(object.skeleton(), entry.marks().before(member).unwrap());
                assert!(cursor.key().unwrap().is(member), "{member}");
            }
            let mut item = Vec::new();
            entry.write_item(&mut item);
            assert_eq!(entry.list_bytes(), item.len() as u64);
        }
    }

    #[test]
    fn a_separator_in_a_field_does_not_shift_the_fields_behind_it() {
        let fields = Fields::join(&["a\0b".into(), "c".into()]);
        assert_eq!(fields.0.as_deref(), Some("a\u{fffd}b\0c"));
    }
}
