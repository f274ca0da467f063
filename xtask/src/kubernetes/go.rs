//! Parses the types of a Go package: structures with their tags and markers, named types, and constants of named types.
//!
//! The parser reads the subset of Go in which Kubernetes writes its API types: one declaration or field on a line. It
//! does not depend on Kubernetes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context as _, Result};

/// A type expression of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expr {
    Pointer(Box<Self>),
    List(Box<Self>),
    /// The key and the value.
    Map(Box<Self>, Box<Self>),
    /// The package is empty for Go's built-in types.
    Named {
        package: String,
        name: String,
    },
}

/// A type of a package.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    pub(crate) form: Form,
    /// The markers above it, without the plus sign.
    pub(crate) markers: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Form {
    Struct(Vec<Field>),
    /// A new type with the form of another.
    Named(Expr),
    /// Another name for the same type.
    Alias(Expr),
}

/// A field of a structure.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// The name in Go. The name of an embedded structure is that of its type.
    pub(crate) go_name: String,
    pub(crate) embedded: bool,
    pub(crate) expr: Expr,
    pub(crate) tags: HashMap<String, String>,
    pub(crate) markers: Vec<String>,
}

/// All types of a package.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub(crate) types: BTreeMap<String, Type>,
    /// The values of the text constants of each named type, sorted.
    pub(crate) constants: BTreeMap<String, Vec<String>>,
    /// The value of each text constant.
    pub(crate) values: HashMap<String, String>,
    /// Constants of a named type whose value is a constant of another package: the type, the package and the name
    /// there.
    pub(crate) repeated: Vec<(String, String, String)>,
    /// The release in which a version of a kind is removed, as major and minor.
    pub(crate) removed: HashMap<String, (u32, u32)>,
}

impl Field {
    /// The name in JSON; empty if the fields of an embedded structure are part of the outer structure.
    pub(crate) fn json(&self) -> &str {
        let tag = self.tags.get("json").map_or("", String::as_str);
        tag.split(',').next().unwrap_or_default()
    }

    pub(crate) fn json_has(&self, option: &str) -> bool {
        self.tags.get("json").is_some_and(|tag| tag.split(',').skip(1).any(|word| word == option))
    }

    /// The field number in protobuf.
    pub(crate) fn number(&self) -> Option<u32> {
        self.tags.get("protobuf")?.split(',').nth(1)?.parse().ok()
    }

    /// The value of a marker `name=value`.
    pub(crate) fn marker(&self, name: &str) -> Option<&str> {
        marker(&self.markers, name)
    }
}

/// The value of the first marker `name=value`.
pub(crate) fn marker<'a>(markers: &'a [String], name: &str) -> Option<&'a str> {
    markers.iter().find_map(|marker| marker.strip_prefix(name)?.strip_prefix('='))
}

impl Package {
    /// Parses the sources in a folder, except for tests and generated files.
    ///
    /// # Errors
    /// The folder or one of its files cannot be read.
    pub(crate) fn read(folder: &Path, path: &str) -> Result<Self> {
        let mut package = Self::default();
        let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_source = name.ends_with(".go")
                && !name.ends_with("_test.go")
                && !name.starts_with("zz_generated")
                && !name.contains("generated.");
            let read = || std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()));
            if is_source {
                package.read_text(&read()?, path);
            } else if name == "zz_generated.prerelease-lifecycle.go" {
                package.read_removals(&read()?);
            }
        }
        package.constants.values_mut().for_each(|values| values.sort());
        Ok(package)
    }

    /// Parses `func (in *Kind) APILifecycleRemoved() (major, minor int) {` with `return 1, 22` in the next line.
    fn read_removals(&mut self, text: &str) {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(kind) =
                line.strip_prefix("func (in *").and_then(|rest| rest.split_once(") APILifecycleRemoved()"))
            else {
                continue;
            };
            let numbers = lines.next().and_then(|line| line.trim().strip_prefix("return ")?.split_once(", "));
            if let Some((Ok(major), Ok(minor))) = numbers.map(|(major, minor)| (major.parse(), minor.parse())) {
                self.removed.insert(kind.0.to_owned(), (major, minor));
            }
        }
    }

    fn read_text(&mut self, text: &str, path: &str) {
        let mut reader =
            Reader { package: self, path, imports: HashMap::new(), markers: Vec::new(), place: Place::Top };
        // A blank line separates a comment from the next declaration. Markers above it still apply to that declaration,
        // as in Go's generators.
        without_blocks(text).lines().for_each(|line| reader.line(line.trim()));
    }
}

