//! Checks the paths of a query against the fields that the schema of a kind declares.
//!
//! The server refuses a path into a list without `[*]`, a field of a text, and a field that no object of a built-in
//! kind has. Objects of a custom kind may have fields from before a change of their definition, so an unknown field
//! causes a warning. Nothing is checked for a kind without a schema.

use std::fmt;

use keelson_meta::ApiError;
use keelson_query::{Condition, Path, Query, Segment};
use keelson_schema::{SchemaRef, Type};

use crate::caller::Caller;
use crate::target::Target;

/// The fields that every object has, whatever its schema says.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Target {
    /// Checks that the schema has the paths of a query. Warns of paths that only older objects may have.
    ///
    /// # Errors
    /// 400 for a path that no object can have, and for a column that the table lacks.
    pub fn check_query(&self, query: &Query, caller: &Caller) -> Result<(), ApiError> {
        self.check_columns(query)?;
        let Some(schema) = self.version.schema() else { return Ok(()) };
        for (parameter, path) in query.paths() {
            match fault(schema, path.segments()) {
                None => {}
                Some(fault) if fault.is_certain() || !schema.is_structural() => {
                    let kind = &self.kind().kind;
                    return Err(ApiError::BadRequest(format!(
                        "{parameter}: {path} does not exist in a {kind}: {fault}"
                    )));
                }
                Some(fault) => caller.warnings().add(format!("{parameter}: {path} does not exist: {fault}")),
            }
        }
        for way in query.condition.iter().flat_map(Condition::reads) {
            let segments: Vec<Segment> = way.iter().map(|name| Segment::Member((*name).into())).collect();
            if let Some(fault) = fault(schema, &segments) {
                let way = way.join(".");
                caller.warnings().add(format!("keelson.io/where: object.{way} does not exist: {fault}"));
            }
        }
        Ok(())
    }
}

impl Target {
    fn check_columns(&self, query: &Query) -> Result<(), ApiError> {
        let columns = self.version.printer().columns();
        let is_missing = |name: &&str| columns.iter().all(|column| column.name != *name);
        let Some(missing) = query.sort_by.columns().find(is_missing) else { return Ok(()) };
        let known: Vec<_> = columns.iter().map(|column| column.name).collect();
        Err(ApiError::BadRequest(format!(
            "keelson.io/sortBy: the table has no column {missing:?}, only {}",
            known.join(", ")
        )))
    }
}

/// The reason why a path does not exist.
#[derive(Debug, PartialEq)]
enum Fault {
    /// There is no such field at this path.
    Unknown { name: String, at: Path },
    /// The path leads to a list, and does not select items of it.
    List { at: Path },
    /// The path continues below a scalar value.
    Plain { at: Path },
    /// There is no list at this path.
    NoList { at: Path },
}

impl Fault {
    /// Returns true if no object can have this path, whatever schema it was stored under.
    const fn is_certain(&self) -> bool {
        matches!(self, Self::List { .. } | Self::Plain { .. } | Self::NoList { .. })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, at } if at.segments().is_empty() => write!(f, "there is no field {name:?}"),
            Self::Unknown { name, at } => write!(f, "there is no field {name:?} in {at}"),
            Self::List { at } => write!(f, "{at} is a list, whose items are {at}[*]"),
            Self::Plain { at } => write!(f, "{at} has no fields"),
            Self::NoList { at } => write!(f, "{at} is not a list"),
        }
    }
}

/// The reason why these segments do not exist. `None` if they exist, or if the schema does not decide it.
fn fault(mut schema: SchemaRef<'_>, segments: &[Segment]) -> Option<Fault> {
    for (depth, segment) in segments.iter().enumerate() {
        let at = || Path::through(&segments[..depth]);
        if let Some((object, _)) = schema.choices() {
            schema = object;
        }
        schema = match (schema.value_type(), segment) {
            (Type::Object, Segment::Member(name)) => match schema.field(name) {
                Some(field) => field,
                None if schema.preserves_unknown_fields() => return None,
                // A structural schema need not declare these fields.
                None if schema.is_structural() && OF_EVERY_OBJECT.contains(&&**name) => return None,
                None => return Some(Fault::Unknown { name: name.to_string(), at: at() }),
            },
            // Each member may have another type.
            (Type::Object, Segment::Each) | (Type::Any, _) => return None,
            (Type::Map, Segment::Member(_) | Segment::Each) | (Type::Array, Segment::Item(_) | Segment::Each) => {
                schema.items()?
            }
            (Type::Array, Segment::Member(_)) => return Some(Fault::List { at: at() }),
            (Type::Object | Type::Map, Segment::Item(_)) => return Some(Fault::NoList { at: at() }),
            _ if schema.preserves_unknown_fields() => return None,
            (_, Segment::Member(_)) => return Some(Fault::Plain { at: at() }),
            (_, Segment::Item(_) | Segment::Each) => return Some(Fault::NoList { at: at() }),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use keelson_schema::Schemas;

    use super::*;

    #[test]
    fn paths_must_exist_in_the_schema() {
        let pod = Schemas::builtin().kind("", "v1", "Pod").unwrap();
        let check = |text: &str, expected: &str| {
            let path = Path::parse("p", text).unwrap();
            let told = fault(pod, path.segments()).map(|fault| fault.to_string()).unwrap_or_default();
            assert_eq!(told, expected, "{text}");
        };
        for known in [
            "kind",
            "metadata.name",
            "metadata.labels['a/b']",
            "metadata.annotations.a",
            "metadata.ownerReferences[*].name",
            "metadata.managedFields[*].fieldsV1.x",
            "spec.containers[*].image",
            "spec.containers[0].resources.limits.cpu",
            "spec.containers[*].livenessProbe.httpGet.port",
            "spec.nodeSelector[*]",
            "spec[*]",
            "status.conditions[*].lastTransitionTime",
        ] {
            check(known, "");
        }
        check("spec.nodeNam", "there is no field \"nodeNam\" in .spec");
        check("spek", "there is no field \"spek\"");
        check("spec.containers.image", ".spec.containers is a list, whose items are .spec.containers[*]");
        check("spec.containers[*].imag", "there is no field \"imag\" in .spec.containers[*]");
        check("spec.nodeName.x", ".spec.nodeName has no fields");
        check("spec.nodeName[0]", ".spec.nodeName is not a list");
        check("spec[0]", ".spec is not a list");
    }
}
