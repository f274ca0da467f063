//! A stored object: canonical JSON bytes without a `resourceVersion`.
//!
//! The order of keys is fixed, so that equal objects have equal bytes. A response with the object consists of two
//! copies, with a number in between:
//!
//! `{"kind":K,"apiVersion":A,"metadata":{"name","generateName","namespace","uid",` then the `resourceVersion`, then
//! `"generation",...},...}`
//!
//! Invariant: the bytes of a [`StoredObject`] are valid compact JSON of this shape, no deeper than
//! [`MAX_DEPTH`](crate::json::MAX_DEPTH), without `resourceVersion` and `selfLink`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use bytes::Bytes;
use keelson_meta::json::Value;
use keelson_meta::{GroupVersionKind, Object, Revision};
use keelson_protobuf::ProtobufError;
use thiserror::Error;

use crate::cursor::{Cursor, Extents};
use crate::json;
use crate::json::JsonError;

mod canonical;
mod checked;
mod encoding;
mod shape;
mod shared;
mod summary;

use canonical::Canonical;
pub use checked::ParsedObject;
pub use encoding::Encoding;
pub use shape::{HeaderText, StoredShape};
use shared::Parts;
pub use summary::{FieldPath, Marks, Summary};

/// Metadata that identifies the object, written before the `resourceVersion`.
const IDENTITY: [&str; 4] = ["name", "generateName", "namespace", "uid"];

/// The order of other metadata, as in Kubernetes. Unknown fields follow in their original order.
const DETAILS: [&str; 9] = [
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    MANAGED_FIELDS,
];

const MANAGED_FIELDS: &str = "managedFields";

/// Metadata that is never stored: the `resourceVersion` is the store's revision, and Kubernetes removed `selfLink` in
/// 1.20.
const NEVER_STORED: [&str; 2] = ["resourceVersion", "selfLink"];

const KIND_START: &[u8] = b"{\"kind\":\"";
const API_VERSION_START: &[u8] = b",\"apiVersion\":\"";
const METADATA_START: &[u8] = b"\"metadata\":";
const REVISION_START: &[u8] = b"\"resourceVersion\":\"";

/// The beginning of every encrypted value, as kube-apiserver writes it.
const ENCRYPTED_START: &[u8] = b"k8s:enc:";

/// The size in bytes of the buffer that each thread keeps for encoding objects. Most objects are smaller.
const SCRATCH_BYTES: usize = 64 * 1024;

thread_local! {
    /// The buffer for encoding objects of unknown length. The result is then copied into an allocation of its exact
    /// size.
    static SCRATCH: RefCell<Canonical> = RefCell::default();
}

