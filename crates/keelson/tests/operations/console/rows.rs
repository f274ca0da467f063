//! Tests of how pages look and read: heads, editors, menus, tables and sliders.
//!
//! They check the styles and positions that the browser computes.

use keelson_testkit::TestServer;
use serde_json::json;

use super::objects::{edit, press_button};
use super::{ADMIN, Lab, with_pods};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_say_where_one_is_and_menus_are_narrowed() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    lab.open("").await;
    // The login says which cluster it is, and how to get a token, without a line that is cut.
    lab.browser.until("document.querySelector('#token') !== null").await;
    lab.browser.until("document.querySelector('h1').innerText.includes(location.host)").await;
    lab.browser.until("document.querySelector('details').open").await;
    let cut = "[...document.querySelectorAll('pre')].filter(one => one.scrollWidth > one.clientWidth + 1).length";
    assert_eq!(lab.browser.value(cut).await, 0);

    lab.log_in(ADMIN).await;
    lab.browser.until("document.querySelector('.brand').innerText.includes(location.host)").await;
    let kinds = "[...document.querySelectorAll('.sidebar details a')].filter(one => one.offsetParent !== null)";
    lab.browser.until(&format!("{kinds}.some(one => one.innerText === 'Deployments')")).await;
    lab.browser.fill(".sidebar input[type=search]", "hpa").await;
    lab.browser.until(&format!("{kinds}.map(one => one.textContent).join() === 'HorizontalPodAutoscalers'")).await;
    lab.browser.fill(".sidebar input[type=search]", "").await;
    // A favourite is in the menu.
    lab.open_list("r/core/v1/namespaces").await;
    lab.browser.click(".list .actions [aria-haspopup=menu]").await;
    let item = "[...document.querySelectorAll('[role=menuitem]')].find(one => one.innerText === 'Add to favourites')";
    lab.browser.until(&format!("{item} !== undefined")).await;
    lab.browser.value(&format!("{item}.click()")).await;
    lab.browser.until("document.querySelector('.sidebar details summary').innerText.includes('Favourites')").await;
    // Nothing of the page is left for the next user.
    lab.press_log_out().await;
    lab.browser.until("document.querySelector('#token') !== null").await;
    assert_eq!(lab.browser.value("[document.title, location.pathname]").await, json!(["keelson", "/console/"]));
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wide_tables_keep_their_names_in_sight_and_states_have_colours() {
    let Some(lab) = Lab::start(TestServer::builder().shared_store(with_pods(30).await)).await else { return };
    let raw = lab.raw();
    let columns: Vec<_> = (0..40)
        .map(|number| json!({"name": format!("Column {number}"), "type": "string", "jsonPath": ".spec.text"}))
        .collect();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": columns});
    let names = json!({"plural": "wides", "singular": "wide", "kind": "Wide", "listKind": "WideList"});
    let spec = json!({"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]});
    raw.post(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &json!({"metadata": {"name": "wides.example.org"}, "spec": spec}),
    )
    .await
    .expect(201);
    let wide = json!({"apiVersion": "example.org/v1", "kind": "Wide", "metadata": {"name": "one"}, "spec": {"text": "some words"}});
    raw.post("/apis/example.org/v1/namespaces/default/wides", &wide).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open_list("r/example.org/v1/wides?ns=default").await;
    lab.browser
        .until("document.querySelector('.table').scrollWidth > document.querySelector('.table').clientWidth")
        .await;
    lab.browser.value("document.querySelector('.table').scrollTo(2000, 0)").await;
    let link = "document.querySelector('tr[data-name=one] .name-column a').getBoundingClientRect()";
    let table = "document.querySelector('.table').getBoundingClientRect()";
    assert_eq!(
        lab.browser.value(&format!("{link}.left >= {table}.left && {link}.left < {table}.left + 200")).await,
        true
    );

    // A state has a colour and a sign, and another one has others.
    lab.open_list("r/core/v1/pods?ns=default&sort=.status.phase").await;
    let look = |word: &str| {
        format!(
            "(one => one === undefined ? null : [getComputedStyle(one).color, one.className])([...document.querySelectorAll('.status')].find(one => one.innerText.includes('{word}')))"
        )
    };
    let (pending, running) = (lab.browser.until(&look("Pending")).await, lab.browser.until(&look("Running")).await);
    assert!(pending[0] != running[0] && pending[1] != running[1], "{pending} {running}");
    lab.ends_without_complaints(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn editors_begin_at_the_top_and_conflicts_can_be_read() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    let data: serde_json::Map<_, _> = (0..200).map(|number| (format!("key-{number:03}"), json!("value"))).collect();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "long"}, "data": data});
    raw.post(MAPS, &map).await.expect(201);
    lab.log_in(ADMIN).await;
    lab.open("r/core/v1/configmaps/default/long?tab=edit").await;
    let editor = "document.querySelector('.code-editor')";
    lab.browser.until(&format!("{editor}?.dataset.loaded === 'true'")).await;
    let inside = format!("{editor}.shadowRoot");
    lab.browser.until(&format!("{inside}.querySelector('.cm-lineNumbers')?.innerText.includes('1')")).await;
    lab.browser.until(&format!("{inside}.querySelector('.cm-scroller').scrollTop === 0")).await;
    lab.browser.until(&format!("{inside}.querySelector('.cm-line')?.innerText.startsWith('kind')")).await;
    // Keys and values have different colours.
    let colours = format!(
        "new Set([...{inside}.querySelectorAll('.cm-line span')].map(one => getComputedStyle(one).color)).size"
    );
    lab.browser.until(&format!("{colours} > 1")).await;

    edit(&lab, "key-000: value", "key-000: mine").await;
    let other = json!({"data": {"key-000": "theirs"}});
    raw.patch(format!("{MAPS}/long?fieldManager=robot"), "application/merge-patch+json", &other).await.expect(200);
    press_button(&lab, "Save").await;
    let row = "document.querySelector('.conflicts tbody tr')";
    lab.browser.until(&format!("{row}?.innerText.includes('theirs') && {row}.innerText.includes('mine')")).await;
    // No head is broken within a word, and no cell is a column of single letters.
    let narrow = "[...document.querySelectorAll('.conflicts th, .conflicts td')].filter(one => one.getBoundingClientRect().width < 70).map(one => one.innerText)";
    assert_eq!(lab.browser.value(narrow).await, json!([]));
    lab.ends_without_complaints(&["a status of 409"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_has_times_and_a_line_of_counts() {
    let Some(lab) = Lab::start(TestServer::builder()).await else { return };
    let raw = lab.raw();
    for number in 0..20 {
        raw.post(MAPS, &json!({"metadata": {"name": format!("map-{number}")}})).await.expect(201);
    }
    lab.log_in(ADMIN).await;
    // The server has seconds of history only after some.
    lab.browser.until("performance.now() > 12500").await;
    lab.open_list("r/core/v1/configmaps?ns=default").await;
    lab.browser.press("t").await;
    lab.browser.until("document.querySelector('.moment time')?.innerText.includes('20')").await;
    lab.browser.until("Number(document.querySelector('.sparkline')?.dataset.points) > 3").await;
    let text = lab.browser.until("document.querySelector('.sparkline svg')?.getAttribute('aria-label')").await;
    assert!(text.as_str().unwrap().contains(" now, between "), "{text}");
    // Revisions have times too, in the storage page no text is repeated in each row.
    lab.open("storage").await;
    lab.browser.until("document.querySelectorAll('.storage tbody tr').length > 20").await;
    let cells = "[...document.querySelectorAll('.storage tbody td')].map(one => one.innerText.trim()).filter(one => one.length > 24 && one.includes(' '))";
    let repeated = format!("(all => all.length - new Set(all).size)({cells})");
    let repeats = lab.browser.value(&repeated).await;
    assert!(repeats.as_u64().unwrap() < 10, "{repeats}: {}", lab.browser.value(&format!("{cells}.join()")).await);
    lab.ends_without_complaints(&["a status of 410", "a status of 404", "a status of 400"]).await;
}
