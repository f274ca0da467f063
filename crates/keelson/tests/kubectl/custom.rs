//! Tests of one custom resource: it is defined and created from one file, explained, shown, watched, changed and
//! deleted.
//!
//! The tests follow a user of kubectl. `custom_resources` tests the rules of definitions.

use crate::Shell;

const FILE: &str = include_str!("manifests/gadgets.yaml");
/// The output for the definition and an object of the file.
const DEFINITION: &str = "customresourcedefinition.apiextensions.k8s.io/gadgets.shop.example.com";
const LAMP: &str = "gadget.shop.example.com/lamp";

/// Starts a server with the definition established and the object created. kubectl needs two steps on every server.
/// While it reads one file, it finds no kind for the object before the definition is served.
async fn shop() -> Shell {
    let shell = Shell::start().await;
    let first = shell.kubectl("apply -f -").stdin(FILE).await;
    assert_eq!(first.stdout, format!("{DEFINITION} created\n"));
    assert!(first.stderr.contains("ensure CRDs are installed first"), "{}", first.stderr);
    shell.is_established("gadgets.shop.example.com").await;
    let waited = shell.ok("wait --for condition=established --timeout=60s crd/gadgets.shop.example.com").await;
    assert_eq!(waited, format!("{DEFINITION} condition met\n"));
    let second = shell.feed("apply -f -", FILE).await;
    assert_eq!(second, format!("{DEFINITION} unchanged\n{LAMP} created\n"));
    shell
}

#[tokio::test]
async fn a_resource_is_explained_as_its_definition_describes_it() {
    let shell = shop().await;
    let lines = |text: String| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n");
    let told = lines(shell.ok("explain gadgets").await);
    for part in [
        "GROUP:      shop.example.com\nKIND:       Gadget\nVERSION:    v1\n",
        "DESCRIPTION:\n    Gadget is something that the shop sells.\n",
        "  metadata\t<ObjectMeta>\n    Standard object's metadata.",
        "  spec\t<Object> -required-\n    What the gadget shall be.\n",
    ] {
        assert!(told.contains(part), "{part:?} is not in\n{told}");
    }
    let below = lines(shell.ok("explain gd.spec --recursive").await);
    let fields = "FIELDS:\n  colour\t<string> -required-\n  enum: red, green, blue\n  parts\t<[]Object>\n    name\t<string> -required-\n    weight\t<Object>\n  replicas\t<integer>\n";
    assert!(format!("{below}\n").contains(fields), "{below}");
    let older = lines(shell.ok("explain gadgets.spec --api-version shop.example.com/v1beta1").await);
    assert!(older.contains("VERSION:    v1beta1\n") && older.contains("What the gadget was to be."), "{older}");
    let deeper = lines(shell.ok("explain gadgets.metadata.ownerReferences.uid").await);
    assert!(deeper.contains("FIELD: uid <string>"), "{deeper}");
    let v2 = lines(shell.ok("explain gadgets.spec.colour --output plaintext-openapiv2").await);
    assert!(v2.contains("FIELD:    colour <string>") && v2.contains("What it looks like."), "{v2}");
    let refused = shell.refused("explain gadgets.spec.weight").await;
    assert!(refused.contains("field \"weight\" does not exist"), "{refused}");
}