/// The position of the parser in a file.
enum Place {
    Top,
    Imports,
    Constants,
    /// The parser is in a structure of this name with these markers.
    Struct(String, Vec<String>, Vec<Field>),
}

/// The text without comments between `/*` and `*/`.
fn without_blocks(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("\n/*").or_else(|| rest.split_once("\t/*")) {
        kept.push_str(before);
        kept.push('\n');
        rest = after.split_once("*/").map_or("", |(_, behind)| behind);
    }
    kept + rest
}

struct Reader<'a> {
    package: &'a mut Package,
    path: &'a str,
    imports: HashMap<String, String>,
    markers: Vec<String>,
    place: Place,
}

impl Reader<'_> {
    fn line(&mut self, line: &str) {
        if let Some(comment) = line.strip_prefix("//") {
            self.markers.extend(comment.trim().strip_prefix('+').map(str::to_owned));
            return;
        }
        if line.is_empty() {
            return;
        }
        let markers = std::mem::take(&mut self.markers);
        match &mut self.place {
            Place::Imports if line == ")" => self.place = Place::Top,
            Place::Imports => self.import(line),
            Place::Constants if line == ")" => self.place = Place::Top,
            Place::Constants => self.constant(line),
            Place::Struct(..) if line == "}" => {
                let Place::Struct(name, markers, fields) = std::mem::replace(&mut self.place, Place::Top) else {
                    return;
                };
                self.package.types.insert(name, Type { form: Form::Struct(fields), markers });
            }
            Place::Struct(_, _, fields) => {
                fields.extend(field(line, markers, &self.imports, self.path));
            }
            Place::Top => self.top(line, markers),
        }
    }

    fn top(&mut self, line: &str, markers: Vec<String>) {
        if line == "import (" {
            self.place = Place::Imports;
        } else if line == "const (" {
            self.place = Place::Constants;
        } else if let Some(one) = line.strip_prefix("import ") {
            self.import(one);
        } else if let Some(one) = line.strip_prefix("const ") {
            self.constant(one);
        } else if let Some(declared) = line.strip_prefix("type ") {
            let Some((name, what)) = declared.split_once(' ') else { return };
            match what.trim() {
                "struct {" => self.place = Place::Struct(name.to_owned(), markers, Vec::new()),
                "struct{}" => {
                    self.package.types.insert(name.to_owned(), Type { form: Form::Struct(Vec::new()), markers });
                }
                other => {
                    let other = other.split(" //").next().unwrap_or(other);
                    let form = match other.strip_prefix("= ") {
                        Some(same) => Form::Alias(expr(same, &self.imports, self.path)),
                        None => Form::Named(expr(other, &self.imports, self.path)),
                    };
                    self.package.types.insert(name.to_owned(), Type { form, markers });
                }
            }
        }
    }

    fn import(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().filter(|word| word.starts_with('"')));
        let path = second.unwrap_or(first).trim_matches('"');
        let alias = if second.is_some() { first } else { path.rsplit('/').next().unwrap_or(path) };
        self.imports.insert(alias.to_owned(), path.to_owned());
    }

    /// Parses `Name Type = "value"` or `Name = Type("value")`.
    fn constant(&mut self, line: &str) {
        let Some((declared, value)) = line.split_once('=') else { return };
        let mut words = declared.split_whitespace();
        let (Some(name), named, None) = (words.next(), words.next(), words.next()) else { return };
        if let Some((of, reference)) = value.trim().strip_suffix(')').and_then(|value| value.split_once('('))
            && let Some((alias, constant)) = reference.split_once('.')
            && let Some(package) = self.imports.get(alias)
        {
            self.package.repeated.push((of.to_owned(), package.clone(), constant.to_owned()));
            return;
        }
        let (converted, value) = value.trim().split_once('"').unwrap_or_default();
        let Some((value, _)) = value.split_once('"') else { return };
        let Some(named) = named.or_else(|| converted.strip_suffix('(')).filter(|named| !named.is_empty()) else {
            return;
        };
        self.package.values.insert(name.to_owned(), value.to_owned());
        let values = self.package.constants.entry(named.to_owned()).or_default();
        if !values.iter().any(|known| known == value) {
            values.push(value.to_owned());
        }
    }
}

