//! Compiles schemas into tables. The build script uses it for the built-in kinds, and the server for custom resources.
//!
//! The builder does not know the source of a schema. Equal anonymous schemas become one record. A schema may refer to a
//! definition before it is defined, so definitions can be recursive.

use std::collections::{BTreeMap, HashMap};

use crate::layout::{
    FIELD_EMBEDDED, FILLED, HEADER_WORDS, ListType, MAGIC, MapType, NODE_UNION, NONE, OBJECT_META, OMIT_ZERO, POINTER,
    PRESERVE_UNKNOWN, REQUIRED, SECTIONS, Type, ZERO_DEFAULT, hash,
};

/// The index of a schema in the tables being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// Stands for the `ObjectMeta` of the built-in kinds. Only the schema of a field may be this.
    pub const OBJECT_META: Self = Self(OBJECT_META);
}

/// One schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSpec {
    /// The type of the values.
    pub of: Type,
    /// The type's name in error messages.
    pub go_type: String,
    /// The definition's name. Empty for an anonymous schema.
    pub name: String,
    /// The definition's description.
    pub description: String,
    /// Items of an array, values of a map, or the object of an either.
    pub child: Option<NodeId>,
    /// For an either: the schema of values that are not objects.
    pub other: Option<NodeId>,
    /// The default of the items of a list or the values of a map as JSON. Empty without one.
    pub default_of_items: String,
    /// Fields in declared order.
    pub fields: Vec<FieldSpec>,
    /// The merge strategy of a list in server-side apply.
    pub list_type: ListType,
    /// The keys of a list of type map.
    pub list_keys: Vec<String>,
    /// The merge strategy of an object or map in server-side apply.
    pub map_type: MapType,
    /// Values that an enumeration allows.
    pub allowed: Vec<String>,
    /// For a union: the discriminator, then fields and values in turn. Empty if the object is not a union.
    pub union: Vec<String>,
    /// `PRESERVE_UNKNOWN`, `NULLABLE`, `POINTER_ITEMS`, `STRUCTURAL`.
    pub flags: u32,
}

/// One field of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldSpec {
    /// Its name.
    pub name: String,
    /// Its schema.
    pub node: NodeId,
    /// `REQUIRED`, `OMIT_ZERO`, `POINTER`, `ZERO_DEFAULT`.
    pub flags: u32,
    /// Its description.
    pub description: String,
    /// The default of the field as JSON. Empty without one.
    pub default: String,
    /// `PATCH_` flags.
    pub patch: u32,
    /// The key of a strategic merge patch. Empty without one.
    pub merge_key: String,
    /// The embedded Go struct that declares the field. Empty for most fields.
    pub embedded_in: String,
    /// The map type of the field, which overrides that of its schema.
    pub map_type: MapType,
}

/// Schemas in compiled form.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The records.
    pub tables: Vec<u8>,
    /// The text of names.
    pub names: String,
    /// The text of descriptions.
    pub docs: String,
}

/// Collects schemas.
#[derive(Debug, Default)]
pub struct Builder {
    nodes: Vec<NodeSpec>,
    anonymous: HashMap<NodeSpec, NodeId>,
    definitions: BTreeMap<String, NodeId>,
    kinds: BTreeMap<[String; 3], NodeId>,
}

impl Builder {
    /// Reserves a place for the definition with this name. The flag is true if the name is new, so that the caller must
    /// define it.
    pub fn reserve(&mut self, name: &str) -> (NodeId, bool) {
        if let Some(id) = self.definitions.get(name) {
            return (*id, false);
        }
        let id = self.push(NodeSpec::default());
        self.definitions.insert(name.to_owned(), id);
        (id, true)
    }

    /// Sets the schema of a reserved definition.
    pub fn define(&mut self, id: NodeId, spec: NodeSpec) {
        self.nodes[id.0 as usize] = spec;
    }

    /// Adds an anonymous schema.
    pub fn add(&mut self, spec: NodeSpec) -> NodeId {
        if let Some(id) = self.anonymous.get(&spec) {
            return *id;
        }
        let id = self.push(spec.clone());
        self.anonymous.insert(spec, id);
        id
    }

    /// Registers the schema of a kind.
    pub fn kind(&mut self, group: &str, version: &str, kind: &str, node: NodeId) {
        self.kinds.insert([kind.to_owned(), group.to_owned(), version.to_owned()], node);
    }

    fn push(&mut self, spec: NodeSpec) -> NodeId {
        let id = u32::try_from(self.nodes.len()).expect("far fewer schemas than 2^32");
        self.nodes.push(spec);
        NodeId(id)
    }