/// The reason why stored bytes can't be read as an object.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// kube-apiserver stored it in protobuf that is not a message of a known kind.
    #[error("kube-apiserver wrote it in protobuf, and {0}")]
    Protobuf(#[from] ProtobufError),
    /// The object is encrypted, and this server has no key for it.
    #[error("identity transformer tried to read encrypted data")]
    Encrypted,
    /// The value could not be decrypted, in upstream's words.
    #[error("{0}")]
    Sealed(String),
    /// The bytes are not JSON.
    #[error(transparent)]
    Syntax(#[from] JsonError),
    /// The bytes are JSON, but not an object.
    #[error("a stored object must be a JSON object")]
    NotAnObject,
    /// A field of the metadata has a type that no stored object has.
    #[error("metadata.{0} of a stored object has the wrong type")]
    Metadata(&'static str),
}

/// The canonical bytes of one object. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// All bytes, or the skeleton if parts of the object are shared with others.
    bytes: Bytes,
    parts: Parts,
    /// The offset of `"metadata"`, after kind and apiVersion.
    body: u32,
    /// The offset at which the resourceVersion is inserted.
    splice: u32,
}

/// The stored bytes before the metadata, equal for all objects of a kind and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHeader(Box<[u8]>);

impl StoredHeader {
    /// The header of a kind.
    pub fn new(kind: &GroupVersionKind) -> Self {
        let mut header = Vec::new();
        write_header(&mut header, &kind.kind, &kind.group_version().to_string());
        Self(header.into())
    }
}

impl StoredObject {
    /// Encodes the object canonically. `resourceVersion` and `selfLink` are dropped, a missing kind or apiVersion
    /// becomes the empty string, and missing metadata becomes `{}`. The tree must not exceed the maximum depth.
    pub fn encode(object: &Object) -> Self {
        Self::encode_with(object, None)
    }

    /// Encodes an object without `metadata.managedFields`, which are given as compact JSON text.
    pub fn encode_with(object: &Object, managed_fields: Option<&str>) -> Self {
        written(object, managed_fields, |_| ()).0
    }

    /// Decodes stored bytes. Canonical bytes are validated in one pass and kept without a copy. Other JSON objects and
    /// kube-apiserver's protobuf are parsed and encoded again.
    ///
    /// # Errors
    /// Bytes that are neither a JSON object nor a built-in kind in protobuf.
    pub fn parse(bytes: Bytes) -> Result<Self, DecodeError> {
        ParsedObject::parse(bytes).map(ParsedObject::into_object)
    }

    fn with_marks(bytes: Bytes, body: usize, splice: usize) -> Self {
        let mark = |at: usize| u32::try_from(at).expect("objects are limited to a few MiB when they are received");
        Self { body: mark(body), splice: mark(splice), bytes, parts: None }
    }

    /// The bytes to store. Cost: a copy if the object has [shared](Checked::shared) parts.
    pub fn bytes(&self) -> Bytes {
        match &self.parts {
            None => self.bytes.clone(),
            Some(_) => self.assembled().into(),
        }
    }

    /// The bytes to store as text.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.parts {
            None => std::str::from_utf8(&self.bytes).map_or_else(|_| Cow::default(), Cow::Borrowed),
            Some(_) => Cow::Owned(String::from_utf8(self.assembled()).unwrap_or_default()),
        }
    }

    /// The size of the bytes to store.
    pub fn size(&self) -> usize {
        let parts = self.parts.as_deref().unwrap_or_default();
        self.bytes.len() + parts.iter().map(|part| part.text.len()).sum::<usize>()
    }

    fn assembled(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        self.write_range(0..self.bytes.len(), &mut bytes);
        bytes
    }

    /// The object as a value tree, with its `resourceVersion`. Cost: a parse. Lists and watches never need this tree.
    pub fn decode(&self, revision: Revision) -> Object {
        let mut text = Vec::with_capacity(self.object_len(revision));
        self.write_object(revision, &mut text);
        decoded(&text)
    }

    /// The object as a value tree without `metadata.managedFields`, and these as text. They are often most of an object
    /// and rarely examined.
    pub fn decode_apart(&self, revision: Revision) -> (Object, Option<Cow<'_, str>>) {
        let Some((member, value)) = self.managed_fields() else { return (self.decode(revision), None) };
        let owners = self.text_of(value);
        if self.bytes.get(member.start) != Some(&b',') {
            // If the member is the first of the metadata, it has no preceding comma. The first one is nearly always the
            // name.
            let mut object = self.decode(revision);
            object.remove_meta(MANAGED_FIELDS);
            return (object, owners);
        }
        let mut text = Vec::with_capacity(self.bytes.len() - member.len() + 64);
        text.extend_from_slice(self.slice(0, self.splice));
        self.write_revision(revision, &mut text);
        // Shared parts are only in the omitted member.
        text.extend_from_slice(&self.bytes[self.splice as usize..member.start]);
        text.extend_from_slice(&self.bytes[member.end..]);
        (decoded(&text), owners)
    }

    /// The text of `metadata.managedFields`. Builds no tree.
    pub fn managed_fields_text(&self) -> Option<Cow<'_, str>> {
        let (_, value) = self.managed_fields()?;
        self.text_of(value)
    }

    /// The text of a range of the skeleton.
    fn text_of(&self, range: Range<usize>) -> Option<Cow<'_, str>> {
        if self.parts.is_none() {
            return std::str::from_utf8(&self.bytes[range]).ok().map(Cow::Borrowed);
        }
        let mut text = Vec::with_capacity(self.size());
        self.write_range(range, &mut text);
        String::from_utf8(text).ok().map(Cow::Owned)
    }

    /// The place of `metadata.managedFields` in the skeleton: the member with its preceding comma, and its value.
    fn managed_fields(&self) -> Option<(Range<usize>, Range<usize>)> {
        let mut cursor = Cursor::new(&self.bytes, self.body as usize);
        cursor.take(METADATA_START);
        cursor.take(b"{");
        loop {
            let start = cursor.position();
            let key = cursor.key()?;
            let value = cursor.position();
            cursor.skip();
            if key.is(MANAGED_FIELDS) {
                return Some((start..cursor.position(), value..cursor.position()));
            }
        }
    }

    /// Appends the object as an item of a typed list: without kind and apiVersion.
    pub fn write_item(&self, revision: Revision, out: &mut Vec<u8>) {
        out.push(b'{');
        self.write_body(revision, out);
    }

    /// The size of the output of [`write_item`](Self::write_item).
    pub fn item_len(&self, revision: Revision) -> usize {
        1 + self.body_len(revision)
    }

    /// Appends the whole object.
    pub fn write_object(&self, revision: Revision, out: &mut Vec<u8>) {
        out.extend_from_slice(self.slice(0, self.body));
        self.write_body(revision, out);
    }

    /// The size of the output of [`write_object`](Self::write_object).
    pub fn object_len(&self, revision: Revision) -> usize {
        self.body as usize + self.body_len(revision)
    }

    /// Appends the whole object with another kind and apiVersion, for versions that differ in nothing else.
    pub fn write_object_as(&self, kind: &GroupVersionKind, revision: Revision, out: &mut Vec<u8>) {
        write_header(out, &kind.kind, &kind.group_version().to_string());
        self.write_body(revision, out);
    }

    /// The stored kind. Escapes are not decoded, since no kind needs any.
    pub fn kind(&self) -> &str {
        self.header().kind()
    }

    /// The stored apiVersion. Escapes are not decoded, since no apiVersion needs any.
    pub fn api_version(&self) -> &str {
        self.header().api_version()
    }

    /// Returns true if the object is stored with this kind and version. Needs a single comparison, so it is cheaper
    /// than [`kind`](Self::kind) and [`api_version`](Self::api_version). Escaped names compare unequal.
    pub fn has_header(&self, header: &StoredHeader) -> bool {
        self.header().is(header)
    }

    /// The summary for a cache, in one pass over the bytes and without a value tree. [`ParsedObject::summary`] costs less.
    ///
    /// # Errors
    /// A field of the metadata has a type that no stored object has.
    pub fn summary(&self, fields: &[FieldPath]) -> Result<Summary<'_>, DecodeError> {
        summary::read(Cursor::new(&self.bytes, self.body as usize), fields)
    }

    /// `metadata.uid`, which is near the start.
    pub fn uid(&self) -> Cow<'_, str> {
        let mut cursor = Cursor::new(&self.bytes, self.body as usize);
        cursor.take(METADATA_START);
        cursor.take(b"{");
        while cursor.position() < self.splice as usize
            && let Some(key) = cursor.key()
        {
            if key.is("uid") {
                return cursor.scalar().unwrap_or_default();
            }
            cursor.skip();
        }
        Cow::default()
    }

    /// Appends only the `metadata`.
    pub fn write_metadata(&self, revision: Revision, out: &mut Vec<u8>) {
        let start = self.body as usize + METADATA_START.len();
        let end = start + self.metadata().len();
        out.extend_from_slice(&self.bytes[start..self.splice as usize]);
        self.write_revision(revision, out);
        self.write_range(self.splice as usize..end, out);
    }

    /// The JSON text of `metadata` without a `resourceVersion`, and possibly without `fieldsV1`. For metadata fields
    /// that are not in the summary.
    pub fn metadata(&self) -> &[u8] {
        let mut cursor = Cursor::new(&self.bytes, self.body as usize);
        cursor.take(METADATA_START);
        cursor.raw()
    }

    fn write_body(&self, revision: Revision, out: &mut Vec<u8>) {
        out.extend_from_slice(self.slice(self.body, self.splice));
        self.write_revision(revision, out);
        self.write_range(self.splice as usize..self.bytes.len(), out);
    }

    fn write_revision(&self, revision: Revision, out: &mut Vec<u8>) {
        let (before, after) = self.commas();
        out.extend_from_slice(before);
        out.extend_from_slice(REVISION_START);
        out.extend_from_slice(itoa::Buffer::new().format(revision.get()).as_bytes());
        out.extend_from_slice(b"\"");
        out.extend_from_slice(after);
    }

    fn body_len(&self, revision: Revision) -> usize {
        let (before, after) = self.commas();
        let digits = itoa::Buffer::new().format(revision.get()).len();
        let inserted = before.len() + REVISION_START.len() + digits + 1 + after.len();
        self.size() - self.body as usize + inserted
    }

    /// The commas needed before and after the inserted field. Before the offset is `{` or a value, after it `,` or `}`.
    fn commas(&self) -> (&'static [u8], &'static [u8]) {
        let splice = self.splice as usize;
        match (self.bytes[splice - 1], self.bytes[splice]) {
            (b'{', b'}') => (b"", b""),
            (b'{', _) => (b"", b","),
            _ => (b",", b""),
        }
    }

    fn slice(&self, from: u32, to: u32) -> &[u8] {
        &self.bytes[from as usize..to as usize]
    }
}

