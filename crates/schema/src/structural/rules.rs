//! The validation keywords of a schema: a node for each subschema.
//!
//! The subschemas of `allOf`, `anyOf`, `oneOf` and `not` are nodes too. They usually state no types.

use keelson_cel::library::regex::Pattern;
use keelson_meta::json::{Map, Value};

use super::allowed::Allowed;
use super::formats::Format;
use super::rare_keywords::{KeywordGroup, RareKeywords};
use super::{MAX_DEPTH, StructuralError};

/// The keywords of one schema.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) of: Option<Kind>,
    pub(super) nullable: bool,
    pub(super) int_or_string: bool,
    pub(super) embedded: bool,
    /// True if values are embedded objects or contain any.
    pub(super) embeds: bool,
    /// True if values are lists of type set or map, or contain any.
    pub(super) tells_apart: bool,
    pub(super) format: Option<Format>,
    pub(super) numbers: RareKeywords<Numbers>,
    pub(super) texts: RareKeywords<Texts>,
    pub(super) lists: RareKeywords<Lists>,
    pub(super) objects: RareKeywords<Objects>,
    pub(super) allowed: RareKeywords<Allowed>,
    pub(super) combined: RareKeywords<Subschemas>,
}

/// The types of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// The keywords for numbers.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) maximum: Option<Bound>,
    pub(super) minimum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) exclusive: bool,
}

/// Keywords of strings. Lengths are in characters.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) max_length: Option<usize>,
    pub(super) min_length: Option<usize>,
    pub(super) pattern: Option<Pattern>,
}

/// Keywords of lists.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) max_items: Option<usize>,
    pub(super) min_items: Option<usize>,
    pub(super) unique: bool,
    pub(super) items: Option<Box<Node>>,
    pub(super) identity: Identity,
}

/// The rule by which two list items count as the same.
#[derive(Debug, Default)]
pub(super) enum Identity {
    #[default]
    None,
    /// The whole item.
    Value,
    /// The values of these fields.
    Keys(Vec<String>),
}

/// The subschemas of `allOf`, `anyOf`, `oneOf` and `not`.
#[derive(Debug, Default)]
pub(super) struct Subschemas {
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Node>,
}

/// Keywords of objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) max_properties: Option<usize>,
    pub(super) min_properties: Option<usize>,
    pub(super) required: Vec<String>,
    /// The properties, by name.
    pub(super) properties: Vec<(String, Node)>,
    pub(super) others: UndeclaredFields,
}

/// The treatment of undeclared fields.
#[derive(Debug, Default)]
pub(super) enum UndeclaredFields {
    /// Any value is allowed.
    #[default]
    Free,
    /// Undeclared fields are faults.
    Forbidden,
    /// The values must satisfy this schema.
    Node(Box<Node>),
}

impl KeywordGroup for Numbers {
    fn unset() -> &'static Self {
        static NOTHING: Numbers = Numbers { maximum: None, minimum: None, multiple_of: None };
        &NOTHING
    }

    fn is_unset(&self) -> bool {
        self.maximum.is_none() && self.minimum.is_none() && self.multiple_of.is_none()
    }
}

impl KeywordGroup for Texts {
    fn unset() -> &'static Self {
        static NOTHING: Texts = Texts { max_length: None, min_length: None, pattern: None };
        &NOTHING
    }

    fn is_unset(&self) -> bool {
        self.max_length.is_none() && self.min_length.is_none() && self.pattern.is_none()
    }
}

impl KeywordGroup for Lists {
    fn unset() -> &'static Self {
        static NOTHING: Lists =
            Lists { max_items: None, min_items: None, unique: false, items: None, identity: Identity::None };
        &NOTHING
    }

    fn is_unset(&self) -> bool {
        let Self { max_items, min_items, unique, items, identity } = self;
        max_items.is_none() && min_items.is_none() && !unique && items.is_none() && matches!(identity, Identity::None)
    }
}

