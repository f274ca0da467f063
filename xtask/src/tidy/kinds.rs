//! No production code compares the name of a resource or kind: the behaviour of a kind belongs to its version in the
//! surface.
//!
//! A custom resource may be called `bindings`, and must not be mistaken for the built-in one. So comparisons and
//! patterns contain no plural or kind of a built-in resource, except in the crates that implement these kinds. The
//! names come from the declarations. Listed files are exempt with a reason; a listed file without a comparison is a
//! fault too.

use std::collections::HashSet;

use super::{Finding, production};

/// The crates that may compare names, with the reason. All others are checked, including new ones.
const OF_KINDS: [(&str, &str); 7] = [
    ("crates/bench/", "creates objects and serves no clients"),
    ("crates/builtin/", "is the built-in kinds"),
    ("crates/fuzz/", "creates objects and serves no clients"),
    ("crates/protobuf/", "is driven by a table of messages"),
    ("crates/schema/", "compiles the schemas of the built-in kinds, found once for each surface"),
    ("crates/testkit/", "creates objects and serves no clients"),
    ("crates/teststores/", "serves no clients"),
];

/// The files and functions that declare the names.
const DECLARATIONS: &str = "crates/builtin/src/";
const DECLARATION: &str = "/declaration.rs";
const DECLARED_BY: [&str; 2] = ["cluster(", "namespaced("];

/// Files that may compare names, with the reason.
const ALLOWED: [(&str, &str); 26] = [
    ("crates/access/src/node.rs", "states a node's rights by resource"),
    ("crates/access/src/rbac/binding.rs", "reads a binding's reference"),
    ("crates/admission/src/builtin/certificates.rs", "validates requests for certificates, as upstream's plugin does"),
    ("crates/admission/src/builtin/claim_resize.rs", "validates claims that grow, as upstream's plugin does"),
    ("crates/admission/src/builtin/event_rate_limit.rs", "limits the rate of events, as upstream's plugin does"),
    ("crates/admission/src/builtin/limit_ranger.rs", "checks objects with limit ranges, as upstream's plugin does"),
    ("crates/admission/src/builtin/node_restriction.rs", "states a kubelet's rights to write by resource"),
    ("crates/admission/src/builtin/node_selector.rs", "validates pods, as upstream's plugin does"),
    ("crates/admission/src/builtin/nodes.rs", "validates nodes and pods, as upstream's plugins do"),
    ("crates/admission/src/builtin/owners.rs", "passes over the status of pods, as upstream's plugin does"),
    ("crates/admission/src/builtin/pod_resize.rs", "validates resized pods, as upstream's plugins do"),
    ("crates/admission/src/builtin/pod_security.rs", "validates pods and their templates, as upstream's plugin does"),
    ("crates/admission/src/builtin/runtime_class.rs", "validates pods, as upstream's plugin does"),
    ("crates/admission/src/builtin/service_account.rs", "validates pods, as upstream's plugin does"),
    ("crates/admission/src/builtin/trust_bundles.rs", "validates bundles of trust, as upstream's plugin does"),
    ("crates/admission/src/configuration.rs", "reads the settings of plugins, one of which is named like a kind"),
    ("crates/admission/src/matching.rs", "selects a write of a namespace by that namespace's own labels"),
    ("crates/controllers/src/bootstrap/policy.rs", "reads a table of its own"),
    ("crates/fairness/src/config.rs", "reads the kinds of subjects in flow schemas"),
    ("crates/http/src/request_info.rs", "has the grammar of paths, in which namespaces are a word"),
    ("crates/resources/src/resource.rs", "distinguishes paths of namespaces from those of their objects"),
    ("crates/meta/src/metadata_rules.rs", "reads an owner reference"),
    ("crates/registry/src/quota/scopes.rs", "reads the names of scopes"),
    ("crates/registry/src/quota/usage.rs", "states the usage of objects by resource"),
    ("crates/registry/src/subresources/binding.rs", "reads the reference in a binding's body"),
    ("crates/registry/src/subresources/token.rs", "reads the reference in a token request's body"),
];

/// The plurals and kinds of the built-in resources.
#[derive(Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    /// Adds the names that a file declares, if it is a declaration.
    pub(super) fn read(&mut self, place: &str, text: &str) {
        if !(place.starts_with(DECLARATIONS) && place.ends_with(DECLARATION)) {
            return;
        }
        for declared in DECLARED_BY.iter().flat_map(|function| text.split(function).skip(1)) {
            // The group is a constant; plural, singular and kind follow it.
            let texts: Vec<&str> = declared.split('"').skip(1).step_by(2).take(3).collect();
            if let [plural, _, kind] = texts[..] {
                self.0.extend([plural.to_owned(), kind.to_owned()]);
            }
        }
    }
}

pub(super) fn check(place: &str, text: &str, names: &Names) -> Vec<Finding> {
    let comparisons = comparisons(place, text, names).map(|(number, name)| {
        let text = format!("compares the name {name:?}: have it hang from the resource or its version in the surface");
        Finding::fault(format_args!("{place}:{number}"), text)
    });
    let is_allowed = ALLOWED.iter().any(|(file, _)| place == *file);
    match (is_allowed, comparisons.collect::<Vec<_>>()) {
        (true, found) if found.is_empty() => {
            vec![Finding::fault(place, "compares no name: take it off the files that may")]
        }
        (true, _) => Vec::new(),
        (false, found) => found,
    }
}

