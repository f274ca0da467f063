//! Reads compiled schemas in place, without decoding them first.
//!
//! All code reads a schema through `SchemaRef`, which is as cheap to copy as a pointer. A `SchemaRef` that was reached
//! through a field also has the properties of that field.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock, OnceLock};

use keelson_meta::json::is_same_name;
use keelson_meta::{GroupVersionKind, Release};

use crate::builder::Compiled;
use crate::layout::{
    FIELD_DEFAULT, FIELD_DOC, FIELD_EMBEDDED, FIELD_FLAGS, FIELD_MERGE_KEY, FIELD_NAME, FIELD_NODE, FILLED,
    FILLS_METADATA, HEADER_WORDS, ListType, MAGIC, MapType, NODE_CHILD, NODE_COUNT, NODE_DOC, NODE_ENUM, NODE_GO_TYPE,
    NODE_KEYS, NODE_NAME, NODE_TAGS, NODE_UNION, NONE, NULLABLE, OBJECT_META, OMIT_ZERO, PATCH_MERGE, PATCH_REPLACE,
    PATCH_RETAIN_KEYS, POINTER, POINTER_ITEMS, PRESERVE_UNKNOWN, RECORD_WORDS, REQUIRED, SECTIONS, STRUCTURAL, Section,
    Type, ZERO_DEFAULT, hash,
};
use crate::structural::Structural;

/// A set of schemas and the kinds that have them.
#[derive(Debug)]
pub struct Schemas {
    tables: Cow<'static, [u8]>,
    names: Cow<'static, str>,
    docs: Cow<'static, str>,
    /// Start and length of each section, in words.
    sections: [(usize, usize); SECTIONS],
}

/// Opens the tables that the build script wrote for a release.
macro_rules! compiled {
    ($release:literal) => {
        Schemas::open(
            Cow::Borrowed(include_bytes!(concat!(env!("OUT_DIR"), "/", $release, ".tables"))),
            Cow::Borrowed(include_str!(concat!(env!("OUT_DIR"), "/", $release, ".names"))),
            Cow::Borrowed(include_str!(concat!(env!("OUT_DIR"), "/", $release, ".docs"))),
        )
    };
}

