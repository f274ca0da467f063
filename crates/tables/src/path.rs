//! The subset of JSONPath for the paths of `additionalPrinterColumns`.
//!
//! Segments are members (`.spec.host`, `['a.b']`, `.foo\.bar`), items (`[0]`, `[-1]`), and slices and unions (`[0:2]`,
//! `[::2]`, `[0,3]`). Further ones are all parts (`[*]`, `.*`), descendants (`..name`) and filters
//! (`[?(@.type=="Ready")]`, with `==`, `!=`, `<`, `<=`, `>`, `>=`, or an existence test). The cell shows the first
//! value of a path.
//!
//! Paths with several `..`, or with filters in filters, could take exponential time. All columns of a row therefore
//! share a number of [`VisitBudget`].

use std::cell::Cell;
use std::cmp::Ordering;

use keelson_codec::outline::{Content, Item};
use thiserror::Error;

/// The maximum length of a path in bytes, which bounds nested filters.
const PATH_BYTES_MAX: usize = 1024;

/// The number of values that the columns of one row may visit, whatever the object.
const LOOKS_PER_ROW: usize = 10_000;
/// The additional number of visits for each byte of the object. A walk over the whole object takes at most one for each
/// byte.
const LOOKS_PER_BYTE: usize = 4;

/// The remaining visits of values for a row.
pub(crate) struct VisitBudget(Cell<usize>);

impl VisitBudget {
    /// The visits for a row of an object.
    pub(crate) fn at(object: Item<'_>) -> Self {
        Self(Cell::new(object.text_bytes().saturating_mul(LOOKS_PER_BYTE).saturating_add(LOOKS_PER_ROW)))
    }

    /// Counts one visit. Returns false if none is left.
    fn take(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }

    /// The values in a value, while visits are left.
    fn below<'a>(&self, from: Item<'a>) -> impl Iterator<Item = (&'a str, Item<'a>)> {
        from.members().take_while(|_| self.take())
    }
}

/// An invalid path.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unrecognized column definition {0:?}")]
pub struct PathError(String);

/// A path into an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path(Vec<Segment>);

#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Member(String),
    /// A negative index counts from the end.
    Index(i64),
    All,
    /// Start, end and step.
    Slice(Option<i64>, Option<i64>, usize),
    /// The values of all of these segments.
    Union(Vec<Segment>),
    /// The value and all values below it.
    Descent,
    /// Items for which the path has a value, or one that satisfies the comparison.
    Filter(Path, Option<Comparison>),
}

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    relation: Relation,
    with: Literal,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Relation {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The relations, longer ones before their prefixes.
const RELATIONS: [(&str, Relation); 6] = [
    ("==", Relation::Equal),
    ("!=", Relation::Unequal),
    ("<=", Relation::LessOrEqual),
    (">=", Relation::GreaterOrEqual),
    ("<", Relation::Less),
    (">", Relation::Greater),
];

impl Relation {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Unequal => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Literal {
    Text(String),
    Number(f64),
    Bool(bool),
}

impl Path {
    /// Parses a path, such as `.spec.host`.
    pub(crate) fn parse(text: &str) -> Result<Self, PathError> {
        let path = text.trim();
        let path = path.strip_prefix('$').unwrap_or(path);
        let read = if path.len() > PATH_BYTES_MAX { None } else { segments(path) };
        match read {
            Some((path, "")) if !path.0.is_empty() => Ok(path),
            _ => Err(PathError(text.to_owned())),
        }
    }

    /// The first value of the path. `None` also if the visits are exhausted.
    pub(crate) fn first<'a>(&self, from: Item<'a>, looks: &VisitBudget) -> Option<Item<'a>> {
        first(&self.0, from, looks)
    }
}

