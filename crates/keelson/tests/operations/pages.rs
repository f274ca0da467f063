//! Runs the commands of the documentation: each `console` block of README, tutorials and how-tos, and compares its
//! output.
//!
//! A page has its own server, which replaces the page's `keelson serve`. Other blocks (`sh`, `text`) are not run, since
//! they need hosts, disks or databases. In the expected output an age matches any age, a line `...` any lines, and a
//! word that ends with `...` any word with this prefix.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use keelson_testkit::{ProcessServer, TestServer};
use tempfile::TempDir;
use tokio::process::Command;

/// The longest time for a command, and for the repetition of a read until its output is as expected.
const PATIENCE: Duration = Duration::from_secs(60);
const REPEAT_EVERY: Duration = Duration::from_millis(200);

/// A command with its output in the page.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    line: usize,
    command: String,
    output: Vec<String>,
}

/// The commands of the `console` blocks of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut console, mut fenced, mut here) = (false, false, None::<String>);
    for (index, line) in page.lines().enumerate() {
        if let Some(info) = line.strip_prefix("```") {
            fenced = !fenced;
            console = fenced && info == "console";
        } else if console {
            let continued = steps.last().is_some_and(|step| step.command.ends_with('\\') && step.output.is_empty());
            if let Some(end) = &here {
                let step = steps.last_mut().expect("a here-document follows a command");
                step.command += &format!("\n{line}");
                if line == end {
                    here = None;
                }
            } else if let Some(command) = line.strip_prefix("$ ") {
                here = command.contains("<<EOF").then(|| "EOF".to_owned());
                steps.push(Step { line: index + 1, command: command.to_owned(), output: Vec::new() });
            } else if let Some(step) = steps.last_mut() {
                match continued {
                    true => step.command += &format!("\n{line}"),
                    false => step.output.push(line.to_owned()),
                }
            }
        }
    }
    steps
}

/// Returns true if the output contains the lines in this order.
fn matches(expected: &[String], output: &str) -> bool {
    let mut lines = output.lines().filter(|line| !line.trim().is_empty());
    let mut expected = expected.iter().filter(|line| !line.trim().is_empty() && line.trim() != "...");
    expected.all(|expected| lines.any(|line| same(expected, line)))
}

