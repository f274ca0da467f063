//! Links in proxied HTML pages: absolute paths lead through the proxy, as in upstream.
//!
//! The rewriter reads a page as it arrives. It copies all bytes except the values of attributes with links, and keeps
//! at most one tag in memory. A longer tag, and the content of scripts, styles and comments, is copied unchanged.

use std::borrow::Cow;

/// The longest tag whose links are rewritten, in bytes.
const MOST_TAG_BYTES: usize = 64 * 1024;

/// Attributes with links, by element.
const LINKS: [(&str, &[&str]); 25] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is text up to their end tag.
const RAW: [&str; 9] = ["iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "title", "xmp"];

/// Rewrites the links of one page.
pub(super) struct LinkRewriter<R> {
    rewrite: R,
    state: State,
    /// The bytes of the current tag, comment or end tag.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    /// In a tag, from its `<`. A quote hides a `>`.
    Tag {
        quote: Option<u8>,
    },
    /// In a tag that is too long to be held.
    LongTag {
        quote: Option<u8>,
    },
    /// In `<!-- -->`.
    Comment,
    /// In the text of an element of [`RAW`], by its place.
    Raw(usize),
}

impl<R: Fn(&str) -> Option<String>> LinkRewriter<R> {
    /// A rewriter that replaces links for which `rewrite` returns another one.
    pub(super) fn new(rewrite: R) -> Self {
        Self { rewrite, state: State::Text, held: Vec::new() }
    }

    /// Rewrites the next bytes of the page.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            self.step(*byte, out);
        }
    }

    /// The rest of a page that ends within a tag.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        match self.state {
            State::Text => {
                if byte == b'<' {
                    self.state = State::Tag { quote: None };
                    self.held.push(byte);
                } else {
                    out.push(byte);
                }
            }
            State::Tag { quote } => self.step_in_tag(byte, quote, out),
            State::LongTag { quote } => {
                out.push(byte);
                self.state = match next_quote(quote, byte) {
                    None if quote.is_none() && byte == b'>' => State::Text,
                    quote => State::LongTag { quote },
                };
            }
            State::Comment => {
                out.push(byte);
                self.held.push(byte);
                let excess = self.held.len().saturating_sub(3);
                self.held.drain(..excess);
                if self.held == b"-->" {
                    self.held.clear();
                    self.state = State::Text;
                }
            }
            State::Raw(element) => self.step_in_raw(byte, element, out),
        }
    }

    fn step_in_tag(&mut self, byte: u8, quote: Option<u8>, out: &mut Vec<u8>) {
        // `a < b` is no tag.
        if self.held.len() == 1 && !(byte.is_ascii_alphabetic() || matches!(byte, b'/' | b'!' | b'?')) {
            self.state = State::Text;
            out.append(&mut self.held);
            return self.step(byte, out);
        }
        self.held.push(byte);
        if self.held == b"<!--" {
            out.append(&mut self.held);
            self.state = State::Comment;
            return;
        }
        // Only quotes of attribute values hide a `>`, not the ones of end tags and declarations.
        let is_start = self.held.get(1).is_some_and(u8::is_ascii_alphabetic);
        let quote = if is_start { next_quote(quote, byte) } else { None };
        if quote.is_none() && byte == b'>' {
            let tag = std::mem::take(&mut self.held);
            out.extend_from_slice(&self.rewritten(&tag));
            self.state = raw_element(&tag).map_or(State::Text, State::Raw);
        } else if self.held.len() > MOST_TAG_BYTES {
            out.append(&mut self.held);
            self.state = State::LongTag { quote };
        } else {
            self.state = State::Tag { quote };
        }
    }

    fn step_in_raw(&mut self, byte: u8, element: usize, out: &mut Vec<u8>) {
        out.push(byte);
        self.held.push(byte.to_ascii_lowercase());
        let end = RAW.get(element).map_or(0, |name| name.len() + 2);
        let excess = self.held.len().saturating_sub(end + 1);
        self.held.drain(..excess);
        let is_end = self.held.len() == end + 1
            && self.held.starts_with(b"</")
            && RAW.get(element).is_some_and(|name| self.held[2..end] == *name.as_bytes())
            && matches!(byte, b'>' | b'/' | b' ' | b'\t' | b'\n' | b'\r' | 0x0c);
        if is_end {
            self.held.clear();
            self.state = if byte == b'>' { State::Text } else { State::LongTag { quote: None } };
        }
    }

    /// A tag with its links rewritten.
    fn rewritten<'t>(&self, tag: &'t [u8]) -> Cow<'t, [u8]> {
        let Ok(text) = std::str::from_utf8(tag) else { return Cow::Borrowed(tag) };
        let name = element(tag);
        let Some((_, attributes)) = LINKS.iter().find(|(known, _)| *known == name) else { return Cow::Borrowed(tag) };
        let mut written = String::new();
        let mut copied = 0;
        for Attribute { name, begin, end, is_quoted } in attributes_of(text, name.len() + 1) {
            if !attributes.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                continue;
            }
            let value = text[begin..end].replace("&amp;", "&");
            let Some(link) = (self.rewrite)(value.trim()) else { continue };
            let link = link.replace('&', "&amp;").replace('"', "&#34;").replace('\'', "&#39;");
            written.push_str(&text[copied..begin]);
            if is_quoted {
                written.push_str(&link);
            } else {
                written.extend(["\"", &link, "\""]);
            }
            copied = end;
        }
        if copied == 0 {
            return Cow::Borrowed(tag);
        }
        written.push_str(&text[copied..]);
        Cow::Owned(written.into_bytes())
    }
}

/// The value of an attribute in a tag, by its place.
struct Attribute<'t> {
    name: &'t str,
    begin: usize,
    end: usize,
    is_quoted: bool,
}