fn first<'a>(segments: &[Segment], from: Item<'a>, looks: &VisitBudget) -> Option<Item<'a>> {
    let Some((segment, rest)) = segments.split_first() else { return Some(from) };
    let is_list = from.content() == Content::Array;
    let mut below = looks.below(from).map(|(_, item)| item);
    match segment {
        Segment::Member(_) if is_list => None,
        Segment::Member(name) => {
            let (_, member) = looks.below(from).find(|(key, _)| key == name)?;
            first(rest, member, looks)
        }
        Segment::Index(place) if is_list => {
            let place = match usize::try_from(*place) {
                Ok(place) => place,
                Err(_) => looks.below(from).count().checked_sub(usize::try_from(place.unsigned_abs()).ok()?)?,
            };
            first(rest, below.nth(place)?, looks)
        }
        Segment::Index(_) => None,
        Segment::Slice(start, end, every) if is_list => {
            let (start, end) = bounds(*start, *end, looks.below(from).count())?;
            below.skip(start).take(end - start).step_by(*every).find_map(|item| first(rest, item, looks))
        }
        Segment::Slice(..) => None,
        Segment::Union(segments) => segments.iter().find_map(|segment| {
            let found = first(std::slice::from_ref(segment), from, looks)?;
            first(rest, found, looks)
        }),
        Segment::Descent => descend(rest, from, looks),
        Segment::All => below.find_map(|item| first(rest, item, looks)),
        Segment::Filter(path, comparison) if is_list => {
            let mut fitting =
                below.filter(|item| path.first(*item, looks).is_some_and(|found| fits(comparison, found)));
            fitting.find_map(|item| first(rest, item, looks))
        }
        Segment::Filter(..) => None,
    }
}

/// The first value of the segments from a list or object, or from one below it.
fn descend<'a>(segments: &[Segment], from: Item<'a>, looks: &VisitBudget) -> Option<Item<'a>> {
    if !matches!(from.content(), Content::Array | Content::Object) {
        return None;
    }
    let here = first(segments, from, looks);
    here.or_else(|| looks.below(from).find_map(|(_, item)| descend(segments, item, looks)))
}

/// The bounds of a slice in a list of `count` items. `None` if they are outside of it.
fn bounds(start: Option<i64>, end: Option<i64>, count: usize) -> Option<(usize, usize)> {
    let count = i64::try_from(count).ok()?;
    let from_end = |place: i64| if place < 0 { place + count } else { place };
    let (start, end) = (from_end(start.unwrap_or(0)), from_end(end.unwrap_or(count)));
    let is_within = start == end || (0..count).contains(&start) && (start..=count).contains(&end);
    let places = (usize::try_from(start).ok()?, usize::try_from(end).ok()?);
    is_within.then_some(places)
}

fn fits(comparison: &Option<Comparison>, found: Item<'_>) -> bool {
    let Some(Comparison { relation, with }) = comparison else { return true };
    let order = match (with, found.content()) {
        (Literal::Text(text), Content::Text(found)) => Some(found.cmp(text)),
        (Literal::Number(number), Content::Number(found)) => {
            found.parse::<f64>().ok().and_then(|found| found.partial_cmp(number))
        }
        (Literal::Bool(flag), Content::Bool(found)) => match relation {
            Relation::Equal | Relation::Unequal => Some(found.cmp(flag)),
            _ => None,
        },
        // Values of different types are not comparable.
        _ => None,
    };
    order.is_some_and(|order| relation.holds(order))
}

/// The segments at the start of a text, and the rest.
fn segments(mut text: &str) -> Option<(Path, &str)> {
    let mut segments = Vec::new();
    loop {
        let (segment, rest) = if let Some(rest) = text.strip_prefix('[') {
            in_brackets(rest)?
        } else if let Some(rest) = text.strip_prefix(".*") {
            (Segment::All, rest)
        } else if let Some(rest) = text.strip_prefix("..") {
            segments.push(Segment::Descent);
            match member(rest)? {
                (name, rest) if name.is_empty() && rest.starts_with('[') => in_brackets(&rest[1..])?,
                (name, _) if name.is_empty() => return None,
                (name, rest) => (Segment::Member(name), rest),
            }
        } else if let Some(rest) = text.strip_prefix('.') {
            match member(rest)? {
                // A dot before a bracket is ignored.
                (name, rest) if name.is_empty() && rest.starts_with('[') => in_brackets(&rest[1..])?,
                (name, _) if name.is_empty() => return None,
                (name, rest) => (Segment::Member(name), rest),
            }
        } else {
            return Some((Path(segments), text));
        };
        segments.push(segment);
        text = rest;
    }
}

