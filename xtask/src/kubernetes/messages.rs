//! Writes the table of protobuf messages (`crates/protobuf/src/messages.txt`).
//!
//! The messages are those of the existing table and all messages to which they refer. Messages and fields that the
//! release lacks are kept, since older releases are emulated and their objects are stored. protobuf never uses the
//! number of a field again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};

use super::go::{Expr, Field, Form, Type};
use super::sources::{Sources, group, short};

/// A section of the table. Its messages are of one package.
struct Section {
    /// The first line of the section.
    head: String,
    package: String,
    messages: BTreeSet<String>,
}

/// # Errors
/// A source cannot be read, or a field has a type that has no form in the table.
pub(crate) fn write(sources: &Sources, old: &str, release: &str) -> Result<String> {
    let head: String = old.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let mut sections = sections(old)?;
    reach(sources, &mut sections)?;
    let mut text = super::with_release(&head, "(Kubernetes ", release);
    for section in sections.iter().filter(|section| !section.messages.is_empty()) {
        let _ = write!(text, "\n{}\n", section.head);
        for name in &section.messages {
            let known = known(old, &section.head, name);
            if !is_message(sources, &section.package, name)? {
                let _ = writeln!(text, "{}", known.unwrap_or_default());
                continue;
            }
            let start = text.len();
            write_message(sources, section, name, &mut text)?;
            let gone = known.map(|known| gone(known, &text[start..])).unwrap_or_default();
            text.truncate(text.trim_end().len());
            let _ = writeln!(text, "{gone}");
        }
    }
    Ok(text)
}

/// The line of a message in the existing table.
fn known<'t>(old: &'t str, head: &str, name: &str) -> Option<&'t str> {
    let mut lines = old.lines().skip_while(|line| *line != head).skip(1);
    let section = lines.by_ref().take_while(|line| !line.starts_with('@'));
    section.into_iter().find(|line| line.split(' ').nth(1) == Some(name))
}

/// The fields of the old line of a message whose numbers the new line does not have.
fn gone(old: &str, new: &str) -> String {
    let number = |word: &'_ str| word.split(':').nth(1).and_then(|number| number.parse::<u32>().ok());
    let has = |wanted: u32| new.split_whitespace().skip(2).any(|word| number(word) == Some(wanted));
    let words = old.split(' ').skip(2).filter(|word| number(word).is_some_and(|number| !has(number)));
    words.map(|word| format!(" {word}")).collect()
}

/// The sections of the table.
fn sections(old: &str) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    for line in old.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some(name), _) if name.starts_with('@') => {
                let package = package_of(&name[1..]);
                sections.push(Section { head: line.to_owned(), package, messages: BTreeSet::new() });
            }
            (Some("kind" | "type" | "list"), Some(name)) => {
                let section = sections.last_mut().context("a message must follow a section")?;
                section.messages.insert(name.to_owned());
            }
            (Some("" | "#"), _) => {}
            _ if line.starts_with('#') => {}
            _ => bail!("neither a section nor a message: {line}"),
        }
    }
    Ok(sections)
}

/// The package of a section such as `apps/v1`.
fn package_of(section: &str) -> String {
    match section.split_once('/') {
        Some(("apiextensions", version)) => format!("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/{version}"),
        Some(("apiregistration", version)) => format!("k8s.io/kube-aggregator/pkg/apis/apiregistration/{version}"),
        Some(("meta", version)) => format!("k8s.io/apimachinery/pkg/apis/meta/{version}"),
        _ => format!("k8s.io/api/{section}"),
    }
}

/// Adds the messages that others use.
fn reach(sources: &Sources, sections: &mut [Section]) -> Result<()> {
    let mut waiting = Vec::new();
    for section in sections.iter_mut() {
        for name in std::mem::take(&mut section.messages) {
            if is_message(sources, &section.package, &name)? {
                waiting.push((section.package.clone(), name));
            } else {
                section.messages.insert(name);
            }
        }
    }
    while let Some((package, name)) = waiting.pop() {
        let Some(section) = sections.iter_mut().find(|section| section.package == package) else { continue };
        if !is_message(sources, &package, &name)? || !section.messages.insert(name.clone()) {
            continue;
        }
        let fields = sources.declared(&package, &name)?.unwrap_or_default();
        for field in fields.iter().filter(|field| field.number().is_some()) {
            waiting.extend(message_of(sources, &field.expr)?);
        }
    }
    Ok(())
}

