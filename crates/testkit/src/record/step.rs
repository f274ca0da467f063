//! The text form of a record: parsing and writing, which are inverse.
//!
//! A step is `### title`, then `% notes`, then a request line with headers and, after a blank line, a body. Then come
//! `< status` with `< headers` and, after a blank line, the expected body. `# lines` before the first step describe the
//! file.

use std::fmt;

use anyhow::{Context as _, Result, bail, ensure};

const TITLE: &str = "### ";
const ANSWER: &str = "< ";
const NOTE: &str = "% ";

/// A request with its expected response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) title: String,
    pub(super) notes: Notes,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
    pub(super) expected: ExpectedResponse,
}

/// The exceptions of a step. By default the administrator sends it once and the whole response is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// `% difference: ID`: the reference server responds otherwise, for a reason documented under this name.
    pub(super) difference: Option<String>,
    /// `% until: STATUS TEXT`: repeated until the response has this status, and contains this text, if there is one.
    pub(super) until: Option<Until>,
    /// `% as: nobody`: sent without credentials.
    pub(super) anonymous: bool,
    /// `% only: /json/pointer /another/*`: the parts of the body to compare. `*` is every item of a list, `@NAME` the
    /// one with this name (or version).
    pub(super) only: Option<String>,
}

/// The condition for which a step waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Until {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Until {
    fn parse(text: &str) -> Result<Self> {
        let (status, text) = text.split_once(' ').unwrap_or((text, ""));
        Ok(Self { status: status.parse().context("until wants a status")?, text: text.trim().to_owned() })
    }
}

impl Notes {
    fn parse(lines: &[&str]) -> Result<Self> {
        let mut notes = Self::default();
        for line in lines {
            let (name, value) = header(line.trim_start_matches(NOTE))?;
            match (name.as_str(), value.as_str()) {
                ("difference", _) => notes.difference = Some(value),
                ("until", wanted) => notes.until = Some(Until::parse(wanted)?),
                ("as", "nobody") => notes.anonymous = true,
                ("only", _) => notes.only = Some(value),
                _ => bail!("there is no note {line:?}"),
            }
        }
        Ok(notes)
    }
}

impl fmt::Display for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = &self.difference {
            writeln!(f, "{NOTE}difference: {id}")?;
        }
        if let Some(Until { status, text }) = &self.until {
            let gap = if text.is_empty() { "" } else { " " };
            writeln!(f, "{NOTE}until: {status}{gap}{text}")?;
        }
        if self.anonymous {
            writeln!(f, "{NOTE}as: nobody")?;
        }
        self.only.iter().try_for_each(|pointer| writeln!(f, "{NOTE}only: {pointer}"))
    }
}

/// A response in the form for comparison. Status 0 means a step without an expected response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpectedResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl fmt::Display for ExpectedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{ANSWER}{}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "{ANSWER}{name}: {value}")?;
        }
        if self.body.is_empty() { Ok(()) } else { write!(f, "\n{}\n", self.body) }
    }
}

/// Parses the text before the first step, and the steps.
pub(super) fn parse(text: &str) -> Result<(String, Vec<Step>)> {
    let mut preamble = String::new();
    let mut sections: Vec<(String, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix(TITLE), sections.last_mut()) {
            (Some(title), _) => sections.push((title.trim().to_owned(), Vec::new())),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => preamble.extend([line, "\n"]),
        }
    }
    let step = |(title, lines): (String, Vec<&str>)| {
        let context = format!("step {title:?}");
        step(title, &lines).context(context)
    };
    Ok((preamble.trim_end().to_owned(), sections.into_iter().map(step).collect::<Result<_>>()?))
}

/// Writes the whole file.
pub(super) fn render(preamble: &str, steps: &[Step]) -> String {
    let mut blocks = Vec::new();
    if !preamble.is_empty() {
        blocks.push(format!("{preamble}\n"));
    }
    for step in steps {
        let mut block = format!("{TITLE}{}\n{}{} {}\n", step.title, step.notes, step.method, step.path);
        for (name, value) in &step.headers {
            block.push_str(&format!("{name}: {value}\n"));
        }
        if !step.body.is_empty() {
            block.push_str(&format!("\n{}\n", step.body));
        }
        blocks.push(format!("{block}\n{}", step.expected));
    }
    blocks.join("\n")
}