/// The name at the start of a text, in which a backslash escapes a character.
fn member(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut signs = text.char_indices();
    while let Some((place, sign)) = signs.next() {
        match sign {
            '\\' => name.push(signs.next()?.1),
            '.' | '[' | ']' | '(' | ')' | '{' | '}' | '=' | '!' | '<' | '>' | ',' | ' ' | '\'' | '"' => {
                return Some((name, &text[place..]));
            }
            sign => name.push(sign),
        }
    }
    Some((name, ""))
}

/// The segment after an opening bracket, and the text after the closing one.
fn in_brackets(text: &str) -> Option<(Segment, &str)> {
    if let Some(rest) = text.strip_prefix("?(") {
        let (path, rest) = segments(rest.trim_start().strip_prefix('@')?)?;
        let (comparison, rest) = comparison(rest.trim_start())?;
        return Some((Segment::Filter(path, comparison), rest.trim_start().strip_prefix(")]")?));
    }
    let (mut segments, mut rest) = (Vec::new(), text);
    loop {
        let (segment, behind) = part(rest.trim_start())?;
        segments.push(segment);
        rest = behind.trim_start();
        match (rest.strip_prefix(','), rest.strip_prefix(']')) {
            (Some(next), _) => rest = next,
            (None, Some(rest)) if segments.len() == 1 => return Some((segments.remove(0), rest)),
            (None, Some(rest)) => return Some((Segment::Union(segments), rest)),
            (None, None) => return None,
        }
    }
}

/// One element of a bracket, and the rest.
fn part(text: &str) -> Option<(Segment, &str)> {
    if let Some((name, rest)) = quoted(text) {
        return Some((Segment::Member(name), rest));
    }
    let (inside, rest) = text.split_at(text.find([',', ']'])?);
    let place = |text: &str| match text.trim() {
        "" => Some(None),
        place => place.parse::<i64>().ok().map(Some),
    };
    let segment = match (inside.trim(), inside.split(':').collect::<Vec<_>>().as_slice()) {
        ("*", _) => Segment::All,
        (place, [_]) => Segment::Index(place.parse().ok()?),
        (_, [start, end]) => Segment::Slice(place(start)?, place(end)?, 1),
        (_, [start, end, every]) => {
            let every = usize::try_from(place(every)?.unwrap_or(1)).ok().filter(|every| *every > 0)?;
            Segment::Slice(place(start)?, place(end)?, every)
        }
        _ => return None,
    };
    Some((segment, rest))
}

fn comparison(text: &str) -> Option<(Option<Comparison>, &str)> {
    let written = |(sign, relation): &(&str, Relation)| Some((*relation, text.strip_prefix(sign)?.trim_start()));
    let Some((relation, rest)) = RELATIONS.iter().find_map(written) else { return Some((None, text)) };
    let (with, rest) = match quoted(rest) {
        Some((text, rest)) => (Literal::Text(text), rest),
        None => {
            let (word, _) = rest.split_once(')')?;
            let literal = match word.trim() {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                number => Literal::Number(number.parse().ok()?),
            };
            (literal, &rest[word.len()..])
        }
    };
    Some((Some(Comparison { relation, with }), rest))
}

