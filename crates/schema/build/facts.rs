//! Reads the files of facts. `facts/README.md` describes their format.
//!
//! Facts are properties of fields that published schemas lack: their order in Go, whether they are written when empty,
//! and how lists merge. They are joined with the schemas when the crate is built.

use std::collections::HashMap;
use std::path::Path;

use crate::layout::{ListType, MapType, PATCH_MERGE, PATCH_REPLACE, PATCH_RETAIN_KEYS};

/// The facts about all types, by the name of the definition.
pub struct Facts {
    types: HashMap<String, TypeFacts>,
    enums: HashMap<String, Vec<String>>,
    /// True while the files of an older release are read.
    replaces: bool,
}

/// The facts about one type.
#[derive(Default)]
pub struct TypeFacts {
    pub fields: Vec<FieldFacts>,
    pub notes: Notes,
}

/// The facts about one field.
pub struct FieldFacts {
    pub name: String,
    pub omit_zero: bool,
    pub go_type: String,
    pub notes: Notes,
}

/// The `key=value` words at the end of a line.
#[derive(Clone, Default)]
pub struct Notes {
    pub list_type: ListType,
    pub list_keys: Vec<String>,
    pub map_type: MapType,
    pub patch: u32,
    pub merge_key: String,
    pub embedded_in: String,
    pub default: String,
    /// True if published schemas state the zero value as the default although an absent field stays absent.
    pub zero_default: bool,
    /// Overrides whether `k8s-openapi` requires the field.
    pub required: Option<bool>,
    pub union: Vec<String>,
}

impl Facts {
    /// Reads the facts about a release: every `.txt` file in the folder, and those of its subfolder that is named after
    /// the release, whose types and enumerations replace the others.
    pub fn read(folder: &Path, release: &str) -> Self {
        let mut facts = Self { types: HashMap::new(), enums: HashMap::new(), replaces: false };
        facts.read_folder(folder);
        let older = folder.join(release);
        if older.is_dir() {
            facts.replaces = true;
            facts.read_folder(&older);
        }
        facts
    }

    fn read_folder(&mut self, folder: &Path) {
        let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("cannot read {}: {e}", folder.display()));
        for entry in entries {
            let path = entry.expect("the folder of facts can be listed").path();
            if path.extension().is_some_and(|e| e == "txt") {
                let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                self.read_file(&path, &text);
            }
        }
    }

    /// The facts about this definition.
    pub fn definition(&self, name: &str) -> Option<&TypeFacts> {
        self.types.get(name)
    }

    /// The values of a type that is published as an enumeration, in this version or in all versions. Empty for other
    /// types.
    pub fn values_of(&self, go_type: &str) -> &[String] {
        let name = go_type.rsplit('.').next().unwrap_or(go_type);
        self.enums.get(go_type).or_else(|| self.enums.get(name)).map_or(&[], Vec::as_slice)
    }

    fn read_file(&mut self, path: &Path, text: &str) {
        let mut place = Section::default();
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let Err(why) = self.read_line(line.starts_with(' '), &words, &mut place) {
                panic!("{}:{}: {why}", path.display(), number + 1);
            }
        }
    }

    /// Reads one line. A line for a field is recognized by its indentation, since a field may be named `type`.
    fn read_line(&mut self, indented: bool, words: &[&str], place: &mut Section) -> Result<(), &'static str> {
        match words {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            ["package", name] if !indented => place.package = (*name).to_owned(),
            ["enum", name, values] if !indented => {
                let values = values.split('|').map(|value| value.replace('_', " ")).collect();
                if self.enums.insert((*name).to_owned(), values).is_some() && !self.replaces {
                    return Err("the enumeration has been described before");
                }
            }
            // The release does not publish the type as an enumeration.
            ["enum", name] if !indented && self.replaces => _ = self.enums.remove(*name),
            ["type", name, notes @ ..] if !indented => {
                place.definition = format!("{}.{name}", place.package);
                let facts = TypeFacts { fields: Vec::new(), notes: Notes::parse(notes)? };
                if self.types.insert(place.definition.clone(), facts).is_some() && !self.replaces {
                    return Err("the type has been described before");
                }
            }
            [name, go_type, notes @ ..] if indented => {
                let facts = self.types.get_mut(&place.definition).ok_or("a field must follow a type")?;
                facts.fields.push(FieldFacts {
                    name: name.trim_end_matches('?').to_owned(),
                    omit_zero: name.ends_with('?'),
                    go_type: (*go_type).to_owned(),
                    notes: Notes::parse(notes)?,
                });
            }
            _ => return Err("neither a package nor a type, an enumeration or a field with its type"),
        }
        Ok(())
    }
}

/// The section of a file that is being read.
#[derive(Default)]
struct Section {
    package: String,
    definition: String,
}

impl Notes {
    fn parse(words: &[&str]) -> Result<Self, &'static str> {
        let mut notes = Self::default();
        for word in words {
            match word.split_once('=') {
                Some(("list", value)) => notes.list(value)?,
                Some(("map", "atomic")) => notes.map_type = MapType::Atomic,
                Some(("map", "granular")) => notes.map_type = MapType::Granular,
                Some(("patch", value)) => {
                    notes.patch = value.split(',').map(patch_flag).sum::<Result<u32, &'static str>>()?;
                }
                Some(("key", value)) => notes.merge_key = value.to_owned(),
                Some(("in", value)) => notes.embedded_in = value.to_owned(),
                Some(("default", "zero")) => notes.zero_default = true,
                Some(("default", value)) => notes.default = value.to_owned(),
                Some(("required", "yes")) => notes.required = Some(true),
                Some(("required", "no")) => notes.required = Some(false),
                Some(("union", value)) => notes.union = union(value),
                _ => return Err("unknown note"),
            }
        }
        Ok(notes)
    }

    fn list(&mut self, value: &str) -> Result<(), &'static str> {
        let (kind, keys) = value.split_once(':').unwrap_or((value, ""));
        self.list_type = match kind {
            "atomic" => ListType::Atomic,
            "set" => ListType::Set,
            "map" => ListType::Map,
            _ => return Err("unknown list type"),
        };
        self.list_keys = keys.split(',').filter(|k| !k.is_empty()).map(str::to_owned).collect();
        Ok(())
    }
}

fn patch_flag(strategy: &str) -> Result<u32, &'static str> {
    match strategy {
        "merge" => Ok(PATCH_MERGE),
        "retainKeys" => Ok(PATCH_RETAIN_KEYS),
        "replace" => Ok(PATCH_REPLACE),
        _ => Err("unknown patch strategy"),
    }
}

/// `discriminator(field:Value,field:Value)`: the discriminator, then fields and values in turn.
fn union(value: &str) -> Vec<String> {
    value.trim_end_matches(')').split(['(', ',', ':']).map(str::to_owned).collect()
}
