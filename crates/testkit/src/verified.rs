//! Runs `keelson verify` against a server.
//!
//! The program comes from the test, since only tests of the command line know where it was built.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

/// Runs `keelson verify` with these arguments. Returns its exit code and its output.
pub async fn verify(keelson: &str, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(keelson);
    command.env_remove("KUBECONFIG").kill_on_drop(true).arg("verify").args(args);
    let output = command.stdin(Stdio::null()).output().await.expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is text");
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

/// Checks that a server keeps every rule, and that no rule of the generated workload was skipped.
///
/// # Panics
/// If a rule is broken.
pub async fn check_verified(keelson: &str, kubeconfig: &Path) {
    let kubeconfig = kubeconfig.to_str().expect("the path is text");
    let (code, text) = verify(keelson, &["--kubeconfig", kubeconfig, "--rate", "2000", "--at-once", "16"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("BROKEN") && text.contains("kept       workload.linearizable"), "{text}");
}
