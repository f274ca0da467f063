//! The walker. In one pass over an object it checks types, finds unknown fields, and normalizes the object to the form
//! that Kubernetes writes.
//!
//! The walker behaves like Go's decoder, with its error messages. It must not know the meaning of fields. Changes are
//! made in place. Each field gets its position in declared order as its rank, by which the fields of an object are
//! sorted.

mod base64;
mod malformed;
mod path;
mod report;
mod scalar;
mod shape;
mod structural;
mod times;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, ValueKind};

use crate::fault::{Fault, FaultKind};
use crate::layout::Type;
use crate::schemas::SchemaRef;
use path::Path;
pub use report::WalkReport;

/// The changes that a walk makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkOptions {
    /// Drops fields that the schema does not declare.
    pub prune: bool,
    /// Normalizes to Kubernetes' form: declared order of fields, sorted maps, and canonical quantities, times and
    /// bytes. A field that is omitted when empty loses a null or zero value. Any other field gets its zero value if it
    /// is absent.
    pub normalise: bool,
    /// Fills in the defaults of the schema.
    pub defaults: bool,
}

impl WalkOptions {
    /// Checks only and changes nothing.
    pub const CHECK: Self = Self { prune: false, normalise: false, defaults: false };
    /// Fills in defaults and changes nothing else. In custom resources, a default also replaces null in a field that is
    /// not nullable.
    pub const DEFAULTS: Self = Self { prune: false, normalise: false, defaults: true };
    /// Prunes, normalizes and fills in defaults, as for a client's object before it is stored.
    pub const STORE: Self = Self { prune: true, normalise: true, defaults: true };
}

impl SchemaRef<'_> {
    /// Walks an object of this schema.
    ///
    /// If the report has a type error, the caller must refuse the object, since the walk may have ended early.
    pub fn walk(self, object: &mut Object, report: &mut WalkReport, options: WalkOptions) {
        let mut walker = Walker { options, report, quiet: false, filled: 0 };
        // If the walk stopped, the report has the error.
        let _ = walker.object(self, &mut object.0, &Path::Root);
    }

    /// Walks a value of any type.
    pub(crate) fn walk_value(self, value: &mut Value, report: &mut WalkReport, options: WalkOptions) {
        let mut walker = Walker { options, report, quiet: false, filled: 0 };
        let _ = walker.value(self, value, &Path::Root);
    }
}

/// The walk ends, because upstream's decoder would stop here.
struct Stop;

/// The maximum bytes of defaults that are filled into one object. Defaults are filled into each list item, so without a
/// limit a small object could exhaust the memory. No store accepts objects of this size.
const MAX_FILLED: usize = 16 << 20;

/// The rank of a field that is dropped.
const DROPPED: u32 = u32::MAX;
/// The rank of a field that is kept although it is not declared.
const UNDECLARED: u32 = u32::MAX - 1;

struct Walker<'r> {
    options: WalkOptions,
    report: &'r mut WalkReport,
    /// True within a type that has its own decoder. As upstream, unknown fields are not reported there, and errors are
    /// fatal.
    quiet: bool,
    /// The bytes of defaults filled in so far.
    filled: usize,
}

impl<'r> Walker<'r> {
    fn value(&mut self, schema: SchemaRef<'_>, value: &mut Value, path: &Path<'_>) -> Result<(), Stop> {
        if schema.is_structural() {
            return self.structural(schema, value, path);
        }
        if value.is_null() {
            return self.null(schema, value, path);
        }
        match (schema.value_type(), value) {
            (Type::Any, _) => Ok(()),
            (Type::Object, Value::Object(map)) => self.object(schema, map, path),
            (Type::Map, Value::Object(map)) => self.map(schema, map, path),
            (Type::Array, Value::Array(items)) => self.array(schema, items, path),
            (Type::Either, value) => self.either(schema, value, path),
            (_, value) => self.scalar(schema, value, path),
        }
    }

    /// Handles null: a pointer, list or map becomes null, and everything else gets its zero value.
    fn null(&mut self, schema: SchemaRef<'_>, value: &mut Value, path: &Path<'_>) -> Result<(), Stop> {
        if !self.options.normalise || schema.pointer() || schema.nullable() {
            return Ok(());
        }
        *value = scalar::zero(schema);
        match value {
            Value::Object(map) => self.object(schema, map, path),
            _ => Ok(()),
        }
    }

    fn array(&mut self, schema: SchemaRef<'_>, values: &mut [Value], path: &Path<'_>) -> Result<(), Stop> {
        let Some(items) = schema.items() else { return Ok(()) };
        for (index, value) in values.iter_mut().enumerate() {
            if !(value.is_null() && schema.pointer_items()) {
                self.value(items, value, &Path::Index { parent: path, index })?;
            }
        }
        Ok(())
    }

    fn map(&mut self, schema: SchemaRef<'_>, map: &mut Map, path: &Path<'_>) -> Result<(), Stop> {
        let Some(values) = schema.items() else { return Ok(()) };
        for (key, value) in map.iter_mut() {
            if !(value.is_null() && schema.pointer_items()) {
                self.value(values, value, &Path::Key { parent: path, key })?;
            }
        }
        if self.options.normalise && !map.keys().is_sorted() {
            map.sort_keys();
        }
        Ok(())
    }

    /// Walks a value of a type with its own decoder: an object with one schema, or a value of another type.
    fn either(&mut self, schema: SchemaRef<'_>, value: &mut Value, path: &Path<'_>) -> Result<(), Stop> {
        let Some((object, other)) = schema.choices() else { return Ok(()) };
        let quiet = std::mem::replace(&mut self.quiet, true);
        let choice = if value.is_object() { object } else { other };
        let walked = self.value(choice, value, path);
        self.quiet = quiet;
        walked
    }

