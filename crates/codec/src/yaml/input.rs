//! The text of a YAML document as the scanner reads it, with a bound on how far it may read ahead.
//!
//! A flow collection that stands where a key may stand is read to its end before it is known to be none, and all its tokens
//! are kept until then, each of more than a hundred bytes. YAML 1.1 looks only 1,024 characters ahead for a key; the scanner
//! does not. So it is told that the text ends when it has read more than [`MAX_TOKENS_AHEAD`] tokens for one event.
//!
//! The outermost collection, which is a whole document in flow style, can be no key: [`document_start`] tells the scanner so.

use std::cell::Cell;
use std::rc::Rc;

use saphyr_parser::input::SkipTabs;
use saphyr_parser::{Input, StrInput};

/// How many tokens may be read for one event.
const MAX_TOKENS_AHEAD: usize = 50_000;
/// The scanner asks for so many characters exactly when it looks for the next token, or for the next line of a text.
const CHARACTERS_OF_A_TOKEN: usize = 4;

/// What a document in flow style needs in front to be known as no key, and the text itself.
pub(super) fn document_start(text: &str) -> &'static str {
    let mut rest = text.trim_start_matches('\u{feff}');
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        match rest.strip_prefix('#') {
            Some(comment) => rest = comment.split_once('\n').map_or("", |(_, rest)| rest),
            None => break,
        }
    }
    if rest.starts_with(['{', '[']) { "--- " } else { "" }
}

/// Counts what is read for one event.
#[derive(Clone, Default)]
pub(super) struct Ahead(Rc<Cell<usize>>);

impl Ahead {
    /// Begins to count for the next event.
    pub(super) fn start(&self) {
        self.0.set(0);
    }

    /// Whether the text was cut off.
    pub(super) fn is_exceeded(&self) -> bool {
        self.0.get() > MAX_TOKENS_AHEAD
    }
}

/// A text that ends where the scanner would read too far ahead.
pub(super) struct BoundedInput<'a> {
    text: StrInput<'a>,
    ahead: Ahead,
}

impl<'a> BoundedInput<'a> {
    pub(super) fn new(text: &'a str, ahead: Ahead) -> Self {
        Self { text: StrInput::new(text), ahead }
    }
}

impl Input for BoundedInput<'_> {
    #[inline]
    fn lookahead(&mut self, count: usize) {
        if count == CHARACTERS_OF_A_TOKEN {
            self.ahead.0.set(self.ahead.0.get() + 1);
            if self.ahead.is_exceeded() {
                self.text = StrInput::new("");
            }
        }
        self.text.lookahead(count);
    }

    #[inline]
    fn buflen(&self) -> usize {
        self.text.buflen()
    }

    #[inline]
    fn bufmaxlen(&self) -> usize {
        self.text.bufmaxlen()
    }

    #[inline]
    fn raw_read_ch(&mut self) -> char {
        self.text.raw_read_ch()
    }

    #[inline]
    fn raw_read_non_breakz_ch(&mut self) -> Option<char> {
        self.text.raw_read_non_breakz_ch()
    }

    #[inline]
    fn skip(&mut self) {
        self.text.skip();
    }

    #[inline]
    fn skip_n(&mut self, count: usize) {
        self.text.skip_n(count);
    }

    #[inline]
    fn peek(&self) -> char {
        self.text.peek()
    }

    #[inline]
    fn peek_nth(&self, n: usize) -> char {
        self.text.peek_nth(n)
    }

    #[inline]
    fn peek_opt(&self) -> Option<char> {
        self.text.peek_opt()
    }

    fn skip_ws_to_eol(&mut self, skip_tabs: SkipTabs) -> (usize, Result<SkipTabs, &'static str>) {
        self.text.skip_ws_to_eol(skip_tabs)
    }

    fn skip_while_non_breakz(&mut self) -> usize {
        self.text.skip_while_non_breakz()
    }

    fn skip_while_blank(&mut self) -> usize {
        self.text.skip_while_blank()
    }

    fn fetch_while_is_yaml_non_space(&mut self, out: &mut String) -> usize {
        self.text.fetch_while_is_yaml_non_space(out)
    }
}
