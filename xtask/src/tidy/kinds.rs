//! No verb compares the name of a resource or a kind: what depends on it hangs from the version in the surface.
//!
//! A custom resource may be called `bindings`, and must not be taken for the built-in one. So no production code of the crates
//! that serve requests has the plural or the kind of a built-in resource in a comparison or in a pattern. The names are read
//! from the declarations. A few files are listed, with the reason why they are no verbs or compare something else.

use std::collections::HashSet;

use super::{Finding, production};

/// The crates that serve requests.
const SERVING: [&str; 5] =
    ["crates/registry/", "crates/http/", "crates/controllers/", "crates/access/", "crates/server/"];

/// Where the names are declared, and by which functions.
const DECLARATIONS: &str = "crates/resources/src/groups/";
const DECLARED_BY: [&str; 2] = ["cluster(", "namespaced("];

/// Files that may compare names, and why.
const ALLOWED: [(&str, &str); 14] = [
    ("crates/registry/src/kinds.rs", "finds the strategy of each built-in resource, once for each surface"),
    ("crates/registry/src/kinds/core.rs", "finds the strategy of each resource of the core group, once for each surface"),
    ("crates/registry/src/kinds/gates.rs", "finds the gated fields of each built-in resource, once for each surface"),
    ("crates/access/src/rbac/binding.rs", "reads what a binding refers to"),
    ("crates/access/src/node.rs", "states what a node may do with objects of which resource"),
    ("crates/registry/src/kinds/core/volume_claims.rs", "reads what a claim refers to"),
    ("crates/registry/src/quota/scopes.rs", "reads the names of scopes"),
    ("crates/registry/src/quota/usage.rs", "states what objects of which resource use"),
    ("crates/registry/src/subresources/binding.rs", "reads what the body of a binding refers to"),
    ("crates/registry/src/subresources/token.rs", "reads what the body of a token request refers to"),
    ("crates/registry/src/allocation/addresses.rs", "reads what an address refers to"),
    ("crates/http/src/request_info.rs", "has the grammar of paths, in which namespaces are a word"),
    ("crates/server/src/rights.rs", "reads the names of authorization modes"),
    ("crates/controllers/src/bootstrap/policy.rs", "reads a table of its own"),
];

/// The plurals and kinds of the built-in resources.
#[derive(Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    /// Takes up the names that a file declares, if it is one that does.
    pub(super) fn read(&mut self, place: &str, text: &str) {
        if !place.starts_with(DECLARATIONS) {
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
    let serves = SERVING.iter().any(|of| place.starts_with(of));
    if !serves || ALLOWED.iter().any(|(file, _)| place.starts_with(file)) {
        return Vec::new();
    }
    // Behind how many spaces a `matches!` stands that goes over several lines.
    let mut open = None;
    let found = production(place, text).filter_map(|(number, line)| {
        let indent = line.len() - line.trim_start().len();
        let inside = open.is_some();
        match open {
            Some(start) if indent == start => open = None,
            None if line.ends_with("matches!(") => open = Some(indent),
            Some(_) | None => {}
        }
        let texts = line.split('"').skip(1).step_by(2).filter(|_| inside);
        let name = texts.chain(compared(line)).find(|name| names.0.contains(*name))?;
        let text = format!("compares the name {name:?}: have it hang from the resource or its version in the surface");
        Some(Finding::fault(format_args!("{place}:{number}"), text))
    });
    found.collect()
}

/// The texts of a line that something is compared with: beside `==` or `!=`, in a pattern before `=>`, in a `matches!`.
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
            || before.contains("matches!(")
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
        names.read("crates/resources/src/groups/core.rs", declared);
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
        ] {
            let found = check("crates/registry/src/delete.rs", &format!("fn f() {{\n{line}\n}}"), &names());
            assert_eq!((found.len(), found[0].place.as_str()), (1, "crates/registry/src/delete.rs:2"), "{line}");
            assert!(check("crates/registry/src/kinds.rs", line, &names()).is_empty());
            assert!(check("crates/defaults/src/lib.rs", line, &names()).is_empty());
            assert!(check("crates/registry/tests/a.rs", line, &names()).is_empty());
        }
    }

    #[test]
    fn other_uses_and_other_texts_are_none() {
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