/// The attributes with a value, from this place of a tag.
fn attributes_of(tag: &str, from: usize) -> Vec<Attribute<'_>> {
    let bytes = tag.as_bytes();
    let is_blank =
        |at: usize| bytes.get(at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c | b'/'));
    let is_end = |at: usize| bytes.get(at).is_none_or(|byte| *byte == b'>');
    let mut found = Vec::new();
    let mut at = from;
    while !is_end(at) {
        while is_blank(at) {
            at += 1;
        }
        let name = at;
        while !is_end(at) && !is_blank(at) && bytes[at] != b'=' {
            at += 1;
        }
        let name = &tag[name..at];
        let mut next = at;
        while is_blank(next) && bytes[next] != b'/' {
            next += 1;
        }
        if bytes.get(next) != Some(&b'=') {
            // A value without a name, or a name without a value. The loop continues behind it.
            at = if name.is_empty() { at.max(next) } else { next };
            continue;
        }
        at = next + 1;
        while is_blank(at) && bytes[at] != b'/' {
            at += 1;
        }
        let quote = bytes.get(at).copied().filter(|byte| matches!(byte, b'"' | b'\''));
        let begin = at + usize::from(quote.is_some());
        let is_last = |at: usize| match quote {
            Some(quote) => bytes.get(at).is_none_or(|byte| *byte == quote),
            None => is_end(at) || (is_blank(at) && bytes[at] != b'/'),
        };
        at = begin;
        while !is_last(at) {
            at += 1;
        }
        found.push(Attribute { name, begin, end: at, is_quoted: quote.is_some() });
        at += usize::from(quote.is_some() && at < bytes.len());
    }
    found
}

/// The name of a start tag in lower case; empty for other tags.
fn element(tag: &[u8]) -> String {
    let name = tag.get(1..).unwrap_or_default();
    let end = name.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).to_ascii_lowercase()
}

/// The place in [`RAW`] of a start tag.
fn raw_element(tag: &[u8]) -> Option<usize> {
    let name = element(tag);
    RAW.iter().position(|known| *known == name)
}

/// The quote that is open behind this byte of a tag.
fn next_quote(open: Option<u8>, byte: u8) -> Option<u8> {
    match (open, byte) {
        (Some(quote), _) if quote == byte => None,
        (None, b'"' | b'\'') => Some(byte),
        (open, _) => open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(page: &str, piece: usize) -> String {
        let rewrite = |link: &str| link.starts_with('/').then(|| format!("/proxy{link}"));
        let mut rewriter = LinkRewriter::new(rewrite);
        let mut out = Vec::new();
        for piece in page.as_bytes().chunks(piece) {
            rewriter.feed(piece, &mut out);
        }
        rewriter.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn check(page: &str, expected: &str) {
        for piece in [1, 3, 1000] {
            assert_eq!(rewritten(page, piece), expected, "in pieces of {piece}: {page}");
        }
    }

    #[test]
    fn links_of_known_attributes_lead_through_the_proxy() {
        check("<a href=\"/x?a=1&amp;b=2\">x</a>", "<a href=\"/proxy/x?a=1&amp;b=2\">x</a>");
        check("<A class=c HREF='/x'>x</A>", "<A class=c HREF='/proxy/x'>x</A>");
        check("<a href=/x>x</a><a href = /y/ >", "<a href=\"/proxy/x\">x</a><a href = \"/proxy/y/\" >");
        check(
            "<img src=\"/i\" alt=\"/a > b\" usemap=\"/m\"/>",
            "<img src=\"/proxy/i\" alt=\"/a > b\" usemap=\"/proxy/m\"/>",
        );
        check("<form action=\"/f\"><input formaction='/g'>", "<form action=\"/proxy/f\"><input formaction='/proxy/g'>");
        check("<script src=/s></script><a href=/x>", "<script src=\"/proxy/s\"></script><a href=\"/proxy/x\">");
    }

    #[test]
    fn html_without_known_link_attributes_is_unchanged() {
        for page in [
            "<a href=\"relative\">/x</a>",
            "<a data-href=\"/x\" name=href>",
            "<p href=\"/x\">1 < 2 and 3 > 2</p>",
            "<!-- <a href=\"/x\"> -->",
            "<script>var a = '<a href=\"/x\">';</script>",
            "<style><a href=/x></style >",
            "<!DOCTYPE html \"/x\"><?php '<' ?>",
            "</a href=\"/x\">",
            "<a href",
            "<a = ==>",
            "<a href>",
            "<>",
            "",
        ] {
            check(page, page);
        }
    }

    #[test]
    fn a_link_cannot_leave_its_attribute() {
        let mut rewriter = LinkRewriter::new(|_: &str| Some("/\"><script>'&".to_owned()));
        let mut out = Vec::new();
        rewriter.feed(b"<a href=\"/x\"><a href='/x'><a href=/x>", &mut out);
        let link = "/&#34;><script>&#39;&amp;";
        assert_eq!(String::from_utf8(out).unwrap(), format!("<a href=\"{link}\"><a href='{link}'><a href=\"{link}\">"));
    }

    #[test]
    fn a_long_tag_is_copied_and_not_held() {
        let long = format!("<a href=\"/{}\">", "x".repeat(MOST_TAG_BYTES));
        let page = format!("{long}<a href=\"/y\">");
        assert_eq!(rewritten(&page, 4096), format!("{long}<a href=\"/proxy/y\">"));
        let mut rewriter = LinkRewriter::new(|_: &str| None);
        let mut out = Vec::new();
        rewriter.feed(&long.as_bytes()[..MOST_TAG_BYTES + 5], &mut out);
        assert!(rewriter.held.is_empty() && out.len() == MOST_TAG_BYTES + 5);
    }
}
