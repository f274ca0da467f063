//! Tests of missing keys in a used directory: the error names them, and only an accepted loss recreates them.
//!
//! A refused start writes nothing. With a new key, everything that the lost key signed stays valid.

use super::*;

fn remove(home: &Home, names: &[&str]) {
    names.iter().for_each(|name| fs::remove_file(home.path().join("pki").join(name)).unwrap());
}

fn refused(home: &Home) -> String {
    let before = files_of(home);
    let refused = home.ensure(&[]).unwrap_err();
    assert!(matches!(refused, PkiError::Lost { .. } | PkiError::KeyMissing { .. }), "{refused}");
    assert_eq!(files_of(home), before, "nothing is written");
    refused.to_string()
}

fn accepting(home: &Home) -> Pki {
    let options = PkiOptions { accept_loss: true, ..PkiOptions::default() };
    ensure(&home.path(), &options, &home.clock, &SystemRandom).unwrap()
}

#[test]
fn a_key_that_a_server_has_used_is_not_recreated() {
    for (missing, named) in [
        (&["sa.key"][..], "sa.key"),
        (&["sa.key", "sa.pub"], "sa.key"),
        (&["ca.key"], "ca.key"),
        (&["ca.crt"], "ca.crt"),
        (&["ca.crt", "ca.key"], "ca.crt"),
        (&["front-proxy-ca.key"], "front-proxy-ca.key"),
        (&["front-proxy-ca.crt", "front-proxy-ca.key"], "front-proxy-ca.crt"),
        // Only one file is left.
        (&["ca.crt", "ca.key", "sa.key", "sa.pub", "admin.key", "admin.crt", "apiserver.key"], "ca.crt"),
    ] {
        let home = Home::new();
        home.ensure(&[]).unwrap();
        remove(&home, missing);
        let text = refused(&home);
        assert!(text.contains(named) && text.contains("from a copy"), "{missing:?}: {text}");
    }
}

#[test]
fn a_kubeconfig_without_any_keys_is_a_loss() {
    let home = Home::new();
    home.ensure(&[]).unwrap();
    fs::remove_dir_all(home.path().join("pki")).unwrap();
    fs::write(home.path().join("kubeconfig"), "").unwrap();
    assert!(matches!(home.ensure(&[]), Err(PkiError::Lost { .. })));
    assert!(!home.path().join("pki").exists());
}

#[test]
fn accept_loss_keeps_the_signatures_of_lost_keys() {
    let home = Home::new();
    let first = home.ensure(&[]).unwrap();
    remove(&home, &["sa.key", "ca.key"]);
    let second = accepting(&home);
    assert_ne!(second.service_account.public_pem, first.service_account.public_pem);
    assert_eq!(second.service_account.also_verified_by, first.service_account.public_pem);
    let public = fs::read_to_string(home.path().join("pki/sa.pub")).unwrap();
    assert!(public.starts_with(&second.service_account.public_pem));
    assert!(public.ends_with(&first.service_account.public_pem));
    assert!(second.ca_pem.ends_with(&first.ca_pem) && second.ca_pem != first.ca_pem);
    assert_ne!(second.admin, first.admin, "the presented certificates are signed again");
    let third = home.ensure(&[]).unwrap();
    assert_eq!((&third.ca_pem, &third.admin), (&second.ca_pem, &second.admin), "an accepted loss stays accepted");
    remove(&home, &["front-proxy-ca.crt", "front-proxy-ca.key"]);
    assert_ne!(accepting(&home).front_proxy.own_ca_pem, first.front_proxy.own_ca_pem);
}

/// A first start that crashes loses nothing, since keys are written before everything that is created from them.
#[test]
fn a_first_start_that_was_cut_off_anywhere_is_begun_again() {
    let whole = Home::new();
    whole.ensure(&[]).unwrap();
    let order = [
        "ca.key",
        "ca.crt",
        "sa.key",
        "sa.pub",
        "front-proxy-ca.key",
        "front-proxy-ca.crt",
        "admin.key",
        "admin.crt",
        "apiserver.key",
        "apiserver.crt",
        "front-proxy-client.key",
        "front-proxy-client.crt",
    ];
    let made = prepare(&Home::new().path(), &PkiOptions::default(), &whole.clock, &SystemRandom).unwrap().1;
    assert_eq!(made.names_in_order(), order);
    for cut in 0..order.len() {
        let home = Home::new();
        fs::create_dir_all(home.path().join("pki")).unwrap();
        for name in &order[..cut] {
            fs::copy(whole.path().join("pki").join(name), home.path().join("pki").join(name)).unwrap();
        }
        let key = fs::read_to_string(home.path().join("pki/ca.key")).ok();
        home.ensure(&[]).unwrap_or_else(|error| panic!("cut before {}: {error}", order[cut]));
        let after = fs::read_to_string(home.path().join("pki/ca.key")).ok();
        assert!(key.is_none() || key == after, "a key is never written over");
    }
}

#[test]
fn missing_public_keys_are_derived_and_partial_sets_refused() {
    let home = Home::new();
    let first = home.ensure(&[]).unwrap();
    let file = home.path().join("pki/sa.pub");
    let changes: [fn(&Path); 2] = [|file| fs::remove_file(file).unwrap(), |file| fs::write(file, "").unwrap()];
    for change in changes {
        change(&file);
        assert_eq!(home.ensure(&[]).unwrap().service_account.private_pem, first.service_account.private_pem);
        assert_eq!(fs::read_to_string(&file).unwrap(), first.service_account.public_pem);
        // A running server keeps the keys that it loaded.
        change(&file);
        let both = SigningKey { also_verified_by: "others".to_owned(), ..first.service_account.clone() };
        let running = Pki { service_account: both, ..first.clone() };
        let read = running.read_again(Some(&home.path()), &PkiOptions::default()).unwrap();
        assert_eq!(read.service_account.also_verified_by, "others");
        fs::write(&file, &first.service_account.public_pem).unwrap();
    }
    for (name, content) in
        [("sa.pub", &first.service_account.public_pem), ("sa.key", &first.service_account.private_pem)]
    {
        let path = home.path().join("pki").join(name);
        // The last length ends inside the key, before its end line.
        for length in [1, content.len() / 2, content.len() - 30] {
            fs::write(&path, &content[..length]).unwrap();
            let refused = home.ensure(&[]).unwrap_err();
            assert!(refused.to_string().contains(&format!("{name} can't be used")), "{length}: {refused}");
        }
        fs::write(&path, content).unwrap();
    }
    home.ensure(&[]).unwrap();
}
