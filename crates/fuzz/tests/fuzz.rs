//! A seeded run of every target, deterministic and within seconds.
//!
//! The short run shows that the targets work. `cargo xtask fuzz` runs longer to find faults.

use keelson_fuzz::{Budget, Finding, all, run};

/// The seed of all runs: the date of the first one.
const SEED: u64 = 20_261_122;
/// The number of inputs for each target.
const INPUTS: usize = 15_000;

fn check(name: &str) {
    let target = all().iter().find(|target| target.name == name).expect("a target of this name");
    match run(target, SEED, Budget::Inputs(INPUTS)) {
        Ok(summary) => {
            assert_eq!(summary.inputs, INPUTS, "{name}");
            assert!(summary.kinds > 5, "{name}: the inputs are all alike: {summary:?}");
        }
        Err(Finding { input, why }) => panic!("{name}: {why}\n  input: \"{}\"", input.escape_ascii()),
    }
}

macro_rules! targets {
    ($($test:ident $name:literal,)*) => {
        $(#[test]
        fn $test() {
            check($name);
        })*

        #[test]
        fn every_target_is_run() {
            let names: Vec<&str> = all().iter().map(|target| target.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

targets! {
    json "json",
    yaml "yaml",
    yaml_text "yaml-text",
    protobuf "protobuf",
    stored "stored",
    schema "schema",
    json_patch "json-patch",
    merge_patch "merge-patch",
    strategic_patch "strategic-patch",
    apply "apply",
    managed_fields "managed-fields",
    label_selector "label-selector",
    field_selector "field-selector",
    continue_token "continue-token",
    quantity "quantity",
    query "query",
    query_parameters "query-parameters",
    path "path",
    cel "cel",
    regular_expression "regular-expression",
}
