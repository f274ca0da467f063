//! Links between pages: each must lead to a file of the repository and, after `#`, to a heading or anchor of that page.
//!
//! A page of the site links only to pages of the site, since the site has no other files, and must be in `SUMMARY.md`.
//! Paths of the source tree in code spans must exist too.

use std::collections::{BTreeMap, BTreeSet};

use super::Page;
use crate::markdown::{Kind, blocks, text_lines};

pub(super) const SITE: &str = "docs/";
pub(super) const CONTENTS: &str = "docs/SUMMARY.md";
/// A code span that starts with one of these and is a plain path names a file or directory of the repository.
const SOURCES: [&str; 3] = ["crates/", "xtask/src/", "docs/"];

pub(super) fn check(pages: &[Page], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|p| (p.place.as_str(), anchors(&p.text))).collect();
    let mut faults = Vec::new();
    let mut listed = BTreeSet::new();
    for page in pages {
        let missing = source_paths(&page.text).filter(|(_, path)| !exists(path));
        faults.extend(missing.map(|(line, path)| format!("{}:{line}: {path} is not a file", page.place)));
        for (line, target) in links(&page.text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { page.place.clone() } else { resolve(&page.place, file) };
            if page.place == CONTENTS {
                listed.insert(to.clone());
            }
            if page.place.starts_with(SITE) && !to.starts_with(SITE) {
                faults.push(format!("{}:{line}: {target} leads out of the site", page.place));
            } else if !exists(&to) {
                faults.push(format!("{}:{line}: {target} leads to no file", page.place));
            } else if !anchor.is_empty() && anchors.get(to.as_str()).is_some_and(|known| !known.contains(anchor)) {
                faults.push(format!("{}:{line}: {target} leads to no heading", page.place));
            }
        }
    }
    let of_site = pages.iter().filter(|page| page.place.starts_with(SITE) && page.place != CONTENTS);
    let missing = of_site.filter(|page| !listed.contains(&page.place));
    faults.extend(missing.map(|page| format!("{}: not in {CONTENTS}", page.place)));
    faults
}

/// The targets of inline links and images within the repository, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, text) in text_lines(text) {
        let mut rest = text;
        let mut code = false;
        while let Some(at) = rest.find(['`', ']']) {
            if rest[at..].starts_with('`') {
                code = !code;
            } else if let Some((target, _)) = rest[at..].strip_prefix("](").and_then(|target| target.split_once(')'))
                && !code
                && !target.contains(':')
            {
                found.push((line, target));
            }
            rest = &rest[at + 1..];
        }
    }
    found
}

/// The paths of the source tree in code spans, with their lines.
fn source_paths(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let spans =
        text_lines(text).flat_map(|(line, text)| text.split('`').skip(1).step_by(2).map(move |span| (line, span)));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    // Names in capitals are placeholders.
    let stands =
        |span: &str| span.split('/').any(|part| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()));
    spans.filter(move |(_, span)| {
        SOURCES.iter().any(|start| span.starts_with(start)) && span.chars().all(plain) && !stands(span)
    })
}

/// The ids of the headings of a page, and its HTML anchors.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for heading in blocks(text).into_iter().filter(|block| block.kind == Kind::Heading) {
        let id = id(&heading.text);
        let seen = times.entry(id.clone()).or_default();
        found.insert(if *seen == 0 { id } else { format!("{id}-{seen}") });
        *seen += 1;
    }
    let ids = text_lines(text).filter_map(|(_, line)| line.split_once("id=\"")?.1.split_once('"'));
    found.extend(ids.map(|(id, _)| id.to_owned()));
    found
}

/// The id that GitHub and mdBook give a heading.
fn id(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                if parts.pop().is_none() {
                    return format!("../{target}");
                }
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::{CONTENTS, Page, check};

    fn page(place: &str, text: &str) -> Page {
        Page { place: place.to_owned(), text: text.to_owned() }
    }

    fn faults(pages: &[Page]) -> Vec<String> {
        check(pages, |place| pages.iter().any(|page| page.place == place) || place == "docs/images/a.png")
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let pages = [
            page("README.md", "[a](docs/a/one.md#the-_first_-part-1) `[no](link.md)` [b](https://example.org/x)"),
            page(CONTENTS, "- [One](a/one.md)\n- [Two](two.md)"),
            page(
                "docs/a/one.md",
                "# One\n## The _first_ part!\n## The _first_ part\n![](../images/a.png) [](../two.md)",
            ),
            page("docs/two.md", "# Two\n\n[self](#two)\n```sh\n[x](y)\n```\n"),
        ];
        assert_eq!(faults(&pages), [""; 0]);
    }

    #[test]
    fn a_broken_link_is_named_with_its_line() {
        let pages = [
            page(CONTENTS, "[One](one.md)"),
            page("docs/one.md", "# One\n[](three.md)\n[](#two)\n[](../README.md)\n"),
            page("docs/two.md", "# Two\n"),
            page("README.md", "`docs/one.md` `crates/none/src`, `crates/NAME/src`, `crates/*/src`"),
        ];
        let expected = [
            "docs/one.md:2: three.md leads to no file",
            "docs/one.md:3: #two leads to no heading",
            "docs/one.md:4: ../README.md leads out of the site",
            "README.md:1: crates/none/src is not a file",
            "docs/two.md: not in docs/SUMMARY.md",
        ];
        assert_eq!(faults(&pages), expected);
    }
}
