//! Finds failed tests in the output of `cargo test`, and repeats each of them alone.
//!
//! Hundreds of servers share a machine during a full run. On a slow one, a test that waits for several of them may fail
//! without a fault. Such a test is repeated alone: it must pass every time, and is listed at the end, since it must be
//! fixed too. Failures of many tests, or without a test name, are final.

use std::process::Command;

use anyhow::Result;

use crate::run;

/// The number of times that a failed test must pass alone.
const PASSES: usize = 3;
/// The largest number of failed tests that are repeated.
const MOST: usize = 5;

/// The failed tests of a run, from the output so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    /// The failed tests by test program, in the form of cargo's options that select it.
    programs: Vec<(String, Vec<String>)>,
    /// The tests in the last list of a program; cargo names the program after it.
    listed: Vec<String>,
    /// True if the previous line belongs to such a list.
    is_list: bool,
}

impl Failures {
    /// Reads the next line of the output.
    pub(super) fn read(&mut self, line: &str) {
        let begins = line == "failures:";
        if begins || line.starts_with("running ") {
            self.listed.clear();
        }
        let test = line.strip_prefix("    ").filter(|_| self.is_list);
        self.listed.extend(test.map(str::to_owned));
        self.is_list = begins || test.is_some();
        let program = line.strip_prefix("error: test failed, to rerun pass `").and_then(|rest| rest.split('`').next());
        if let Some(program) = program {
            self.programs.push((program.to_owned(), std::mem::take(&mut self.listed)));
        }
    }

    /// Repeats the failed tests, by program and one at a time. `prepared` is a `cargo test` command, with the packages
    /// selected if `are_all_selected`. Returns true if all pass each time, and false if there are none, since something
    /// else has failed.
    ///
    /// # Errors
    /// cargo can't be run.
    pub(super) fn pass_alone(&self, are_all_selected: bool, prepared: impl Fn() -> Command) -> Result<bool> {
        let count: usize = self.programs.iter().map(|(_, tests)| tests.len()).sum();
        if count == 0 || count > MOST || self.programs.iter().any(|(_, tests)| tests.is_empty()) {
            return Ok(false);
        }
        for (program, tests) in &self.programs {
            for _ in 0..PASSES {
                let mut command = prepared();
                command
                    .args(options(program, are_all_selected))
                    .args(["--", "--test-threads=1", "--exact"])
                    .args(tests);
                if !run::shown(&mut command)? {
                    return Ok(false);
                }
            }
        }
        for (program, tests) in &self.programs {
            for test in tests {
                eprintln!("unstable: {test} ({program}) failed beside the other tests and passed {PASSES} times alone");
            }
        }
        Ok(true)
    }
}

/// The options that select a program, without its package where all are selected.
fn options(program: &str, are_all_selected: bool) -> impl Iterator<Item = &str> {
    let package = if are_all_selected && program.starts_with("-p ") { 2 } else { 0 };
    program.split(' ').skip(package)
}

#[cfg(test)]
mod tests {
    use super::{Failures, options};

    fn check(output: &str, expected: &[(&str, &[&str])]) {
        let mut found = Failures::default();
        output.lines().for_each(|line| found.read(line));
        let expected: Vec<_> = expected
            .iter()
            .map(|(program, tests)| {
                ((*program).to_owned(), tests.iter().map(|test| (*test).to_owned()).collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(found.programs, expected);
    }

    #[test]
    fn failed_tests_are_found_by_program() {
        let output = "running 2 tests\ntest a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\n    printed by the test\n\n\
                      failures:\n    a::b\n    c\n\ntest result: FAILED. 0 passed; 2 failed\n\n\
                      error: test failed, to rerun pass `-p keelson --test lists`\n\
                      failures:\n    d\n\ntest result: FAILED.\n\nerror: test failed, to rerun pass `-p keelson-meta --lib`\n\
                      error: 2 targets failed:\n    `-p keelson --test lists`\n    `-p keelson-meta --lib`\n";
        check(output, &[("-p keelson --test lists", &["a::b", "c"]), ("-p keelson-meta --lib", &["d"])]);
    }

    #[test]
    fn a_program_is_chosen_among_the_packages_that_are_selected() {
        let check = |are_all_selected, expected: &[&str]| {
            assert_eq!(options("-p keelson --test lists", are_all_selected).collect::<Vec<_>>(), expected);
        };
        check(true, &["--test", "lists"]);
        check(false, &["-p", "keelson", "--test", "lists"]);
    }

    #[test]
    fn programs_without_a_failure_list_are_not_rerun() {
        check(
            "running 1 test\n    printed\nerror: test failed, to rerun pass `-p keelson --test lists`\n",
            &[("-p keelson --test lists", &[])],
        );
        check("error: could not compile `keelson`\n    and more\n", &[]);
    }
}
