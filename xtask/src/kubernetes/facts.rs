//! Writes the facts about the built-in types (`crates/schema/facts`).
//!
//! The kinds are those of `crates/schema/build/kinds`, and the types are all that they refer to. Notes that are in no
//! source of Kubernetes, such as `required=`, are kept from the existing file. The facts about an older release are the
//! types and enumerations in which it differs from the newest one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::enums;
use super::go::{self, Expr, Field, Type};
use super::sources::{META, Placed, Sources, definitions, group, short};

/// Types with a hand-written schema, which have no facts.
const WHOLE: [&str; 11] = [
    "FieldsV1",
    "IntOrString",
    "JSON",
    "JSONSchemaPropsOrArray",
    "JSONSchemaPropsOrBool",
    "JSONSchemaPropsOrStringArray",
    "MicroTime",
    "Quantity",
    "RawExtension",
    "Time",
    "Patch",
];
/// Types of requests and responses that belong to no kind.
const BESIDE: [(&str, &str); 4] =
    [(META, "DeleteOptions"), (META, "ListMeta"), (META, "WatchEvent"), ("k8s.io/apimachinery/pkg/version", "Info")];

/// The content of the files by name.
pub(crate) type Files = BTreeMap<String, String>;

/// Package and name of a type.
pub(super) type Id = (String, String);

/// Writes the facts about the types of these kinds.
///
/// # Errors
/// A source or a file cannot be read.
pub(crate) fn write(sources: &Sources, schema: &Path, mut roots: Vec<Id>, release: &str) -> Result<Files> {
    roots.extend(BESIDE.map(|(package, name)| (package.to_owned(), name.to_owned())));
    let types = reached(sources, roots)?;
    let enums = enums::write(sources, &types)?;
    let mut groups = BTreeMap::<String, BTreeSet<Id>>::new();
    for id in types {
        groups.entry(file_of(&id.0)).or_default().insert(id);
    }
    let folder = schema.join("facts");
    let readme = std::fs::read_to_string(folder.join("README.md")).context("cannot read the form of facts")?;
    let is_older = is_older(&readme, release)?;
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let mut files = Files::from([("enums.txt".to_owned(), enums)]);
    for (stem, types) in groups {
        let name = format!("{stem}.txt");
        let old = format!("{}\n{}", read(&name), read(&format!("{release}/{name}")));
        let kept = kept_notes(&old);
        let group = if stem == "internal_apiserver" { "apiserverinternal" } else { &stem };
        let mut text =
            format!("# What JSON schemas do not say about the types of {group}; the form is described in README.md.\n");
        let mut section = String::new();
        for (package, name) in &types {
            let prefix = definitions(package);
            if prefix != section {
                let _ = write!(text, "\npackage {prefix}\n");
                section = prefix;
            }
            write_type(sources, (package, name), &kept, &mut text)?;
        }
        files.insert(name, text);
    }
    if is_older {
        let differences = files.into_iter().filter_map(|(name, text)| {
            let difference =
                if name == "enums.txt" { other_enums(&text, &read(&name)) } else { other_types(&text, &read(&name)) };
            Some((format!("{release}/{name}"), difference?))
        });
        return Ok(differences.collect());
    }
    files.insert("README.md".to_owned(), super::with_release(&readme, NEWEST, release));
    Ok(files)
}

/// The words before the newest release in the page about the files.
const NEWEST: &str = "The files describe Kubernetes ";

/// Returns true for a release before the one that the files describe.
fn is_older(readme: &str, release: &str) -> Result<bool> {
    let newest = readme.split_once(NEWEST).map_or("", |(_, rest)| rest);
    let minor = |release: &str| {
        let digits = release.strip_prefix("1.")?.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u32>().ok()
    };
    let (this, newest) = minor(release).zip(minor(newest)).context("the page about the files names no release")?;
    Ok(this < newest)
}

/// The types of a file that the newest release lacks, or has in another form.
fn other_types(text: &str, newest: &str) -> Option<String> {
    let known: BTreeSet<(&str, &str)> = types_of(newest).collect();
    let mut other = text.lines().next().map(|head| format!("{head}\n")).unwrap_or_default();
    let mut section = "";
    for (package, block) in types_of(text).filter(|found| !known.contains(found)) {
        if package != section {
            let _ = write!(other, "\npackage {package}\n");
            section = package;
        }
        let _ = write!(other, "\n{block}\n");
    }
    (!section.is_empty()).then_some(other)
}

/// The types of a file: the package and the lines of each.
fn types_of(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut package = "";
    text.split("\n\n").filter_map(move |block| {
        let block = block.trim_end();
        if let Some(name) = block.strip_prefix("package ") {
            package = name;
        }
        block.starts_with("type ").then_some((package, block))
    })
}