/// Parses a field; `None` if the line is not a field.
fn field(line: &str, markers: Vec<String>, imports: &HashMap<String, String>, path: &str) -> Option<Field> {
    let (declared, tags) = match line.split_once('`') {
        Some((declared, rest)) => (declared, rest.split('`').next().unwrap_or_default()),
        None => (line.split("//").next().unwrap_or_default(), ""),
    };
    let mut words = declared.split_whitespace();
    let first = words.next()?;
    let rest: String = words.collect();
    let (go_name, named) = if rest.is_empty() { (first.rsplit('.').next()?, first) } else { (first, rest.as_str()) };
    Some(Field {
        go_name: go_name.trim_start_matches('*').to_owned(),
        embedded: rest.is_empty(),
        expr: expr(named, imports, path),
        tags: read_tags(tags),
        markers,
    })
}

/// Parses `key:"value" key:"value"`.
fn read_tags(text: &str) -> HashMap<String, String> {
    let mut tags = HashMap::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once(":\"") {
        let Some((value, behind)) = after.split_once('"') else { break };
        tags.insert(key.trim().to_owned(), value.to_owned());
        rest = behind;
    }
    tags
}

fn expr(text: &str, imports: &HashMap<String, String>, path: &str) -> Expr {
    let text = text.trim();
    let inner = |text: &str| Box::new(expr(text, imports, path));
    if let Some(pointed) = text.strip_prefix('*') {
        return Expr::Pointer(inner(pointed));
    }
    if let Some(item) = text.strip_prefix("[]") {
        return Expr::List(inner(item));
    }
    if let Some((key, value)) = text.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return Expr::Map(inner(key), inner(value));
    }
    match text.split_once('.') {
        Some((alias, name)) => {
            let package = imports.get(alias).map_or(alias, String::as_str).to_owned();
            Expr::Named { package, name: name.to_owned() }
        }
        None if text.starts_with(char::is_lowercase) => Expr::Named { package: String::new(), name: text.to_owned() },
        None => Expr::Named { package: path.to_owned(), name: text.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Mode says how.
// +enum
type Mode string

const (
	ModeB = Mode("B")
	// ModeA is another.
	ModeA Mode = "A"
)

// +structType=atomic
type Thing struct {
	metav1.TypeMeta `json:",inline"`
	// Items are kept.
	// +listType=map
	// +listMapKey=name
	Items []*Other `json:"items,omitempty" patchStrategy:"merge" protobuf:"bytes,2,rep,name=items"` // behind
	Limits map[Mode]resource.Quantity `json:"limits" protobuf:"bytes,3,rep,name=limits"`
}
"#;

    #[test]
    fn types_have_fields_tags_and_markers() {
        let mut package = Package::default();
        package.read_text(SOURCE, "p/v1");
        let Form::Struct(fields) = &package.types["Thing"].form else { panic!("Thing is a structure") };
        assert_eq!(marker(&package.types["Thing"].markers, "structType"), Some("atomic"));
        assert!(fields[0].embedded && fields[0].json().is_empty() && fields[0].go_name == "TypeMeta");
        let named = |package: &str, name: &str| Expr::Named { package: package.to_owned(), name: name.to_owned() };
        assert_eq!(fields[0].expr, named("k8s.io/apimachinery/pkg/apis/meta/v1", "TypeMeta"));
        let items = &fields[1];
        assert_eq!((items.json(), items.json_has("omitempty"), items.number()), ("items", true, Some(2)));
        assert_eq!((items.marker("listType"), items.marker("listMapKey")), (Some("map"), Some("name")));
        assert_eq!(items.expr, Expr::List(Box::new(Expr::Pointer(Box::new(named("p/v1", "Other"))))));
        let quantity = named("k8s.io/apimachinery/pkg/api/resource", "Quantity");
        assert_eq!(fields[2].expr, Expr::Map(Box::new(named("p/v1", "Mode")), Box::new(quantity)));
        assert_eq!(package.types["Mode"].markers, ["enum"]);
        assert_eq!(package.constants["Mode"], ["B", "A"]);
    }
}