impl Schemas {
    /// The schemas of the built-in kinds of the default release.
    pub fn builtin() -> &'static Self {
        Self::of_release(Release::DEFAULT)
    }

    /// The schemas of the built-in kinds of a release.
    pub fn of_release(release: Release) -> &'static Self {
        static OLDER: OnceLock<Schemas> = OnceLock::new();
        static NEWEST: OnceLock<Schemas> = OnceLock::new();
        if release < Release::V1_37 {
            OLDER.get_or_init(|| compiled!("1.36"))
        } else {
            NEWEST.get_or_init(|| compiled!("1.37"))
        }
    }

    /// Schemas that were compiled at run time.
    pub fn from_compiled(compiled: Compiled) -> Self {
        Self::open(Cow::Owned(compiled.tables), Cow::Owned(compiled.names), Cow::Owned(compiled.docs))
    }

    fn open(tables: Cow<'static, [u8]>, names: Cow<'static, str>, docs: Cow<'static, str>) -> Self {
        let mut schemas = Self { tables, names, docs, sections: [(0, 0); SECTIONS] };
        assert_eq!(schemas.word(0), MAGIC, "schemas were compiled by another version of this crate");
        let mut start = HEADER_WORDS;
        for section in 0..SECTIONS {
            let words = schemas.word(1 + section) as usize;
            schemas.sections[section] = (start, words);
            start += words;
        }
        schemas
    }

    /// The schema of this kind, a list kind included.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<SchemaRef<'_>> {
        let found = self.search(Section::Kinds, |i| {
            let name = |word| self.name(self.get(Section::Kinds, i, word));
            name(0).cmp(kind).then_with(|| name(1).cmp(group)).then_with(|| name(2).cmp(version))
        })?;
        Some(self.at(self.get(Section::Kinds, found, 3)))
    }

    /// The schema of the definition with this name, such as `io.k8s.api.core.v1.PodSpec`.
    pub fn definition(&self, name: &str) -> Option<SchemaRef<'_>> {
        let found = self.search(Section::Definitions, |i| self.name(self.get(Section::Definitions, i, 0)).cmp(name))?;
        Some(self.at(self.get(Section::Definitions, found, 1)))
    }

    /// Group, version, kind and schema of all kinds, list kinds included, by kind.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str, &str, SchemaRef<'_>)> {
        (0..self.records(Section::Kinds)).map(|i| {
            let word = |word| self.get(Section::Kinds, i, word);
            (self.name(word(1)), self.name(word(2)), self.name(word(0)), self.at(word(3)))
        })
    }

    /// All definitions, by name.
    pub fn definitions(&self) -> impl Iterator<Item = SchemaRef<'_>> {
        (0..self.records(Section::Definitions)).map(|i| self.at(self.get(Section::Definitions, i, 1)))
    }

    #[inline]
    fn at(&self, node: u32) -> SchemaRef<'_> {
        let words: &[[u8; 4]; NODE_COUNT + 1] = self.record(Section::Nodes, node as usize);
        let word = |word: usize| u32::from_le_bytes(words[word]);
        let (tags, child, count) = (word(NODE_TAGS), word(NODE_CHILD), word(NODE_COUNT));
        SchemaRef { schemas: self, node, field: NONE, tags, child, count, flags: 0 }
    }

    #[inline]
    fn word(&self, index: usize) -> u32 {
        match self.tables[index * 4..].first_chunk() {
            Some(bytes) => u32::from_le_bytes(*bytes),
            None => NONE,
        }
    }

    /// The first words of a record, read with a single bounds check.
    #[inline]
    fn record<const WORDS: usize>(&self, section: Section, record: usize) -> &[[u8; 4]; WORDS] {
        let section = section as usize;
        let start = (self.sections[section].0 + record * RECORD_WORDS[section]) * 4;
        self.tables[start..].as_chunks().0.first_chunk().expect("records are whole")
    }

    #[inline]
    fn get(&self, section: Section, record: usize, word: usize) -> u32 {
        let section = section as usize;
        self.word(self.sections[section].0 + record * RECORD_WORDS[section] + word)
    }

    /// The hashes of the names of these fields, as little-endian words.
    #[inline]
    fn hashes(&self, first: usize, count: usize) -> &[[u8; 4]] {
        let start = (self.sections[Section::Hashes as usize].0 + first) * 4;
        self.tables[start..start + count * 4].as_chunks().0
    }

    fn records(&self, section: Section) -> usize {
        self.sections[section as usize].1 / RECORD_WORDS[section as usize]
    }

    #[inline]
    fn name(&self, id: u32) -> &str {
        self.text(Section::Names, &self.names, id)
    }

    #[inline]
    fn text<'a>(&self, ends: Section, text: &'a str, id: u32) -> &'a str {
        if id == NONE {
            return "";
        }
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.get(ends, id - 1, 0) };
        &text[start as usize..self.get(ends, id, 0) as usize]
    }

    #[inline]
    fn name_bytes(&self, id: u32) -> &[u8] {
        let start = if id == 0 { 0 } else { self.get(Section::Names, id as usize - 1, 0) };
        &self.names.as_bytes()[start as usize..self.get(Section::Names, id as usize, 0) as usize]
    }

    fn list(&self, start: u32) -> impl Iterator<Item = &str> {
        let start = start as usize;
        let length = if start == NONE as usize { 0 } else { self.get(Section::Lists, start, 0) as usize };
        (0..length).map(move |i| self.name(self.get(Section::Lists, start + 1 + i, 0)))
    }

    /// Finds the record that compares equal in a sorted section.
    fn search(&self, section: Section, compare: impl Fn(usize) -> std::cmp::Ordering) -> Option<usize> {
        let (mut low, mut high) = (0, self.records(section));
        while low < high {
            let middle = usize::midpoint(low, high);
            match compare(middle) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

/// One owned schema, built in or compiled at run time.
#[derive(Clone, Debug)]
pub struct Schema {
    set: Set,
    node: u32,
}

#[derive(Clone, Debug)]
enum Set {
    Builtin(&'static Schemas),
    Shared(Arc<Schemas>),
    Structural(Arc<Structural>),
}

impl Schema {
    /// The schema of a built-in kind in the default release.
    pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Self> {
        Self::of_release(Release::DEFAULT, group, version, kind)
    }

    /// The schema of a built-in kind in a release.
    pub fn of_release(release: Release, group: &str, version: &str, kind: &str) -> Option<Self> {
        let schemas = Schemas::of_release(release);
        schemas.kind(group, version, kind).map(|found| Self { set: Set::Builtin(schemas), node: found.node })
    }

    /// The schema of a kind that was compiled at run time.
    pub fn of_kind(schemas: &Arc<Schemas>, group: &str, version: &str, kind: &str) -> Option<Self> {
        let found = schemas.kind(group, version, kind)?;
        Some(Self { set: Set::Shared(Arc::clone(schemas)), node: found.node })
    }

    /// A structural schema, which is the only kind in its tables.
    pub(crate) fn of_structural(structural: Arc<Structural>, kind: &GroupVersionKind) -> Self {
        let found = structural.schemas.kind(&kind.group, &kind.version, &kind.kind);
        let node = found.map_or(0, |found| found.node);
        Self { set: Set::Structural(structural), node }
    }

    /// The validation rules of a custom resource. `None` for a built-in kind, which is validated by code.
    pub fn rules(&self) -> Option<&Structural> {
        match &self.set {
            Set::Structural(structural) => Some(structural),
            Set::Builtin(_) | Set::Shared(_) => None,
        }
    }

    /// A reference to the schema.
    #[inline]
    pub fn get(&self) -> SchemaRef<'_> {
        match &self.set {
            Set::Builtin(schemas) => schemas.at(self.node),
            Set::Shared(schemas) => schemas.at(self.node),
            Set::Structural(structural) => structural.schemas.at(self.node),
        }
    }
}

/// One schema, and the field through which it was reached, if any.
#[derive(Clone, Copy)]
pub struct SchemaRef<'a> {
    schemas: &'a Schemas,
    node: u32,
    field: u32,
    /// The words that nearly every use needs: the tags of the schema, its `NODE_CHILD` and `NODE_COUNT`, and the flags
    /// of the field.
    tags: u32,
    child: u32,
    count: u32,
    flags: u32,
}

impl std::fmt::Debug for SchemaRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SchemaRef({} {:?} {})", self.field_name(), self.value_type(), self.go_type())
    }
}

