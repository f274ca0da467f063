//! Formats log fields as text. Data of other parties cannot end a line or control a terminal.
//!
//! Errors, names and reasons come from clients, webhooks and aggregated servers. Control characters and characters that
//! reorder text are escaped, for every format of a value. The JSON log format escapes them by itself.

use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// The most bytes of a value. Errors may quote documents of other servers.
const VALUE_BYTES: usize = 16 << 10;
/// The message of a log line, the only field that is written without its name.
const MESSAGE: &str = "message";

/// Writes the fields of log lines and spans.
pub(crate) struct EscapedFields;

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = Line { writer, is_begun: false, outcome: Ok(()) };
        fields.record(&mut line);
        line.outcome
    }
}

struct Line<'w> {
    writer: Writer<'w>,
    is_begun: bool,
    outcome: fmt::Result,
}

impl Line<'_> {
    fn write(&mut self, field: &Field, value: &dyn Debug) -> fmt::Result {
        if std::mem::replace(&mut self.is_begun, true) {
            self.writer.write_char(' ')?;
        }
        let name = field.name();
        let name = name.strip_prefix("r#").unwrap_or(name);
        match (name, self.writer.has_ansi_escapes()) {
            (MESSAGE, _) => {}
            // The name is in italics, the `=` is dimmed.
            (_, true) => write!(self.writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?,
            (_, false) => write!(self.writer, "{name}=")?,
        }
        write!(Escaping { to: &mut self.writer, left: VALUE_BYTES }, "{value:?}")
    }
}

impl Visit for Line<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == MESSAGE {
            self.record_debug(field, &format_args!("{value}"));
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.outcome.is_ok() {
            self.outcome = self.write(field, value);
        }
    }
}

/// A writer that escapes control characters and characters that reorder text, and ends after a number of bytes.
struct Escaping<'w, W> {
    to: &'w mut W,
    left: usize,
}

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.left == 0 {
            return Ok(());
        }
        let is_cut = text.len() > self.left;
        let mut rest = &text[..text.floor_char_boundary(self.left)];
        self.left = if is_cut { 0 } else { self.left - text.len() };
        while let Some((at, found)) = rest.char_indices().find(|(_, c)| is_escaped(*c)) {
            self.to.write_str(&rest[..at])?;
            write!(self.to, "{}", found.escape_default())?;
            rest = &rest[at + found.len_utf8()..];
        }
        self.to.write_str(rest)?;
        if is_cut { self.to.write_str("...") } else { Ok(()) }
    }
}

/// Returns true for control characters, ends of lines, and characters that change the direction of text.
fn is_escaped(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Runs `act` and returns its log, without the time.
    fn logged(colours: bool, act: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt().fmt_fields(EscapedFields).with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.with_ansi(colours).without_time().finish(), act);
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn foreign_text_is_escaped_in_log_lines() {
        let sent = "a\u{1b}[2J\nWARN forged\r\u{9b}31m\u{202e}\u{7f}é";
        let line = logged(false, || {
            tracing::warn!(plain = sent, shown = %sent, debugged = ?Some(sent), "{sent}");
        });
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        assert!(line.ends_with('\n') && !line.trim_end_matches('\n').contains(is_escaped), "{line:?}");
        let escaped = r"a\u{1b}[2J\nWARN forged\r\u{9b}31m\u{202e}\u{7f}é";
        assert!(line.contains(&format!(" shown={escaped} ")), "{line:?}");
        assert_eq!(line.matches("forged").count(), 4, "{line:?}");
    }

    #[test]
    fn a_value_of_any_length_is_a_short_line() {
        let sent = "é".repeat(1 << 20);
        let line = logged(false, || tracing::warn!(debugged = sent, shown = %sent, behind = 1, "{sent}"));
        assert!(line.len() < 4 * VALUE_BYTES && line.ends_with("... behind=1\n"), "{}", line.len());
    }

    #[test]
    fn lines_have_the_usual_form() {
        let line = logged(false, || tracing::info!(name = "x", count = 3, none = None::<u64>, "it works"));
        assert!(line.ends_with(": it works name=\"x\" count=3\n"), "{line:?}");
        let line = logged(true, || tracing::info!(count = 3, "it works"));
        assert!(line.ends_with("it works \u{1b}[3mcount\u{1b}[0m\u{1b}[2m=\u{1b}[0m3\n"), "{line:?}");
    }
}
