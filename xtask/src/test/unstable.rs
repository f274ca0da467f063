//! Failed tests, read from what `cargo test` prints, and run again by themselves.
//!
//! Hundreds of servers share a machine while all tests run. On a slow one a test may fail that waits for several of them, though there
//! is no fault in what it tests. Such a test is told from a broken one by running it alone: it has to pass every time, and is named in
//! the end, for it has to be mended as well. What fails in many tests, or without naming one, is a failure at once.

use std::process::Command;

use anyhow::Result;

use crate::run;

/// How often a failed test has to pass alone.
const PASSES: usize = 3;
/// How many tests of one run may be unstable.
const MOST: usize = 5;

/// The tests that failed in a run, as far as its output has been read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    /// By test program, as the options by which cargo finds it: its tests that failed.
    programs: Vec<(String, Vec<String>)>,
    /// The tests in the last list of a program; cargo names the program behind it.
    listed: Vec<String>,
    /// Whether the line before was of such a list.
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

    /// Runs them again, each program's alone and one test at a time, by commands that are `cargo test` with the packages selected, if all
    /// are. Whether all pass each time; where there are none, something else has failed.
    ///
    /// # Errors
    /// When cargo can't be run.
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

/// The options that choose a program: without its package where all are selected.
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
    fn a_program_that_ends_without_a_list_has_no_tests_to_run_again() {
        check(
            "running 1 test\n    printed\nerror: test failed, to rerun pass `-p keelson --test lists`\n",
            &[("-p keelson --test lists", &[])],
        );
        check("error: could not compile `keelson`\n    and more\n", &[]);
    }
}
