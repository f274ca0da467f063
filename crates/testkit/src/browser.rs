//! Controls a browser as a user does: opens pages, presses keys, clicks, and waits for content.
//!
//! The client uses WebDriver (W3C, 2018) without a library, since the tests need few commands. JavaScript expressions
//! read the page. Nothing sleeps for a fixed time: each wait has a condition, and a timeout that allows for slow
//! machines.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use keelson_teststores::ChromeDriver;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(120);
/// The interval between checks of a page.
const LOOK_EVERY: Duration = Duration::from_millis(40);
/// The key of an element in a response (WebDriver, section 11).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// The browser's arguments: no sandbox, since tests may run as root, and no network calls of its own.
const ARGUMENTS: [&str; 12] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--no-first-run",
    "--lang=en-US",
    "--hide-scrollbars",
];

/// Keys without a character (WebDriver, section 17.4.2).
const KEYS: [(&str, char); 6] = [
    ("Enter", '\u{e007}'),
    ("Escape", '\u{e00c}'),
    ("Tab", '\u{e004}'),
    ("ArrowDown", '\u{e015}'),
    ("ArrowUp", '\u{e013}'),
    ("Backspace", '\u{e003}'),
];

/// A headless browser with one window. Ends when dropped.
#[derive(Debug)]
pub struct Browser {
    driver: ChromeDriver,
    session: String,
}

