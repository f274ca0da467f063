//! The envelope around every object: a prefix of four bytes, then a message with the kind and the bytes of the object.
//!
//! Field 1 of the message is the type (1 apiVersion, 2 kind), field 2 the object. Fields 3 and 4 are the encoding and
//! the type of the content; they are empty.

use keelson_meta::json::Value;
use keelson_meta::{Object, Revision};

use crate::decode::Decoder;
use crate::encode::write;
use crate::error::{ProtobufError, WireFault};
use crate::repeats::Repeats;
use crate::table::{self, MessageId};
use crate::wire::{Count, Reader, Sink, Wire, WireType, varint_len};

/// The prefix of every object.
pub const PREFIX: [u8; 4] = *b"k8s\0";

/// The content type that an empty string means.
const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// An object read from protobuf.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The apiVersion of the envelope.
    pub api_version: String,
    /// The kind of the envelope.
    pub kind: String,
    /// The object as Go's JSON, with `kind` and `apiVersion`.
    pub object: Object,
}

/// Decodes a whole body: envelope and object.
///
/// # Errors
/// The body is not an envelope, names no kind or an unknown one, or its object is malformed, too deep or too large.
pub fn decode(body: &[u8]) -> Result<Decoded, ProtobufError> {
    decode_within(&mut Decoder::new(), body, None)
}

/// As [`decode`]. If the envelope names no apiVersion and kind, uses `default`.
///
/// # Errors
/// As [`decode`].
pub fn decode_with_default(body: &[u8], default: (&str, &str)) -> Result<Decoded, ProtobufError> {
    decode_within(&mut Decoder::new(), body, Some(default))
}

/// The message of a kind, looked up once for many objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageType(MessageId);

impl MessageType {
    /// The message of this kind.
    ///
    /// # Errors
    /// The kind is not built in.
    pub fn new(api_version: &str, kind: &str) -> Result<Self, ProtobufError> {
        let unknown = || ProtobufError::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() };
        table::lookup(api_version, kind).map(Self).ok_or_else(unknown)
    }

    /// The unique number of the message.
    pub fn number(self) -> u16 {
        self.0.number()
    }

    /// Appends the object as a message without an envelope, as in a list.
    ///
    /// # Errors
    /// The object does not have the shape of the kind. `out` then has a part of the message.
    pub fn write(self, object: &Object, out: &mut Vec<u8>) -> Result<(), ProtobufError> {
        self.write_json(
            &serde_json::to_vec(object).map_err(|error| ProtobufError::NotJson(error.to_string()))?,
            None,
            out,
        )
    }

    /// Appends the object in this compact JSON text as a message without an envelope. Builds no tree. `revision`
    /// becomes its `resourceVersion`. The text must be valid, since skipped parts are not checked.
    ///
    /// # Errors
    /// The text is not an object with the shape of the kind. `out` then has a part of the message.
    pub fn write_json(self, json: &[u8], revision: Option<Revision>, out: &mut Vec<u8>) -> Result<(), ProtobufError> {
        self.transcode(json, revision, out)
    }

    /// The number of bytes that [`write_json`](Self::write_json) would append. Takes about as much time, but no memory.
    ///
    /// # Errors
    /// As `write_json`.
    pub fn json_len(self, json: &[u8], revision: Option<Revision>) -> Result<usize, ProtobufError> {
        let mut count = Count::default();
        self.transcode(json, revision, &mut count)?;
        Ok(count.0)
    }

    fn transcode(self, json: &[u8], revision: Option<Revision>, out: &mut impl Sink) -> Result<(), ProtobufError> {
        self.write_among(json, None, out)?;
        if let Some(revision) = revision {
            self.write_revision(revision, out);
        }
        Ok(())
    }

    /// Appends the object in this text after those recorded in `repeats`.
    pub(crate) fn write_among<'a>(
        self,
        json: &'a [u8],
        repeats: Option<&mut Repeats<'a>>,
        out: &mut impl Sink,
    ) -> Result<(), ProtobufError> {
        write(self.0, json, repeats, out)
    }

    /// Writes the metadata a second time, with only the revision. Readers join both.
    fn write_revision(self, revision: Revision, out: &mut impl Sink) {
        let message = table::message(self.0);
        if let Some(metadata) = message.place(b"metadata") {
            out.tag(message.names()[metadata].field.number, WireType::Bytes);
            let open = out.begin();
            out.bytes(RESOURCE_VERSION, revision.to_string().as_bytes());
            out.end(open);
        }
    }
}

/// The number of the field `resourceVersion` in `ObjectMeta`.
const RESOURCE_VERSION: u32 = 6;

