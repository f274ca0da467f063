//! The compiled form of schemas. Records of fixed size are in one block of little-endian words. Names and descriptions
//! are in two texts.
//!
//! The build script writes this form and the crate reads it in place, so both compile this file. A reference is the
//! index of a record in the block. `NONE` stands for no reference.

/// The first word of the tables. It must change when the layout changes.
pub const MAGIC: u32 = 0x4b53_0004;
/// Stands for no record or no text.
pub const NONE: u32 = u32::MAX;

/// The node of a field with the `ObjectMeta` of the built-in kinds as its schema. So custom resources need no copy of
/// that schema.
pub const OBJECT_META: u32 = NONE - 1;

/// Words before the first section: the magic and one count for each section.
pub const HEADER_WORDS: usize = 1 + SECTIONS;
/// The number of sections.
pub const SECTIONS: usize = 8;
/// Words of one record of each section, in the order of the sections.
pub const RECORD_WORDS: [usize; SECTIONS] = [9, 7, 1, 1, 1, 1, 4, 2];

/// The sections, in the order in which they lie in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Section {
    /// Schemas: see the `NODE_` positions.
    Nodes = 0,
    /// Fields of objects in declared order: see the `FIELD_` positions.
    Fields = 1,
    /// For each field, the hash of its name. Lookups compare it before the name.
    Hashes = 2,
    /// The end offset of each name in the text of names. A name starts at the end of the previous one.
    Names = 3,
    /// The end offset of each description in the text of descriptions.
    Docs = 4,
    /// Lists of names: their length, then the names.
    Lists = 5,
    /// Kinds, sorted by kind, group, version: three names and a node.
    Kinds = 6,
    /// Definitions, sorted by name: a name and a node.
    Definitions = 7,
}

/// Type (bits 0..8), list type (8..16), map type (16..24), node flags (24..32).
pub const NODE_TAGS: usize = 0;
/// Name: the Go type as error messages give it.
pub const NODE_GO_TYPE: usize = 1;
/// Name of the definition, if the schema is one.
pub const NODE_NAME: usize = 2;
/// Description of the definition.
pub const NODE_DOC: usize = 3;
/// For an object its first field, for an array its items, for a map its values, for an either its first choice.
pub const NODE_CHILD: usize = 4;
/// For an object: the number of its fields (bits 0..16), and how many of them are filled in when absent (16..32). For
/// an either: the second choice. For an array or map: the name of the default of items or values, as JSON.
pub const NODE_COUNT: usize = 5;
/// List of the names of the map keys of a list.
pub const NODE_KEYS: usize = 6;
/// List of the values that an enumeration allows.
pub const NODE_ENUM: usize = 7;
/// List of names that describes a union: discriminator, then field and value in turn.
pub const NODE_UNION: usize = 8;

/// Name of the field.
pub const FIELD_NAME: usize = 0;
/// Its schema.
pub const FIELD_NODE: usize = 1;
/// `FIELD_` flags (bits 0..16), patch strategies (16..24), and the map type if the field overrides that of its schema
/// (24..32).
pub const FIELD_FLAGS: usize = 2;
/// Its description.
pub const FIELD_DOC: usize = 3;
/// Name: the default as JSON.
pub const FIELD_DEFAULT: usize = 4;
/// Name of the key by which a strategic merge patch merges the list.
pub const FIELD_MERGE_KEY: usize = 5;
/// Name of the embedded Go struct that declares the field, if there is one.
pub const FIELD_EMBEDDED: usize = 6;

/// The schema requires the field.
pub const REQUIRED: u32 = 1;
/// The field is omitted from the encoding while it has its zero value.
pub const OMIT_ZERO: u32 = 2;
/// For the field, absence is not the same as the zero value.
pub const POINTER: u32 = 4;
/// The field is filled in when it is absent, because it is always written or has a default.
pub const FILLED: u32 = 8;
/// Published schemas state the zero value as the default of the field, but an absent field stays absent.
pub const ZERO_DEFAULT: u32 = 16;

/// Fields without a declaration are kept.
pub const PRESERVE_UNKNOWN: u32 = 1;
/// Null is a valid value.
pub const NULLABLE: u32 = 2;
/// Items of a list or values of a map may be null.
pub const POINTER_ITEMS: u32 = 4;
/// The schema belongs to a custom resource. Apart from pruning and defaults, the walker keeps its values as the client
/// sent them. `Structural` validates them.
pub const STRUCTURAL: u32 = 8;
/// The values are object metadata, and the schema has defaults for fields in it. Without this flag, metadata has the
/// shape of `ObjectMeta`.
pub const FILLS_METADATA: u32 = 16;

/// Patch strategy `merge`.
pub const PATCH_MERGE: u32 = 1;
/// Patch strategy `retainKeys`.
pub const PATCH_RETAIN_KEYS: u32 = 2;
/// Patch strategy `replace`.
pub const PATCH_REPLACE: u32 = 4;

/// A cheap hash of a field's name from its length, first and last byte, which differ for most names of one object.
#[inline]
pub fn hash(name: &str) -> u32 {
    let bytes = name.as_bytes();
    let (head, tail) = match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(head), Some(tail)) => (u32::from_le_bytes(*head), u32::from_le_bytes(*tail)),
        _ => (bytes.iter().fold(0, |h, b| h << 8 | u32::from(*b)), 0),
    };
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    (head.rotate_left(5) ^ tail).wrapping_mul(0x9e37_79b1).wrapping_add(length)
}

macro_rules! tags {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The tag with this number. For an unknown number, the default tag.
            #[inline]
            pub fn from_bits(bits: u32) -> Self {
                Self::ALL.get(bits as usize).copied().unwrap_or_default()
            }

            /// The number that the tag is written as.
            pub fn bits(self) -> u32 {
                self as u32
            }
        }
    };
}

tags! {
    /// The type of a value.
    Type {
        /// Any JSON value. It is not checked.
        #[default]
        Any,
        /// An object with declared fields.
        Object,
        /// An object with any keys, whose values have one schema.
        Map,
        /// A list whose items have one schema.
        Array,
        /// A string.
        String,
        /// A whole number of 32 bits.
        Int32,
        /// A whole number of 64 bits.
        Int64,
        /// A number.
        Number,
        /// True or false.
        Boolean,
        /// A whole number of 32 bits or a string.
        IntOrString,
        /// A resource quantity: a string or a number.
        Quantity,
        /// An RFC 3339 time of whole seconds.
        Time,
        /// An RFC 3339 time of microseconds.
        MicroTime,
        /// Bytes in base64.
        Bytes,
        /// An object with one schema, or a value of another type with another schema.
        Either,
    }
}

tags! {
    /// The merge strategy of a list in server-side apply.
    ListType {
        /// The schema has no list type. Treated as atomic.
        #[default]
        Unset,
        /// The list is one value.
        Atomic,
        /// Scalars, each at most once.
        Set,
        /// Objects identified by their keys.
        Map,
    }
}

tags! {
    /// The merge strategy of an object or map in server-side apply.
    MapType {
        /// The schema has no map type. Treated as granular.
        #[default]
        Unset,
        /// The whole object is one value.
        Atomic,
        /// Each entry is a separate value.
        Granular,
    }
}