/// The quoted text at the start, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|sign| matches!(sign, '\'' | '"'))?;
    let mut inside = String::new();
    let mut signs = text.char_indices().skip(1);
    while let Some((place, sign)) = signs.next() {
        match sign {
            '\\' => inside.push(signs.next()?.1),
            sign if sign == quote => return Some((inside, &text[place + 1..])),
            sign => inside.push(sign),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use keelson_codec::Outline;

    use super::*;

    #[test]
    fn a_path_leads_to_the_first_value_that_fits() {
        let object = concat!(
            r#"{"spec":{"host":"h","a.b":{"c":"dotted"},"ports":[{"n":1},{"n":2,"name":"x"}],"flag":true},"#,
            r#""status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Old","status":"False"}]}}"#
        );
        let outline = Outline::read(object);
        let check = |path: &str, expected: Option<&str>| {
            let found = Path::parse(path).unwrap_or_else(|error| panic!("{error}"));
            let found = found.first(outline.root(), &VisitBudget::at(outline.root()));
            let text = found.map(|found| match found.content() {
                Content::Text(text) | Content::Number(text) => text.to_owned(),
                other => format!("{other:?}"),
            });
            assert_eq!(text.as_deref(), expected, "{path}");
        };
        check(".spec.host", Some("h"));
        check("$.spec.host", Some("h"));
        check(r".spec.a\.b.c", Some("dotted"));
        check(".spec['a.b'].c", Some("dotted"));
        check(".spec.ports[1].n", Some("2"));
        check(".spec.ports[-1].name", Some("x"));
        check(".spec.ports[-3].name", None);
        check(".spec.ports[9]", None);
        check(".spec.ports[*].name", Some("x"));
        check(".spec.host[0]", None);
        check(r#".status.conditions[?(@.type=="Old")].status"#, Some("False"));
        check(".status.conditions[?(@.type != 'Ready')].status", Some("False"));
        check(".spec.ports[?(@.name)].n", Some("2"));
        check(".spec.ports[?(@.n==2)].name", Some("x"));
        check(".spec.ports[?(@.n=='2')].name", None);
        check(".spec.ports[?(@.n>1)].n", Some("2"));
        check(".spec.ports[?(@.n<=1)].n", Some("1"));
        check(".spec.ports[?(@.name>='a')].n", Some("2"));
        check(".spec.ports[?(@.n<1)].n", None);
        check(".spec.ports[0:2].n", Some("1"));
        check(".spec.ports[1:].n", Some("2"));
        check(".spec.ports[-1:].n", Some("2"));
        check(".spec.ports[::2].name", None);
        check(".spec.ports[1:3].n", None);
        check(".spec.ports[0,1].n", Some("1"));
        check(".spec.ports[5, 1].n", Some("2"));
        check(".spec['nope','host']", Some("h"));
        check("..name", Some("x"));
        check(".spec..c", Some("dotted"));
        check(".spec..nope", None);
        check(".spec.missing.deeper", None);
    }

    /// Each of these would visit more values than there are atoms.
    #[test]
    fn paths_that_branch_have_a_bound() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(400), "}".repeat(400));
        let wide = format!(r#"{{"l":[{}]}}"#, vec![r#"{"l":[{"l":[{"l":[{}]}]}]}"#; 400].join(","));
        for (object, path) in [
            (&deep, format!("{}.z", "..a".repeat(60))),
            (&deep, "..[?(@..a..a..a..a..a..a.z)]".to_owned()),
            (&wide, format!("{}.z", "..[*]".repeat(60))),
            (&wide, r"..[?(@..[?(@..[?(@..[?(@..[?(@..z)])])])])].z".to_owned()),
            (&wide, format!("{}.z", ".l[0,0,0,0,0:1,*]".repeat(4))),
        ] {
            let outline = Outline::read(object);
            let looks = VisitBudget::at(outline.root());
            assert!(Path::parse(&path).expect("the path is good").first(outline.root(), &looks).is_none(), "{path}");
        }
        // Several walks over the whole object are within the limit.
        let (outline, last) = (Outline::read(&wide), Path::parse("..z").expect("the path is good"));
        let looks = VisitBudget::at(outline.root());
        for _ in 0..4 {
            assert!(last.first(outline.root(), &looks).is_none());
        }
        assert!(looks.take());
    }

    #[test]
    fn invalid_paths_are_refused() {
        let long = ".a".repeat(PATH_BYTES_MAX);
        for path in
            ["", "spec", ".", "..", ".a[", ".a[x]", ".a[::0]", ".a[0,]", ".a[?(@.b=~1)]", ".a b", ".a['b]", &long]
        {
            assert_eq!(Path::parse(path), Err(PathError(path.to_owned())));
        }
    }
}
