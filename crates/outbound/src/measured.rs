//! Counts the objects and bytes of a ConversionReview response before it is parsed.
//!
//! Parsed JSON may need twenty times the memory of its text. Counting first costs about a nanosecond per byte and no
//! memory. Invalid JSON is detected later, by the parser.

/// The path of keys that leads to the objects.
const WAY: [&[u8]; 2] = [b"response", b"convertedObjects"];
/// The nesting depth between two objects.
const OBJECTS_DEPTH: usize = WAY.len() + 1;

/// The content of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseContent {
    /// The number of objects.
    pub(crate) objects: usize,
    /// The number of bytes without whitespace and escapes.
    pub(crate) bytes: usize,
}

/// Measures a JSON text. The result for invalid JSON is arbitrary.
pub(crate) fn measure(text: &[u8]) -> ResponseContent {
    let mut walk =
        Walk { text, at: 0, depth: 0, found: 0, in_objects: false, measured: ResponseContent::default(), key: &[] };
    while walk.at < text.len() {
        walk.step();
    }
    walk.measured
}

struct Walk<'t> {
    text: &'t [u8],
    at: usize,
    /// The current nesting depth.
    depth: usize,
    /// The number of matched keys of the path to the objects.
    found: usize,
    /// True while inside the array of objects.
    in_objects: bool,
    measured: ResponseContent,
    /// The last string.
    key: &'t [u8],
}

impl Walk<'_> {
    fn step(&mut self) {
        let byte = self.text[self.at];
        self.at += 1;
        if byte.is_ascii_whitespace() {
            return;
        }
        self.measured.bytes += 1;
        // Counts objects at their start, and other values at their first byte.
        let is_between = matches!(byte, b',' | b']' | b'}');
        if self.in_objects && self.depth == OBJECTS_DEPTH && !is_between && self.begins() {
            self.measured.objects += 1;
        }
        match byte {
            b'"' => self.string(),
            b'{' | b'[' => {
                let leads_on = self.found == self.depth.saturating_sub(1)
                    && self.depth > 0
                    && WAY.get(self.found).is_some_and(|key| *key == self.key);
                self.depth += 1;
                if leads_on {
                    self.found += 1;
                    if self.found == WAY.len() && byte == b'[' {
                        // If a key occurs twice, the last one counts.
                        self.measured.objects = 0;
                        self.in_objects = true;
                    }
                }
                self.key = &[];
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.found = self.found.min(self.depth.saturating_sub(1));
                self.in_objects &= self.depth >= OBJECTS_DEPTH;
                self.key = &[];
            }
            _ => {}
        }
    }

    /// Returns true if the current byte starts an element: a comma or the bracket precedes it.
    fn begins(&self) -> bool {
        let before = self.text[..self.at - 1].iter().rev().find(|byte| !byte.is_ascii_whitespace());
        matches!(before, Some(b',' | b'['))
    }

    /// Skips the rest of a string.
    fn string(&mut self) {
        let start = self.at;
        while let Some(byte) = self.text.get(self.at) {
            self.at += 1;
            self.measured.bytes += 1;
            match byte {
                b'"' => break,
                b'\\' => self.at += if self.text.get(self.at) == Some(&b'u') { 5 } else { 1 },
                _ => {}
            }
        }
        self.key = self.text.get(start..self.at.saturating_sub(1)).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_of_an_answer_are_counted_and_its_bytes() {
        let check = |text: &str, objects: usize, bytes: usize| {
            assert_eq!(measure(text.as_bytes()), ResponseContent { objects, bytes }, "{text}");
        };
        let answer = r#"{"kind":"x","response":{"uid":"u","convertedObjects":[{"a":[{},{}]},{},{"b":"]},{"}]}}"#;
        check(answer, 3, answer.len());
        check("{\"response\": {\"convertedObjects\" : [ 1 ,\n [2, 3], \"x,y\" ]}}", 3, 49);
        check(r#"{"response":{"convertedObjects":[]}}"#, 0, 36);
        check(r#"{"response":{"convertedObjects":[{}],"convertedObjects":[{},{}]}}"#, 2, 65);
        check(r#"{"request":{"convertedObjects":[{}]},"x":{"response":{"convertedObjects":[{}]}}}"#, 0, 80);
        check(r#"{"response":{"other":{"convertedObjects":[{}]}}}"#, 0, 48);
        check(r#""\u0041\n\"""#, 0, 5);
        for broken in ["[[[", "]]]{\"response", "\"\\u", "\"\\", "{\"response\":{\"convertedObjects\":[{"] {
            measure(broken.as_bytes());
        }
    }
}
