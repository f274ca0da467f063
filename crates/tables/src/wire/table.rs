//! The Table of meta.k8s.io for `kubectl get`: columns, and a row for each object.
//!
//! The client chooses whether rows include the object's metadata, the whole object or nothing. Rows are written one by
//! one, so a table of any length costs the memory of one row.

use keelson_codec::list::write_type_and_metadata;
use keelson_meta::json::Value;
use keelson_meta::{ListHead, ListMeta};

use super::{MetaVersion, write_json};
use crate::column::Column;
use crate::printer::RowCondition;

/// The part of the object in each row: the `includeObject` parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata, sufficient for name and labels.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the parameter. Empty means metadata.
    ///
    /// # Errors
    /// The message of the 400 response for other values.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "None" => Ok(Self::None),
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            _ => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {text:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            )),
        }
    }
}

/// The start of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableHead<'a> {
    /// The requested version.
    pub version: MetaVersion,
    /// The metadata of the list or of the object.
    pub meta: ListMeta<'a>,
    /// The columns. `None` if an earlier event of the same watch had them.
    pub columns: Option<&'a [Column<'a>]>,
}

impl TableHead<'_> {
    /// Appends everything up to and including `"rows":[`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let head = ListHead { kind: "Table", api_version: self.version.api_version(), meta: self.meta };
        write_type_and_metadata(&head, out);
        match self.columns {
            None => out.extend_from_slice(b",\"columnDefinitions\":null"),
            Some(columns) => {
                out.extend_from_slice(b",\"columnDefinitions\":[");
                for (place, column) in columns.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    write_column(column, out);
                }
                out.push(b']');
            }
        }
        out.extend_from_slice(b",\"rows\":[");
    }
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// A value for each column.
    pub cells: &'a [Value],
    /// The conditions of the row.
    pub conditions: &'a [RowCondition],
}

impl Row<'_> {
    /// Appends the row without commas. `object` appends the object in it, or `null`.
    pub fn write(&self, object: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"cells\":");
        write_json(self.cells, out);
        if !self.conditions.is_empty() {
            write_conditions(self.conditions, out);
        }
        out.extend_from_slice(b",\"object\":");
        object(out);
        out.push(b'}');
    }
}

fn write_column(column: &Column<'_>, out: &mut Vec<u8>) {
    write_members(
        [("name", column.name), ("type", column.kind), ("format", column.format), ("description", column.description)],
        out,
    );
    out.extend_from_slice(b",\"priority\":");
    out.extend_from_slice(itoa::Buffer::new().format(column.priority).as_bytes());
    out.push(b'}');
}

fn write_conditions(conditions: &[RowCondition], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"conditions\":");
    for (place, condition) in conditions.iter().enumerate() {
        out.push(if place == 0 { b'[' } else { b',' });
        write_members(
            [
                ("type", condition.kind),
                ("status", condition.status),
                ("reason", condition.reason),
                ("message", condition.message),
            ],
            out,
        );
        out.push(b'}');
    }
    out.push(b']');
}

/// Appends an opening brace and these members, without closing the object.
fn write_members(members: [(&str, &str); 4], out: &mut Vec<u8>) {
    for (place, (name, text)) in members.into_iter().enumerate() {
        out.push(if place == 0 { b'{' } else { b',' });
        write_json(name, out);
        out.push(b':');
        write_json(text, out);
    }
}