/// The schema itself.
impl<'a> SchemaRef<'a> {
    #[inline]
    fn node_word(self, word: usize) -> u32 {
        self.schemas.get(Section::Nodes, self.node as usize, word)
    }

    #[inline]
    fn tag(self, shift: u32) -> u32 {
        (self.tags >> shift) & 0xff
    }

    #[inline]
    fn reference(self, node: u32) -> Option<SchemaRef<'a>> {
        (node != NONE).then(|| self.schemas.at(node))
    }

    /// The type of the values.
    #[inline]
    pub fn value_type(self) -> Type {
        Type::from_bits(self.tag(0))
    }

    /// The type's name in error messages, such as `v1.PodSpec` or `[]string`.
    pub fn go_type(self) -> &'a str {
        self.schemas.name(self.node_word(NODE_GO_TYPE))
    }

    /// The definition's name, such as `io.k8s.api.core.v1.PodSpec`. `None` for an anonymous schema.
    pub fn definition_name(self) -> Option<&'a str> {
        let id = self.node_word(NODE_NAME);
        (id != NONE).then(|| self.schemas.name(id))
    }

    /// The definition's description. Empty without one.
    pub fn definition_description(self) -> &'a str {
        self.schemas.text(Section::Docs, &self.schemas.docs, self.node_word(NODE_DOC))
    }

    /// The items of a list, the values of a map.
    #[inline]
    pub fn items(self) -> Option<SchemaRef<'a>> {
        match self.value_type() {
            Type::Array | Type::Map => self.reference(self.child),
            _ => None,
        }
    }

    /// The two choices of an either: the schema of objects, and the schema of other values.
    pub fn choices(self) -> Option<(SchemaRef<'a>, SchemaRef<'a>)> {
        match self.value_type() {
            Type::Either => Some((self.reference(self.child)?, self.reference(self.count)?)),
            _ => None,
        }
    }

    /// The default of the items of a list or the values of a map as JSON. It replaces nulls.
    pub(crate) fn default_of_items(self) -> Option<&'a str> {
        let has_items = matches!(self.value_type(), Type::Array | Type::Map);
        (has_items && self.count != NONE).then(|| self.schemas.name(self.count))
    }

    /// The number of declared fields.
    #[inline]
    pub(crate) fn field_count(self) -> usize {
        if self.value_type() == Type::Object { (self.count & 0xffff) as usize } else { 0 }
    }

    /// The number of fields filled in when absent: those always written, and those with a default.
    pub(crate) fn filled_count(self) -> usize {
        (self.count >> 16) as usize
    }

    /// The field at this position of the declared order.
    #[inline]
    pub(crate) fn field_at(self, position: usize) -> SchemaRef<'a> {
        let field = self.child as usize + position;
        let words: &[[u8; 4]; FIELD_FLAGS + 1] = self.schemas.record(Section::Fields, field);
        let field = u32::try_from(field).unwrap_or(NONE);
        let (node, flags) = (u32::from_le_bytes(words[FIELD_NODE]), u32::from_le_bytes(words[FIELD_FLAGS]));
        if node == OBJECT_META {
            return SchemaRef { flags, ..object_meta() };
        }
        SchemaRef { field, flags, ..self.schemas.at(node) }
    }

    /// The fields of an object in declared order.
    pub fn fields(self) -> impl Iterator<Item = SchemaRef<'a>> {
        (0..self.field_count()).map(move |position| self.field_at(position))
    }

    /// The position of the field with this name in declared order. The search starts at `near`, since successive
    /// lookups usually have the declared order.
    #[inline]
    pub(crate) fn position_near(self, name: &str, near: usize) -> Option<usize> {
        let count = self.field_count();
        if count == 0 {
            // Only objects have fields.
            return None;
        }
        let (first, wanted) = (self.child as usize, hash(name));
        let hashes = self.schemas.hashes(first, count);
        let wanted = wanted.to_le_bytes();
        let is_it = |position: &usize| {
            let candidate = self.schemas.get(Section::Fields, first + position, FIELD_NAME);
            is_same_name(self.schemas.name_bytes(candidate), name.as_bytes())
        };
        let find = |hashes: &[[u8; 4]], start: usize| {
            let places = hashes.iter().enumerate().filter(|(_, hash)| **hash == wanted);
            places.map(|(place, _)| start + place).find(is_it)
        };
        let near = near.min(count);
        let (before, behind) = hashes.split_at(near);
        find(behind, near).or_else(|| find(before, 0))
    }

    /// The field with this name.
    pub fn field(self, name: &str) -> Option<SchemaRef<'a>> {
        self.field_near(name, &mut 0)
    }

    /// The field with this name, for successive lookups. `near` must be 0 at first, and then has the position of the
    /// last field found. So names in declared order need no search.
    #[inline]
    pub fn field_near(self, name: &str, near: &mut usize) -> Option<SchemaRef<'a>> {
        let position = self.position_near(name, *near)?;
        *near = position + 1;
        Some(self.field_at(position))
    }

    /// The schema at a path of field names. Lists and maps on the path are entered without a name.
    pub fn at_path(self, path: &[&str]) -> Option<SchemaRef<'a>> {
        path.iter().try_fold(self, |mut schema, name| {
            while let Some(items) = schema.items() {
                schema = items;
            }
            schema.field(name)
        })
    }

    /// The merge strategy of the list in server-side apply.
    #[inline]
    pub fn list_type(self) -> ListType {
        ListType::from_bits(self.tag(8))
    }

    /// The fields that identify the items of a list of type map.
    pub fn list_keys(self) -> impl Iterator<Item = &'a str> {
        self.schemas.list(self.node_word(NODE_KEYS))
    }

    /// The merge strategy of the object or map in server-side apply.
    #[inline]
    pub fn map_type(self) -> MapType {
        match MapType::from_bits(self.flags >> 24) {
            MapType::Unset => MapType::from_bits(self.tag(16)),
            of_field => of_field,
        }
    }

    /// The values that an enumeration allows. Empty if any value is allowed.
    pub fn allowed_values(self) -> impl Iterator<Item = &'a str> {
        self.schemas.list(self.node_word(NODE_ENUM))
    }

    /// For a union: the discriminator, which may be empty, then each field and the value that selects it, in turn.
    pub fn union(self) -> impl Iterator<Item = &'a str> {
        self.schemas.list(self.node_word(NODE_UNION))
    }

    /// Returns true if undeclared fields are kept.
    #[inline]
    pub fn preserves_unknown_fields(self) -> bool {
        self.tag(24) & PRESERVE_UNKNOWN != 0
    }

    /// Returns true for the schema of a custom resource, or a part of one.
    #[inline]
    pub fn is_structural(self) -> bool {
        self.tag(24) & STRUCTURAL != 0
    }

    /// Returns true for metadata if the schema of a custom resource has defaults for it.
    #[inline]
    pub(crate) fn fills_metadata(self) -> bool {
        self.tag(24) & FILLS_METADATA != 0
    }

    /// Returns true if null is a valid value.
    #[inline]
    pub fn nullable(self) -> bool {
        self.tag(24) & NULLABLE != 0
    }

    /// Returns true if items of the list or values of the map may be null.
    #[inline]
    pub fn pointer_items(self) -> bool {
        self.tag(24) & POINTER_ITEMS != 0
    }
}

