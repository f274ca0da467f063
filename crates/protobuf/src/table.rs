//! The messages of the API, parsed from `messages.txt` and `retired.txt` at their first use.
//!
//! The text is compiled in, and a test checks its form, so parsing cannot fail at run time. All names borrow from the
//! text. The table has a few hundred kilobytes and is parsed in about a millisecond.

use std::collections::HashMap;
use std::sync::LazyLock;

const TEXT: &str = concat!(include_str!("messages.txt"), include_str!("retired.txt"));

/// The section with the messages that exist in every group and version.
const META: &str = "meta.k8s.io/v1";

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(TEXT));

/// A message of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MessageId(u16);

impl MessageId {
    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// A message around JSON text: `RawExtension`, `FieldsV1`, `JSON`.
    Json,
    /// A message around one repeated string: `ExtraValue`, `Verbs`.
    Strings,
    /// A JSON schema or a boolean.
    SchemaOrBool(MessageId),
    /// A JSON schema or a list of them.
    SchemaOrList(MessageId),
    /// A JSON schema or a list of strings.
    SchemaOrStrings(MessageId),
    Message(MessageId),
}

/// The allowed number of occurrences of a field, and the meaning of its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cardinality {
    /// Once. If the field is absent, its value is zero.
    Value,
    /// At most once. An absent field is not the same as zero.
    Pointer,
    List,
    /// Keyed by string.
    Map,
}

/// The rule by which a field is omitted in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Omit {
    Never,
    /// Go's `omitempty`: omits false, 0, empty strings, lists and maps, and absent pointers. Never omits a message.
    Empty,
    /// Go's `omitzero` on a time.
    Zero,
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// The name in JSON. Empty if JSON inlines the fields of the message in this field.
    pub(crate) name: &'static str,
    pub(crate) number: u32,
    pub(crate) shape: Cardinality,
    pub(crate) kind: Kind,
    pub(crate) omit: Omit,
}

/// A message.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) name: &'static str,
    /// In the order of JSON.
    pub(crate) fields: Vec<Field>,
    /// Indexes in `fields`, by field number.
    by_number: Vec<u16>,
    /// The fields as JSON names them, in its order, including those of inlined messages.
    names: Vec<FieldByName>,
    /// Hash table of indexes in `names`, from 1, by a hash of the name. 0 for an empty slot. A collision takes the
    /// following slot.
    by_name: Vec<u16>,
    /// The number of names in all earlier messages. Added to an index in `names`, it identifies a name in the whole
    /// table.
    first_name: usize,
}

/// A field as found by its name in JSON.
#[derive(Clone, Debug)]
pub(crate) struct FieldByName {
    pub(crate) field: Field,
    /// The numbers of the inlined messages around the field, outermost first. Empty for a field of the message itself.
    pub(crate) around: Vec<u32>,
    /// The name as it is written in JSON text: quoted, with a colon.
    pub(crate) key: Box<[u8]>,
}

impl Message {
    /// The index in `fields` of the field with this number.
    pub(crate) fn position(&self, number: u32) -> Option<usize> {
        let found = self.by_number.binary_search_by_key(&number, |&position| self.fields[usize::from(position)].number);
        found.ok().map(|index| usize::from(self.by_number[index]))
    }

    /// The index in `names` of this name.
    pub(crate) fn place(&self, name: &[u8]) -> Option<usize> {
        let mut at = sum_of(name);
        loop {
            let place = usize::from(*self.by_name.get(at & self.by_name.len().wrapping_sub(1))?).checked_sub(1)?;
            if self.names[place].field.name.as_bytes() == name {
                return Some(place);
            }
            at += 1;
        }
    }

    /// The fields by their names in JSON, in its order.
    pub(crate) fn names(&self) -> &[FieldByName] {
        &self.names
    }

    /// The number of the name at this index in the whole table.
    pub(crate) fn name_number(&self, place: usize) -> usize {
        self.first_name + place
    }

    fn index(&mut self, names: Vec<FieldByName>, first_name: usize) {
        let room = if names.is_empty() { 0 } else { (names.len() * 2).next_power_of_two() };
        self.by_name = vec![0; room];
        for (place, named) in (1..).zip(&names) {
            let mut at = sum_of(named.field.name.as_bytes());
            while self.by_name[at & (room - 1)] != 0 {
                at += 1;
            }
            self.by_name[at & (room - 1)] = place;
        }
        (self.names, self.first_name) = (names, first_name);
    }
}