fn same(expected: &str, line: &str) -> bool {
    let (mut expected, mut words) = (expected.split_whitespace(), line.split_whitespace());
    loop {
        match (expected.next(), words.next()) {
            (None, None) => return true,
            (Some(expected), Some(word)) => {
                // An abbreviated word ends the comparison.
                if let Some(start) = expected.strip_suffix("...") {
                    return word.starts_with(start);
                }
                if expected != word && !(age(expected) && age(word)) {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

/// An age as kubectl prints it: `12s`, `3m20s`.
fn age(word: &str) -> bool {
    word.ends_with(['s', 'm', 'h', 'd'])
        && word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
}

/// Returns true if the command only reads, so that it can be repeated until its output is as expected.
fn reads(command: &str) -> bool {
    let verbs = ["get", "auth", "keelson", "explain", "wait"];
    command.starts_with("kubectl ") && command.split(' ').any(|word| verbs.contains(&word))
}

struct Shell {
    server: ProcessServer,
    directory: TempDir,
    programs: TempDir,
    /// The port that replaces the port 8443 of the pages, which another program may use.
    port: String,
}

/// Ends the background programs of a page.
impl Drop for Shell {
    fn drop(&mut self) {
        let kill = "test ! -e background.pid || kill $(cat background.pid)";
        let _ = std::process::Command::new("bash").args(["-c", kill]).current_dir(self.directory.path()).status();
    }
}

impl Shell {
    async fn start() -> Self {
        let (directory, programs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let kubectl = std::env::var("KEELSON_TEST_KUBECTL").expect("`cargo xtask test` names a kubectl");
        let examples = std::env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().join("examples");
        let found = [
            ("kubectl", PathBuf::from(kubectl)),
            ("keelson", env!("CARGO_BIN_EXE_keelson").into()),
            ("kubectl-keelson", env!("CARGO_BIN_EXE_kubectl-keelson").into()),
            ("greetings", examples.join("greetings")),
            ("flunders", examples.join("flunders")),
        ];
        for (name, program) in found {
            std::os::unix::fs::symlink(program, programs.path().join(name)).unwrap();
        }
        // All controllers run, as for a user.
        let builder = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).env("KEELSON_CONTROLLERS", "*");
        let server = builder.data_dir(directory.path().join("keelson-data")).start().await;
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        Self { server, directory, programs, port }
    }

    async fn run(&self, command: &str) -> (bool, String) {
        let path = format!("{}:{}", self.programs.path().display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("bash");
        // A server in the background must not keep the streams open.
        let command = match command.strip_suffix('&') {
            Some(background) => format!("{background} >background.log 2>&1 & echo $! >>background.pid"),
            None => command.to_owned(),
        };
        let command = command.replace("8443", &self.port);
        shell.args(["-c", &command]).current_dir(self.directory.path()).stdin(Stdio::null()).kill_on_drop(true);
        shell.env("PATH", path).env("HOME", self.directory.path()).env("NO_COLOR", "1");
        shell.env("KUBECONFIG", self.server.data_dir().join("kubeconfig"));
        let output = tokio::time::timeout(PATIENCE, shell.output()).await.expect("the command ends").unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Runs the step. A step that only reads is repeated until its output is as expected.
    async fn follow(&self, page: &str, step: &Step) {
        let deadline = Instant::now() + PATIENCE;
        let fails = step.output.first().is_some_and(|line| line.to_lowercase().starts_with("error"));
        loop {
            let (done, output) = self.run(&step.command).await;
            if done != fails && matches(&step.output, &output) {
                return;
            }
            let repeat = reads(&step.command) && Instant::now() < deadline;
            assert!(
                repeat,
                "{page}:{}: $ {}\nprinted:\n{output}\nexpected:\n{}",
                step.line,
                step.command,
                step.output.join("\n")
            );
            tokio::time::sleep(REPEAT_EVERY).await;
        }
    }
}

async fn follow(page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let steps = steps(&std::fs::read_to_string(path).unwrap());
    let steps: Vec<Step> = steps.into_iter().filter(|step| !starts_a_server(&step.command)).collect();
    assert!(!steps.is_empty(), "{page} has no commands");
    let shell = Shell::start().await;
    for example in ["greetings", "flunders"] {
        let runs = steps.iter().any(|step| step.command.split_whitespace().any(|word| word == example));
        let built = shell.programs.path().join(example).exists();
        assert!(built || !runs, "{example} is not built: cargo build --workspace --examples");
    }
    for step in &steps {
        shell.follow(page, step).await;
    }
}

/// Returns true if the command starts the page's server, which the test replaces.
fn starts_a_server(command: &str) -> bool {
    !command.ends_with('&') && ["keelson serve", "export KUBECONFIG"].iter().any(|start| command.starts_with(start))
}

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            follow($page).await;
        })*
    };
}

pages! {
    the_readme_runs: "README.md",
    the_first_server_runs: "docs/tutorials/first-server.md",
    the_large_lists_run: "docs/tutorials/large-lists.md",
    the_first_custom_resource_runs: "docs/tutorials/first-custom-resource.md",
    the_first_controller_runs: "docs/tutorials/first-controller.md",
    the_console_tutorial_runs: "docs/tutorials/console.md",
    the_aggregated_server_runs: "docs/tutorials/aggregated-server.md",
    access_for_a_team_runs: "docs/how-to/team-access.md",
    a_backup_drill_runs: "docs/how-to/backup-and-restore.md",
    a_key_rotation_runs: "docs/how-to/key-rotation.md",
}

#[tokio::test]
async fn every_metric_of_the_server_is_in_the_reference() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let server = TestServer::start().await;
    let metrics = server.raw().get("/metrics").await.expect(200).text();
    let names = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let names: Vec<&str> = names.filter(|name| name.starts_with("keelson_")).collect();
    assert!(names.len() > 20, "{names:?}");
    let missing: Vec<&str> = names.into_iter().filter(|name| !page.contains(&format!("`{name}"))).collect();
    assert!(missing.is_empty(), "not in docs/reference/metrics.md: {missing:?}");
}

#[tokio::test]
async fn every_header_of_a_query_is_in_the_reference() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/headers.md");
    let page = std::fs::read_to_string(page).unwrap().to_lowercase();
    let server = TestServer::start().await;
    let query = "/api/v1/namespaces?limit=1&keelson.io/where=object.spec.missing%20%3D%3D%201";
    let answer = server.raw().get(query).await.expect(200);
    let names: Vec<_> = answer.headers.keys().filter(|name| name.as_str().starts_with("keelson-")).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.iter().all(|name| page.contains(&format!("`{name}`"))), "{names:?} in docs/reference/headers.md");
}

/// Operators decide on a rollback by these numbers.
#[test]
fn the_formats_of_the_stores_are_those_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/how-to/upgrade-and-rollback.md")).unwrap();
    for (store, file) in [("SQLite", "storage-sql/src/sqlite/schema.rs"), ("etcd", "storage-etcd/src/format.rs")] {
        let source = std::fs::read_to_string(root.join("crates").join(file)).unwrap();
        let (_, format) = source.split_once("const FORMAT: ").and_then(|(_, rest)| rest.split_once(" = ")).unwrap();
        let (format, _) = format.split_once(';').unwrap();
        assert!(page.contains(&format!("| {store} | {format} ")), "{store} has the format {format}");
    }
}

#[test]
fn commands_are_found_with_their_output() {
    let page = "```console\n$ a \\\n  b\nout\n$ c <<EOF\nx\nEOF\n```\n```sh\n$ no\n```\n";
    let found: Vec<_> = steps(page).into_iter().map(|step| (step.line, step.command, step.output)).collect();
    let expected = [(2, "a \\\n  b", vec!["out".to_owned()]), (5, "c <<EOF\nx\nEOF", Vec::new())];
    assert_eq!(found, expected.map(|(line, command, output)| (line, command.to_owned(), output)));
}

#[test]
fn output_matches_but_for_ages_and_dots() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("NAME AGE\na    1s\n..."), "NAME   AGE\na      2m3s\nb      1s\n"));
    assert!(matches(&lines("eyJ..."), "eyJhbGci.x\n"));
    assert!(!matches(&lines("a 1s"), "b 1s\n"));
    assert!(!matches(&lines("b\na"), "a\nb\n"));
}
