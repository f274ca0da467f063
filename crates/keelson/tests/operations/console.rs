//! Tests of the console in a browser. They use keys and clicks, and check the content of the page.
//!
//! Only one browser runs at a time. At its end each test checks the browser's log for errors, such as exceptions of
//! scripts and violations of the page's policy.

mod access;
mod accessibility;
mod changes;
mod drafts;
mod edits;
mod lists;
mod objects;
mod others;
mod pods;
mod rows;
mod tasks;
mod truth;
mod work;

use std::sync::Arc;

use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store as _, StoreKey, Transaction};
use keelson_testkit::{Browser, Raw, TestServer, TestServerBuilder};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

/// Held by a test while its browser runs, since browsers need much memory and time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Tokens of an administrator, and of a user whose rights a test grants to the group readers.
const TOKENS: &str = "admin-token,admin,1,system:masters\nreader-token,reader,2,readers\n";
const ADMIN: &str = "admin-token";

struct Lab {
    server: TestServer,
    browser: Browser,
    _only: MutexGuard<'static, ()>,
}

impl Lab {
    /// Starts a server and a browser. `None` if this machine has no browser.
    async fn start(builder: TestServerBuilder) -> Option<Self> {
        let only = ONE_AT_A_TIME.lock().await;
        let browser = Browser::start().await?;
        let tokens = builder.data_dir().join("tokens.csv");
        std::fs::write(&tokens, TOKENS).unwrap();
        let server = builder.configure(move |config| config.token_file = Some(tokens)).start().await;
        browser.resize(1300, 900).await;
        Some(Self { server, browser, _only: only })
    }

    fn raw(&self) -> Raw {
        self.server.raw()
    }

    /// Opens a page of the console as the current user.
    async fn open(&self, path: &str) {
        self.browser.open(&format!("{}/console/{path}", self.server.url())).await;
    }

    /// Logs in with a token.
    async fn log_in(&self, token: &str) {
        self.open("").await;
        self.browser.fill("#token", token).await;
        self.browser.press("Enter").await;
        self.browser.until("document.querySelector('.shell') !== null").await;
    }

    /// Opens a list and waits for its first row.
    async fn open_list(&self, path: &str) {
        self.open(path).await;
        self.browser.until("document.querySelector('tbody tr') !== null").await;
    }

    /// Waits until the page shows a text.
    async fn shows(&self, text: &str) {
        self.browser.shows(text).await;
    }

    /// Waits until the first rows of the list have these names.
    async fn rows(&self, names: &[&str]) {
        let shown = format!(
            "[...document.querySelectorAll('.table tbody tr[data-name]')].slice(0, {}).map(row => row.dataset.name)",
            names.len()
        );
        self.browser.until(&format!("JSON.stringify({shown}) === {}", json!(json!(names).to_string()))).await;
    }

    /// Waits until the bar below the list has this text.
    async fn pager(&self, text: &str) {
        self.browser.until(&format!("document.querySelector('.pager .of')?.innerText === {}", json!(text))).await;
    }

    /// Logs out by the menu of the user.
    async fn press_log_out(&self) {
        self.browser.click(".who [aria-haspopup=menu]").await;
        let item = "[...document.querySelectorAll('.who [role=menuitem]')].find(one => one.innerText === 'Log out')";
        self.browser.until(&format!("{item} !== undefined")).await;
        self.browser.value(&format!("{item}.click()")).await;
    }

    async fn location(&self) -> String {
        let place = self.browser.value("location.pathname + location.search").await;
        place.as_str().unwrap_or_default().to_owned()
    }

    /// Ends a test. The browser's log may contain only the expected errors, such as those of rejected requests.
    async fn ends_without_complaints(self, expected: &[&str]) {
        let complaints = self.browser.complaints().await;
        // A server without parameters of its own answers the request for them with 404.
        let is_expected =
            |text: &str| text.contains("/apis/keelson.io/") || expected.iter().any(|part| text.contains(part));
        let others: Vec<_> = complaints.iter().filter(|text| !is_expected(text)).collect();
        assert!(others.is_empty(), "{others:#?}");
    }
}

fn pod(number: usize) -> Value {
    let app = ["web", "cache", "store"][number % 3];
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": format!("pod-{number:05}"),
            "namespace": "default",
            "uid": format!("5cf4b8a1-0c86-4d3a-9a4f-{number:012}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": app, "number": number.to_string()},
        },
        "spec": {
            "nodeName": format!("node-{}", number % 7),
            "containers": [{"name": "main", "image": format!("image:v{}", number % 5)}],
        },
        "status": {"phase": if number.is_multiple_of(10) { "Pending" } else { "Running" }},
    })
}

/// A store with this number of pods, which would take long to create one by one.
async fn with_pods(count: usize) -> Arc<MemoryStore> {
    let store = MemoryStore::default();
    for number in 0..count {
        let key = StoreKey::new(format!("/registry/pods/default/pod-{number:05}"));
        let written = Transaction::default().put(key, pod(number).to_string());
        store.commit(written).await.unwrap();
    }
    Arc::new(store)
}