/// The metadata of a built-in kind, reached through its field.
#[cold]
pub(crate) fn object_meta() -> SchemaRef<'static> {
    static METADATA: LazyLock<SchemaRef<'static>> = LazyLock::new(|| {
        let config_map = Schemas::builtin().kind("", "v1", "ConfigMap");
        config_map.and_then(|kind| kind.field("metadata")).expect("every kind has metadata")
    });
    *METADATA
}

/// Properties of the field through which the schema was reached.
impl<'a> SchemaRef<'a> {
    /// Returns the schema without the properties of its field.
    #[must_use]
    pub fn without_field(self) -> Self {
        Self { field: NONE, flags: 0, ..self }
    }

    #[inline]
    fn field_word(self, word: usize) -> Option<u32> {
        (self.field != NONE).then(|| self.schemas.get(Section::Fields, self.field as usize, word))
    }

    #[inline]
    fn field_flag(self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The field's name. Empty if the schema was not reached through a field.
    pub fn field_name(self) -> &'a str {
        self.field_word(FIELD_NAME).map_or("", |id| self.schemas.name(id))
    }

    /// The field's own description, or the definition's.
    pub fn description(self) -> &'a str {
        match self.field_word(FIELD_DOC) {
            Some(id) if id != NONE => self.schemas.text(Section::Docs, &self.schemas.docs, id),
            _ => self.definition_description(),
        }
    }

    /// Returns true if the schema requires the field.
    pub fn required(self) -> bool {
        self.field_flag(REQUIRED)
    }

    /// Returns true if the field is omitted from the encoding while it has its zero value.
    #[inline]
    pub fn omitted_when_zero(self) -> bool {
        self.field_flag(OMIT_ZERO)
    }

    /// Returns true if, for the field, absence is not the same as the zero value.
    #[inline]
    pub fn pointer(self) -> bool {
        self.field_flag(POINTER)
    }

    /// Returns true if the field is filled in when it is absent.
    #[inline]
    pub(crate) fn filled(self) -> bool {
        self.field_flag(FILLED)
    }

    /// The field's default as JSON.
    pub fn default_json(self) -> Option<&'a str> {
        self.field_word(FIELD_DEFAULT).filter(|id| *id != NONE).map(|id| self.schemas.name(id))
    }

    /// Returns true if published schemas state the zero value as the default of the field although an absent field
    /// stays absent.
    pub fn has_zero_default(self) -> bool {
        self.field_flag(ZERO_DEFAULT)
    }

    /// The merge key of the list in a strategic merge patch.
    pub fn merge_key(self) -> Option<&'a str> {
        self.field_word(FIELD_MERGE_KEY).filter(|id| *id != NONE).map(|id| self.schemas.name(id))
    }

    /// The embedded Go struct that declares the field, if there is one. Decoders name it in their errors.
    pub(crate) fn embedded_in(self) -> Option<&'a str> {
        self.field_word(FIELD_EMBEDDED).filter(|id| *id != NONE).map(|id| self.schemas.name(id))
    }

    /// The strategy of a strategic merge patch for the field.
    pub fn patch_strategy(self) -> PatchStrategy {
        let flags = self.flags >> 16;
        PatchStrategy {
            merge: flags & PATCH_MERGE != 0,
            retain_keys: flags & PATCH_RETAIN_KEYS != 0,
            replace: flags & PATCH_REPLACE != 0,
        }
    }
}

/// The strategy of a strategic merge patch for a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// A list is merged item by item instead of replaced.
    pub merge: bool,
    /// Keys of an object that the patch does not list are removed.
    pub retain_keys: bool,
    /// The value is replaced.
    pub replace: bool,
}
