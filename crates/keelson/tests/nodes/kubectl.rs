//! Tests of kubectl with pods of a kubelet, over websockets and over SPDY.
//!
//! Commands run on the machine of the test, so `cp` finds `tar`.

use keelson_testkit::{Kubectl, KubectlStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::Lab;

impl Lab {
    fn kubectl(&self, words: &[&str]) -> Kubectl {
        self.server.kubectl([&["-n", "lab"], words].concat())
    }

    /// kubectl without websockets, like older releases.
    fn over_spdy(&self, words: &[&str]) -> Kubectl {
        let plain = self.kubectl(words).env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
        plain.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")
    }
}

async fn lab() -> Lab {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let status = serde_json::json!({"status": {"phase": "Running"}});
    lab.raw.patch(format!("{}/pods/p/status", super::NAMESPACE), super::MERGE, &status).await.expect(200);
    lab
}

#[tokio::test]
async fn logs_are_printed_and_followed() {
    let lab = lab().await;
    assert_eq!(lab.kubectl(&["logs", "p"]).await.ok(), "one\ntwo\nthree\n");
    assert_eq!(lab.kubectl(&["logs", "p", "--tail=1"]).await.ok(), "three\n");
    let mut followed = lab.kubectl(&["logs", "-f", "p"]).spawn().await;
    for expected in ["one", "two", "three", "line 4", "line 5"] {
        assert_eq!(followed.next_line().await.as_deref(), Some(expected));
    }
    followed.stop().await;
    lab.without_connections().await;
}

#[tokio::test]
async fn commands_run_over_both_protocols() {
    let lab = lab().await;
    assert_eq!(lab.kubectl(&["exec", "p", "--", "echo", "hello"]).await.ok(), "hello\n");
    let requests = lab.kubelet.requests();
    assert_eq!(requests.len(), 1, "it was translated at the first request: {requests:?}");
    assert_eq!(lab.over_spdy(&["exec", "p", "--", "echo", "hello"]).await.ok(), "hello\n");
    let input = lab.kubectl(&["exec", "-i", "p", "--", "cat"]).stdin("some input").await.ok();
    assert_eq!(input, "some input");
    let input = lab.over_spdy(&["exec", "-i", "p", "--", "cat"]).stdin("other input").await.ok();
    assert_eq!(input, "other input");
    let failed = lab.kubectl(&["exec", "p", "--", "sh", "-c", "echo no >&2; exit 3"]).await;
    assert_eq!(failed.status.code(), Some(3), "{}", failed.stderr);
    assert_eq!(failed.stderr, "no\ncommand terminated with exit code 3\n");
    let failed = lab.over_spdy(&["exec", "p", "--", "sh", "-c", "exit 4"]).await;
    assert_eq!(failed.status.code(), Some(4), "{}", failed.stderr);
    let unknown = lab.kubectl(&["exec", "p", "--", "no-such-program"]).await.refused();
    assert!(unknown.contains("starting container process caused"), "{unknown}");
}

#[tokio::test]
async fn files_are_copied_both_ways() {
    let lab = lab().await;
    let directory = tempfile::TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let content: Vec<u8> = (0..700_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(at("here"), &content).unwrap();
    lab.kubectl(&["cp", &at("here"), &format!("p:{}", at("there"))]).await.ok();
    assert!(std::fs::read(at("there")).unwrap() == content, "the copy differs");
    lab.kubectl(&["cp", &format!("p:{}", at("there")), &at("back")]).await.ok();
    assert!(std::fs::read(at("back")).unwrap() == content, "the copy differs");
}

#[tokio::test]
async fn streams_are_attached_to() {
    let lab = lab().await;
    let attached = lab.kubectl(&["attach", "-i", "p"]).stdin("typed").await.ok();
    assert!(attached.contains("attached\n") && attached.ends_with("typed"), "{attached}");
}

/// Starts a server that echoes its input. Returns its port.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

/// The local port in kubectl's output.
async fn local_port(forwarding: &mut KubectlStream) -> u16 {
    let line = forwarding.next_line().await.expect("a line");
    let local = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
    local.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[tokio::test]
async fn ports_are_forwarded_over_both_protocols() {
    let lab = lab().await;
    let port = echo().await;
    let words = ["port-forward", "--address=127.0.0.1", "pod/p", &format!(":{port}")];
    for forwarding in [lab.kubectl(&words), lab.over_spdy(&words)] {
        let mut forwarding = forwarding.spawn().await;
        let local = local_port(&mut forwarding).await;
        for text in ["hello", "again"] {
            let mut stream = TcpStream::connect(("127.0.0.1", local)).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            let mut heard = vec![0; text.len()];
            tokio::time::timeout(super::PATIENCE, stream.read_exact(&mut heard)).await.unwrap().unwrap();
            assert_eq!(heard, text.as_bytes());
        }
        forwarding.stop().await;
    }
    lab.without_connections().await;
}

/// Runs kubectl in a pseudo-terminal of this size, by the program `script`. Returns its output.
async fn in_terminal(lab: &Lab, size: (u16, u16), spdy: bool) -> Option<String> {
    let kubectl = std::env::var("KEELSON_TEST_KUBECTL").expect("the path of kubectl");
    let line = format!(
        "stty cols {} rows {}; exec {kubectl} --kubeconfig {} -n lab exec -it p -- size",
        size.0,
        size.1,
        lab.server.kubeconfig().display(),
    );
    let home = tempfile::TempDir::new().unwrap();
    let mut script = tokio::process::Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("HOME", home.path()).env("TERM", "xterm").kill_on_drop(true);
    if spdy {
        script.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
    }
    script.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    // A machine without the program has no pseudo-terminal for this test.
    let mut running = script.spawn().ok()?;
    let _stdin = running.stdin.take();
    let done = tokio::time::timeout(super::PATIENCE, running.wait_with_output()).await.expect("kubectl ends");
    Some(String::from_utf8(done.unwrap().stdout).unwrap())
}

#[tokio::test]
async fn a_terminal_has_its_size_in_the_pod() {
    let lab = lab().await;
    for (size, spdy) in [((91, 37), false), ((133, 44), true)] {
        let Some(text) = in_terminal(&lab, size, spdy).await else { return };
        assert!(text.contains(&format!("{}x{}", size.0, size.1)), "{text}");
    }
    let targets = lab.kubelet.requests().into_iter().map(|request| request.target);
    assert!(targets.into_iter().all(|target| target.contains("tty=") && target.contains("command=size")));
}