    fn scalar(&mut self, schema: SchemaRef<'_>, value: &mut Value, path: &Path<'_>) -> Result<(), Stop> {
        match scalar::check(schema.value_type(), value, self.options.normalise) {
            Ok(()) => Ok(()),
            Err(fault) => self.fault(schema, value, path, fault),
        }
    }

    #[cold]
    fn fault(
        &mut self,
        schema: SchemaRef<'_>,
        value: &Value,
        path: &Path<'_>,
        fault: scalar::Fault,
    ) -> Result<(), Stop> {
        let expected = schema.value_type();
        let of_type = |go_type: &str| FaultKind::Type {
            expected,
            go_type: go_type.to_owned(),
            found: ValueKind::from_value(value),
        };
        let (kind, fatal) = match fault {
            scalar::Fault::Type => (of_type(schema.go_type()), self.quiet),
            scalar::Fault::TypeOf(go_type) => (of_type(go_type), true),
            scalar::Fault::Text(why) => (FaultKind::Unreadable { expected, why }, self.quiet),
            scalar::Fault::Fatal(why) => (FaultKind::Unreadable { expected, why }, true),
        };
        let fault = || Fault { decoder_path: path.in_decoder(), kind };
        if fatal {
            self.report.replace(fault());
            return Err(Stop);
        }
        self.report.note(fault);
        Ok(())
    }
}

/// The result of walking the fields of an object.
#[derive(Default)]
struct Fields {
    /// True if some fields are dropped.
    dropped: bool,
    /// True if the remaining fields are not in declared order.
    unordered: bool,
    /// The number of remaining fields that would be filled in if absent.
    filled: usize,
}

/// The handling of each field of an object.
impl Walker<'_> {
    fn object(&mut self, schema: SchemaRef<'_>, map: &mut Map, path: &Path<'_>) -> Result<(), Stop> {
        let found = self.fields(schema, map, path)?;
        if found.dropped {
            map.remove_rank(DROPPED);
        }
        let lacks = (self.options.normalise || self.options.defaults) && found.filled < schema.filled_count();
        if lacks {
            self.fill(schema, map, path)?;
        }
        if self.options.normalise && (lacks || found.unordered) {
            map.sort_by_rank();
        }
        Ok(())
    }

    /// Walks the fields and sets their ranks.
    fn fields(&mut self, schema: SchemaRef<'_>, map: &mut Map, path: &Path<'_>) -> Result<Fields, Stop> {
        let mut found = Fields::default();
        let (mut last, mut near) = (0, 0);
        for (name, value, rank) in map.ranked_mut() {
            *rank = match schema.position_near(name, near) {
                None => {
                    let rank = self.undeclared(schema, name, path);
                    if rank != DROPPED && schema.is_structural() {
                        self.keep(value);
                    }
                    rank
                }
                Some(position) => {
                    near = position + 1;
                    let field = schema.field_at(position);
                    self.value(field, value, &Path::Field { parent: path, owner: schema, name })?;
                    let of_custom = field.is_structural();
                    if self.options.normalise && !of_custom {
                        scalar::clear_empty(field, value);
                    }
                    let left_out = match of_custom {
                        false => scalar::is_left_out(field, value),
                        true => structural::is_left_out(field, value),
                    };
                    let makes_way = || of_custom && self.options.defaults && field.default_json().is_some();
                    if left_out && (self.options.normalise || makes_way()) {
                        DROPPED
                    } else {
                        found.filled += usize::from(field.filled());
                        u32::try_from(position).unwrap_or(UNDECLARED)
                    }
                }
            };
            if *rank == DROPPED {
                found.dropped = true;
            } else {
                found.unordered |= *rank < last;
                last = *rank;
            }
        }
        Ok(found)
    }

    fn undeclared(&mut self, schema: SchemaRef<'_>, name: &str, path: &Path<'_>) -> u32 {
        if schema.preserves_unknown_fields() {
            return UNDECLARED;
        }
        if !self.quiet {
            self.report.unknown(|| path.with(name));
        }
        if self.options.prune { DROPPED } else { UNDECLARED }
    }

    /// Adds the fields that are absent but have a default or are always written.
    fn fill(&mut self, schema: SchemaRef<'_>, map: &mut Map, path: &Path<'_>) -> Result<(), Stop> {
        for (position, field) in schema.fields().enumerate() {
            let rank = u32::try_from(position).unwrap_or(UNDECLARED);
            if !field.filled() || map.has_rank(rank) {
                continue;
            }
            let name = field.field_name();
            if let Some(mut value) = self.filling(field) {
                self.value(field, &mut value, &Path::Field { parent: path, owner: schema, name })?;
                map.push_ranked(name, value, rank);
            }
        }
        Ok(())
    }

    /// The value of an absent field, before defaults are filled into that value.
    fn filling(&mut self, field: SchemaRef<'_>) -> Option<Value> {
        if self.options.defaults
            && let Some(json) = field.default_json()
        {
            return self.parsed_default(json);
        }
        (self.options.normalise && !field.omitted_when_zero()).then(|| scalar::zero(field))
    }

    /// The parsed default, or `None` once `MAX_FILLED` is exceeded.
    fn parsed_default(&mut self, json: &str) -> Option<Value> {
        self.filled += json.len();
        if self.filled > MAX_FILLED {
            self.report.overfilled = true;
            return None;
        }
        serde_json::from_str(json).ok()
    }
}