/// The enumerations that the newest release lacks, or has with other values, and the names of those that only the
/// newest release has.
fn other_enums(text: &str, newest: &str) -> Option<String> {
    let lines = |text: &'_ str| -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| {
            let name = line.strip_prefix("enum ")?.split(' ').next()?;
            Some((name.to_owned(), line.to_owned()))
        });
        lines.collect()
    };
    let (this, newest) = (lines(text), lines(newest));
    let changed = this.iter().filter(|(name, line)| newest.get(*name) != Some(line)).map(|(_, line)| line.clone());
    let absent = newest.keys().filter(|name| !this.contains_key(*name)).map(|name| format!("enum {name}"));
    let other: Vec<String> = changed.chain(absent).collect();
    let head = text.lines().next().unwrap_or_default();
    (!other.is_empty()).then(|| format!("{head}\n\n{}\n", other.join("\n")))
}

/// The kinds whose schemas a file of `crates/schema/build/kinds` collects.
pub(super) fn roots(kinds: &str) -> Vec<Id> {
    let mut packages = HashMap::new();
    let mut roots = Vec::new();
    for line in kinds.lines() {
        let line = line.trim().trim_end_matches(';');
        if let Some((path, alias)) = line.strip_prefix("use openapi::").and_then(|rest| rest.split_once(" as ")) {
            packages.insert(alias, format!("k8s.io/{}", path.replace("::", "/").replace('_', "-")));
        }
        let kind = line.strip_prefix("listed::<").or_else(|| line.strip_prefix("single::<"));
        if let Some((alias, name)) = kind.and_then(|kind| kind.trim_end_matches(">(all)").split_once("::"))
            && let Some(package) = packages.get(alias)
        {
            roots.push((package.clone(), name.to_owned()));
        }
    }
    roots
}

/// All structures that have facts and that the roots refer to, directly or not.
fn reached(sources: &Sources, roots: Vec<Id>) -> Result<BTreeSet<Id>> {
    let (mut reached, mut waiting) = (BTreeSet::new(), roots);
    while let Some((package, name)) = waiting.pop() {
        let (package, name) = sources.named(&package, &name)?;
        let expr = Expr::Named { package: package.clone(), name: name.clone() };
        if WHOLE.contains(&name.as_str())
            || !sources.is_struct(&expr)?
            || reached.contains(&(package.clone(), name.clone()))
        {
            continue;
        }
        let fields = sources.fields(&package, &name)?;
        for placed in &fields {
            names_in(sources, &placed.field.expr, &mut waiting)?;
        }
        if !fields.is_empty() {
            reached.insert((package, name));
        }
    }
    Ok(reached)
}

fn names_in(sources: &Sources, expr: &Expr, names: &mut Vec<Id>) -> Result<()> {
    match sources.underlying(expr)? {
        Expr::Pointer(inner) | Expr::List(inner) | Expr::Map(_, inner) => names_in(sources, &inner, names)?,
        Expr::Named { package, name } if !package.is_empty() => names.push((package, name)),
        Expr::Named { .. } => {}
    }
    Ok(())
}

/// The file of a package, named after the folder of its group.
pub(super) fn file_of(package: &str) -> String {
    match group(package) {
        "pkg" => "meta".to_owned(),
        "apiserverinternal" => "internal_apiserver".to_owned(),
        other => other.to_owned(),
    }
}

fn write_type(
    sources: &Sources,
    (package, name): (&str, &str),
    kept: &HashMap<String, String>,
    text: &mut String,
) -> Result<()> {
    let shown = format!("{}.{name}", short(package));
    let found = sources.find(package, name)?.context("a type that was reached")?;
    let fields = sources.fields(package, name)?;
    let mut head = format!("\ntype {shown}");
    head.extend(type_map(&found.markers).map(|map| format!(" map={map}")));
    head.extend(union(&found, &fields).map(|union| format!(" union={union}")));
    text.push_str(&head);
    text.push('\n');
    let mut rows = Vec::new();
    for placed in &fields {
        let field = &placed.field;
        let mark = if omits_zero(sources, field)? { "?" } else { "" };
        let kept = kept.get(&format!("{shown} {}", field.json())).map(String::as_str);
        rows.push((format!("{}{mark}", field.json()), spell(sources, &field.expr)?, notes(sources, placed, kept)?));
    }
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    for (name, go_type, notes) in rows {
        let _ = writeln!(text, "{}", format!("  {name:width$}  {go_type}  {notes}").trim_end());
    }
    Ok(())
}

fn type_map(markers: &[String]) -> Option<&str> {
    go::marker(markers, "structType").or_else(|| go::marker(markers, "mapType"))
}