impl KeywordGroup for Objects {
    fn unset() -> &'static Self {
        static NOTHING: Objects = Objects {
            max_properties: None,
            min_properties: None,
            required: Vec::new(),
            properties: Vec::new(),
            others: UndeclaredFields::Free,
        };
        &NOTHING
    }

    fn is_unset(&self) -> bool {
        let Self { max_properties, min_properties, required, properties, others } = self;
        max_properties.is_none()
            && min_properties.is_none()
            && required.is_empty()
            && properties.is_empty()
            && matches!(others, UndeclaredFields::Free)
    }
}

impl KeywordGroup for Subschemas {
    fn unset() -> &'static Self {
        static NOTHING: Subschemas =
            Subschemas { all_of: Vec::new(), any_of: Vec::new(), one_of: Vec::new(), not: None };
        &NOTHING
    }

    fn is_unset(&self) -> bool {
        let Self { all_of, any_of, one_of, not } = self;
        all_of.is_empty() && any_of.is_empty() && one_of.is_empty() && not.is_none()
    }
}

impl Node {
    pub(super) fn root(document: &Value) -> Result<Self, StructuralError> {
        Reader { path: Vec::new(), of_default: false }.node(document)
    }

    /// Compiles the schema for validating its defaults. As upstream, the types of int-or-string values are ignored
    /// then.
    pub(super) fn of_default(document: &Value) -> Result<Self, StructuralError> {
        Reader { path: Vec::new(), of_default: true }.node(document)
    }

    pub(super) fn property(&self, name: &str) -> Option<&Node> {
        let properties = &self.objects.properties;
        let found = properties.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(&properties[found].1)
    }

    /// The number of alternative schemas that are tried for a value and its parts.
    pub(super) fn alternatives(&self) -> u64 {
        let own = self.combined().count() as u64;
        own + self.parts().chain(self.combined()).map(Self::alternatives).sum::<u64>()
    }

    /// The number of states of the patterns of this schema and all below it.
    pub(super) fn pattern_states(&self) -> u64 {
        let own = self.texts.pattern.as_ref().map_or(0, Pattern::states);
        let below = self.parts().chain(self.combined()).map(Self::pattern_states);
        below.fold(own, u64::saturating_add)
    }

    /// The subschemas that validate the same value.
    fn combined(&self) -> impl Iterator<Item = &Node> {
        let Subschemas { all_of, any_of, one_of, not } = &*self.combined;
        all_of.iter().chain(any_of).chain(one_of).chain(not)
    }

    /// The schemas of the value's parts.
    fn parts(&self) -> impl Iterator<Item = &Node> {
        let properties = self.objects.properties.iter().map(|(_, node)| node);
        properties.chain(self.other()).chain(self.lists.items.as_deref())
    }

    /// The schema of a member of an object.
    pub(super) fn member(&self, name: &str) -> Option<&Node> {
        self.property(name).or_else(|| self.other())
    }

    /// The schema of undeclared members.
    pub(super) fn other(&self) -> Option<&Node> {
        match &self.objects.others {
            UndeclaredFields::Node(node) => Some(node),
            UndeclaredFields::Free | UndeclaredFields::Forbidden => None,
        }
    }
}

/// Reads a document, and tracks the current path for errors.
struct Reader {
    path: Vec<String>,
    of_default: bool,
}