/// The lines of a file that compare a name, with the name.
fn comparisons<'t>(place: &'t str, text: &'t str, names: &'t Names) -> impl Iterator<Item = (usize, &'t str)> {
    let is_looked_at = !OF_KINDS.iter().any(|(of, _)| place.starts_with(of));
    // The indentation of an open `matches!` over several lines.
    let mut open = None;
    production(place, text).filter(move |_| is_looked_at).filter_map(move |(number, line)| {
        let indent = line.len() - line.trim_start().len();
        let inside = open.is_some();
        match open {
            Some(start) if indent == start => open = None,
            None if line.ends_with("matches!(") => open = Some(indent),
            Some(_) | None => {}
        }
        let texts = line.split('"').skip(1).step_by(2).filter(|_| inside);
        let name = texts.chain(compared(line)).find(|name| names.0.contains(*name))?;
        Some((number, name))
    })
}

/// Functions that compare a plural.
const COMPARING: [&str; 3] = ["matches!(", "is_about(", "is_new("];

/// The string literals of a line that are compared: beside `==` or `!=`, in a pattern before `=>`, in `matches!` and
/// similar calls.
fn compared(line: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    line.split('"').enumerate().filter_map(move |(index, part)| {
        let (begin, end) = (at, at + part.len());
        at = end + 1;
        if index % 2 == 0 {
            return None;
        }
        let (before, after) = (&line[..begin - 1], line.get(end + 1..).unwrap_or_default());
        let beside = |text: &str, operator: &str| text.trim().ends_with(operator);
        let is_compared = beside(before, "==")
            || beside(before, "!=")
            || ["==", "!="].iter().any(|operator| after.trim_start().starts_with(operator))
            || COMPARING.iter().any(|function| before.contains(function))
            || before.trim_end().ends_with('|')
            || after.contains("=>");
        is_compared.then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::{Names, check, compared};

    fn names() -> Names {
        let mut names = Names::default();
        let declared = "cluster(GROUP, \"nodes\", \"node\", \"Node\"),\n namespaced(\n GROUP,\n \"pods\",\n \"pod\",\n \"Pod\",\n)";
        names.read("crates/builtin/src/core/declaration.rs", declared);
        names.read("crates/meta/src/lib.rs", "cluster(\"things\", \"thing\", \"Thing\")");
        names
    }

    #[test]
    fn names_are_read_from_the_declarations() {
        let mut known: Vec<String> = names().0.into_iter().collect();
        known.sort();
        assert_eq!(known, ["Node", "Pod", "nodes", "pods"]);
    }

    #[test]
    fn a_name_in_a_comparison_or_a_pattern_is_a_fault() {
        for line in [
            "if target.resource.plural == \"pods\" {",
            "if \"Pod\" != kind {",
            "(\"\", \"nodes\") => 1,",
            "\"a\" | \"nodes\"",
            "matches!(kind, \"Pod\" | \"Node\")",
            "let is_pod = is_about(attributes, \"pods\");",
        ] {
            let found = check("crates/registry/src/delete.rs", &format!("fn f() {{\n{line}\n}}"), &names());
            assert_eq!((found.len(), found[0].place.as_str()), (1, "crates/registry/src/delete.rs:2"), "{line}");
            assert_eq!(check("crates/yet_to_come/src/lib.rs", line, &names()).len(), 1, "{line}");
            assert!(check("crates/registry/src/quota/usage.rs", line, &names()).is_empty());
            assert!(check("crates/builtin/src/core/defaults.rs", line, &names()).is_empty());
            assert!(check("crates/registry/tests/a.rs", line, &names()).is_empty());
        }
    }

    #[test]
    fn a_file_that_needs_no_exception_is_a_fault() {
        let found = check("crates/registry/src/quota/usage.rs", "fn f() {}", &names());
        assert_eq!(
            found.iter().map(|found| found.place.as_str()).collect::<Vec<_>>(),
            ["crates/registry/src/quota/usage.rs"]
        );
    }

    #[test]
    fn other_comparisons_and_texts_are_allowed() {
        for line in [
            "self.find(\"nodes\", None)",
            "_ => find(\"pods\"),",
            "if kind == \"Thing\" {",
            "// plural == \"pods\"",
            "if a == b { get(\"pods\") }",
        ] {
            assert!(check("crates/registry/src/delete.rs", line, &names()).is_empty(), "{line}");
        }
        assert_eq!(compared("a == \"b\" && \"c\" != d && \"e\"").collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn a_name_in_a_pattern_over_several_lines_is_a_fault() {
        let text = "fn is(kind: &str) -> bool {\n    matches!(\n        kind,\n        \"Pod\"\n    )\n}\nconst A: &str = \"Node\";\n";
        let found = check("crates/registry/src/get.rs", text, &names());
        assert_eq!(
            found.iter().map(|found| found.place.as_str()).collect::<Vec<_>>(),
            ["crates/registry/src/get.rs:4"]
        );
    }
}
