//! Profiles in pprof's format: messages of protobuf with a table of texts, compressed by gzip.
//!
//! Written by hand after the published definition, so that a build needs no `protoc`.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Messages {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// A CPU profile.
pub(super) struct Profile {
    messages: Messages,
    period: i64,
    texts: HashMap<String, i64>,
    functions: HashMap<String, u64>,
    locations: HashMap<(u64, u32), u64>,
    /// The place of the sample of a thread name and a stack.
    samples: HashMap<(String, Vec<u64>), usize>,
}

impl Profile {
    /// An empty profile of samples with this distance.
    pub(super) fn new(started: SystemTime, took: Duration, period: Duration) -> Self {
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let mut profile = Self {
            messages: Messages::default(),
            period: nanos(period),
            texts: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            samples: HashMap::new(),
        };
        // The first text is empty by definition.
        profile.text("");
        let mut of = |kind, unit| ValueType { kind: profile.text(kind), unit: profile.text(unit) };
        let (samples, cpu) = (of("samples", "count"), of("cpu", "nanoseconds"));
        profile.messages.sample_type = vec![samples, cpu.clone()];
        profile.messages.period_type = Some(cpu);
        profile.messages.period = profile.period;
        profile.messages.time_nanos = nanos(started.duration_since(UNIX_EPOCH).unwrap_or_default());
        profile.messages.duration_nanos = nanos(took);
        profile
    }

    /// Adds samples of a stack, from its innermost function. Equal stacks of equal threads are one sample.
    pub(super) fn add<N: Into<String>, F: AsRef<str>>(
        &mut self,
        thread: &str,
        stack: impl Iterator<Item = (N, F, u32)>,
        count: i64,
    ) {
        let stack: Vec<u64> = stack.map(|(name, file, line)| self.location(name.into(), file.as_ref(), line)).collect();
        let key = (thread.to_owned(), stack);
        let values = [count, count.saturating_mul(self.period)];
        if let Some(place) = self.samples.get(&key) {
            let known = self.messages.sample[*place].value.iter_mut().zip(values);
            known.for_each(|(known, value)| *known = known.saturating_add(value));
            return;
        }
        let label = Label { key: self.text("thread"), text: self.text(thread) };
        self.samples.insert(key.clone(), self.messages.sample.len());
        self.messages.sample.push(Sample { location_id: key.1, value: values.to_vec(), label: vec![label] });
    }

    /// The profile as a file.
    ///
    /// # Errors
    /// It cannot be compressed.
    pub(super) fn compressed(self) -> Result<Vec<u8>, String> {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(&self.messages.encode_to_vec()).and_then(|()| out.finish()).map_err(|error| error.to_string())
    }

    fn location(&mut self, name: String, file: &str, line: u32) -> u64 {
        let function = match self.functions.get(&name) {
            Some(known) => *known,
            None => {
                let id = self.functions.len() as u64 + 1;
                let (text, filename) = (self.text(&name), self.text(file));
                self.messages.function.push(Function { id, name: text, system_name: text, filename });
                self.functions.insert(name, id);
                id
            }
        };
        let next = self.locations.len() as u64 + 1;
        let id = *self.locations.entry((function, line)).or_insert(next);
        if id == next {
            let line = Line { function_id: function, line: i64::from(line) };
            self.messages.location.push(Location { id, line: vec![line] });
        }
        id
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(known) = self.texts.get(text) {
            return *known;
        }
        let place = i64::try_from(self.texts.len()).unwrap_or(i64::MAX);
        self.texts.insert(text.to_owned(), place);
        self.messages.string_table.push(text.to_owned());
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_one_sample() {
        let mut profile = Profile::new(UNIX_EPOCH, Duration::from_secs(1), Duration::from_millis(10));
        for thread in ["a", "a", "b"] {
            profile.add(thread, [("inner", "x.rs", 7), ("outer", "x.rs", 9)].into_iter(), 2);
        }
        let Messages { sample, location, function, string_table, .. } = profile.messages;
        assert_eq!((sample.len(), location.len(), function.len()), (2, 2, 2));
        assert_eq!(sample[0].value, [4, 40_000_000]);
        assert!(string_table[0].is_empty() && string_table.iter().any(|text| text == "outer"));
    }
}
