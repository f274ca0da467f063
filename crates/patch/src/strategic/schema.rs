//! Implements the schema of strategic merge patches for compiled schemas.
//!
//! Merge keys and strategies are those of the published schemas. Kinds without a schema don't support this patch.

use keelson_schema::{SchemaRef, Type};

use super::{GoKind, MergeSchema, Strategy};

impl<'a> MergeSchema<'a> for SchemaRef<'a> {
    fn go_kind(self) -> GoKind {
        match self.value_type() {
            // Go represents arbitrary JSON as a struct.
            Type::Object | Type::Any | Type::Either => GoKind::Struct,
            Type::Map => GoKind::Map,
            Type::Array => GoKind::List,
            Type::String
            | Type::Int32
            | Type::Int64
            | Type::Number
            | Type::Boolean
            | Type::IntOrString
            | Type::Quantity
            | Type::Time
            | Type::MicroTime
            | Type::Bytes => GoKind::Scalar,
        }
    }

    fn type_name(self) -> &'a str {
        let name = self.go_type();
        name.rsplit_once('.').map_or(name, |(_, name)| name)
    }

    fn field(self, name: &str) -> Option<Self> {
        SchemaRef::field(self, name)
    }

    fn items(self) -> Option<Self> {
        match self.value_type() {
            Type::Array => SchemaRef::items(self),
            _ => None,
        }
    }

    fn strategy(self) -> Strategy<'a> {
        let strategy = self.patch_strategy();
        match self.merge_key() {
            _ if strategy.replace => Strategy::Replace,
            Some(key) if strategy.merge => Strategy::MergeByKey(key),
            None if strategy.merge => Strategy::Merge,
            _ => Strategy::Unset,
        }
    }
}
