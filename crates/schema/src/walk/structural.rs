//! The walk for custom resources. It prunes undeclared fields, fills in defaults, and leaves everything else as the
//! client sent it. [`Structural`](crate::Structural) reports type faults together with other faults of values.

use keelson_meta::json::{Map, Value};

use super::{DROPPED, Path, Stop, UNDECLARED, Walker};
use crate::layout::Type;
use crate::schemas::{SchemaRef, object_meta};

/// Returns true for a null that counts as an absent field.
pub(super) fn is_left_out(field: SchemaRef<'_>, value: &Value) -> bool {
    value.is_null() && !is_nullable(field)
}

/// Returns true if null is a valid value.
pub(super) fn is_nullable(field: SchemaRef<'_>) -> bool {
    field.nullable()
}

impl Walker<'_> {
    pub(super) fn structural(&mut self, schema: SchemaRef<'_>, value: &mut Value, path: &Path<'_>) -> Result<(), Stop> {
        match (schema.value_type(), value) {
            (Type::Object, Value::Object(map)) => {
                self.object(schema, map, path)?;
                if schema.fills_metadata() { self.object(object_meta(), map, path) } else { Ok(()) }
            }
            (Type::Map, Value::Object(map)) => self.structural_map(schema, map, path),
            (Type::Array, Value::Array(items)) => {
                let Some(of_items) = schema.items() else { return Ok(()) };
                for (index, item) in items.iter_mut().enumerate() {
                    self.fill_null(schema, of_items, item);
                    self.structural(of_items, item, &Path::Index { parent: path, index })?;
                }
                Ok(())
            }
            (_, value) if schema.preserves_unknown_fields() => {
                self.keep(value);
                Ok(())
            }
            (_, value) => {
                self.strip(value, path);
                Ok(())
            }
        }
    }

    fn structural_map(&mut self, schema: SchemaRef<'_>, map: &mut Map, path: &Path<'_>) -> Result<(), Stop> {
        let Some(values) = schema.items() else { return Ok(()) };
        let mut dropped = false;
        for (key, value, rank) in map.ranked_mut() {
            self.fill_null(schema, values, value);
            // Null stays if there is a default, which replaces it later.
            let has_default = || schema.default_of_items().is_some();
            let left_out = self.options.normalise && is_left_out(values, value) && !has_default();
            *rank = if left_out { DROPPED } else { UNDECLARED };
            dropped |= *rank == DROPPED;
            if *rank != DROPPED {
                self.structural(values, value, &Path::Key { parent: path, key })?;
            }
        }
        if dropped {
            map.remove_rank(DROPPED);
        }
        if self.options.normalise && !map.keys().is_sorted() {
            map.sort_keys();
        }
        Ok(())
    }

    /// Replaces nulls in a list or map by the default of its items, unless the items may be null.
    fn fill_null(&mut self, schema: SchemaRef<'_>, of_items: SchemaRef<'_>, value: &mut Value) {
        if self.options.defaults
            && is_left_out(of_items, value)
            && let Some(json) = schema.default_of_items()
            && let Some(filled) = self.parsed_default(json)
        {
            *value = filled;
        }
    }

    /// Removes all fields of a value whose schema declares none.
    fn strip(&mut self, value: &mut Value, path: &Path<'_>) {
        match value {
            Value::Object(map) => {
                map.keys().for_each(|name| self.report.unknown(|| path.with(name)));
                if self.options.prune {
                    map.clear();
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.strip(item, &Path::Index { parent: path, index });
                }
            }
            other => self.keep(other),
        }
    }

    /// Keeps a value and its parts. Only writes integral floats as integers.
    pub(super) fn keep(&self, value: &mut Value) {
        if self.options.normalise {
            value.make_floats_whole();
        }
    }
}
