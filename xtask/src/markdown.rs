//! The prose of a Markdown page: its paragraphs, list items, headings and table cells, without code.
//!
//! The parser handles the subset of Markdown in this repository's pages. Fenced and indented code, HTML comments and
//! code spans hold no prose.

/// A piece of prose, with its first line (from 1).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A paragraph or list item with its continuation lines.
    Paragraph,
    Heading,
    Cell,
}

/// All prose of a page, with its code spans and link targets.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text_lines(page) {
        let trimmed = line.trim_start();
        let starts_item = item(trimmed);
        let ends = trimmed.is_empty() || trimmed.starts_with(['#', '|', '<']) || starts_item.is_some();
        if ends {
            found.extend(open.take());
        }
        match trimmed.chars().next() {
            None | Some('<') => {}
            Some('#') => found.push(Block {
                line: number,
                kind: Kind::Heading,
                text: trimmed.trim_matches(['#', ' ']).to_owned(),
            }),
            Some('|') => found.extend(cells(trimmed).map(|text| Block { line: number, kind: Kind::Cell, text })),
            Some(_) => {
                let text = starts_item.unwrap_or(trimmed).trim_end();
                match &mut open {
                    Some(block) => {
                        block.text.push(' ');
                        block.text.push_str(text);
                    }
                    None => open = Some(Block { line: number, kind: Kind::Paragraph, text: text.to_owned() }),
                }
            }
        }
    }
    found.extend(open);
    found.retain(|block| block.text.chars().any(char::is_alphabetic));
    found
}

/// The lines outside of fenced code, numbered from 1. Lines of code become empty.
pub(crate) fn text_lines(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    page.lines().enumerate().map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (index + 1, if fenced || fence { "" } else { line })
    })
}

/// The text after the marker of a list item or quotation, if the line has one.
fn item(line: &str) -> Option<&str> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    ["- ", "* ", "> "]
        .iter()
        .find_map(|mark| line.strip_prefix(mark))
        .or_else(|| line[digits..].strip_prefix(". ").filter(|_| digits > 0))
}

/// The cells of a row. A pipe in a code span or after a backslash is no separator.
fn cells(row: &str) -> impl Iterator<Item = String> {
    let mut cells = vec![String::new()];
    let (mut code, mut escaped) = (false, false);
    for c in row.trim().trim_matches('|').chars() {
        code ^= c == '`';
        match (c, code || escaped) {
            ('|', false) => cells.push(String::new()),
            _ => cells.last_mut().expect("there is a cell from the start").push(c),
        }
        escaped = c == '\\';
    }
    cells.into_iter().map(|cell| cell.trim().to_owned())
}

/// Prose with code spans replaced by `x`, and without the targets of links.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['`', ']']) {
        out.push_str(&rest[..at]);
        if rest[at..].starts_with("](") {
            let end = rest[at..].find(')').map_or(rest.len(), |end| at + end + 1);
            rest = &rest[end..];
        } else if rest[at..].starts_with(']') {
            out.push(']');
            rest = &rest[at + 1..];
        } else {
            let inner = &rest[at + 1..];
            out.push_str("`x`");
            rest = inner.find('`').map_or("", |end| &inner[end + 1..]);
        }
    }
    out.push_str(rest);
    out.retain(|c| c != '[');
    out
}

#[cfg(test)]
mod tests {
    use super::{Kind, blocks, plain};

    #[test]
    fn a_page_is_split_into_its_prose() {
        let page =
            "# Head\n\nOne\ntwo.\n- item\n  more\n\n```console\n$ who\n```\n\n| a | `b|c` |\n|---|---|\n1. first\n";
        let found: Vec<_> = blocks(page).into_iter().map(|b| (b.line, b.kind, b.text)).collect();
        let expected = [
            (1, Kind::Heading, "Head"),
            (3, Kind::Paragraph, "One two."),
            (5, Kind::Paragraph, "item more"),
            (12, Kind::Cell, "a"),
            (12, Kind::Cell, "`b|c`"),
            (14, Kind::Paragraph, "first"),
        ];
        assert_eq!(found, expected.map(|(line, kind, text)| (line, kind, text.to_owned())));
    }

    #[test]
    fn code_and_link_targets_are_no_prose() {
        assert_eq!(plain("see `a b` and [the page](x.md#y), [0]"), "see `x` and the page, 0]");
    }
}
