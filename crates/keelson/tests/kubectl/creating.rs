//! Tests of `kubectl create` and `kubectl run`, with files and with generators.
//!
//! Each object is read again, and must have the defaults of kube-apiserver.

use serde_json::{Value, json};

use crate::Shell;

#[tokio::test]
async fn kubectl_create_makes_the_requested_objects() {
    let shell = Shell::start().await;
    let session = [
        ("create namespace team", "namespace/team created\n"),
        ("create configmap settings --from-literal=colour=red -n team", "configmap/settings created\n"),
        ("create secret generic key --from-literal=word=open -n team", "secret/key created\n"),
        ("create deployment web --image=web:1 --replicas=2 -n team", "deployment.apps/web created\n"),
        ("create service clusterip web --tcp=80:8080 -n team", "service/web created\n"),
        ("create service nodeport out --tcp=80 -n team", "service/out created\n"),
        ("create job once --image=tool -n team -- run it", "job.batch/once created\n"),
        ("create cronjob often --image=tool --schedule='*/5 * * * *' -n team", "cronjob.batch/often created\n"),
        (
            "create role reader --verb=get,list --resource=pods -n team",
            "role.rbac.authorization.k8s.io/reader created\n",
        ),
        ("create serviceaccount robot -n team", "serviceaccount/robot created\n"),
        (
            "create rolebinding robots --role=reader --serviceaccount=team:robot -n team",
            "rolebinding.rbac.authorization.k8s.io/robots created\n",
        ),
        ("create clusterrole all --verb=* --resource=*", "clusterrole.rbac.authorization.k8s.io/all created\n"),
        (
            "create clusterrolebinding jane --clusterrole=all --user=jane",
            "clusterrolebinding.rbac.authorization.k8s.io/jane created\n",
        ),
        ("create quota few --hard=pods=3 -n team", "resourcequota/few created\n"),
        (
            "create poddisruptionbudget one --selector=app=web --min-available=1 -n team",
            "poddisruptionbudget.policy/one created\n",
        ),
        ("create priorityclass high --value=1000", "priorityclass.scheduling.k8s.io/high created\n"),
        ("create ingress front --rule=example.com/*=web:80 -n team", "ingress.networking.k8s.io/front created\n"),
        ("run shell --image=tool -n team --labels=app=shell", "pod/shell created\n"),
    ];
    shell.check(&session).await;
    let seen = [
        ("get configmap settings -o jsonpath={.data.colour} -n team", "red"),
        ("get secret key -o jsonpath='{.type} {.data.word}' -n team", "Opaque b3Blbg=="),
        (
            "get deployment web -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[0].image}' -n team",
            "2 web:1",
        ),
        ("get service web -o jsonpath='{.spec.ports[0].port} {.spec.ports[0].targetPort}' -n team", "80 8080"),
        ("get job once -o jsonpath={.spec.template.spec.containers[0].command} -n team", r#"["run","it"]"#),
        ("get cronjob often -o jsonpath={.spec.schedule} -n team", "*/5 * * * *"),
        ("get role reader -o jsonpath='{.rules[0].verbs} {.rules[0].resources}' -n team", r#"["get","list"] ["pods"]"#),
        ("get rolebinding robots -o jsonpath='{.roleRef.name} {.subjects[0].name}' -n team", "reader robot"),
        ("get clusterrolebinding jane -o jsonpath={.subjects[0].name}", "jane"),
        ("get quota few -o jsonpath={.spec.hard.pods} -n team", "3"),
        ("get pdb one -o jsonpath={.spec.minAvailable} -n team", "1"),
        ("get priorityclass high -o jsonpath={.value}", "1000"),
        ("get ingress front -o jsonpath={.spec.rules[0].host} -n team", "example.com"),
        ("get pod shell -o jsonpath='{.metadata.labels.app} {.spec.containers[0].image}' -n team", "shell tool"),
    ];
    shell.check(&seen).await;
}

#[tokio::test]
async fn further_kubectl_create_commands_make_their_objects() {
    let shell = Shell::start().await;
    let pki = shell.server.data_dir().join("pki");
    let tls = format!("create secret tls pair --cert={0}/admin.crt --key={0}/admin.key", pki.display());
    let registry =
        "create secret docker-registry registry --docker-server=r.example.com --docker-username=u --docker-password=p";
    let session = [
        (tls.as_str(), "secret/pair created\n"),
        (registry, "secret/registry created\n"),
        ("create service loadbalancer balanced --tcp=80:8080", "service/balanced created\n"),
        ("create service externalname mail --external-name=mail.example.com", "service/mail created\n"),
        ("create service clusterip bare --clusterip=None", "service/bare created\n"),
        ("create ingress all --class=lab --default-backend=web:http", "ingress.networking.k8s.io/all created\n"),
        (
            "create ingress safe --rule='shop.example.com/api*=web:80,tls=pair' --annotation=a=b",
            "ingress.networking.k8s.io/safe created\n",
        ),
        ("create quota best --hard=pods=3 --scopes=BestEffort", "resourcequota/best created\n"),
        (
            "create clusterrole probe --verb=get --non-resource-url=/livez",
            "clusterrole.rbac.authorization.k8s.io/probe created\n",
        ),
        ("create clusterrole sum --aggregation-rule=part=yes", "clusterrole.rbac.authorization.k8s.io/sum created\n"),
        ("create cronjob nightly --image=tool --schedule=@daily", "cronjob.batch/nightly created\n"),
        ("create job now --from=cronjob/nightly", "job.batch/now created\n"),
        ("create pdb most --selector=app=web --max-unavailable=50%", "poddisruptionbudget.policy/most created\n"),
        (
            "create priorityclass low --value=-5 --preemption-policy=Never --description=last",
            "priorityclass.scheduling.k8s.io/low created\n",
        ),
        ("run server --image=web --port=80 --expose --env=A=b", "service/server created\npod/server created\n"),
    ];
    shell.check(&session).await;
    let seen = [
        ("get secrets pair registry -o jsonpath={.items[*].type}", "kubernetes.io/tls kubernetes.io/dockerconfigjson"),
        ("get services balanced mail -o jsonpath={.items[*].spec.type}", "LoadBalancer ExternalName"),
        ("get service bare -o jsonpath={.spec.clusterIPs}", r#"["None"]"#),
        ("get ingress all -o jsonpath={.spec.defaultBackend.service.port.name}", "http"),
        (
            "get ingress safe -o jsonpath='{.spec.tls[0].secretName} {.spec.rules[0].http.paths[0].pathType}'",
            "pair Prefix",
        ),
        ("get job now -o jsonpath='{.metadata.ownerReferences[0].kind} {.spec.completions}'", "CronJob 1"),
        ("get pdb most -o jsonpath={.spec.maxUnavailable}", "50%"),
        ("get priorityclass low -o jsonpath='{.value} {.preemptionPolicy}'", "-5 Never"),
        ("get pod server -o jsonpath={.spec.containers[0].env}", r#"[{"name":"A","value":"b"}]"#),
    ];
    shell.check(&seen).await;
    let refused = [
        (
            "create cronjob odd --image=tool --schedule='* * * *'",
            "error: failed to create cronjob: CronJob.batch \"odd\" is invalid: spec.schedule: Invalid value: \"* * * *\": \
             expected exactly 5 fields, found 4: [* * * *]\n",
        ),
        (
            "create quota odd --hard=cpu=1 --scopes=BestEffort",
            "error: failed to create quota: ResourceQuota \"odd\" is invalid: spec.scopes: Invalid value: \
             [\"BestEffort\"]: unsupported scope applied to resource\n",
        ),
    ];
    for (line, said) in refused {
        assert_eq!(shell.refused(line).await, said, "kubectl {line}");
    }
}

#[tokio::test]
async fn manifests_come_as_yaml_documents_and_as_json_lists() {
    let shell = Shell::start().await;
    let yaml = "# two documents\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: quoted\ndata:\n  on: 'true'\n  text: |\n    \
                two\n    lines\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: typed}\nstringData: {word: open}\n";
    assert_eq!(shell.feed("create -f -", yaml).await, "configmap/quoted created\nsecret/typed created\n");
    assert_eq!(shell.ok("get configmap quoted -o jsonpath={.data.text}").await, "two\nlines\n");
    assert_eq!(shell.ok("get secret typed -o jsonpath={.data}{.stringData}").await, r#"{"word":"b3Blbg=="}"#);
    let item = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [item("one"), item("two")]});
    let created = shell.feed("create -f -", list.to_string()).await;
    assert_eq!(created, "configmap/one created\nconfigmap/two created\n");
    let documents = format!("{}\n{}\n", item("three"), item("four"));
    assert_eq!(shell.feed("create -f -", documents).await, "configmap/three created\nconfigmap/four created\n");
    let shown = shell.ok("get configmap quoted -o yaml").await;
    shell.ok("delete configmap quoted").await;
    // The output can be sent again if the revision is removed.
    let again: String =
        shown.lines().filter(|line| !line.contains("resourceVersion")).map(|l| format!("{l}\n")).collect();
    assert_eq!(shell.feed("create -f -", again).await, "configmap/quoted created\n");
}

#[tokio::test]
async fn a_generated_name_is_reported() {
    let shell = Shell::start().await;
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "run-"}}).to_string();
    let first = shell.feed("create -f - -o name", manifest.clone()).await;
    let second = shell.feed("create -f - -o name", manifest).await;
    assert!(first.starts_with("configmap/run-") && first.len() == "configmap/run-12345\n".len(), "{first}");
    assert_ne!(first, second);
    let names = shell.ok("get configmaps -o name").await;
    assert!(names.contains(&first) && names.contains(&second), "{names}");
}

#[tokio::test]
async fn a_dry_run_answers_and_keeps_nothing() {
    let shell = Shell::start().await;
    let line = "create configmap draft --from-literal=a=b --dry-run=server";
    assert_eq!(shell.ok(line).await, "configmap/draft created (server dry run)\n");
    let answer: Value = shell.json(&format!("{line} -o json")).await;
    assert!(answer["metadata"]["uid"].is_string(), "{answer}");
    assert_eq!(answer["metadata"].get("resourceVersion"), None);
    assert_eq!(shell.ok("get configmaps -o name").await, "");
}

#[tokio::test]
async fn a_raw_create_is_the_bare_request() {
    let shell = Shell::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let body = json!({"metadata": {"name": "bare"}}).to_string();
    let answer = shell.kubectl(&format!("create --raw {path} -f -")).stdin(body).await.json();
    assert_eq!(answer["metadata"]["namespace"], "default");
    assert_eq!(shell.json(&format!("get --raw {path}/bare")).await, answer);
    let status = shell.json(&format!("delete --raw {path}/bare")).await;
    assert_eq!(status["status"], "Success");
}
