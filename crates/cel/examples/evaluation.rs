//! The evaluation time of common rules on an object of five kilobytes.
//!
//! `cargo run --release -p keelson-cel --example evaluation`

use keelson_cel::{Environment, Meter, Program, decl, values};
use keelson_meta::json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 100_000;

#[allow(clippy::print_stdout)] // It is what this is for.
fn main() {
    let items: Vec<Value> = (0..50)
        .map(|number| json!({"name": format!("item-{number}"), "image": format!("registry.example/app/image-{number}:v1"), "port": 8000 + number}))
        .collect();
    let object = json!({"replicas": 3, "min": 1, "max": 5, "name": "something-of-usual-length", "items": items});
    let text = json!({"type": "string", "maxLength": 253});
    let integer = json!({"type": "integer"});
    let item = json!({"type": "object", "properties": {"name": text, "image": text, "port": integer}});
    let schema = json!({"type": "object", "properties": {
        "replicas": integer, "min": integer, "max": integer, "name": text,
        "items": {"type": "array", "maxItems": 100, "items": item}
    }});
    let Some(decl) = decl::from_schema(&schema, "self", false) else { return };
    let environment = Environment::kubernetes().with_declared("self", &decl).with_declared("oldSelf", &decl);
    println!("object: {} bytes", object.to_string().len());
    for rule in [
        "self.replicas > 0",
        "self.min <= self.replicas && self.replicas <= self.max",
        "self.name.startsWith('some') && !has(self.items[0].other)",
        "self.name.startsWith('some') && has(self.items) && size(self.items) < 60",
        "self.name.matches('^[a-z]+(-[a-z]+)*$')",
        "self.name == oldSelf.name",
        "self.items.all(i, i.port >= 8000 && i.port < 9000)",
        "self.items.exists(i, i.name == 'item-49')",
        "self.items.map(i, i.port).isSorted()",
    ] {
        let Ok(program) = Program::compile(rule, &environment) else { continue };
        let start = Instant::now();
        for _ in 0..ROUNDS {
            let value = values::from_tree(&object, Some(&decl));
            let held = program.holds(&[value.clone(), value], &mut Meter::new(1_000_000));
            black_box(held.is_ok());
        }
        println!("{:>9.0} ns  {rule}", start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
}
