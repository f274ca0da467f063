//! Writes the values of the types that Kubernetes publishes as enumerations (`crates/schema/facts/enums.txt`).
//!
//! An enumeration has one line, or a line for each version if its versions differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, bail};

use super::facts::{Id, file_of};
use super::go::{Expr, Form, Type};
use super::sources::{Sources, short};

/// The versions of an enumeration with its values in each.
type Versions = BTreeMap<String, Vec<String>>;

/// # Errors
/// A source cannot be read, or two groups have different enumerations of one name and version.
pub(crate) fn write(sources: &Sources, types: &BTreeSet<Id>) -> Result<String> {
    let mut found = BTreeMap::<String, BTreeMap<String, Versions>>::new();
    let mut plain = BTreeSet::new();
    for (package, name) in types {
        for placed in sources.fields(package, name)? {
            let mut names = Vec::new();
            text_types(sources, &placed.field.expr, &mut names)?;
            for (package, name) in names {
                match values(sources, &package, &name)? {
                    Some(values) => {
                        let versions = found.entry(file_of(&package)).or_default().entry(name).or_default();
                        versions.insert(short(&package).to_owned(), values);
                    }
                    None => _ = plain.insert((file_of(&package), name)),
                }
            }
        }
    }
    let mut text =
        "# The values of the types that Kubernetes publishes as enumerations; the form is described in README.md.\n"
            .to_owned();
    let mut written = BTreeMap::<String, Vec<String>>::new();
    for (group, enums) in found {
        let mut lines = String::new();
        for (name, versions) in enums {
            let differ =
                versions.values().collect::<BTreeSet<_>>().len() > 1 || plain.contains(&(group.clone(), name.clone()));
            for (version, values) in versions {
                let shown = if differ { format!("{version}.{name}") } else { name.clone() };
                match written.insert(shown.clone(), values.clone()) {
                    None => _ = writeln!(lines, "enum {shown} {}", values.join("|").replace(' ', "_")),
                    Some(known) if known == values => {}
                    Some(_) => bail!("{shown} of {group} and that of another group have different values"),
                }
            }
        }
        if !lines.is_empty() {
            let _ = write!(text, "\n# {group}\n{lines}");
        }
    }
    Ok(text)
}

/// Collects the named text types in a type.
fn text_types(sources: &Sources, expr: &Expr, names: &mut Vec<Id>) -> Result<()> {
    match expr {
        Expr::Pointer(inner) | Expr::List(inner) => text_types(sources, inner, names)?,
        Expr::Map(key, value) => {
            text_types(sources, key, names)?;
            text_types(sources, value, names)?;
        }
        Expr::Named { package, name } => {
            let (package, name) = sources.named(package, name)?;
            match sources.find(&package, &name)? {
                Some(Type { form: Form::Named(Expr::Named { package: of, name: text }), .. })
                    if of.is_empty() && text == "string" =>
                {
                    names.push((package, name));
                }
                Some(Type { form: Form::Named(inner), .. }) => text_types(sources, &inner, names)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// The values of an enumeration; `None` for a type that is not published as one.
fn values(sources: &Sources, package: &str, name: &str) -> Result<Option<Vec<String>>> {
    let is_enum = sources.find(package, name)?.is_some_and(|found| found.markers.iter().any(|marker| marker == "enum"));
    let declared = sources.package(package)?;
    let Some(mut values) = declared.constants.get(name).filter(|_| is_enum).cloned() else { return Ok(None) };
    for (_, other, constant) in declared.repeated.iter().filter(|(of, ..)| of == name) {
        values.extend(sources.package(other)?.values.get(constant).cloned());
    }
    values.sort();
    values.dedup();
    Ok(Some(values))
}