/// The end of every envelope: an empty encoding and an empty content type.
pub(crate) const TAIL: [u8; 4] = [0x1a, 0, 0x22, 0];

/// Encodes a whole body: envelope and object. Ignores the object's own `kind` and `apiVersion`.
///
/// # Errors
/// When the kind is not built in, or the object does not fit its message.
pub fn encode(api_version: &str, kind: &str, object: &Object) -> Result<Vec<u8>, ProtobufError> {
    let message = MessageType::new(api_version, kind)?;
    enclose(api_version, kind, 1024, |out| message.write(object, out))
}

/// As [`encode`], for an object given as compact and valid JSON text. `revision` becomes its `resourceVersion`.
///
/// # Errors
/// As [`MessageType::write_json`], or the kind is not built in.
pub fn encode_json(
    api_version: &str,
    kind: &str,
    json: &[u8],
    revision: Option<Revision>,
) -> Result<Vec<u8>, ProtobufError> {
    let message = MessageType::new(api_version, kind)?;
    enclose(api_version, kind, json.len(), |out| message.write_json(json, revision, out))
}

fn enclose(
    api_version: &str,
    kind: &str,
    capacity: usize,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), ProtobufError>,
) -> Result<Vec<u8>, ProtobufError> {
    let mut out = Vec::with_capacity(capacity);
    write_type(api_version, kind, &mut out);
    out.tag(2, WireType::Bytes);
    let open = out.begin_long();
    write(&mut out)?;
    out.end(open);
    out.put(&TAIL);
    Ok(out)
}

/// Appends the start of an envelope for an object of `length` bytes.
pub(crate) fn write_head(api_version: &str, kind: &str, length: usize, out: &mut impl Sink) {
    write_type(api_version, kind, out);
    out.tag(2, WireType::Bytes);
    out.varint(length as u64);
}

fn write_type(api_version: &str, kind: &str, out: &mut impl Sink) {
    out.put(&PREFIX);
    let field = |text: &str| 1 + varint_len(text.len()) + text.len();
    out.tag(1, WireType::Bytes);
    out.varint((field(api_version) + field(kind)) as u64);
    out.bytes(1, api_version.as_bytes());
    out.bytes(2, kind.as_bytes());
}

/// Decodes an object that may be embedded in another one.
pub(crate) fn decode_within(
    decoder: &mut Decoder,
    body: &[u8],
    default: Option<(&str, &str)>,
) -> Result<Decoded, ProtobufError> {
    let envelope = Envelope::read(body.strip_prefix(&PREFIX).ok_or(ProtobufError::NoPrefix)?)?;
    let (api_version, kind) = envelope.names(default)?;
    let MessageType(id) = MessageType::new(api_version, kind)?;
    let mut object = Object::default();
    object.0.insert("kind", Value::from(kind));
    object.0.insert("apiVersion", Value::from(api_version));
    decoder.fields(id, &[envelope.raw], &mut object.0)?;
    Ok(Decoded { api_version: api_version.to_owned(), kind: kind.to_owned(), object })
}

/// The fields of the envelope.
#[derive(Default)]
struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
    content_encoding: &'a str,
    content_type: &'a str,
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut envelope = Self::default();
        envelope.read_fields(bytes).map_err(|fault| ProtobufError::Malformed { at: "Unknown".to_owned(), fault })?;
        let plain = envelope.content_encoding.is_empty();
        if plain && (envelope.content_type.is_empty() || envelope.content_type == MEDIA_TYPE) {
            return Ok(envelope);
        }
        let odd = if plain { envelope.content_type } else { envelope.content_encoding };
        Err(ProtobufError::UnknownContent(odd.to_owned()))
    }

    fn read_fields(&mut self, bytes: &'a [u8]) -> Result<(), WireFault> {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.field()? {
            match number {
                1 => self.read_type(wire)?,
                2 => self.raw = wire.bytes()?,
                3 => self.content_encoding = wire.text()?,
                4 => self.content_type = wire.text()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_type(&mut self, wire: Wire<'a>) -> Result<(), WireFault> {
        let mut reader = Reader::new(wire.bytes()?);
        while let Some((number, wire)) = reader.field()? {
            match number {
                1 => self.api_version = wire.text()?,
                2 => self.kind = wire.text()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn names<'b>(&'b self, default: Option<(&'b str, &'b str)>) -> Result<(&'b str, &'b str), ProtobufError> {
        let default = default.unwrap_or_default();
        let api_version = if self.api_version.is_empty() { default.0 } else { self.api_version };
        let kind = if self.kind.is_empty() { default.1 } else { self.kind };
        if api_version.is_empty() || kind.is_empty() {
            return Err(ProtobufError::NoKind);
        }
        Ok((api_version, kind))
    }
}
