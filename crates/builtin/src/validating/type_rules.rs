//! Validation rules as data: the permitted values of each field, in the order of the errors.
//!
//! A rule is data about one field, a named function over several fields, or a rule for updates, which reads the old
//! value. Rules are constants, and are nested like the objects.

use keelson_meta::Object;
use keelson_meta::field_error::{FAULTS_BYTES_MAX, FAULTS_MAX, FieldError};

use crate::core::validation::pod::Pod;
use crate::validating::at::At;
use crate::validating::expressions::Policy;
use crate::validating::formats::Format;

/// The validation of one object or update.
pub(crate) struct Run<'v> {
    /// The errors so far.
    pub(crate) faults: Vec<FieldError>,
    /// The approximate size of the errors in bytes.
    told_bytes: usize,
    /// The object.
    pub(crate) object: &'v Object,
    /// The old object; `None` for a new one.
    pub(crate) before: Option<&'v Object>,
    /// Facts about the whole pod, for the rules of its parts.
    pub(crate) pod: Pod<'v>,
    /// The declarations for expressions, if the object is a policy.
    pub(crate) policy: Option<Policy>,
    /// True if containers may be privileged.
    pub(crate) allow_privileged: bool,
}

impl<'v> Run<'v> {
    pub(crate) fn new(object: &'v Object, before: Option<&'v Object>) -> Self {
        Self {
            faults: Vec::new(),
            told_bytes: 0,
            object,
            before,
            pod: Pod::default(),
            policy: None,
            allow_privileged: true,
        }
    }

    /// Adds an error, unless the limit on the number or the size of errors is reached.
    pub(crate) fn report(&mut self, fault: impl FnOnce() -> FieldError) {
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

/// The rules of one type. A type with a title is documented once; other places refer to the title.
pub(crate) struct TypeRules {
    /// The title of a type that several kinds share.
    pub(crate) title: &'static str,
    /// The name of a field and its rule. An empty name means the object itself. A name may occur more than once.
    pub(crate) rules: &'static [(&'static str, Rule)],
}

/// The rule of a field.
pub(crate) enum Rule {
    /// The field must be set and not empty. The text is the detail of the error.
    Required(&'static str),
    /// One of these strings, if set and not empty. Like upstream, the error lists them sorted.
    OneOf(&'static [&'static str]),
    /// One of these strings. An empty or absent string is an error.
    StrictlyOneOf(&'static [&'static str]),
    /// One of these strings, if set. An empty string is an error.
    OneOfIfSet(&'static [&'static str]),
    /// Each item of the list is one of these strings.
    EachOneOf(&'static [&'static str]),
    /// The number is at least 0, if set.
    NonNegative,
    /// The number is at least 1, if set.
    Positive,
    /// The number is within these bounds (inclusive), if set.
    Range(i64, i64),
    /// The number is within these bounds (inclusive), if set. The text is the message.
    Within(i64, i64, &'static str),
    /// The string has this format, if it is set and not empty.
    Format(&'static Format),
    /// Each item of the list has this format.
    EachFormat(&'static Format),
    /// The string has at most this many bytes.
    MaxBytes(usize),
    /// The list has at most this many items.
    MaxItems(usize),
    /// The field must be absent. The text is the detail of the error.
    Forbidden(&'static str),
    /// An update must not change the field.
    Immutable,
    /// An update may set or clear the field, but not change its value.
    NotModified,
    /// Validates the object in the field, if it is present.
    In(&'static TypeRules),
    /// Validates the object in the field, even if it is absent.
    Always(&'static TypeRules),
    /// Validates each item of the list.
    Each(&'static TypeRules),
    /// A function over several fields, described in a few words.
    Check(&'static str, Check),
    /// A function with the rules that it applies to items.
    With(&'static str, Check, &'static TypeRules),
    /// A function with the rules that it applies to the object itself.
    Around(&'static str, Check, &'static TypeRules),
}

/// The message for a field that an update must not change.
pub(crate) const IMMUTABLE: &str = "field is immutable";
/// The message for a number that must be at least 0.
pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";

impl TypeRules {
    /// The rules of a type that one kind uses.
    pub(crate) const fn new(rules: &'static [(&'static str, Rule)]) -> Self {
        Self { title: "", rules }
    }

    /// The rules of a type that several kinds share.
    pub(crate) const fn shared(title: &'static str, rules: &'static [(&'static str, Rule)]) -> Self {
        Self { title, rules }
    }

    /// Validates the object at a place.
    pub(crate) fn check<'v>(&self, at: &At<'v, '_>, run: &mut Run<'v>) {
        // Rules about one field usually follow each other, so the field is looked up once for all of them. The compiler
        // usually stores equal names once. If it does not, the field is looked up again.
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

/// The message for a number outside of its bounds.
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

/// The rules of one kind, for its stored version.
pub(crate) struct Kind {
    /// The name of the kind. The group is that of the list.
    pub(crate) name: &'static str,
    /// The rules that run before all others, including those for metadata. If they report errors, only these are
    /// returned.
    pub(crate) alone: &'static TypeRules,
    /// The rules of every object.
    pub(crate) object: &'static TypeRules,
    /// The rules of an update that run before those of the object.
    pub(crate) first: &'static TypeRules,
    /// The rules of an update that run after those of the object.
    pub(crate) then: &'static TypeRules,
    /// The rules for updates of a subresource, which replace all others. `/scale` is validated as an update of the
    /// whole object.
    pub(crate) below: &'static [(&'static str, &'static TypeRules)],
}

/// No rules besides those for metadata.
const NONE: &TypeRules = &TypeRules::new(&[]);

/// A kind without its own rules. The other methods add rules.
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

    /// The rules for an update, in this order.
    pub(crate) fn update(&self, subresource: Option<&str>) -> Vec<&'static TypeRules> {
        match subresource {
            None | Some("scale") => vec![self.first, self.object, self.then],
            Some(name) => {
                self.below.iter().filter(|(known, _)| *known == name).map(|(_, type_rules)| *type_rules).collect()
            }
        }
    }
}
