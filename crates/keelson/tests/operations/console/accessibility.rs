//! Checks every page with axe-core, for the rules of WCAG 2.2 that a program can check.
//!
//! The pages are checked in both themes, with open dialogs, and in a narrow window.

use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::objects::{edit, press_button};
use super::{ADMIN, Lab, with_pods};

/// The environment variable with the file of axe-core. Empty if it could not be fetched.
const VARIABLE: &str = "KEELSON_TEST_AXE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_has_an_accessibility_fault() {
    let file = std::env::var_os(VARIABLE).unwrap_or_else(|| {
        panic!("{VARIABLE} is not set: run the tests with `cargo xtask test`, which finds or fetches it")
    });
    if file.is_empty() {
        eprintln!("NOT RUN: {VARIABLE} says that this machine has no axe-core");
        return;
    }
    let axe = std::fs::read_to_string(file).unwrap();
    let Some(lab) = Lab::start(TestServer::builder().shared_store(with_pods(60).await)).await else { return };
    lab.open("").await;
    lab.browser.until("document.querySelector('#token') !== null").await;
    check(&lab, &axe, "the login").await;
    lab.log_in(ADMIN).await;
    for theme in ["light", "dark"] {
        lab.browser.value(&format!("localStorage.setItem('keelson.theme', '{theme}')")).await;
        for (path, ready) in [
            ("", ".tile"),
            ("r/core/v1/pods?f=.status.phase+%3D%3D+%27Running%27&sort=-.spec.nodeName", ".facet li"),
            ("r/core/v1/pods/default/pod-00001", ".yaml .line"),
            ("r/core/v1/pods/default/pod-00001?tab=edit", ".editor .code-editor"),
            ("r/core/v1/pods/default/pod-00001?tab=owners", ".tab p"),
            ("r/core/v1/pods/default/pod-00001?tab=related", ".related h2"),
            ("r/core/v1/pods/default/pod-00001?tab=logs", ".logs .problem"),
            ("r/core/v1/pods/default/pod-00001?tab=shell", ".shell-page"),
            ("r/core/v1/pods/default/pod-00001?tab=port", ".port-page"),
            ("r/core/v1/pods/default/pod-00001?tab=events", ".tab p"),
            ("r/core/v1/pods/default/pod-00001?tab=history", ".tab .muted"),
            ("r/core/v1/pods?group=.spec.nodeName", "tr.group"),
            ("r/rbac.authorization.k8s.io/v1/clusterroles/-/edit", ".inner"),
            ("apply", ".code-editor[data-loaded=true]"),
            ("keys", ".keys-page"),
            ("views", ".views-page"),
            ("storage", "tbody tr"),
            ("server", ".gauge"),
            ("r/core/v1/nothings", ".problem"),
        ] {
            lab.open(path).await;
            lab.browser.until(&format!("document.querySelector('{ready}') !== null")).await;
            check(&lab, &axe, &format!("{path} in {theme}")).await;
        }
    }
    for key in ["?", ":"] {
        lab.open_list("r/core/v1/pods").await;
        lab.browser.press(key).await;
        lab.browser.until("document.querySelector('dialog[open]') !== null").await;
        check(&lab, &axe, &format!("the dialog of {key}")).await;
    }
    lab.open("r/core/v1/pods/default/pod-00001?tab=edit").await;
    edit(&lab, "image: image:v1", "image: image:v9").await;
    lab.browser.click("#tab-events").await;
    lab.shows("Leave without saving?").await;
    check(&lab, &axe, "the question before leaving").await;
    press_button(&lab, "Leave, and keep the draft").await;
    for theme in ["light", "dark"] {
        lab.browser.value(&format!("localStorage.setItem('keelson.theme', '{theme}')")).await;
        on_a_phone(&lab, &axe).await;
    }
    lab.ends_without_complaints(&[
        "a status of 404",
        "a status of 400",
        "a status of 500",
        "a status of 503",
        "beforeunload",
    ])
    .await;
}

/// Checks pages on a phone: nothing is beyond its edge, and what is touched has 44 pixels.
async fn on_a_phone(lab: &Lab, axe: &str) {
    lab.browser.page_size(390, 844).await;
    for (path, ready) in [
        ("", ".tile"),
        ("r/core/v1/pods", "tbody tr"),
        ("r/core/v1/pods/default/pod-00001", ".yaml .line"),
        ("r/core/v1/pods/default/pod-00001?tab=edit", ".editor .code-editor"),
        ("r/core/v1/pods/default/pod-00001?tab=port", ".port-page"),
        ("r/core/v1/pods/default/pod-00001?tab=related", ".related h2"),
        ("r/core/v1/pods/default/pod-00001?tab=owners", ".tab p"),
        ("apply", ".code-editor[data-loaded=true]"),
        ("keys", ".keys-page"),
        ("views", ".views-page"),
        ("storage", "tbody tr"),
        ("server", ".gauge"),
    ] {
        lab.open(path).await;
        lab.browser.until(&format!("document.querySelector('{ready}') !== null")).await;
        check(lab, axe, &format!("{path} on a phone")).await;
        // Only tables scroll sideways, each in its own frame.
        assert_eq!(lab.browser.value("document.documentElement.scrollWidth <= innerWidth").await, true, "{path}");
    }
    lab.open_list("r/core/v1/pods").await;
    let cells = "[...document.querySelectorAll('tbody tr:first-child > *')].every(one => one.getBoundingClientRect().right <= 390)";
    assert_eq!(lab.browser.value(cells).await, true);
    let small = "[...document.querySelectorAll('.top button, .top a, .heading button, .table tbody a, .mark-label, .pager button')]\
                 .filter(one => one.offsetParent !== null).map(one => [one.className, one.getBoundingClientRect().height])\
                 .filter(([, height]) => height < 44 && height > 0)";
    assert_eq!(lab.browser.value(small).await, json!([]));
    lab.browser.click(".filters-button").await;
    lab.browser.until("document.querySelector('.filters input').offsetParent !== null").await;
    check(lab, axe, "the filters on a phone").await;
    lab.browser.click(".menu").await;
    lab.browser.until("document.querySelector('.sidebar a').offsetParent !== null").await;
    check(lab, axe, "the menu on a phone").await;
}

/// Checks the current page for faults.
async fn check(lab: &Lab, axe: &str, what: &str) {
    // During a transition the colours belong to neither theme.
    lab.browser.until("document.getAnimations().length === 0").await;
    let run = "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(one => \
               [one.id, one.help, one.nodes.slice(0, 3).map(node => node.html + ' ' + node.failureSummary)]))";
    let found = lab.browser.value(&format!("(() => {{ if (!window.axe) {{ {axe} }} return {run}; }})()")).await;
    assert_eq!(found, Value::Array(Vec::new()), "{what}: {}", json!(found));
}
