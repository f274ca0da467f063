//! Rules as data: the permitted values of each field of an object, in the order of the errors.
//!
//! A rule is data about one field, a named function about several fields, or a rule of updates, which reads the old value. Rules
//! are constants and nest as objects do.

use keelson_meta::Object;
use keelson_meta::field_error::{FAULTS_BYTES_MAX, FAULTS_MAX, FieldError};

use crate::core::validation::pod::Pod;
use crate::validating::at::At;
use crate::validating::expressions::Policy;
use crate::validating::formats::Format;

/// One check of an object, or of a change.
pub(crate) struct Run<'v> {
    /// The errors so far.
    pub(crate) faults: Vec<FieldError>,
    /// About how many bytes that is.
    told_bytes: usize,
    /// The object.
    pub(crate) object: &'v Object,
    /// The old object; `None` for a new one.
    pub(crate) before: Option<&'v Object>,
    /// The facts about the whole pod that rules of its parts need.
    pub(crate) pod: Pod<'v>,
    /// The declarations for expressions, if the object is a policy.
    pub(crate) policy: Option<Policy>,
}

impl<'v> Run<'v> {
    pub(crate) fn new(object: &'v Object, before: Option<&'v Object>) -> Self {
        Self { faults: Vec::new(), told_bytes: 0, object, before, pod: Pod::default(), policy: None }
    }

    /// Adds an error, unless the limit on the number or the size of errors is reached.
    pub(crate) fn tell(&mut self, fault: impl FnOnce() -> FieldError) {
        if !self.is_full() {
            let fault = fault();
            self.told_bytes += fault.about_bytes();
            self.faults.push(fault);
        }
    }

    /// Returns true if the limit on errors is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.faults.len() >= FAULTS_MAX || self.told_bytes >= FAULTS_BYTES_MAX
    }
}

/// A rule as a function of a place.
pub(crate) type Check = for<'v> fn(&At<'v, '_>, &mut Run<'v>);

/// The rules of one type. A type with a title is described once, under that title, and referred to elsewhere.
pub(crate) struct TypeRules {
    /// The title of a type that several kinds share.
    pub(crate) title: &'static str,
    /// The field that each rule is about, and the rule. No name stands for the object itself; a name may come again.
    pub(crate) rules: &'static [(&'static str, Rule)],
}

