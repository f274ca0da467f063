//! Generates the table of all rules, `docs/reference/validation.md`, from the rules themselves.
//!
//! Types that several kinds share are described once. Other places refer to their title.

use std::fmt::Write as _;

use crate::groups::GROUPS;
use crate::validating::type_rules::{Kind, Rule, TypeRules};

const HEAD: &str = "\
# Validation

The rules of each built-in kind, besides those for metadata, which hold for all kinds. The page is generated from the rules by
`cargo xtask docs --write`. Rules stand in the order in which their faults are reported. An object of a kind without
rules only has to fit its schema.

Immutable: an update can't change the field. Set once: an update can set the field while it is empty.
";

/// The document: every kind with its rules, and then the types that several kinds share.
pub fn document() -> String {
    let mut text = HEAD.to_owned();
    let mut shared: Vec<&'static TypeRules> = Vec::new();
    let mut groups: Vec<_> = GROUPS.into_iter().filter(|group| !group.validation.is_empty()).collect();
    groups.sort_by_key(|group| group.declaration.name);
    for group in groups {
        let name = if group.declaration.name.is_empty() { "core" } else { group.declaration.name };
        line(&mut text, &format!("\n## {name}\n"));
        for kind in group.validation {
            describe_kind(&mut text, kind, &mut shared);
        }
    }
    line(&mut text, "\n## Shared types\n");
    // Describing a type may add others.
    let mut next = 0;
    while let Some(type_rules) = shared.get(next).copied() {
        line(&mut text, &format!("### {}\n", type_rules.title));
        describe(&mut text, "", type_rules, &mut shared);
        text.push('\n');
        next += 1;
    }
    let end = text.trim_end().len();
    text.truncate(end);
    text.push('\n');
    text
}

fn describe_kind(text: &mut String, kind: &Kind, shared: &mut Vec<&'static TypeRules>) {
    line(text, &format!("### {}\n", kind.name));
    let mut any = false;
    let mut part = |text: &mut String, title: &str, type_rules: &'static TypeRules| {
        if type_rules.rules.is_empty() {
            return;
        }
        any = true;
        if !title.is_empty() {
            line(text, &format!("{title}\n"));
        }
        // A kind may have exactly the rules of a shared type. Then only the title is listed.
        if type_rules.title.is_empty() {
            describe(text, "", type_rules, shared);
        } else {
            refer(text, "", type_rules, shared);
        }
        text.push('\n');
    };
    part(text, "Before all else:", kind.alone);
    part(text, "", kind.object);
    part(text, "An update, first:", kind.first);
    part(text, "An update, then:", kind.then);
    for (name, type_rules) in kind.below {
        part(text, &format!("An update of `/{name}`:"), type_rules);
    }
    if !any {
        line(text, "No rules of its own.\n");
    }
}

fn describe(text: &mut String, path: &str, type_rules: &'static TypeRules, shared: &mut Vec<&'static TypeRules>) {
    for (name, rule) in type_rules.rules {
        let dot = if path.is_empty() || name.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{name}");
        match rule {
            Rule::In(inner) | Rule::Always(inner) => inside(text, &path, inner, shared),
            Rule::Each(inner) => inside(text, &format!("{path}[]"), inner, shared),
            Rule::Around(words, _, inner) => {
                entry(text, &path, words);
                inside(text, &path, inner, shared);
            }
            Rule::With(words, _, inner) => {
                entry(text, &path, words);
                inside(text, &format!("{path}[]"), inner, shared);
            }
            rule => entry(text, &path, &words(rule)),
        }
    }
}

fn inside(text: &mut String, path: &str, inner: &'static TypeRules, shared: &mut Vec<&'static TypeRules>) {
    if inner.title.is_empty() { describe(text, path, inner, shared) } else { refer(text, path, inner, shared) }
}

fn refer(text: &mut String, path: &str, type_rules: &'static TypeRules, shared: &mut Vec<&'static TypeRules>) {
    // The ids of headings, as mdBook and GitHub create them.
    let kept = type_rules.title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
    entry(text, path, &format!("[{}](#{anchor})", type_rules.title));
    if !shared.iter().any(|known| known.title == type_rules.title) {
        shared.push(type_rules);
    }
}

fn entry(text: &mut String, path: &str, words: &str) {
    if path.is_empty() {
        line(text, &format!("- {words}"));
    } else {
        line(text, &format!("- `{path}`: {words}"));
    }
}

fn words(rule: &Rule) -> String {
    match rule {
        Rule::Required(_) => "required".to_owned(),
        Rule::OneOf(known) | Rule::StrictlyOneOf(known) | Rule::OneOfIfSet(known) => {
            format!("one of {}", known.join(", "))
        }
        Rule::EachOneOf(known) => format!("each one of {}", known.join(", ")),
        Rule::NonNegative => "not negative".to_owned(),
        Rule::Positive => "positive".to_owned(),
        Rule::Range(least, most) => format!("from {least} to {most}"),
        Rule::Within(_, _, detail) => (*detail).to_owned(),
        Rule::Format(format) => (*format.name).to_owned(),
        Rule::EachFormat(format) => format!("each a {}", format.name),
        Rule::MaxBytes(limit) => format!("at most {limit} bytes"),
        Rule::MaxItems(limit) => format!("at most {limit} items"),
        Rule::Forbidden(_) => "not allowed here".to_owned(),
        Rule::Immutable => "immutable".to_owned(),
        Rule::NotModified => "can be set and cleared, not changed".to_owned(),
        Rule::Check(words, _) => (*words).to_owned(),
        Rule::In(_) | Rule::Always(_) | Rule::Each(_) | Rule::With(..) | Rule::Around(..) => String::new(),
    }
}

fn line(text: &mut String, line: &str) {
    let written = writeln!(text, "{line}");
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::document;

    #[test]
    fn the_validation_reference_equals_the_rules() {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/validation.md");
        let expected = document();
        if std::env::var_os("KEELSON_UPDATE").is_some() {
            std::fs::write(&file, &expected).expect("the document can be written");
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            written == expected,
            "docs/reference/validation.md differs from the rules: KEELSON_UPDATE=1 writes it anew"
        );
    }
}