impl Browser {
    /// Starts a browser. `None` if this machine has none.
    ///
    /// # Panics
    /// It does not start.
    pub async fn start() -> Option<Self> {
        let driver = ChromeDriver::start()?;
        let profile = format!("--user-data-dir={}", driver.directory().join("profile").display());
        let arguments: Vec<&str> = ARGUMENTS.into_iter().chain([profile.as_str()]).collect();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "acceptInsecureCerts": true,
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": driver.browser(), "args": arguments},
        }}});
        let mut browser = Self { driver, session: String::new() };
        let made = browser.ask(Method::POST, "/session", &wanted).await.unwrap_or_else(|error| panic!("{error}"));
        browser.session = made["sessionId"].as_str().expect("a session has an id").to_owned();
        let script_timeout = json!({"script": PATIENCE.as_millis(), "pageLoad": PATIENCE.as_millis()});
        browser.command("timeouts", &script_timeout).await;
        Some(browser)
    }

    /// Opens a page and waits until it is loaded.
    ///
    /// # Panics
    /// It can't be loaded.
    pub async fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url })).await;
    }

    /// Sets the size of the window.
    ///
    /// # Panics
    /// The browser refuses it.
    pub async fn resize(&self, width: u32, height: u32) {
        self.command("window/rect", &json!({"width": width, "height": height})).await;
    }

    /// Sets the size of the page, which may be smaller than a window can be.
    ///
    /// # Panics
    /// The browser refuses it.
    pub async fn page_size(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        let command = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics});
        self.command("goog/cdp/execute", &command).await;
    }

    /// The value of an expression in the page. Awaits promises.
    ///
    /// # Panics
    /// The expression throws.
    pub async fn value(&self, expression: &str) -> Value {
        self.try_value(expression).await.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until an expression is truthy: not null, false, 0 or empty. Returns its value.
    ///
    /// # Panics
    /// The wait times out; the text has the page's content.
    pub async fn until(&self, expression: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // A page in transition may throw.
            let last = match self.try_value(expression).await {
                Ok(value) if is_something(&value) => return value,
                Ok(value) => value.to_string(),
                Err(error) => error,
            };
            assert!(Instant::now() < deadline, "{expression} is still {last}\n{}", self.page_text().await);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the page shows a text.
    ///
    /// # Panics
    /// The wait times out.
    pub async fn shows(&self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text))).await;
    }

    /// Waits for the element of a selector, and clicks it with the mouse.
    ///
    /// # Panics
    /// When the element is missing or can't be clicked.
    pub async fn click(&self, selector: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let failure = match self.try_click(selector).await {
                Ok(()) => return,
                Err(failure) => failure,
            };
            assert!(Instant::now() < deadline, "{selector} can't be clicked: {failure}\n{}", self.page_text().await);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn try_click(&self, selector: &str) -> Result<(), String> {
        let found = json!({"using": "css selector", "value": selector});
        let element = self.try_command("element", &found).await?;
        let element = element[ELEMENT].as_str().ok_or("no element")?;
        self.try_command(&format!("element/{element}/click"), &json!({})).await.map(drop)
    }

    /// Types characters, or a named key, into the focused element.
    ///
    /// # Panics
    /// The browser refuses them.
    pub async fn press(&self, text: &str) {
        let named = KEYS.iter().find(|(name, _)| *name == text).map(|(_, key)| key.to_string());
        let keys = named.unwrap_or_else(|| text.to_owned());
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})])
            .collect();
        let actions = json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]});
        self.command("actions", &actions).await;
    }

    /// Waits for a field, and replaces its content as if typed.
    ///
    /// # Panics
    /// There is no such field.
    pub async fn fill(&self, selector: &str, text: &str) {
        let selector = json!(selector);
        self.until(&format!("document.querySelector({selector}) !== null")).await;
        self.value(&format!(
            "(document.querySelector({selector}).focus(), document.querySelector({selector}).select())"
        ))
        .await;
        if text.is_empty() {
            self.press("Backspace").await;
        } else {
            self.press(text).await;
        }
    }

    /// Opens another tab and turns to it. Returns the name of the tab before.
    ///
    /// # Panics
    /// The browser refuses it.
    pub async fn open_tab(&self) -> String {
        let path = format!("/session/{}/window", self.session);
        let before = self.ask(Method::GET, &path, &Value::Null).await.unwrap_or_else(|error| panic!("{error}"));
        let opened = self.command("window/new", &json!({"type": "tab"})).await;
        self.to_tab(opened["handle"].as_str().unwrap_or_default()).await;
        before.as_str().unwrap_or_default().to_owned()
    }

    /// Turns to another tab.
    ///
    /// # Panics
    /// There is no such tab.
    pub async fn to_tab(&self, name: &str) {
        self.command("window", &json!({ "handle": name })).await;
    }

    /// A screenshot of the window, as PNG.
    ///
    /// # Panics
    /// The browser returns none.
    pub async fn screenshot(&self) -> Vec<u8> {
        let path = format!("/session/{}/screenshot", self.session);
        let picture = self.ask(Method::GET, &path, &Value::Null).await.unwrap_or_else(|error| panic!("{error}"));
        STANDARD.decode(picture.as_str().unwrap_or_default()).expect("pictures are in base64")
    }

    /// Takes the browser's errors since the last call: exceptions of scripts, and violations of the page's policy.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.try_command("se/log", &json!({"type": "browser"})).await.unwrap_or_default();
        let severe = log.as_array().into_iter().flatten().filter(|entry| entry["level"] == "SEVERE");
        severe.filter_map(|entry| Some(entry["message"].as_str()?.to_owned())).collect()
    }

    /// The content of the page, for failure messages.
    async fn page_text(&self) -> String {
        let mut text = String::new();
        for expression in ["location.href", "document.body.innerText"] {
            let value = self.try_value(expression).await.unwrap_or_default();
            let _ = writeln!(text, "{}", value.as_str().unwrap_or_default());
        }
        self.complaints().await.into_iter().for_each(|complaint| text.push_str(&complaint));
        text
    }

    async fn try_value(&self, expression: &str) -> Result<Value, String> {
        let script = json!({"script": format!("return ({expression});"), "args": []});
        self.try_command("execute/sync", &script).await
    }

    async fn command(&self, name: &str, arguments: &Value) -> Value {
        self.try_command(name, arguments).await.unwrap_or_else(|error| panic!("{name} {arguments}: {error}"))
    }

    async fn try_command(&self, name: &str, arguments: &Value) -> Result<Value, String> {
        self.ask(Method::POST, &format!("/session/{}/{name}", self.session), arguments).await
    }

    /// Sends a command to the driver on a new connection.
    async fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value, String> {
        let asked = async {
            let stream = TcpStream::connect(("127.0.0.1", self.driver.port())).await?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            let driving = tokio::spawn(connection);
            let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
            let request = Request::builder().method(method).uri(path).header("host", "localhost");
            let request = request.header("content-type", "application/json").body(Full::new(body))?;
            let answer = sender.send_request(request).await?;
            let is_good = answer.status().is_success();
            let bytes = answer.into_body().collect().await?.to_bytes();
            driving.abort();
            anyhow::Ok((is_good, serde_json::from_slice::<Value>(&bytes)?))
        };
        let answered =
            tokio::time::timeout(2 * PATIENCE, asked).await.map_err(|_| "the driver is silent".to_owned())?;
        match answered {
            Ok((true, mut answer)) => Ok(answer["value"].take()),
            Ok((false, answer)) => {
                Err(answer["value"]["message"].as_str().unwrap_or("a failure without a text").to_owned())
            }
            Err(error) => Err(format!("the driver does not answer: {error:#}")),
        }
    }
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}