/// A hash of a name.
#[inline]
fn sum_of(name: &[u8]) -> usize {
    let byte = |at: usize| usize::from(name.get(at).copied().unwrap_or(0));
    let sum = name.len() ^ byte(0) << 2 ^ byte(name.len() / 2) << 4 ^ byte(name.len().wrapping_sub(1)) << 7;
    sum ^ sum >> 6
}

/// The message with this number.
pub(crate) fn message(id: MessageId) -> &'static Message {
    &TABLE.messages[usize::from(id.0)]
}

/// The message of a kind. `None` for an unknown kind.
///
/// Request options and `WatchEvent` exist in every group and version, `Status` and discovery only in `v1`.
pub(crate) fn lookup(api_version: &str, kind: &str) -> Option<MessageId> {
    let found = TABLE.kinds.get(api_version)?.get(kind);
    let shared = || {
        let everywhere = kind.ends_with("Options");
        let here = everywhere || api_version == "v1" || api_version == "meta.k8s.io/v1beta1";
        if here { TABLE.kinds.get(META)?.get(kind) } else { None }
    };
    found.or_else(shared).copied()
}

/// Every kind of the table with its apiVersion, sorted.
#[cfg(test)]
pub(crate) fn kinds() -> Vec<(&'static str, &'static str, MessageId)> {
    let sections = TABLE.kinds.iter();
    let mut all: Vec<_> = sections.flat_map(|(gv, kinds)| kinds.iter().map(|(kind, id)| (*gv, *kind, *id))).collect();
    all.sort_unstable_by_key(|&(gv, kind, _)| (gv, kind));
    all
}

#[derive(Debug, Default)]
struct Table {
    messages: Vec<Message>,
    kinds: HashMap<&'static str, HashMap<&'static str, MessageId>>,
}

/// A line of the text that describes a message, and the section that it is in.
struct Line {
    package: &'static str,
    word: &'static str,
    name: &'static str,
    fields: &'static str,
}

/// The names of all messages, so that a message can refer to a later one.
#[derive(Default)]
struct Names {
    /// By package and name.
    messages: HashMap<(&'static str, &'static str), Kind>,
}

impl Table {
    fn read(text: &'static str) -> Self {
        let mut table = Self::default();
        let mut names = Names::default();
        let mut lines = Vec::new();
        let (mut package, mut api_version) = ("", "");
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(section) = line.strip_prefix('@') {
                (package, api_version) = halves(section, ' ');
                table.kinds.entry(api_version).or_default();
                continue;
            }
            let (word, rest) = halves(line, ' ');
            let (name, fields) = rest.split_once(' ').unwrap_or((rest, ""));
            let id = MessageId(u16::try_from(lines.len()).expect("the table has fewer than 65536 messages"));
            let kind = if word == "list" { Kind::Strings } else { Kind::Message(id) };
            names.messages.insert((package, name), kind);
            if word == "kind" {
                table.kinds.entry(api_version).or_default().insert(name, id);
            }
            lines.push(Line { package, word, name, fields });
        }
        table.messages = lines.iter().map(|line| names.read_message(line)).collect();
        table.index_names();
        table
    }

    fn index_names(&mut self) {
        let all = self.messages.iter().map(|message| {
            let mut names = Vec::new();
            self.collect_names(message, &[], &mut names);
            names
        });
        let all: Vec<_> = all.collect();
        let mut first = 1;
        for (message, names) in self.messages.iter_mut().zip(all) {
            let count = names.len() + 1;
            message.index(names, first);
            first += count;
        }
    }

    fn collect_names(&self, message: &Message, around: &[u32], into: &mut Vec<FieldByName>) {
        for &field in &message.fields {
            match field.kind {
                Kind::Message(inner) if field.name.is_empty() => {
                    let around = [around, &[field.number]].concat();
                    self.collect_names(&self.messages[usize::from(inner.0)], &around, into);
                }
                _ => {
                    let key = format!("\"{}\":", field.name).into_bytes().into();
                    into.push(FieldByName { field, around: around.to_vec(), key });
                }
            }
        }
    }
}

impl Names {
    fn read_message(&self, line: &Line) -> Message {
        debug_assert!(matches!(line.word, "kind" | "type" | "list"), "{}", line.word);
        let fields: Vec<_> = line.fields.split_ascii_whitespace().map(|text| self.read_field(line, text)).collect();
        let mut by_number: Vec<u16> = (0..).take(fields.len()).collect();
        by_number.sort_unstable_by_key(|&position| fields[usize::from(position)].number);
        Message { name: line.name, fields, by_number, ..Message::default() }
    }