fn step(title: String, lines: &[&str]) -> Result<Step> {
    let answer = lines.iter().position(|line| line.starts_with(ANSWER)).unwrap_or(lines.len());
    let (request, answer) = lines.split_at(answer);
    let noted = request.iter().take_while(|line| line.starts_with(NOTE)).count();
    let (notes, request) = request.split_at(noted);
    let (head, body) = split_body(request);
    let (first, headers) = head.split_first().context("there is no request line")?;
    let (method, path) = first.split_once(' ').context("the request line is not `METHOD /path`")?;
    ensure!(path.starts_with('/'), "the path {path:?} does not begin with a slash");
    Ok(Step {
        title,
        notes: Notes::parse(notes)?,
        method: method.to_owned(),
        path: path.trim().to_owned(),
        headers: headers.iter().map(|line| header(line)).collect::<Result<_>>()?,
        body,
        expected: expected(answer)?,
    })
}

fn expected(lines: &[&str]) -> Result<ExpectedResponse> {
    let (head, body) = split_body(lines);
    let Some((status, headers)) = head.split_first() else { return Ok(ExpectedResponse::default()) };
    let status = status.trim_start_matches(ANSWER).trim().parse().context("the answer has no status")?;
    let headers = headers.iter().map(|line| header(line.trim_start_matches(ANSWER))).collect::<Result<_>>()?;
    Ok(ExpectedResponse { status, headers, body })
}

/// The lines before the first blank one, and the text after it.
fn split_body<'a>(lines: &'a [&'a str]) -> (&'a [&'a str], String) {
    let end = lines.iter().position(|line| line.trim().is_empty()).unwrap_or(lines.len());
    (&lines[..end], lines[end..].join("\n").trim_matches('\n').to_owned())
}

fn header(line: &str) -> Result<(String, String)> {
    let (name, value) = line.split_once(':').with_context(|| format!("{line:?} is not `name: value`"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{Until, parse, render};

    const RECORD: &str = "# Three steps.\n\n### a get\nGET /api/v1\naccept: application/json\n\n< 200\n< content-type: application/json\n\n{\n  \"a\": 1\n}\n\n### a post\nPOST /api/v1/x?y=z\n\n{\n\n}\n\n< 404\n\n### a noted one\n% difference: why\n% until: 410 \"gone\"\n% as: nobody\n% only: /a/0\nGET /x\n\n< 410\n";

    #[test]
    fn written_values_read_back_and_write_equal_bytes() {
        let (preamble, steps) = parse(RECORD).unwrap();
        assert_eq!((preamble.as_str(), steps.len()), ("# Three steps.", 3));
        assert_eq!(steps[0].headers, [("accept".to_owned(), "application/json".to_owned())]);
        assert_eq!(steps[0].expected.body, "{\n  \"a\": 1\n}");
        assert_eq!((steps[1].path.as_str(), steps[1].body.as_str()), ("/api/v1/x?y=z", "{\n\n}"));
        assert_eq!(steps[1].expected.status, 404);
        let notes = &steps[2].notes;
        let until = Until { status: 410, text: "\"gone\"".to_owned() };
        assert_eq!((notes.difference.as_deref(), notes.anonymous), (Some("why"), true));
        assert_eq!(notes.until.as_ref(), Some(&until));
        assert_eq!(notes.only.as_deref(), Some("/a/0"));
        assert_eq!(render(&preamble, &steps), RECORD);
    }

    #[test]
    fn steps_without_a_recorded_response_are_accepted() {
        let (_, steps) = parse("### new\nGET /x\n").unwrap();
        assert_eq!(steps[0].expected.status, 0);
    }

    #[test]
    fn malformed_steps_are_refused_with_their_title() {
        for text in [
            "### a\n",
            "### a\nGET\n",
            "### a\nGET x\n",
            "### a\nGET /x\nnonsense\n",
            "### a\nGET /x\n\n< ok\n",
            "### a\n% so: so\nGET /x\n",
        ] {
            assert!(format!("{:#}", parse(text).unwrap_err()).starts_with("step \"a\": "), "{text:?}");
        }
    }
}