/// Compares bytes, regardless of sharing.
impl PartialEq for StoredObject {
    fn eq(&self, other: &Self) -> bool {
        if self.parts.is_none() && other.parts.is_none() {
            return self.bytes == other.bytes;
        }
        self.size() == other.size() && self.bytes() == other.bytes()
    }
}

impl Eq for StoredObject {}

fn decoded(text: &[u8]) -> Object {
    let Ok(json::Parsed { value: Value::Object(map), .. }) = json::parse(text) else {
        unreachable!("the bytes were written or checked by this module, and stay valid with a number in them");
    };
    Object(map)
}

/// Encodes an object canonically. `note` is called with the extents of its text.
fn written<T>(object: &Object, managed_fields: Option<&str>, note: impl FnOnce(&Extents) -> T) -> (StoredObject, T) {
    SCRATCH.with_borrow_mut(|canonical| {
        // A panic in an earlier call may have left an incomplete text.
        canonical.clear();
        let (body, splice) = canonical.write(object, managed_fields);
        let bytes = if canonical.text.len() > SCRATCH_BYTES {
            // The result takes over the buffer itself, so that a large object never exists twice.
            canonical.text.shrink_to_fit();
            Bytes::from(std::mem::take(&mut canonical.text))
        } else {
            Bytes::copy_from_slice(&canonical.text)
        };
        let stored = StoredObject::with_marks(bytes, body, splice);
        let noted = note(&canonical.extents);
        canonical.keep_at_most(SCRATCH_BYTES);
        (stored, noted)
    })
}