    fn read_field(&self, line: &Line, text: &'static str) -> Field {
        let (name, rest) = halves(text, ':');
        let (number, rest) = halves(rest, ':');
        let (rest, omit) = match (rest.strip_suffix('?'), rest.strip_suffix('~')) {
            (Some(rest), _) => (rest, Omit::Empty),
            (None, Some(rest)) => (rest, Omit::Zero),
            (None, None) => (rest, Omit::Never),
        };
        let shapes = [("[]", Cardinality::List), ("{}", Cardinality::Map), ("*", Cardinality::Pointer)];
        let shaped = shapes.iter().find_map(|(prefix, shape)| Some((rest.strip_prefix(prefix)?, *shape)));
        let (kind, shape) = shaped.unwrap_or((rest, Cardinality::Value));
        Field {
            name: if name == "+" { "" } else { name },
            number: number.parse().expect("the number of a field is a number"),
            shape,
            kind: self.read_kind(line.package, kind),
            omit,
        }
    }

    fn read_kind(&self, package: &'static str, text: &'static str) -> Kind {
        match text {
            "string" => Kind::String,
            "bool" => Kind::Bool,
            "int32" => Kind::Int32,
            "int64" => Kind::Int64,
            "double" => Kind::Double,
            "bytes" => Kind::Bytes,
            "Time" => Kind::Time,
            "MicroTime" => Kind::MicroTime,
            "Quantity" => Kind::Quantity,
            "IntOrString" => Kind::IntOrString,
            "json" => Kind::Json,
            "schema|bool" => Kind::SchemaOrBool(self.schema()),
            "schema|list" => Kind::SchemaOrList(self.schema()),
            "schema|strings" => Kind::SchemaOrStrings(self.schema()),
            name => self.find(text.rsplit_once('.').unwrap_or((package, name))),
        }
    }

    fn find(&self, name: (&'static str, &'static str)) -> Kind {
        *self.messages.get(&name).unwrap_or_else(|| panic!("no message {} in {}", name.1, name.0))
    }

    fn schema(&self) -> MessageId {
        match self.find(("apiextensions/v1", "JSONSchemaProps")) {
            Kind::Message(id) => id,
            other => panic!("JSONSchemaProps is a message, not {other:?}"),
        }
    }
}

fn halves(text: &'static str, at: char) -> (&'static str, &'static str) {
    text.split_once(at).unwrap_or_else(|| panic!("no {at:?} in {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_form_its_head_describes() {
        let table = Table::read(TEXT);
        assert!(table.messages.len() > 800);
        for message in &table.messages {
            let numbers: Vec<_> = message.by_number.iter().map(|&at| message.fields[usize::from(at)].number).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "{}: a number occurs twice", message.name);
            let mut names: Vec<_> = message.names.iter().map(|named| named.field.name).collect();
            names.sort_unstable();
            assert!(names.is_sorted_by(|a, b| a < b), "{}: a name occurs twice", message.name);
            for (place, named) in message.names.iter().enumerate() {
                assert_eq!(message.place(named.field.name.as_bytes()), Some(place));
            }
            assert_eq!(message.place(b"noSuchField"), None);
            for field in &message.fields {
                assert!(field.number > 0, "{}.{}", message.name, field.name);
                assert_eq!(message.position(field.number).map(|at| message.fields[at].name), Some(field.name));
                let inline = field.name.is_empty();
                assert!(!inline || matches!((field.kind, field.shape), (Kind::Message(_), Cardinality::Value)));
            }
        }
    }

    #[test]
    fn shared_kinds_are_found_in_every_version() {
        let options = lookup("apps/v1", "DeleteOptions").expect("DeleteOptions of apps/v1");
        assert_eq!(lookup("v1", "DeleteOptions"), Some(options));
        assert_eq!(message(lookup("v1", "Status").expect("v1 Status")).name, "Status");
        assert_eq!(lookup("apps/v1", "Status"), None);
        assert_eq!(lookup("example.com/v1", "DeleteOptions"), None);
        assert_eq!(lookup("v1", "Nope"), None);
        let both = ["meta.k8s.io/v1", "meta.k8s.io/v1beta1"].map(|gv| lookup(gv, "PartialObjectMetadata"));
        assert!(both[0].is_some() && both[0] == both[1]);
    }
}