#[tokio::test]
async fn objects_are_shown_selected_and_followed() {
    let shell = shop().await;
    let other = "apiVersion: shop.example.com/v1\nkind: Gadget\nmetadata: { name: sofa, labels: { room: salon } }\nspec: { colour: green }\n";
    shell.feed("create -f -", other).await;
    shell
        .check(&[
            ("get gadgets", "NAME   COLOUR   REPLICAS\nlamp   red      1\nsofa   green    1\n"),
            ("get gd lamp -o wide", "NAME   COLOUR   REPLICAS   FIRST\nlamp   red      1          bulb\n"),
            ("get gadgets -l room=hall -o name", "gadget.shop.example.com/lamp\n"),
            ("get gadgets --field-selector spec.colour=green -o name", "gadget.shop.example.com/sofa\n"),
            ("get gadgets --field-selector spec.colour!=green -o name", "gadget.shop.example.com/lamp\n"),
            ("get gadget.v1.shop.example.com sofa -o jsonpath={.spec}", r#"{"colour":"green","replicas":1}"#),
            ("get gadgets --sort-by=.spec.colour -o custom-columns=C:.spec.colour", "C\ngreen\nred\n"),
        ])
        .await;
    assert!(shell.ok("get all").await.contains("gadget.shop.example.com/lamp"), "it is in the category");
    let older = shell.kubectl("get gadgets.v1beta1.shop.example.com -o name").await;
    let warning = "Warning: shop.example.com/v1beta1 Gadget is deprecated; use shop.example.com/v1 Gadget\n";
    assert_eq!(older.stderr, warning);

    let mut watch = shell.follow("get gadgets --field-selector spec.colour=red -w --output-watch-events").await;
    let mut line = async || watch.next_line().await.unwrap().split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    assert_eq!(line().await, "EVENT NAME COLOUR REPLICAS");
    assert_eq!(line().await, "ADDED lamp red 1");
    shell.ok("scale gadget lamp --replicas=4").await;
    assert_eq!(line().await, "MODIFIED lamp red 4");
    shell.ok(r#"patch gadget sofa --type merge -p {"spec":{"colour":"red"}}"#).await;
    assert_eq!(line().await, "ADDED sofa red 1");
    shell.ok("delete gadget lamp").await;
    assert_eq!(line().await, "DELETED lamp red 4");
    watch.stop().await;
}

#[tokio::test]
async fn objects_are_changed_in_every_way_and_validated_before() {
    let shell = shop().await;
    shell
        .check(&[
            ("scale gadget lamp --replicas=3", "gadget.shop.example.com/lamp scaled\n"),
            ("get gadget lamp -o jsonpath={.spec.replicas}", "3"),
            (r#"patch gd lamp --type merge -p {"spec":{"colour":"blue"}}"#, "gadget.shop.example.com/lamp patched\n"),
            (
                r#"patch gd lamp --type json -p [{"op":"replace","path":"/spec/parts/0/weight","value":7}]"#,
                "gadget.shop.example.com/lamp patched\n",
            ),
            (
                r#"patch gd lamp --subresource status --type merge -p {"status":{"replicas":2}}"#,
                "gadget.shop.example.com/lamp patched\n",
            ),
            (
                "get gadget lamp -o jsonpath={.spec.colour},{.spec.parts[0].weight},{.status.replicas},{.metadata.generation}",
                "blue,7,2,4",
            ),
            ("label gadget lamp season=spring", "gadget.shop.example.com/lamp labeled\n"),
        ])
        .await;
    let strategic = shell.refused(r#"patch gadget lamp -p {"spec":{"colour":"red"}}"#).await;
    assert!(strategic.contains("application/strategic-merge-patch+json is not supported by"), "{strategic}");

    let wrong = FILE.replace("weight: 20%", "wieght: 20%");
    let refused = shell.kubectl("apply -f -").stdin(wrong.clone()).await.refused();
    assert!(refused.contains("unknown field \"spec.parts[0].wieght\""), "{refused}");
    let warned = shell.kubectl("apply --validate=warn --dry-run=server -f -").stdin(wrong).await;
    assert!(warned.stderr.contains("Warning: unknown field \"spec.parts[0].wieght\""), "{}", warned.stderr);
    let refused = shell.kubectl("apply -f -").stdin(FILE.replace("colour: red", "colour: pink")).await.refused();
    assert!(refused.contains(r#"spec.colour: Unsupported value: "pink""#), "{refused}");

    let changed = FILE.replace("colour: red", "colour: green");
    let difference = shell.kubectl("diff -f -").stdin(changed.clone()).await;
    assert_eq!(difference.status.code(), Some(1), "{}", difference.stderr);
    assert!(difference.stdout.contains("\n-  colour: blue\n+  colour: green\n"), "{}", difference.stdout);
    let made = "apiVersion: shop.example.com/v1\nkind: Gadget\nmetadata: { name: new }\nspec: { colour: red }\n";
    let rehearsed = shell.feed("create --dry-run=server -o jsonpath={.spec.replicas} -f -", made).await;
    assert_eq!(rehearsed, "1", "what the schema fills in is shown");
    assert!(shell.refused("get gadget new").await.contains("not found"));

    let conflict =
        shell.kubectl("apply --server-side --field-manager other -f -").stdin(changed.clone()).await.refused();
    assert!(conflict.contains(".spec.colour"), "{conflict}");
    let forced = shell.feed("apply --server-side --field-manager other --force-conflicts -f -", changed.clone()).await;
    assert!(forced.ends_with("gadget.shop.example.com/lamp serverside-applied\n"), "{forced}");
    let same = shell.kubectl("diff --server-side --field-manager other -f -").stdin(changed).await;
    assert_eq!(same.status.code(), Some(0), "{}{}", same.stdout, same.stderr);
    assert_eq!(shell.ok("get gadget lamp -o jsonpath={.spec.colour}").await, "green");
}

#[tokio::test]
async fn deleting_a_definition_deletes_its_objects() {
    let shell = shop().await;
    let deleted = shell.ok("delete crd gadgets.shop.example.com").await;
    assert_eq!(deleted, "customresourcedefinition.apiextensions.k8s.io \"gadgets.shop.example.com\" deleted\n");
    let gone = shell.refused("get gadgets").await;
    assert!(gone.contains("the server doesn't have a resource type \"gadgets\""), "{gone}");
    assert!(shell.refused("explain gadgets").await.contains("the server doesn't have a resource type \"gadgets\""));
    let again = shell.kubectl("apply -f -").stdin(FILE).await;
    assert_eq!(again.stdout, format!("{DEFINITION} created\n"));
    shell.is_established("gadgets.shop.example.com").await;
    assert_eq!(shell.kubectl("get gadgets").await.stderr, "No resources found in default namespace.\n");
}
