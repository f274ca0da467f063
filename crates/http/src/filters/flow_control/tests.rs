//! Flow control as the filters use it: levels of requests, changes of the configuration, lending.
//!
//! Attacks by flow schemas are here, since they need thousands of them.

use http::{Method, Request as HttpRequest};
use keelson_access::user::{AUTHENTICATED, UNAUTHENTICATED};
use keelson_fairness::{CATCH_ALL, EXEMPT, PageRule, ResourceRule, Rule, Subject, defaults};
use keelson_registry::Estimate;

use super::*;

fn user(name: &str, groups: &[&str]) -> Arc<User> {
    let groups = groups.iter().map(ToString::to_string).collect();
    Arc::new(User { name: name.to_owned(), groups, ..User::default() })
}

/// The flow of a request, and its seats.
async fn acquire(
    control: &FlowControl,
    user: &Arc<User>,
    (method, target): (&str, &str),
    about: &Estimate,
) -> (Option<Arc<Flow>>, Result<Option<Seats>, u32>) {
    let parts = HttpRequest::builder().method(method).uri(target).body(()).unwrap().into_parts().0;
    let info = RequestInfo::parse(&parts.method, &parts.uri);
    let flow = control.classify(user, &info);
    let cost = request_cost(&info, &parts, about, RequestBodySize::default());
    let time = Duration::from_secs(60);
    let request = Request { user, holder: Holder::of_user(user), info: &info, parts: &parts, time };
    let seats = control.acquire(flow.as_ref(), request, cost.seats).await;
    (flow, seats)
}

async fn take(control: &FlowControl, user: &Arc<User>, request: (&str, &str)) -> Result<Option<Seats>, u32> {
    acquire(control, user, request, &Estimate::default()).await.1
}

fn level_name(control: &FlowControl, user: &Arc<User>, method: &Method, target: &str) -> Option<String> {
    let uri = target.parse().unwrap();
    control.classify(user, &RequestInfo::parse(method, &uri)).map(|flow| flow.level.name.clone())
}

#[test]
fn requests_have_the_levels_of_the_suggested_flow_schemas() {
    let control = FlowControl::new(FlowLimits::default());
    let check = |name: &str, groups: &[&str], target: &str, expect: Option<&str>| {
        let found = level_name(&control, &user(name, groups), &Method::GET, target);
        assert_eq!(found.as_deref(), expect, "{name} {target}");
    };
    let (pods, lease) = ("/api/v1/pods", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x");
    check("root", &["system:masters", AUTHENTICATED], pods, Some("exempt"));
    check("system:node:n", &["system:nodes", AUTHENTICATED], lease, Some("node-high"));
    check("system:node:n", &["system:nodes", AUTHENTICATED], pods, Some("system"));
    check("system:kube-scheduler", &[AUTHENTICATED], lease, Some("leader-election"));
    check("system:kube-scheduler", &[AUTHENTICATED], pods, Some("workload-high"));
    check("system:serviceaccount:a:b", &["system:serviceaccounts", AUTHENTICATED], pods, Some("workload-low"));
    check("ann", &[AUTHENTICATED], pods, Some("global-default"));
    check("ann", &[AUTHENTICATED], "/readyz", Some("exempt"));
    check("system:anonymous", &[UNAUTHENTICATED], pods, Some("global-default"));
    check("ann", &[AUTHENTICATED], "/api/v1/namespaces/a/pods/p/exec", None);
}

#[tokio::test]
async fn a_watch_holds_seats_for_its_initial_events() {
    let control = FlowControl::new(FlowLimits::default());
    let ann = user("ann", &[AUTHENTICATED]);
    let many = Estimate { bytes: 12 << 20, looked_at: 5_000, ..Estimate::default() };
    let watch = ("GET", "/api/v1/pods?watch=1&sendInitialEvents=true");
    let (flow, seats) = acquire(&control, &ann, watch, &many).await;
    let in_use = || flow.as_ref().unwrap().level.lock().queues.totals().seats_in_use;
    assert_eq!(in_use(), 5);
    drop(InitialSeats::new(LentSeats::new(seats.unwrap().unwrap())));
    assert_eq!(in_use(), 0);
}

/// Whatever objects are stored, administrators get seats, and all other requests have a flow.
#[tokio::test]
async fn no_configuration_locks_administrators_out() {
    let control = FlowControl::new(FlowLimits::default());
    let everyone = Rule {
        subjects: vec![Subject::Group("*".to_owned())],
        resources: Vec::new(),
        pages: vec![PageRule { verbs: vec!["*".to_owned()], paths: vec!["*".to_owned()] }],
    };
    let schema = |name: &str, level: &str| FlowSchema {
        name: name.to_owned(),
        uid: String::new(),
        level: level.to_owned(),
        precedence: 1,
        distinguisher: None,
        rules: vec![everyone.clone()],
    };
    let closed =
        PriorityLevel { name: "closed".into(), kind: LevelKind::Reject, shares: 0, ..suggested_level(CATCH_ALL) };
    let exempt = PriorityLevel { kind: LevelKind::Reject, shares: 0, ..suggested_level(EXEMPT) };
    control.configure(vec![schema("a", "closed"), schema("exempt", "closed")], vec![closed, exempt]);
    let (root, ann) = (user("root", &["system:masters"]), user("ann", &[AUTHENTICATED]));
    let mut held = Vec::new();
    for _ in 0..1_000 {
        held.push(take(&control, &root, ("GET", "/version")).await.unwrap());
    }
    assert_eq!(level_name(&control, &ann, &Method::GET, "/version").as_deref(), Some("closed"));
    assert_eq!(level_name(&control, &ann, &Method::GET, "/api/v1/pods").as_deref(), Some("catch-all"));
    control.configure(Vec::new(), Vec::new());
    assert_eq!(level_name(&control, &root, &Method::GET, "/version").as_deref(), Some("exempt"));
    assert_eq!(level_name(&control, &ann, &Method::GET, "/version").as_deref(), Some("catch-all"));
}

fn suggested_level(name: &str) -> PriorityLevel {
    defaults::priority_levels().into_iter().find(|level| level.name == name).unwrap()
}

#[tokio::test]
async fn a_deleted_level_stays_until_its_last_request_ends() {
    let control = FlowControl::new(FlowLimits::default());
    let ann = user("ann", &[AUTHENTICATED]);
    let held = take(&control, &ann, ("GET", "/version")).await.unwrap();
    let names = || control.levels().iter().map(|level| level.name.clone()).collect::<Vec<_>>();
    control.configure(Vec::new(), Vec::new());
    assert_eq!(names(), ["catch-all", "exempt", "global-default"]);
    control.adjust();
    assert_eq!(names(), ["catch-all", "exempt", "global-default"]);
    drop(held);
    control.adjust();
    assert_eq!(names(), ["catch-all", "exempt"]);
}

#[tokio::test]
async fn idle_levels_lend_their_seats_to_busy_ones() {
    let control = FlowControl::new(FlowLimits { requests: 40, mutating: 20, ..FlowLimits::default() });
    let ann = user("ann", &[AUTHENTICATED]);
    // Five seats are its own.
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(take(&control, &ann, ("GET", "/version")).await.unwrap());
    }
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let (control, ann) = (control.clone(), ann.clone());
            tokio::spawn(async move { take(&control, &ann, ("GET", "/version")).await.unwrap() })
        })
        .collect();
    let level = control.levels().into_iter().find(|level| level.name == "global-default").unwrap();
    while level.lock().queues.totals().waiting < 20 {
        tokio::task::yield_now().await;
    }
    // Each adjustment follows the demand of the time before it.
    while level.lock().queues.totals().waiting > 0 {
        control.adjust();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for waiting in waiting {
        held.push(waiting.await.unwrap());
    }
    drop(held);
    // The demand of a level falls slowly, but the level always keeps the seats that it does not lend.
    control.adjust();
    assert!(level.lock().queues.limits().seats.unwrap() >= 2);
}