    /// The compiled form of all that was collected.
    pub fn finish(self) -> Compiled {
        let mut out = Writer::default();
        for node in &self.nodes {
            out.node(node);
        }
        for ([kind, group, version], node) in &self.kinds {
            let words = [out.names.id(kind), out.names.id(group), out.names.id(version), node.0];
            out.kinds.extend(words);
        }
        for (name, node) in &self.definitions {
            let words = [out.names.id(name), node.0];
            out.definitions.extend(words);
        }
        out.finish()
    }
}

/// Collects texts, each once.
#[derive(Default)]
struct Text {
    text: String,
    ends: Vec<u32>,
    ids: HashMap<String, u32>,
}

impl Text {
    /// The number of this text. `NONE` for an empty text.
    fn id(&mut self, entry: &str) -> u32 {
        if entry.is_empty() {
            return NONE;
        }
        if let Some(id) = self.ids.get(entry) {
            return *id;
        }
        let id = count(self.ends.len());
        self.text.push_str(entry);
        self.ends.push(count(self.text.len()));
        self.ids.insert(entry.to_owned(), id);
        id
    }
}

#[derive(Default)]
struct Writer {
    nodes: Vec<u32>,
    fields: Vec<u32>,
    hashes: Vec<u32>,
    lists: Vec<u32>,
    kinds: Vec<u32>,
    definitions: Vec<u32>,
    names: Text,
    docs: Text,
}

impl Writer {
    fn node(&mut self, node: &NodeSpec) {
        let (child, size) = match node.of {
            Type::Object => (count(self.hashes.len()), self.object(node)),
            Type::Array | Type::Map => (reference(node.child), self.names.id(&node.default_of_items)),
            _ => (reference(node.child), reference(node.other)),
        };
        let tags = node.of.bits() | node.list_type.bits() << 8 | node.map_type.bits() << 16 | node.flags << 24;
        let words: [u32; NODE_UNION + 1] = [
            tags,
            self.names.id(&node.go_type),
            self.names.id(&node.name),
            self.docs.id(&node.description),
            child,
            size,
            self.list(&node.list_keys),
            self.list(&node.allowed),
            self.list(&node.union),
        ];
        self.nodes.extend(words);
    }

    /// Writes the fields. Returns the word with the number of fields and the number of those that are filled in when
    /// absent.
    fn object(&mut self, node: &NodeSpec) -> u32 {
        for field in &node.fields {
            self.hashes.push(hash(&field.name));
            self.field(field);
        }
        let filled = node.fields.iter().filter(|f| f.is_filled()).count();
        count(node.fields.len()) | count(filled) << 16
    }

    fn field(&mut self, field: &FieldSpec) {
        let known = REQUIRED | OMIT_ZERO | POINTER | ZERO_DEFAULT;
        debug_assert!(field.flags & !known == 0, "unknown flag of field {}", field.name);
        let words: [u32; FIELD_EMBEDDED + 1] = [
            self.names.id(&field.name),
            field.node.0,
            field.flags | if field.is_filled() { FILLED } else { 0 } | field.patch << 16 | field.map_type.bits() << 24,
            self.docs.id(&field.description),
            self.names.id(&field.default),
            self.names.id(&field.merge_key),
            self.names.id(&field.embedded_in),
        ];
        self.fields.extend(words);
    }

    fn list(&mut self, entries: &[String]) -> u32 {
        if entries.is_empty() {
            return NONE;
        }
        let start = count(self.lists.len());
        self.lists.push(count(entries.len()));
        for entry in entries {
            let id = self.names.id(entry);
            self.lists.push(id);
        }
        start
    }

    fn finish(self) -> Compiled {
        let sections: [&[u32]; SECTIONS] = [
            &self.nodes,
            &self.fields,
            &self.hashes,
            &self.names.ends,
            &self.docs.ends,
            &self.lists,
            &self.kinds,
            &self.definitions,
        ];
        let mut words = Vec::with_capacity(HEADER_WORDS);
        words.push(MAGIC);
        words.extend(sections.iter().map(|s| count(s.len())));
        words.extend(sections.iter().flat_map(|s| s.iter().copied()));
        let tables = words.into_iter().flat_map(u32::to_le_bytes).collect();
        Compiled { tables, names: self.names.text, docs: self.docs.text }
    }
}

fn reference(node: Option<NodeId>) -> u32 {
    node.map_or(NONE, |id| id.0)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).expect("sizes of schemas stay far below 2^32")
}

impl FieldSpec {
    fn is_filled(&self) -> bool {
        self.flags & OMIT_ZERO == 0 || !self.default.is_empty()
    }
}

impl NodeSpec {
    /// A schema without parts.
    pub fn leaf(of: Type, go_type: &str) -> Self {
        Self { of, go_type: go_type.to_owned(), ..Self::default() }
    }

    /// Returns the schema with `PRESERVE_UNKNOWN` set.
    #[must_use]
    pub fn preserving_unknown_fields(mut self) -> Self {
        self.flags |= PRESERVE_UNKNOWN;
        self
    }
}
