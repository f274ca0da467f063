//! Measures what an object costs between its bytes and its store: reads one in JSON and prints how long each step takes, in
//! nanoseconds, the median of many runs.
//!
//! `walk` is the whole walk of an object that a client sends, `lacks` the look for missing defaults when a stored one is
//! read. `cargo xtask bench --rows walker,lacks` runs this with a pod.

#![allow(clippy::print_stdout, reason = "a command line tool talks on its streams")]

use std::io::Read as _;
use std::time::{Duration, Instant};

use keelson_codec::{Checked, StoredObject, json};
use keelson_defaults::Defaults;
use keelson_meta::{GroupVersion, GroupVersionKind, Object};
use keelson_schema::{Schemas, WalkOptions, WalkReport};

/// How often each step is measured.
const RUNS: usize = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    let object = Object::from_value(json::parse(&text)?.value).ok_or("not an object")?;
    let GroupVersion { group, version } =
        object.api_version().and_then(GroupVersion::parse).ok_or("it names no version")?;
    let schema = Schemas::builtin().kind(&group, &version, object.kind().unwrap_or_default()).ok_or("unknown kind")?;

    let walk = median(|| {
        let mut sent = object.clone();
        let mut report = WalkReport::default();
        let began = Instant::now();
        schema.walk(&mut sent, &mut report, WalkOptions::STORE);
        let took = began.elapsed();
        assert!(report.is_clean(), "{report:?}");
        took
    });
    let kind = GroupVersionKind { group, version, kind: object.kind().unwrap_or_default().to_owned() };
    let mut stored = object.clone();
    let defaults = Defaults::of(&kind).ok_or("the kind has no defaults")?;
    defaults.fill(&mut stored);
    schema.walk(&mut stored, &mut WalkReport::default(), WalkOptions::STORE);
    let stored = Checked::from(StoredObject::encode(&stored));
    let lacks = median(|| {
        let began = Instant::now();
        assert!(!defaults.lacks(&stored), "it should lack nothing");
        began.elapsed()
    });
    println!("bytes {}", stored.object().bytes().len());
    println!("walk {}", walk.as_nanos());
    println!("lacks {}", lacks.as_nanos());
    Ok(())
}

fn median(mut run: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS).map(|_| run()).collect();
    times.sort_unstable();
    times[RUNS / 2]
}
