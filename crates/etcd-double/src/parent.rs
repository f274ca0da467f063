//! The end of the program when its parent has ended, however that ended.
//!
//! The parent's process id is polled. A signal at the parent's death (`PR_SET_PDEATHSIG`) comes when the *thread* ends that started the
//! child. Go and test runners start children on threads that end early.

use std::os::unix::process::parent_id;
use std::path::Path;
use std::time::Duration;

/// The interval between reads of the parent's process ID.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The name prefix of the directories that envtest creates for its servers.
const ENVTEST_PREFIX: &str = "k8s_test_framework_";

/// Returns true for a directory of envtest. Its servers must end with the test process.
pub fn ends_with_parent(directory: &Path) -> bool {
    directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with(ENVTEST_PREFIX))
}

/// Starts a thread that ends the process as SIGTERM would once its parent is another one.
pub(crate) fn end_with_parent() {
    let parent = parent_id();
    std::thread::spawn(move || {
        while parent_id() == parent {
            std::thread::sleep(LOOK_EVERY);
        }
        super::log("info", "the parent process has ended; stopping");
        std::process::exit(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_envtest_tie_the_server_to_its_parent() {
        assert!(ends_with_parent(Path::new("/tmp/k8s_test_framework_123/")));
        assert!(!ends_with_parent(Path::new("/var/lib/etcd")) && !ends_with_parent(Path::new("/")));
    }
}