impl Reader {
    fn node(&mut self, document: &Value) -> Result<Node, StructuralError> {
        let empty = Map::new();
        let schema = document.as_object().unwrap_or(&empty);
        if self.path.len() > MAX_DEPTH {
            return Err(self.error("it is too deep"));
        }
        let text = |name: &str| schema.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let size = |name: &str| schema.get(name).and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
        let bound = |name: &str, exclusive: &str| number(name).map(|value| Bound { value, exclusive: flag(exclusive) });
        let list = |name: &str| schema.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let of = text("type").map(|of| self.kind(of)).transpose()?;
        let int_or_string = !self.of_default && flag("x-kubernetes-int-or-string");
        let mut node = Node {
            of,
            nullable: flag("nullable"),
            int_or_string,
            embedded: flag("x-kubernetes-embedded-resource"),
            embeds: false,
            tells_apart: false,
            format: text("format").and_then(|name| Format::named(of.filter(|_| !int_or_string), name)),
            numbers: RareKeywords::new(Numbers {
                maximum: bound("maximum", "exclusiveMaximum"),
                minimum: bound("minimum", "exclusiveMinimum"),
                multiple_of: number("multipleOf"),
            }),
            texts: RareKeywords::new(Texts {
                max_length: size("maxLength"),
                min_length: size("minLength"),
                pattern: text("pattern").map(|pattern| self.pattern(pattern)).transpose()?,
            }),
            lists: RareKeywords::new(Lists {
                max_items: size("maxItems"),
                min_items: size("minItems"),
                unique: flag("uniqueItems"),
                items: self.below("items", schema.get("items"))?.map(Box::new),
                identity: identity(schema),
            }),
            objects: RareKeywords::new(Objects {
                max_properties: size("maxProperties"),
                min_properties: size("minProperties"),
                required: list("required").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                properties: self.properties(schema.get("properties"))?,
                others: self.others(schema.get("additionalProperties"))?,
            }),
            allowed: RareKeywords::new(Allowed::new(list("enum"))),
            combined: RareKeywords::new(Subschemas {
                all_of: self.combined("allOf", list("allOf"))?,
                any_of: self.combined("anyOf", list("anyOf"))?,
                one_of: self.combined("oneOf", list("oneOf"))?,
                not: self.below("not", schema.get("not"))?,
            }),
        };
        node.embeds = node.embedded || node.parts().any(|part| part.embeds);
        node.tells_apart = !matches!(node.lists.identity, Identity::None) || node.parts().any(|part| part.tells_apart);
        Ok(node)
    }

    fn kind(&self, of: &str) -> Result<Kind, StructuralError> {
        Ok(match of {
            "object" => Kind::Object,
            "array" => Kind::Array,
            "string" => Kind::String,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            other => return Err(self.error(&format!("the type {other:?} does not exist"))),
        })
    }

    fn pattern(&self, text: &str) -> Result<Pattern, StructuralError> {
        Pattern::new(text).map_err(|why| self.error(&why))
    }

    fn properties(&mut self, properties: Option<&Value>) -> Result<Vec<(String, Node)>, StructuralError> {
        let members = properties.and_then(Value::as_object).into_iter().flatten();
        let mut read = Vec::with_capacity(members.clone().count());
        for (name, schema) in members {
            self.path.push(format!("properties.{name}"));
            read.push((name.to_owned(), self.node(schema)?));
            self.path.pop();
        }
        read.sort_by(|(left, _), (right, _)| left.cmp(right));
        Ok(read)
    }

    fn others(&mut self, others: Option<&Value>) -> Result<UndeclaredFields, StructuralError> {
        Ok(match others {
            Some(Value::Bool(false)) => UndeclaredFields::Forbidden,
            Some(schema @ Value::Object(_)) => self
                .below("additionalProperties", Some(schema))?
                .map_or(UndeclaredFields::Free, |node| UndeclaredFields::Node(Box::new(node))),
            _ => UndeclaredFields::Free,
        })
    }

    fn combined(&mut self, name: &str, schemas: &[Value]) -> Result<Vec<Node>, StructuralError> {
        let mut read = Vec::with_capacity(schemas.len());
        for (index, schema) in schemas.iter().enumerate() {
            read.extend(self.below(&format!("{name}[{index}]"), Some(schema))?);
        }
        Ok(read)
    }

    fn below(&mut self, step: &str, schema: Option<&Value>) -> Result<Option<Node>, StructuralError> {
        let Some(schema) = schema.filter(|schema| schema.is_object()) else { return Ok(None) };
        self.path.push(step.to_owned());
        let node = self.node(schema)?;
        self.path.pop();
        Ok(Some(node))
    }

    fn error(&self, why: &str) -> StructuralError {
        StructuralError { path: self.path.join("."), why: why.to_owned() }
    }
}

fn identity(schema: &Map) -> Identity {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => Identity::Value,
        Some("map") => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
            Identity::Keys(keys.filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => Identity::None,
    }
}