fn is_message(sources: &Sources, package: &str, name: &str) -> Result<bool> {
    let is_list = sources.find(package, name)?.is_some_and(|found| is_list_message(&found));
    Ok(is_list || sources.declared(package, name)?.is_some())
}

/// A named list that protobuf wraps into a message.
fn is_list_message(found: &Type) -> bool {
    matches!(found.form, Form::Named(Expr::List(_)))
        && found.markers.iter().any(|marker| marker == "protobuf.nullable=true")
}

/// The message that a type refers to, if it has no form of its own.
fn message_of(sources: &Sources, expr: &Expr) -> Result<Option<(String, String)>> {
    match expr {
        Expr::Pointer(inner) | Expr::List(inner) | Expr::Map(_, inner) => message_of(sources, inner),
        Expr::Named { package, name } => {
            if special(name).is_some() {
                return Ok(None);
            }
            match sources.find(package, name)? {
                _ if is_message(sources, package, name)? => sources.named(package, name).map(Some),
                Some(Type { form: Form::Named(inner), .. }) => message_of(sources, &inner),
                _ => Ok(None),
            }
        }
    }
}

/// The table's forms of types whose bytes are not a plain message.
fn special(name: &str) -> Option<&'static str> {
    Some(match name {
        "Time" => "Time",
        "MicroTime" => "MicroTime",
        "Quantity" => "Quantity",
        "IntOrString" => "IntOrString",
        "RawExtension" | "FieldsV1" | "JSON" => "json",
        "JSONSchemaPropsOrArray" => "schema|list",
        "JSONSchemaPropsOrBool" => "schema|bool",
        "JSONSchemaPropsOrStringArray" => "schema|strings",
        _ => return None,
    })
}

fn write_message(sources: &Sources, section: &Section, name: &str, text: &mut String) -> Result<()> {
    let Some(fields) = sources.declared(&section.package, name)? else {
        let _ = writeln!(text, "list {name}");
        return Ok(());
    };
    let stands_alone = fields.iter().any(|field| field.embedded && field.go_name == "TypeMeta");
    let mut line = format!("{} {name}", if stands_alone { "kind" } else { "type" });
    for field in &fields {
        let Some(number) = field.number() else { continue };
        let json = if field.embedded && field.json().is_empty() { "+" } else { field.json() };
        let form = form(sources, &section.package, &field.expr).with_context(|| format!("{name}.{}", field.go_name))?;
        let _ = write!(line, " {json}:{number}:{form}{}", omission(sources, field)?);
    }
    let _ = writeln!(text, "{line}");
    Ok(())
}

/// The condition under which JSON omits the field.
fn omission(sources: &Sources, field: &Field) -> Result<&'static str> {
    let is_struct = sources.is_struct(&field.expr)?;
    Ok(match (field.json_has("omitzero"), field.json_has("omitempty")) {
        (true, _) if is_struct => "~",
        (true, _) | (_, true) => "?",
        _ => "",
    })
}

fn form(sources: &Sources, package: &str, expr: &Expr) -> Result<String> {
    Ok(match expr {
        Expr::Pointer(inner) => format!("*{}", form(sources, package, inner)?),
        Expr::List(inner) if matches!(&**inner, Expr::Named { name, .. } if name == "byte") => "bytes".to_owned(),
        Expr::List(inner) => match &**inner {
            Expr::Pointer(inner) => format!("[]{}", form(sources, package, inner)?),
            inner => format!("[]{}", form(sources, package, inner)?),
        },
        Expr::Map(_, value) => format!("{{}}{}", form(sources, package, value)?),
        Expr::Named { package: other, name } if other.is_empty() => match name.as_str() {
            "string" | "bool" | "int32" | "int64" => name.clone(),
            "float64" => "double".to_owned(),
            "int" => "int64".to_owned(),
            "uint8" | "uint16" | "uint32" => "int32".to_owned(),
            other => bail!("no form for the type {other}"),
        },
        Expr::Named { package: other, name } => {
            if let Some(special) = special(name) {
                return Ok(special.to_owned());
            }
            let (other, name) = &sources.named(other, name)?;
            match sources.find(other, name)? {
                _ if is_message(sources, other, name)? && other == package => name.clone(),
                _ if is_message(sources, other, name)? => format!("{}.{name}", section_of(other)),
                Some(Type { form: Form::Named(inner), .. }) => form(sources, package, &inner)?,
                _ => bail!("{other} has no type {name}"),
            }
        }
    })
}

/// The name of a package's section: `core/v1`.
fn section_of(package: &str) -> String {
    format!("{}/{}", group(package), short(package))
}