#[tokio::test]
async fn without_fairness_two_numbers_bound_all_but_administrators() {
    let control = FlowControl::new(FlowLimits { is_fair: false, requests: 1, mutating: 1, ..FlowLimits::default() });
    let (ann, root) = (user("ann", &[AUTHENTICATED]), user("root", &["system:masters"]));
    assert!(level_name(&control, &ann, &Method::GET, "/version").is_none());
    let read = take(&control, &ann, ("GET", "/api/v1/pods")).await.unwrap();
    assert!(read.is_some());
    assert_eq!(take(&control, &ann, ("GET", "/healthz")).await.err(), Some(1));
    assert!(take(&control, &ann, ("GET", "/api/v1/pods?watch=1")).await.unwrap().is_none());
    assert!(take(&control, &root, ("GET", "/api/v1/pods")).await.unwrap().is_none());
    let written = take(&control, &ann, ("POST", "/api/v1/namespaces/a/pods")).await.unwrap();
    assert_eq!(take(&control, &ann, ("DELETE", "/api/v1/namespaces/a/pods/p")).await.err(), Some(1));
    drop((read, written));
    assert!(take(&control, &ann, ("GET", "/healthz")).await.is_ok());
}

/// A user with write access to flow schemas must not slow down the requests of others by creating many.
#[test]
fn ten_thousand_flow_schemas_are_compared_in_a_bounded_time() {
    let control = FlowControl::new(FlowLimits::default());
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let schema = |number: usize| FlowSchema {
        name: format!("{}-{number}", "a".repeat(240)),
        uid: String::new(),
        level: "global-default".to_owned(),
        precedence: 2,
        distinguisher: None,
        rules: vec![Rule {
            subjects: vec![Subject::Group(AUTHENTICATED.to_owned())],
            resources: vec![ResourceRule {
                verbs: texts(&["get"]),
                groups: texts(&[""]),
                resources: texts(&["pods"]),
                namespaces: vec![format!("n{number}")],
                cluster_scope: false,
            }],
            pages: Vec::new(),
        }],
    };
    let schemas: Vec<_> = (0..10_000).map(schema).chain(defaults::flow_schemas()).collect();
    control.configure(schemas, defaults::priority_levels());
    let (ann, root) = (user("ann", &[AUTHENTICATED]), user("root", &["system:masters", AUTHENTICATED]));
    let begun = std::time::Instant::now();
    for _ in 0..100 {
        // Flow schemas for another resource are not compared.
        assert_eq!(
            level_name(&control, &ann, &Method::GET, "/api/v1/namespaces/a/secrets/s").as_deref(),
            Some("global-default")
        );
        assert_eq!(level_name(&control, &root, &Method::GET, "/api/v1/namespaces/a/pods/p").as_deref(), Some("exempt"));
    }
    // All are compared: some hundred microseconds for each request, more without optimization.
    for _ in 0..10 {
        assert!(level_name(&control, &ann, &Method::GET, "/api/v1/namespaces/a/pods/p").is_some());
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}