/// The string in a header that begins at an offset.
fn header_text(header: &[u8], start: usize) -> &str {
    std::str::from_utf8(Cursor::new(header, start - 1).string().bytes()).unwrap_or_default()
}

fn write_header(out: &mut Vec<u8>, kind: &str, api_version: &str) {
    out.extend_from_slice(b"{\"kind\":");
    json::write_string(kind, out);
    out.extend_from_slice(b",\"apiVersion\":");
    json::write_string(api_version, out);
    out.push(b',');
}

/// The offsets of the metadata and of the resourceVersion in valid compact JSON. `None` if the JSON is not canonical.
fn find_marks(bytes: &[u8], extents: &Extents) -> Option<(usize, usize)> {
    let mut cursor = Cursor::over(bytes, KIND_START.len() - 1, extents);
    if !bytes.starts_with(KIND_START) {
        return None;
    }
    cursor.string();
    if !cursor.take(&API_VERSION_START[..API_VERSION_START.len() - 1]) || cursor.peek() != b'"' {
        return None;
    }
    cursor.string();
    let body = cursor.position() + 1;
    if !cursor.take(b",\"metadata\":{") {
        return None;
    }
    let splice = find_splice(&mut cursor)?;
    while let Some(key) = cursor.key() {
        if key.is_any(&["kind", "apiVersion", "metadata"]) {
            return None;
        }
        cursor.skip();
    }
    Some((body, splice))
}

/// Finds the offset of the resourceVersion in the metadata. Checks that the identity comes first and in order, and that
/// the metadata has no field that is never stored.
fn find_splice(cursor: &mut Cursor<'_>) -> Option<usize> {
    let mut splice = cursor.position();
    let mut identity = &IDENTITY[..];
    while let Some(key) = cursor.key() {
        match identity.iter().position(|name| key.is(name)) {
            Some(index) => {
                identity = &identity[index + 1..];
                cursor.skip();
                splice = cursor.position();
            }
            None if key.is_any(&IDENTITY) || key.is_any(&NEVER_STORED) => return None,
            None => {
                identity = &[];
                cursor.skip();
            }
        }
    }
    Some(splice)
}