/// Returns true if JSON omits the zero value. Go does not omit structures for `omitempty`.
fn omits_zero(sources: &Sources, field: &Field) -> Result<bool> {
    Ok(field.json_has("omitzero") || (field.json_has("omitempty") && !sources.is_struct(&field.expr)?))
}

fn notes(sources: &Sources, placed: &Placed, kept: Option<&str>) -> Result<String> {
    let field = &placed.field;
    let mut notes = Vec::new();
    match (sources.underlying(&field.expr)?, field.marker("listType")) {
        (Expr::List(_), Some("map")) => {
            let keys: Vec<&str> =
                field.markers.iter().filter_map(|marker| marker.strip_prefix("listMapKey=")).collect();
            notes.push(format!("list=map:{}", keys.join(",")));
        }
        (Expr::List(_), Some(kind)) => notes.push(format!("list={kind}")),
        _ => {}
    }
    notes.extend(type_map(&field.markers).map(|map| format!("map={map}")));
    notes.extend(field.tags.get("patchStrategy").map(|strategy| format!("patch={strategy}")));
    notes.extend(field.tags.get("patchMergeKey").map(|key| format!("key={key}")));
    if !placed.embedded_in.is_empty() {
        notes.push(format!("in={}", placed.embedded_in.join(".")));
    }
    if let Some(default) = default(sources, field)? {
        let is_zero = matches!(default.as_str(), "\"\"" | "0" | "false");
        notes.push(format!("default={}", if is_zero { "zero" } else { &default }));
    }
    notes.extend(kept.map(str::to_owned));
    Ok(notes.join(" "))
}

/// The value of `+default=`, in JSON. A reference there names a constant of the field's type.
fn default(sources: &Sources, field: &Field) -> Result<Option<String>> {
    let Some(default) = field.marker("default") else { return Ok(None) };
    let Some(constant) = default.strip_prefix("ref(").map(|rest| rest.trim_end_matches(')')) else {
        // A note is one word.
        return Ok(Some(default.split_whitespace().collect()));
    };
    let named = match &field.expr {
        Expr::Pointer(inner) => inner,
        other => other,
    };
    let Expr::Named { package, .. } = named else {
        bail!("{} has a default that is a constant of no type", field.go_name)
    };
    let value = sources.package(package)?.values.get(constant).cloned();
    Ok(Some(format!("{:?}", value.with_context(|| format!("{package} has no constant {constant}"))?)))
}

/// The discriminator of a union and the fields that it selects.
fn union(found: &Type, fields: &[Placed]) -> Option<String> {
    found.markers.iter().find(|marker| *marker == "union")?;
    let is_marked = |field: &Field, name: &str| field.markers.iter().any(|marker| marker == name);
    let discriminator = fields.iter().find(|placed| is_marked(&placed.field, "unionDiscriminator"));
    let members = fields.iter().filter(|placed| {
        let with_pointer = matches!(placed.field.expr, Expr::Pointer(_));
        discriminator.is_none_or(|found| found.field.json() != placed.field.json()) && with_pointer
    });
    let members = members.map(|placed| format!("{}:{}", placed.field.json(), placed.field.go_name));
    let mut members: Vec<String> = members.collect();
    members.sort();
    Some(format!("{}({})", discriminator.map_or("", |found| found.field.json()), members.join(",")))
}

/// The name of the type in errors of Go's decoder.
fn spell(sources: &Sources, expr: &Expr) -> Result<String> {
    Ok(match expr {
        Expr::Pointer(inner) => format!("*{}", spell(sources, inner)?),
        Expr::List(inner) => format!("[]{}", spell(sources, inner)?),
        Expr::Map(key, value) => format!("map[{}]{}", spell(sources, key)?, spell(sources, value)?),
        Expr::Named { package, name } if package.is_empty() => {
            if name == "byte" {
                "uint8".to_owned()
            } else {
                name.clone()
            }
        }
        Expr::Named { package, name } => {
            let (package, name) = sources.named(package, name)?;
            format!("{}.{name}", short(&package))
        }
    })
}

/// The hand-written notes of a file, by type and field.
fn kept_notes(old: &str) -> HashMap<String, String> {
    let (mut kept, mut shown) = (HashMap::new(), "");
    for line in old.lines() {
        let mut words = line.split_whitespace();
        if let Some(name) = line.strip_prefix("type ") {
            shown = name.split(' ').next().unwrap_or(name);
        } else if line.starts_with(' ')
            && let Some(field) = words.next()
        {
            let notes: Vec<&str> = words.filter(|word| word.starts_with("required=")).collect();
            if !notes.is_empty() {
                kept.insert(format!("{shown} {}", field.trim_end_matches('?')), notes.join(" "));
            }
        }
    }
    kept
}