/// The rule of a field.
pub(crate) enum Rule {
    /// It is there, and is no empty text, list or object. Otherwise this detail.
    Required(&'static str),
    /// It is one of these texts, or is left out. Upstream lists them in alphabetical order.
    OneOf(&'static [&'static str]),
    /// It is one of these texts, and an empty text is as wrong as any other.
    StrictlyOneOf(&'static [&'static str]),
    /// It is one of these texts, or is left out; an empty text is as wrong as any other.
    OneOfIfSet(&'static [&'static str]),
    /// Each item of the list is one of these texts.
    EachOneOf(&'static [&'static str]),
    /// The number is 0 or greater, or is left out.
    NonNegative,
    /// The number is 1 or greater, or is left out.
    Positive,
    /// The number is within these bounds, both included, or is left out.
    Range(i64, i64),
    /// The number fits, or is left out; the text otherwise.
    Within(i64, i64, &'static str),
    /// The text has this form, or is left out or empty.
    Format(&'static Format),
    /// Each item of the list has this form.
    EachFormat(&'static Format),
    /// The text is at most this many bytes long.
    MaxBytes(usize),
    /// The list has at most this many items.
    MaxItems(usize),
    /// It is not there. Otherwise this detail.
    Forbidden(&'static str),
    /// An update leaves it as it was.
    Immutable,
    /// An update may set or clear it, and changes it in no other way.
    NotModified,
    /// The object in the field, if it is there.
    In(&'static TypeRules),
    /// The object in the field, whether it is there or not.
    Always(&'static TypeRules),
    /// Each item of the list.
    Each(&'static TypeRules),
    /// A function over several fields, described in a few words.
    Check(&'static str, Check),
    /// A function with the rules that it applies to items.
    With(&'static str, Check, &'static TypeRules),
    /// A function with the rules that it applies to the object itself.
    Around(&'static str, Check, &'static TypeRules),
}

/// The text for what an update may not touch.
pub(crate) const IMMUTABLE: &str = "field is immutable";
/// The text for a number that has to be 0 or greater.
pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";

impl TypeRules {
    /// The rules of a type that one kind has.
    pub(crate) const fn of(rules: &'static [(&'static str, Rule)]) -> Self {
        Self { title: "", rules }
    }

    /// The rules of a type that several kinds have.
    pub(crate) const fn shared(title: &'static str, rules: &'static [(&'static str, Rule)]) -> Self {
        Self { title, rules }
    }

    /// Checks the object at a place.
    pub(crate) fn check<'v>(&self, at: &At<'v, '_>, run: &mut Run<'v>) {
        // Rules about one field mostly follow each other, so that it has to be found once. The compiler keeps equal names in
        // one place; where it does not, a field is found again.
        for about in self.rules.chunk_by(|(one, _), (other, _)| std::ptr::eq(*one, *other)) {
            let (name, _) = about[0];
            let field = if name.is_empty() { *at } else { at.field(name) };
            about.iter().for_each(|(_, rule)| rule.check(&field, run));
        }
    }
}

impl Rule {
    pub(crate) fn check<'v>(&self, at: &At<'v, '_>, run: &mut Run<'v>) {
        match self {
            Self::Required(detail) if at.is_empty() => at.required(run, *detail),
            Self::OneOf(known) if !at.is_empty() => one_of(at, run, known),
            Self::StrictlyOneOf(known) => one_of(at, run, known),
            Self::OneOfIfSet(known) if at.is_set() => one_of(at, run, known),
            Self::EachOneOf(known) => at.items().for_each(|item| one_of(&item, run, known)),
            Self::NonNegative => within(at, run, 0, i64::MAX, NEGATIVE),
            Self::Positive => within(at, run, 1, i64::MAX, "must be greater than 0"),
            Self::Range(least, most) => {
                if at.number().is_some_and(|number| number < *least || number > *most) {
                    at.invalid(run, at.int(), range_text(*least, *most));
                }
            }
            Self::Within(least, most, detail) => within(at, run, *least, *most, detail),
            Self::Format(format) if !at.text().is_empty() => at.complain(run, format.faults(at.text())),
            Self::EachFormat(format) => {
                at.items().for_each(|item| item.complain(run, format.faults(item.text())));
            }
            Self::MaxBytes(limit) if at.text().len() > *limit => at.too_long(run, *limit),
            Self::MaxItems(limit) if at.list().len() > *limit => at.too_many(run, *limit),
            Self::Forbidden(detail) if at.is_set() => at.forbidden(run, *detail),
            Self::Immutable if !at.is_unchanged() => at.invalid(run, at.shown(), IMMUTABLE),
            Self::NotModified if !at.old.is_null() && at.is_set() && !at.is_unchanged() => {
                at.invalid(run, at.shown(), IMMUTABLE);
            }
            Self::In(type_rules) if at.is_set() => type_rules.check(at, run),
            Self::Always(type_rules) => type_rules.check(at, run),
            Self::Each(type_rules) => at.items().for_each(|item| type_rules.check(&item, run)),
            Self::Check(_, check) | Self::With(_, check, _) | Self::Around(_, check, _) => check(at, run),
            Self::Required(_)
            | Self::OneOf(_)
            | Self::OneOfIfSet(_)
            | Self::Format(_)
            | Self::MaxBytes(_)
            | Self::MaxItems(_)
            | Self::Forbidden(_)
            | Self::Immutable
            | Self::NotModified
            | Self::In(_) => {}
        }
    }
}

/// The text for a number that is out of bounds.
pub(crate) fn range_text(least: i64, most: i64) -> String {
    format!("must be between {least} and {most}, inclusive")
}

fn one_of(at: &At<'_, '_>, run: &mut Run<'_>, known: &[&str]) {
    if !known.contains(&at.text()) {
        at.not_supported(run, at.text(), known);
    }
}

fn within(at: &At<'_, '_>, run: &mut Run<'_>, least: i64, most: i64, detail: &str) {
    if at.number().is_some_and(|number| number < least || number > most) {
        at.invalid(run, at.int(), detail);
    }
}

/// The rules of one kind, in the version that it is stored in.
pub(crate) struct Kind {
    /// The kind; its group is that of the list it stands in.
    pub(crate) name: &'static str,
    /// The rules that run before all others, also those of metadata. Their errors are reported alone.
    pub(crate) alone: &'static TypeRules,
    /// The rules of every object.
    pub(crate) object: &'static TypeRules,
    /// The rules of an update that run before those of the object.
    pub(crate) first: &'static TypeRules,
    /// The rules of an update that run after those of the object.
    pub(crate) then: &'static TypeRules,
    /// The rules of an update of a subresource, in place of all others. Scales are validated as whole objects.
    pub(crate) below: &'static [(&'static str, &'static TypeRules)],
}

/// No rules but those for metadata.
const NONE: &TypeRules = &TypeRules::of(&[]);

/// A kind without rules of its own: the start for those that have some.
pub(crate) const fn kind(name: &'static str) -> Kind {
    Kind { name, alone: NONE, object: NONE, first: NONE, then: NONE, below: &[] }
}

impl Kind {
    /// Sets the rules that run before all others.
    pub(crate) const fn alone(mut self, type_rules: &'static TypeRules) -> Self {
        self.alone = type_rules;
        self
    }

    /// Sets the rules of every object.
    pub(crate) const fn object(mut self, type_rules: &'static TypeRules) -> Self {
        self.object = type_rules;
        self
    }

    /// Sets the rules of an update that run before those of the object.
    pub(crate) const fn first(mut self, type_rules: &'static TypeRules) -> Self {
        self.first = type_rules;
        self
    }

    /// Sets the rules of an update that run after those of the object.
    pub(crate) const fn then(mut self, type_rules: &'static TypeRules) -> Self {
        self.then = type_rules;
        self
    }

    /// Sets the rules of updates of subresources.
    pub(crate) const fn below(mut self, below: &'static [(&'static str, &'static TypeRules)]) -> Self {
        self.below = below;
        self
    }

    /// The rules that an update is checked against, in this order.
    pub(crate) fn update(&self, subresource: Option<&str>) -> Vec<&'static TypeRules> {
        match subresource {
            None | Some("scale") => vec![self.first, self.object, self.then],
            Some(name) => {
                self.below.iter().filter(|(known, _)| *known == name).map(|(_, type_rules)| *type_rules).collect()
            }
        }
    }
}
