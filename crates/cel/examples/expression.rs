//! The time of a simple policy expression on a pod from JSON, including access to the object: in nanoseconds, the
//! median of many runs.
//!
//! `cargo xtask bench --rows expression` runs this with a pod.

#![allow(clippy::print_stdout, reason = "a command line tool talks on its streams")]

use std::hint::black_box;
use std::io::Read as _;
use std::time::{Duration, Instant};

use keelson_cel::environments::{self, Admission};
use keelson_cel::{Meter, Program, Value as Cel, values};
use keelson_meta::Object;
use keelson_meta::json::Value;

/// A typical policy expression about a pod.
const EXPRESSION: &str = "'app.kubernetes.io/name' in object.metadata.labels && object.spec.containers.all(c, c.image.startsWith('example.com/'))";
/// The cost limit of a policy.
const COST_MAX: u64 = 1_000_000;
/// The number of measurements, and of evaluations in each.
const RUNS: usize = 2_000;
const TOGETHER: u32 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let pod = Object::from_value(serde_json::from_str::<Value>(&text)?).ok_or("not an object")?;
    let program = Program::compile(EXPRESSION, &environments::admission(&Admission::default()));
    let program = program.map_err(|error| error.to_string())?;
    let holds = || {
        let variables = [values::from_map(&pod.0, None), Cel::Null, Cel::Null, Cel::Null];
        let value = program.evaluate(black_box(&variables), &mut Meter::new(COST_MAX));
        matches!(value, Ok(Cel::Bool(true)))
    };
    assert!(holds(), "the pod keeps the policy");
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..TOGETHER {
                assert!(holds());
            }
            began.elapsed() / TOGETHER
        })
        .collect();
    times.sort_unstable();
    println!("expression {}", times[RUNS / 2].as_nanos());
    Ok(())
}
